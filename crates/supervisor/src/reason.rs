//! Why an actor ended, typed, and the one place that reads it from ractor's supervision events. What a
//! supervisor does about it is the plan's business.

use crate::error::{StartError, SupervisorExit};
use ractor::{ActorProcessingErr, SupervisionEvent};
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The stop reason a supervisor gives to the children it stops (OTP: `shutdown`).
pub(crate) const SHUTDOWN: &str = "shutdown";
// What ractor 0.16 says of a killed and of a cancelled actor; see tests/ractor_facts.rs.
const KILLED: &str = "killed";
const CANCELLED: &str = "actor_task_cancelled";
const DRAINED: &str = "Drained";

/// Why an actor ended (OTP: the exit reason). Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ExitReason {
    /// It stopped without a reason (OTP: `normal`), or drained.
    Normal,
    /// It was stopped with a reason, as a supervisor does (OTP: `shutdown` and `{shutdown, Term}`). Do not use
    /// `killed` as the reason of a stop: ractor has no other way to say that an actor was killed.
    Shutdown,
    /// It was killed (OTP: `killed`): nothing of it ran any more, `post_stop` included.
    Killed,
    /// The task it ran on was cancelled, for example because its runtime went away.
    Aborted,
    /// It panicked, with this text. ractor reports an `Err` of plain text (`Err("…".into())`) the same way, so
    /// such an error shows here too.
    Panic(String),
    /// It failed with a typed error. [`Error::source`] of this reason is that error; `downcast_ref` finds it.
    Error(Arc<dyn Error + Send + Sync>),
}

impl ExitReason {
    /// Whether a transient child is restarted after it: everything but `Normal` and `Shutdown`.
    pub fn is_abnormal(&self) -> bool {
        !matches!(self, ExitReason::Normal | ExitReason::Shutdown)
    }

    /// A flat name of low cardinality: `normal`, `shutdown`, `killed`, `aborted`, `panic`, `error`.
    pub fn class(&self) -> &'static str {
        match self {
            ExitReason::Normal => "normal",
            ExitReason::Shutdown => "shutdown",
            ExitReason::Killed => "killed",
            ExitReason::Aborted => "aborted",
            ExitReason::Panic(_) => "panic",
            ExitReason::Error(_) => "error",
        }
    }

    /// The first error of type `E` in the chain of causes, however many supervisors it came through.
    pub fn find<E: Error + 'static>(&self) -> Option<&E> {
        let mut link: Option<&(dyn Error + 'static)> = self.source();
        while let Some(error) = link {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            link = error.source();
        }
        None
    }

    /// Whether something below could not be killed, so that nothing may be started in its place.
    pub(crate) fn is_unkillable(&self) -> bool {
        let mut link: Option<&(dyn Error + 'static)> = self.source();
        while let Some(error) = link {
            let stopped = matches!(error.downcast_ref(), Some(SupervisorExit::Unkillable { .. }));
            if stopped || matches!(error.downcast_ref(), Some(StartError::Unkillable { .. })) {
                return true;
            }
            link = error.source();
        }
        false
    }

    pub(crate) fn of_error(error: ActorProcessingErr) -> ExitReason {
        match plain_text(&error) {
            Some(text) => ExitReason::Panic(text),
            None => ExitReason::Error(Arc::from(error)),
        }
    }
}

/// The text of an error that is nothing else. A panic and an `Err` of plain text both arrive as std's private
/// string error, whose Debug is that of its text.
pub(crate) fn plain_text(error: &ActorProcessingErr) -> Option<String> {
    if error.source().is_some() {
        return None;
    }
    let text = error.to_string();
    (format!("{error:?}") == format!("{text:?}")).then_some(text)
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Panic(text) => write!(f, "panic: {text}"),
            ExitReason::Error(error) => write!(f, "error: {error}"),
            other => f.write_str(other.class()),
        }
    }
}

impl Error for ExitReason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ExitReason::Error(error) => Some(&**error),
            _ => None,
        }
    }
}

/// The exit that a supervision event reports, with the actor it is about; `None` when it reports none.
pub(crate) fn classify(event: SupervisionEvent) -> Option<(ractor::ActorCell, ExitReason)> {
    match event {
        SupervisionEvent::ActorTerminated(cell, state, reason) => {
            // A kill hands the state over or not, depending on where it struck, so only the text tells it from
            // a stop; a cancelled task never has one.
            let reason = match (reason.as_deref(), state.is_some()) {
                (None | Some(DRAINED), _) => ExitReason::Normal,
                (Some(KILLED), _) => ExitReason::Killed,
                (Some(CANCELLED), false) => ExitReason::Aborted,
                (Some(_), _) => ExitReason::Shutdown,
            };
            // The state of the child is dropped here, on its supervisor's task: a panic in that is the child's.
            if catch_unwind(AssertUnwindSafe(|| drop(state))).is_err() {
                tracing::error!(target: "kohort", "the state of an actor that ended panicked when dropped");
            }
            Some((cell, reason))
        }
        SupervisionEvent::ActorFailed(cell, error) => Some((cell, ExitReason::of_error(error))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_panic_and_a_type_is_an_error() {
        assert!(matches!(ExitReason::of_error("boom".into()), ExitReason::Panic(text) if text == "boom"));
        let typed = ExitReason::of_error(Box::new(std::io::Error::other("disk")));
        assert!(typed.find::<std::io::Error>().is_some());
        assert_eq!(typed.class(), "error");
    }
}
