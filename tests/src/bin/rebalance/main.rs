//! Measures how long a rebalance takes, for Kohort and for librdkafka side by side: one process for each member, a
//! session timeout of 6 s, a heartbeat each 500 ms, 12 partitions, against Apache Kafka and the embedded broker. Prints
//! the tables of `docs/performance.md`. No test: `cargo test` does not run it.
//!
//! Rooms: `rounds` does things to member processes (`process`), which are this program again (`member`) or a Python
//! script; they say lines (`line`); `table` makes rows of them; `broker` starts the brokers.

mod broker;
mod line;
mod member;
mod process;
mod rounds;
mod table;

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use kohort_tests::workspace::root;
use tokio::signal::unix::{SignalKind, signal};

use crate::broker::Running;
use crate::rounds::{CUT_OFF, Rounds};
use crate::table::Row;

pub(crate) const SESSION: Duration = Duration::from_secs(6);
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(500);
/// Of the close in a black hole.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Measure rebalances of Kohort and librdkafka side by side
///
/// Needs Python 3 with venv; for Apache Kafka a JDK 17 or newer and Maven.
#[derive(Parser)]
#[command(name = "rebalance", args_conflicts_with_subcommands = true)]
struct Options {
    /// The broker
    #[arg(long, value_enum, default_value_t = Against::Both)]
    against: Against,
    /// Only these rows, by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    rows: Vec<Row>,
    /// How often each row is measured
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A Python that has confluent-kafka, instead of the pinned one
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Show on stderr what the members say
    #[arg(long)]
    trace: bool,
    #[command(subcommand)]
    process: Option<OwnProcess>,
}

/// What this program runs itself as.
#[derive(Subcommand)]
enum OwnProcess {
    #[command(hide = true)]
    Member(member::Membership),
    #[command(hide = true)]
    Broker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Against {
    Kafka,
    Embedded,
    Both,
}

/// The kind of assignor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Strategy {
    Eager,
    Cooperative,
}

impl Strategy {
    /// In Kafka's word.
    pub(crate) fn assignor(self) -> &'static str {
        match self {
            Strategy::Eager => "range",
            Strategy::Cooperative => "cooperative-sticky",
        }
    }
}

impl Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::Eager => "eager",
            Strategy::Cooperative => "cooperative",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    Kohort,
    Librdkafka,
}

impl Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Client::Kohort => "Kohort",
            Client::Librdkafka => "librdkafka",
        })
    }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("{what} cannot be started: {error}")]
    Start { what: String, error: io::Error },
    #[error("the broker: {reason}")]
    Broker { reason: String },
    #[error(
        "no Python with confluent-kafka: install python3 with its venv module, or give one with --python"
    )]
    Python,
    #[error("{who} ended by itself; --trace shows what it said")]
    Ended { who: String },
    #[error("{who} took too long {what}; --trace shows what it said")]
    Late { who: String, what: String },
    #[error("the member: {0}")]
    Config(#[from] kohort::ConfigError),
    #[error("the member: {0}")]
    Member(#[from] kohort::StartError),
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.process {
        Some(OwnProcess::Member(membership)) => member::run(membership).await,
        Some(OwnProcess::Broker) => broker::serve().await,
        None => {
            // Whatever was started is stopped as its owner is dropped.
            tokio::select! {
                done = measure(options) => done,
                () = interrupted() => return ExitCode::from(130),
            }
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("rebalance: {failed}");
            ExitCode::FAILURE
        }
    }
}

async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated => {}
    }
}

async fn measure(options: Options) -> Result<(), Failed> {
    let python = match options.python {
        Some(python) => python,
        None => pinned_python().await?,
    };
    let rows: Vec<Row> = if options.rows.is_empty() { Row::value_variants().to_vec() } else { options.rows };
    let against = match options.against {
        Against::Both => vec![Against::Kafka, Against::Embedded],
        one => vec![one],
    };
    for against in against {
        let broker = Running::start(against).await?;
        let name = if against == Against::Embedded { "the embedded broker" } else { "Apache Kafka" };
        eprintln!("against {name} at {}", broker.address());
        let rounds = Rounds {
            broker: &broker,
            rows: rows.iter().copied().collect(),
            rounds: options.rounds as usize,
            python: python.clone(),
            trace: options.trace,
        };
        let table = rounds.run().await?.table(CUT_OFF.as_secs_f64() * 1e3);
        println!("Against {name}, {} rounds:\n\n{table}\n", options.rounds);
    }
    Ok(())
}

/// The Python of the interop tests, made if it is not there.
async fn pinned_python() -> Result<PathBuf, Failed> {
    let mut command = tokio::process::Command::new(root().join("tests/interop/python/interpreter"));
    command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let made = tokio::time::timeout(Duration::from_secs(300), command.output()).await;
    match made {
        Ok(Ok(output)) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().into())
        }
        _ => Err(Failed::Python),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_fit_together() {
        Options::command().debug_assert();
        let options = Options::try_parse_from(["rebalance", "--rows", "first,black-hole", "--rounds", "9"]);
        let options = options.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((options.rows, options.rounds), (vec![Row::First, Row::BlackHole], 9));
        assert!(Options::try_parse_from(["rebalance", "--rounds", "0"]).is_err());
    }
}
