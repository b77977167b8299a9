//! Runs the command as a process and waits for it, never without a bound.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// No run takes longer; one that hangs is killed and fails its test.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a process left behind.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process with its streams.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<Vec<u8>>,
    stdout: Option<JoinHandle<()>>,
    close: mpsc::Sender<()>,
    /// Dropping it lets the reading of stdout begin.
    held: Option<mpsc::Sender<()>>,
    /// Lines of stderr, as they come; what the thread gives is all of it.
    told: mpsc::Receiver<String>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

/// Runs to the end with this input.
pub(crate) fn run(arguments: &[&str], input: &[u8]) -> Ended {
    let mut running = Running::start(arguments);
    let mut stdin = running.child.stdin.take().expect("a stdin");
    let input = input.to_owned();
    // The command may end before it read everything.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let ended = running.wait();
    writer.join().expect("no panic");
    ended
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut running = Self::start_unread(arguments);
        running.held = None;
        running
    }

    /// Starts it with a stdout that nobody reads until it ended.
    pub(crate) fn start_unread(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kohort"))
            .args(arguments)
            .env_remove("KOHORT_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let out = child.stdout.take().expect("a stdout");
        let err = child.stderr.take().expect("a stderr");
        let (give, lines) = mpsc::channel();
        let (close, closed) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (held, released) = mpsc::channel::<()>();
        let stdout = thread::spawn(move || {
            let _ = released.recv();
            read_lines(out, &give, &closed);
        });
        let stderr = thread::spawn(move || {
            let (mut err, mut text) = (BufReader::new(err), Vec::new());
            loop {
                let begin = text.len();
                if err.read_until(b'\n', &mut text).expect("a readable stderr") == 0 {
                    return text;
                }
                // Whoever does not listen for lines gets the whole in the end.
                let _ = tell.send(String::from_utf8_lossy(&text[begin..]).into_owned());
            }
        });
        Self { child, lines, stdout: Some(stdout), close, held: Some(held), told, stderr: Some(stderr) }
    }

    /// The next line of its stdout.
    pub(crate) fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            let _ = self.child.kill();
            let stderr =
                self.stderr.take().map(|thread| thread.join().expect("no panic")).unwrap_or_default();
            panic!("no line: {error}; stderr: {}", String::from_utf8_lossy(&stderr))
        });
        String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned()
    }

    /// Waits until its stderr has a line with these words.
    pub(crate) fn says(&mut self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.told.recv_timeout(left) {
                Ok(line) if line.contains(words) => return,
                Ok(_) => {}
                Err(error) => panic!("it does not say {words:?}: {error}"),
            }
        }
    }

    /// Asks it to end, as `kill` does, and waits.
    pub(crate) fn stop(self) -> Ended {
        self.signal();
        self.wait()
    }

    pub(crate) fn signal(&self) {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill runs");
        assert!(asked.success());
    }

    /// One request to end that arrives as two signals, from one process and so within microseconds.
    pub(crate) fn signal_twice(&self) {
        let twice = "kill -TERM $0; kill -INT $0";
        let pid = self.child.id().to_string();
        assert!(Command::new("sh").args(["-c", twice, &pid]).status().expect("sh runs").success());
    }

    /// Asks it to end again and again, at a pace at which people do, and waits.
    pub(crate) fn insist(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().expect("a child").is_none() && Instant::now() < deadline {
            self.signal();
            thread::sleep(Duration::from_millis(300));
        }
        self.wait()
    }

    /// Closes the reading end of its stdout and waits.
    pub(crate) fn close_stdout(self) -> Ended {
        let _ = self.close.send(());
        self.wait()
    }

    pub(crate) fn wait(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break Some(status),
                None if Instant::now() >= deadline => break None,
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        if status.is_none() {
            self.child.kill().expect("a child");
            let _ = self.child.wait();
        }
        self.held = None;
        self.stdout.take().expect("not read yet").join().expect("no panic");
        let bytes: Vec<u8> = self.lines.iter().flatten().collect();
        let stderr = self.stderr.take().expect("not read yet").join().expect("no panic");
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let stdout = String::from_utf8_lossy(&bytes).into_owned();
        assert!(status.is_some(), "it did not end\nstdout: {stdout}\nstderr: {stderr}");
        Ended { code: status.and_then(|status| status.code()), bytes, stdout, stderr }
    }
}

fn read_lines(out: ChildStdout, give: &mpsc::Sender<Vec<u8>>, closed: &mpsc::Receiver<()>) {
    let mut out = BufReader::new(out);
    loop {
        let mut line = Vec::new();
        let read = out.read_until(b'\n', &mut line).expect("a readable stdout");
        if read == 0 || closed.try_recv().is_ok() || give.send(line).is_err() {
            return;
        }
    }
}

/// `kohort broker`, ended with the test.
pub(crate) struct BrokerProcess {
    pub(crate) process: Running,
    pub(crate) address: String,
}

impl BrokerProcess {
    pub(crate) fn start(more: &[&str]) -> Self {
        Self::start_on("127.0.0.1:0", more)
    }

    pub(crate) fn start_on(listen: &str, more: &[&str]) -> Self {
        let mut process = Running::start(&[&["broker", "--listen", listen], more].concat());
        let ready = process.line();
        let address = ready.strip_prefix("kohort broker ready on ").expect("the ready line").to_owned();
        Self { process, address }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port on which nobody listens.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}
