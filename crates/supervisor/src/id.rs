//! The name of a child within its supervisor. Not a process-wide name: two trees may use the same ids.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Names a child within its supervisor (OTP: `child_id()`). Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildId(Arc<str>);

impl ChildId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ChildId {
    fn from(id: &str) -> ChildId {
        ChildId(id.into())
    }
}

impl From<String> for ChildId {
    fn from(id: String) -> ChildId {
        ChildId(id.into())
    }
}

impl From<&ChildId> for ChildId {
    fn from(id: &ChildId) -> ChildId {
        id.clone()
    }
}

impl Borrow<str> for ChildId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for ChildId {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for ChildId {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
