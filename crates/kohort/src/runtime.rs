//! The membership runtime: one thread for the hearts of all members of the process, so that no handler, however
//! it blocks, can keep one from beating.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle};

/// The process's membership runtime, started at the first call. It lives as long as the process.
pub(crate) fn dedicated() -> io::Result<Handle> {
    static HANDLE: Mutex<Option<Handle>> = Mutex::new(None);
    let mut handle = HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*handle {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let started = runtime.handle().clone();
    std::thread::Builder::new()
        .name("kohort-membership".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    *handle = Some(started.clone());
    Ok(started)
}
