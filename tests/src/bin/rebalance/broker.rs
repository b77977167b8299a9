//! The brokers that members are measured against, each in a process of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kohort_broker::Broker;
use kohort_tests::workspace::root;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::{Against, Failed};

/// An install of Kafka downloads its jars.
const START_LIMIT: Duration = Duration::from_secs(300);

/// A broker that runs; it is stopped when this is dropped.
pub(crate) enum Running {
    Embedded { address: String, process: Child },
    Kafka { address: String, pid: u32, _kafka: Kafka },
}

impl Running {
    pub(crate) async fn start(against: Against) -> Result<Self, Failed> {
        let limit = tokio::time::timeout(START_LIMIT, async {
            match against {
                Against::Embedded => embedded().await,
                _ => kafka().await,
            }
        });
        limit.await.unwrap_or_else(|_| Err(broker_failed("it is not ready in time")))
    }

    pub(crate) fn address(&self) -> &str {
        match self {
            Running::Embedded { address, .. } | Running::Kafka { address, .. } => address,
        }
    }

    /// From now on it accepts connections and bytes, as the kernel does for it, and says nothing; until the answer is
    /// dropped.
    pub(crate) fn silence(&self) -> Result<Silence, Failed> {
        let pid = match self {
            Running::Embedded { process, .. } => process.id().ok_or_else(|| broker_failed("it has ended"))?,
            Running::Kafka { pid, .. } => *pid,
        };
        signal("-STOP", pid)?;
        Ok(Silence { pid })
    }
}

/// A stopped process, which goes on when this is dropped.
pub(crate) struct Silence {
    pid: u32,
}

impl Drop for Silence {
    fn drop(&mut self) {
        // One that is gone needs no signal.
        let _ = signal("-CONT", self.pid);
    }
}

fn signal(signal: &str, pid: u32) -> Result<(), Failed> {
    let sent = std::process::Command::new("kill").args([signal, &pid.to_string()]).status();
    match sent {
        Ok(status) if status.success() => Ok(()),
        _ => Err(broker_failed(&format!("kill {signal} {pid} failed"))),
    }
}

fn broker_failed(reason: &str) -> Failed {
    Failed::Broker { reason: reason.to_owned() }
}

async fn embedded() -> Result<Running, Failed> {
    let start = |error| Failed::Start { what: "the embedded broker".into(), error };
    let program = std::env::current_exe().map_err(start)?;
    let mut process = Command::new(program)
        .arg("broker")
        // It ends with this program, however that ends.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(start)?;
    let output = process.stdout.take().ok_or_else(|| broker_failed("it has no output"))?;
    let line = BufReader::new(output).lines().next_line().await.map_err(start)?;
    let address = line.ok_or_else(|| broker_failed("the embedded broker ended before it was ready"))?;
    Ok(Running::Embedded { address, process })
}

/// The embedded broker's process: says its address, serves until it is killed or whoever started it is gone.
pub(crate) async fn serve() -> Result<(), Failed> {
    let started = Broker::builder().listen("127.0.0.1:0").start().await;
    let broker = started.map_err(|error| broker_failed(&error.to_string()))?;
    println!("{}", broker.bootstrap_servers().join(","));
    let end = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    let _ = tokio::task::spawn_blocking(end).await;
    Ok(())
}

/// Apache Kafka in a folder of its own, from the moment it is asked to start.
pub(crate) struct Kafka {
    script: PathBuf,
    folder: TempDir,
}

impl Kafka {
    fn command(script: &Path, folder: &Path, action: &str) -> std::process::Command {
        let mut command = std::process::Command::new(script);
        command.arg(action).env("KOHORT_KAFKA_DIR", folder.join("kafka")).stdin(Stdio::null());
        command
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // Also one that was interrupted while it started: the script left its process number.
        let _ = Self::command(&self.script, self.folder.path(), "stop").status();
    }
}

async fn kafka() -> Result<Running, Failed> {
    let folder = tempfile::tempdir().map_err(|error| broker_failed(&error.to_string()))?;
    let said = folder.path().join("address");
    let kafka = Kafka { script: root().join("tests/interop/kafka/kafka"), folder };
    // Not a pipe: the broker would hold it open.
    let output = File::create(&said).map_err(|error| broker_failed(&error.to_string()))?;
    let mut start = Command::from(Kafka::command(&kafka.script, kafka.folder.path(), "start"));
    let started = start.stdout(output).kill_on_drop(true).status().await;
    if !started.is_ok_and(|status| status.success()) {
        return Err(broker_failed(
            "Apache Kafka did not start; it needs bash, a JDK 17 or newer and Maven (or: --against embedded)",
        ));
    }
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path);
        text.map(|text| text.trim().to_owned()).map_err(|error| broker_failed(&format!("{path:?}: {error}")))
    };
    let pid = read(kafka.folder.path().join("kafka/pid"))?;
    let pid = pid.parse().map_err(|_| broker_failed("Kafka's process number is none"))?;
    Ok(Running::Kafka { address: read(said)?, pid, _kafka: kafka })
}
