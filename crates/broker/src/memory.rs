//! The way into a broker without a socket, for tests under a paused clock.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// The host that a broker is known by in memory.
pub(crate) const HOST: &str = "memory";
/// The port that goes with it.
pub(crate) const PORT: u16 = 9092;

/// Bytes that a connection holds in each direction.
const PIPE: usize = 64 * 1024;

/// Connects to a broker in the same process. It stays good over stop and restart; while the broker is stopped,
/// connections are refused. Cheap to clone.
#[derive(Clone)]
pub struct MemoryListener {
    accepting: Arc<Mutex<Option<mpsc::Sender<DuplexStream>>>>,
}

impl MemoryListener {
    pub(crate) fn new() -> Self {
        Self { accepting: Arc::new(Mutex::new(None)) }
    }

    /// Connects to `host`:`port`, which must be `memory`:`9092` as the broker's metadata says.
    ///
    /// # Errors
    /// `ConnectionRefused` if the broker is stopped or the address is another.
    ///
    /// # Cancel safety
    /// Dropping the future gives up.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<DuplexStream> {
        let refused = |why: String| io::Error::new(io::ErrorKind::ConnectionRefused, why);
        if (host, port) != (HOST, PORT) {
            return Err(refused(format!("in memory there is only {HOST}:{PORT}, not {host}:{port}")));
        }
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let accepting = accepting.ok_or_else(|| refused("the broker is stopped".to_owned()))?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        accepting.send(theirs).await.map_err(|_| refused("the broker stopped".to_owned()))?;
        Ok(ours)
    }

    pub(crate) fn open(&self) -> mpsc::Receiver<DuplexStream> {
        let (sender, receiver) = mpsc::channel(16);
        *self.accepting.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    pub(crate) fn close(&self) {
        *self.accepting.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl fmt::Debug for MemoryListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryListener").finish_non_exhaustive()
    }
}
