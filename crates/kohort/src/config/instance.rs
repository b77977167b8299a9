//! Where the group instance id of a static member comes from (KIP-345), and what may be one.

use std::fmt;
use std::sync::Arc;

use super::invalid;
use crate::error::ConfigError;

const SETTING: &str = "group.instance.id";
const LONGEST: usize = 249;

/// Given now, or found at each start.
#[derive(Clone)]
pub(crate) enum InstanceId {
    Value(String),
    Env(String),
    Closure(Arc<dyn Fn() -> String + Send + Sync>),
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstanceId::Value(id) => write!(f, "{id:?}"),
            InstanceId::Env(variable) => write!(f, "${variable}"),
            InstanceId::Closure(_) => f.write_str("closure"),
        }
    }
}

impl InstanceId {
    /// What can be said before the start.
    pub(crate) fn check(&self, members: usize) -> Result<(), ConfigError> {
        match self {
            InstanceId::Value(id) => named(id, members, members).map(drop),
            InstanceId::Env(_) | InstanceId::Closure(_) => Ok(()),
        }
    }

    /// The id of member `index` of `members`, as of now. One id never serves two members: for several the id is
    /// the prefix, named as Kafka Streams names its threads' consumers.
    pub(crate) fn resolve(&self, index: usize, members: usize) -> Result<String, ConfigError> {
        let id = match self {
            InstanceId::Value(id) => id.clone(),
            InstanceId::Env(variable) => std::env::var(variable).map_err(|error| {
                invalid(
                    SETTING,
                    format!("${variable}"),
                    format!("the environment variable cannot be read: {error}"),
                )
            })?,
            InstanceId::Closure(find) => find(),
        };
        named(&id, index, members)
    }
}

fn named(id: &str, index: usize, members: usize) -> Result<String, ConfigError> {
    let reason = if id.trim().is_empty() {
        "must not be empty or blank; leave it unset for a dynamic member"
    } else if id.trim() != id {
        "must not begin or end with white space"
    } else if id == "."
        || id == ".."
        || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    {
        "may hold letters, digits, dots, underscores and hyphens, and be neither \".\" nor \"..\""
    } else {
        let name = if members > 1 { format!("{id}-{index}-consumer") } else { id.to_owned() };
        if name.len() <= LONGEST {
            return Ok(name);
        }
        "must not be longer than 249 characters"
    };
    Err(invalid(SETTING, format!("{id:?}"), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_static_01_and_b_static_14_what_may_be_an_instance_id() {
        for bad in ["", " ", " web-0", "web-0 ", "web 0", ".", "..", "wéb", &"x".repeat(250)] {
            let error = InstanceId::Value(bad.into()).check(1).unwrap_err().to_string();
            assert!(error.contains("group.instance.id"), "{error}");
        }
        for good in ["web-0", "a", "A.b_c-9", &"x".repeat(249)] {
            assert_eq!(InstanceId::Value(good.into()).resolve(1, 1).unwrap(), good);
        }
        assert!(
            InstanceId::Value("x".repeat(249)).check(2).is_err(),
            "the name of a member is longer than the prefix"
        );
    }

    #[test]
    fn several_members_are_named_as_kafka_streams_names_its_threads() {
        let prefix = InstanceId::Closure(Arc::new(|| "web".into()));
        assert_eq!(prefix.resolve(1, 3).unwrap(), "web-1-consumer");
        assert_eq!(prefix.resolve(3, 3).unwrap(), "web-3-consumer");
        let error = InstanceId::Env("KOHORT_NO_SUCH_VARIABLE".into()).resolve(1, 1).unwrap_err().to_string();
        assert!(error.contains("KOHORT_NO_SUCH_VARIABLE"), "{error}");
    }
}
