//! How the command ends: its errors and their exit codes. Every subcommand returns a [`CliError`] or nothing.

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use kohort::{ConfigError, TerminalClass, TerminalReason};
use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// Why the command does not end with 0.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    /// An argument or a setting that cannot be.
    #[error("{0}")]
    Usage(String),
    /// A setting of the group that cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No broker answered in the time asked for.
    #[error(
        "no broker reached within {within:?}: {tried}\ncheck that a Kafka broker listens there and that its advertised listeners can be reached from here (--bootstrap-server)"
    )]
    NoBroker {
        /// The time.
        within: Duration,
        /// What was tried and what came of it.
        tried: String,
    },
    /// A member ended for good.
    #[error("the member ended for good ({class}): {reason}", class = .0.class(), reason = .0)]
    Terminal(TerminalReason),
    /// The close was cut short.
    #[error("the close was forced: {0}")]
    Forced(String),
    /// Whoever read stdout closed it.
    #[error("stdout was closed")]
    ClosedOutput,
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// What was done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl CliError {
    /// What is said on stderr; nothing where a quiet end is what users of pipes expect.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            CliError::ClosedOutput => None,
            other => Some(format!("error: {other}")),
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            CliError::Io { .. } | CliError::Other(_) => 1,
            CliError::Usage(_) | CliError::Config(_) => 2,
            CliError::NoBroker { .. } => 3,
            CliError::Terminal(reason) if reason.class() == TerminalClass::CrashLoop => 5,
            CliError::Terminal(_) => 4,
            CliError::Forced(_) => 6,
            // What a shell shows for a program that SIGPIPE ended.
            CliError::ClosedOutput => 141,
        })
    }

    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return CliError::ClosedOutput;
        }
        CliError::Io { what: what.into(), source }
    }
}

impl From<kohort::supervisor::StartError> for CliError {
    fn from(error: kohort::supervisor::StartError) -> Self {
        CliError::Other(error.to_string())
    }
}

/// Runs the command on a runtime that is not waited for at the end: a thread that is blocked on stdin or on a
/// full pipe must not keep the process alive.
pub(crate) fn on_a_runtime(command: impl Future<Output = Result<(), CliError>>) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::io("starting the runtime", error))?;
    let ended = runtime.block_on(command);
    runtime.shutdown_background();
    ended
}

/// `KOHORT_LOG=info` shows what the library logs, on stderr; without it the command speaks for itself.
pub(crate) fn log_to_stderr() {
    if let Ok(filter) = EnvFilter::try_from_env("KOHORT_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kohort::TerminalReason;

    #[test]
    fn a_crash_loop_ends_with_5_and_any_other_terminal_reason_with_4() {
        let crash_loop = TerminalReason::CrashLoop { cause: "killed".into(), crashes: 4 };
        assert_eq!(CliError::Terminal(crash_loop).code(), ExitCode::from(5));
        let crashed = TerminalReason::Crashed { what: "a panic".into() };
        assert_eq!(CliError::Terminal(crashed).code(), ExitCode::from(4));
    }
}
