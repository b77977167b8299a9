//! The way into a broker without a socket, for tests under a paused clock.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// The host that a broker is known by in memory.
pub(crate) const HOST: &str = "memory";
/// The port of the first node; the others follow.
pub(crate) const PORT: u16 = 9092;

/// Bytes that a connection holds in each direction.
const PIPE: usize = 64 * 1024;

/// Connects to a broker in the same process. It stays good over stop and restart; while the broker is stopped,
/// connections are refused. Cheap to clone.
#[derive(Clone)]
pub struct MemoryListener {
    /// By node id.
    accepting: Arc<Mutex<Vec<Option<mpsc::Sender<DuplexStream>>>>>,
}

impl MemoryListener {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { accepting: Arc::new(Mutex::new(vec![None; nodes])) }
    }

    /// Connects to `host`:`port`, which must be `memory` and `9092` for the first node, `9093` for the next and so
    /// on, as the broker's metadata says.
    ///
    /// # Errors
    /// `ConnectionRefused` if the broker is stopped or the address is another.
    ///
    /// # Cancel safety
    /// Dropping the future gives up.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<DuplexStream> {
        let refused = |why: String| io::Error::new(io::ErrorKind::ConnectionRefused, why);
        let accepting = {
            let nodes = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
            let place = port.checked_sub(PORT).map(usize::from).filter(|_| host == HOST);
            let Some(node) = place.and_then(|place| nodes.get(place)) else {
                let last = ports(nodes.len()).last().copied().unwrap_or(PORT);
                let known = format!("in memory there is only {HOST} with the ports {PORT} to {last}");
                return Err(refused(format!("{known}, not {host}:{port}")));
            };
            node.clone()
        };
        let accepting = accepting.ok_or_else(|| refused("the broker is stopped".to_owned()))?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        accepting.send(theirs).await.map_err(|_| refused("the broker stopped".to_owned()))?;
        Ok(ours)
    }

    pub(crate) fn open(&self, node: usize) -> mpsc::Receiver<DuplexStream> {
        let (sender, receiver) = mpsc::channel(16);
        self.set(node, Some(sender));
        receiver
    }

    pub(crate) fn close(&self, node: usize) {
        self.set(node, None);
    }

    fn set(&self, node: usize, to: Option<mpsc::Sender<DuplexStream>>) {
        if let Some(place) = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).get_mut(node) {
            *place = to;
        }
    }
}

/// By node id.
pub(crate) fn ports(nodes: usize) -> Vec<u16> {
    (PORT..u16::MAX).take(nodes).collect()
}

impl fmt::Debug for MemoryListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryListener").finish_non_exhaustive()
    }
}
