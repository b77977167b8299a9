//! Where records go: one thread that writes them to stdout, each whole and at once, and says when it did. A
//! slow reader of stdout blocks this thread and, through the acknowledgements, the handlers; never a runtime.

use std::io;

use tokio::sync::{mpsc, oneshot, watch};

/// Lines that wait for the writer.
const WAITING: usize = 256;

/// What became of a line.
pub(crate) enum Written {
    /// It went out.
    Out,
    /// It did not: the limit was reached before it, or stdout is gone. Its record is not handled.
    Refused,
}

/// Why nothing more is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The limit is reached.
    Limit,
    /// Whoever read stdout closed it.
    Closed,
    /// Writing failed.
    Failed(String),
}

struct Line {
    bytes: Vec<u8>,
    ack: oneshot::Sender<Written>,
}

/// The way to the writer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Output(mpsc::Sender<Line>);

impl Output {
    /// Starts the writer. After `limit` lines it writes no more; the receiver tells when it stopped, and why.
    pub(crate) fn start(limit: Option<u64>) -> (Self, watch::Receiver<Option<Ended>>) {
        let (give, take) = mpsc::channel(WAITING);
        let (tell, told) = watch::channel(None);
        std::thread::spawn(move || write(take, limit, &tell));
        (Self(give), told)
    }

    /// Writes a line and waits until it is out.
    pub(crate) async fn write(&self, bytes: Vec<u8>) -> Written {
        let (ack, acknowledged) = oneshot::channel();
        if self.0.send(Line { bytes, ack }).await.is_err() {
            return Written::Refused;
        }
        acknowledged.await.unwrap_or(Written::Refused)
    }
}

fn write(mut lines: mpsc::Receiver<Line>, limit: Option<u64>, tell: &watch::Sender<Option<Ended>>) {
    let mut out = io::stdout();
    let mut written = 0;
    while let Some(Line { bytes, ack }) = lines.blocking_recv() {
        if tell.borrow().is_some() {
            // Whoever asked may be gone; then nobody needs the answer.
            let _ = ack.send(Written::Refused);
            continue;
        }
        let outcome = whole(&mut out, &bytes);
        if let Err(error) = outcome {
            let closed = error.kind() == io::ErrorKind::BrokenPipe;
            tell.send_replace(Some(if closed { Ended::Closed } else { Ended::Failed(error.to_string()) }));
            let _ = ack.send(Written::Refused);
            continue;
        }
        written += 1;
        let _ = ack.send(Written::Out);
        if limit.is_some_and(|limit| written >= limit) {
            tell.send_replace(Some(Ended::Limit));
        }
    }
}

fn whole(out: &mut io::Stdout, bytes: &[u8]) -> io::Result<()> {
    use io::Write;
    let mut out = out.lock();
    out.write_all(bytes)?;
    out.flush()
}
