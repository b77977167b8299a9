//! What can go wrong: with a configuration, a start, a commit; and why a member ends for good.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use kohort_group::membership::TerminalCause;
use kohort_protocol::{ErrorCode, TopicPartition};
use thiserror::Error;

/// A setting that cannot be. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is not usable.
    #[error("{setting} = {value}: {reason}")]
    Invalid {
        /// The setting, by its name here or in Kafka, as it was given.
        setting: String,
        /// The value.
        value: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A property that nothing here knows.
    #[error("unknown property {key:?}{}", nearest_text(.nearest))]
    UnknownProperty {
        /// The property.
        key: String,
        /// The most similar one that is known.
        nearest: Option<String>,
    },
    /// A setting without which nothing works is missing.
    #[error("{setting} is not set: {reason}")]
    Missing {
        /// The setting.
        setting: &'static str,
        /// What it is needed for.
        reason: &'static str,
    },
}

fn nearest_text(nearest: &Option<String>) -> String {
    match nearest {
        Some(key) => format!("; did you mean {key:?}?"),
        None => format!("; known are {}", crate::config::property_names().join(", ")),
    }
}

/// Why a member did not start. No network is needed to start one, so a broker that is not there is no reason.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The tree could not be built.
    #[error(transparent)]
    Tree(#[from] kohort_supervisor::StartError),
    /// The membership runtime's thread could not be started.
    #[error("the membership runtime could not be started: {0}")]
    Runtime(Arc<std::io::Error>),
    /// The group is defined to have several members.
    #[error("the group has {members} members: start them with start_all, or supervise child_specs")]
    SeveralMembers {
        /// How many.
        members: usize,
    },
    /// The group instance id that was found at the start cannot be one.
    #[error(transparent)]
    InstanceId(#[from] ConfigError),
    /// There is no tokio runtime to run handlers on.
    #[error("start a member from within a tokio runtime: its handlers run there")]
    NoRuntime,
}

/// Why a commit that was waited for did not come through.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The partition is not this member's any more; the work will be handled again elsewhere.
    #[error("{partition} is no longer owned in generation {generation}; nothing was committed")]
    Lost {
        /// The partition.
        partition: TopicPartition,
        /// The generation it was owned in.
        generation: i32,
    },
    /// The coordinator refused it, and would again: it is not tried again. Work that follows is committed as ever.
    #[error("the commit of {partition} was refused: {code}")]
    Refused {
        /// The partition.
        partition: TopicPartition,
        /// The coordinator's code.
        code: ErrorCode,
    },
    /// No confirmation in time; it is tried again in the background as long as the partition is owned.
    #[error("the commit of {partition} is not confirmed within {after:?}; it is still tried")]
    Timeout {
        /// The partition.
        partition: TopicPartition,
        /// How long was waited.
        after: std::time::Duration,
    },
}

/// Why a member ended for good. The class is for labels and alerts, the reason for people.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TerminalReason {
    /// A newer member took the group instance id (KIP-345).
    FencedInstanceId,
    /// Not authorized for the group.
    GroupAuthorizationFailed,
    /// The heartbeat crashed more often than `crash_rejoin_max_restarts` allows.
    CrashLoop {
        /// How the heartbeat ended the last time: `killed`, `aborted`, `panicked: …`
        cause: String,
        /// Crashes in the window, the last one included.
        crashes: u32,
    },
    /// A defect: a part of the member panicked, was killed or failed where nothing may.
    Crashed {
        /// What happened to which part.
        what: String,
    },
    /// The broker refuses the member for a reason that no retry mends.
    Protocol {
        /// The request.
        api: &'static str,
        /// The broker's code.
        code: ErrorCode,
        /// What was asked.
        detail: String,
    },
    /// Broker and member share no version of a request.
    Unsupported {
        /// What is missing.
        detail: String,
    },
    /// The client is gone.
    ClientDied {
        /// What became of it.
        detail: String,
    },
    /// The workers of a partition failed more often than they may.
    WorkersGaveUp {
        /// The partition, if one is to blame.
        partition: Option<TopicPartition>,
        /// The last failure, the handler's error included.
        cause: String,
        /// The chain of errors behind it.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
}

impl fmt::Display for TerminalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TerminalReason::FencedInstanceId => {
                f.write_str("fenced: a newer member took the group instance id")
            }
            TerminalReason::GroupAuthorizationFailed => f.write_str("not authorized for the group"),
            TerminalReason::CrashLoop { cause, crashes } => {
                write!(f, "crash loop: {crashes} heartbeat crashes in the window, the last one {cause}")
            }
            TerminalReason::Crashed { what } => write!(f, "crashed: {what}"),
            TerminalReason::Protocol { api, code, detail } if detail.is_empty() => {
                write!(f, "{api} refused: {code}")
            }
            TerminalReason::Protocol { api, code, detail } => write!(f, "{api} refused: {code} ({detail})"),
            TerminalReason::Unsupported { detail } => write!(f, "unsupported: {detail}"),
            TerminalReason::ClientDied { detail } => write!(f, "the client died: {detail}"),
            TerminalReason::WorkersGaveUp { partition: Some(partition), cause, .. } => {
                write!(f, "the workers gave up on {partition}: {cause}")
            }
            TerminalReason::WorkersGaveUp { cause, .. } => write!(f, "the workers gave up: {cause}"),
        }
    }
}

/// By hand, because a derived `source` would be the `Arc` and not the error in it, which nobody could find by
/// its type.
impl StdError for TerminalReason {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            TerminalReason::WorkersGaveUp { source: Some(source), .. } => Some(&**source),
            _ => None,
        }
    }
}

/// [`TerminalReason`] as a flat word: label metrics and alerts with it, never with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TerminalClass {
    /// A newer member took the instance id.
    Fenced,
    /// Not authorized.
    Auth,
    /// The crash bound tripped.
    CrashLoop,
    /// A defect.
    Crashed,
    /// The broker refused.
    Error,
    /// The client is gone.
    ClientDied,
    /// The workers gave up.
    Workers,
    /// Anything else.
    Other,
}

impl TerminalClass {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            TerminalClass::Fenced => "fenced",
            TerminalClass::Auth => "auth",
            TerminalClass::CrashLoop => "crash_loop",
            TerminalClass::Crashed => "crashed",
            TerminalClass::Error => "error",
            TerminalClass::ClientDied => "client_died",
            TerminalClass::Workers => "workers",
            TerminalClass::Other => "other",
        }
    }
}

impl fmt::Display for TerminalClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TerminalReason {
    /// The reason's class.
    pub fn class(&self) -> TerminalClass {
        match self {
            TerminalReason::FencedInstanceId => TerminalClass::Fenced,
            TerminalReason::GroupAuthorizationFailed => TerminalClass::Auth,
            TerminalReason::CrashLoop { .. } => TerminalClass::CrashLoop,
            TerminalReason::Crashed { .. } => TerminalClass::Crashed,
            TerminalReason::Protocol { .. } | TerminalReason::Unsupported { .. } => TerminalClass::Error,
            TerminalReason::ClientDied { .. } => TerminalClass::ClientDied,
            TerminalReason::WorkersGaveUp { .. } => TerminalClass::Workers,
        }
    }

    pub(crate) fn of(cause: TerminalCause, workers: Option<Arc<dyn StdError + Send + Sync>>) -> Self {
        match cause {
            TerminalCause::FencedInstanceId => TerminalReason::FencedInstanceId,
            TerminalCause::GroupAuthorizationFailed => TerminalReason::GroupAuthorizationFailed,
            TerminalCause::CrashLoop { cause, crashes } => {
                TerminalReason::CrashLoop { cause: cause.to_string(), crashes }
            }
            TerminalCause::Crashed { what } => TerminalReason::Crashed { what },
            TerminalCause::Refused { api, code, detail } => {
                TerminalReason::Protocol { api: api.name(), code, detail }
            }
            TerminalCause::Unsupported { detail } => TerminalReason::Unsupported { detail },
            TerminalCause::ClientDied { detail } => TerminalReason::ClientDied { detail },
            TerminalCause::WorkersGaveUp { partition, cause } => {
                TerminalReason::WorkersGaveUp { partition, cause, source: workers }
            }
            other => TerminalReason::Crashed { what: format!("{other:?}") },
        }
    }
}

/// A handler, or the data it was to be given, failed: the exit of a worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkerFailed {
    pub(crate) partition: TopicPartition,
    pub(crate) offset: i64,
    pub(crate) source: Arc<dyn StdError + Send + Sync>,
}

impl fmt::Display for WorkerFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}: {}", self.partition, self.offset, self.source)
    }
}

impl StdError for WorkerFailed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_flat_words() {
        let reason = TerminalReason::CrashLoop { cause: "killed".into(), crashes: 4 };
        assert_eq!(reason.class().as_str(), "crash_loop");
        assert_eq!(reason.to_string(), "crash loop: 4 heartbeat crashes in the window, the last one killed");
    }
}
