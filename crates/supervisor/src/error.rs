//! The errors of this crate. Each keeps its cause as `source()`, so that a typed error can be found from the
//! top of a tree however many supervisors it came through.

use crate::id::ChildId;
use crate::reason::ExitReason;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why a child did not start.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ChildStartError {
    /// Its start answered this error; it is the `source()`.
    Failed(Arc<dyn Error + Send + Sync>),
    /// Its start took longer than its start timeout and was cancelled.
    TimedOut(Duration),
    /// Its start panicked outside the actor, with this text.
    Panicked(String),
    /// Its start was cancelled: by a stop, or because its runtime went away.
    Cancelled,
}

impl fmt::Display for ChildStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChildStartError::Failed(error) => write!(f, "the start failed: {error}"),
            ChildStartError::TimedOut(limit) => write!(f, "the start took longer than {limit:?}"),
            ChildStartError::Panicked(text) => write!(f, "the start panicked: {text}"),
            ChildStartError::Cancelled => f.write_str("the start was cancelled"),
        }
    }
}

impl Error for ChildStartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ChildStartError::Failed(error) => Some(&**error),
            _ => None,
        }
    }
}

/// A description that makes no sense (OTP: `bad_combination` and the other `{error, …}` of `check_childspecs`).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadSpec {
    /// A significant child has to be able to end: transient or temporary.
    #[error("child {child} is significant and permanent: it never ends by itself")]
    SignificantPermanent {
        /// The child.
        child: ChildId,
    },
    /// What the end of a delegated child means is its delegate's to say.
    #[error("child {child} is significant and delegated: its delegate decides what its end means")]
    SignificantDelegated {
        /// The child.
        child: ChildId,
    },
    /// A significant child under a supervisor that never shuts itself down.
    #[error("child {child} is significant, but its supervisor's auto_shutdown is never")]
    SignificantNever {
        /// The child.
        child: ChildId,
    },
    /// A delegated child is its own delegate.
    #[error("child {child} is delegated to itself")]
    DelegatedToItself {
        /// The child.
        child: ChildId,
    },
    /// [`Restart::Delegated`](crate::Restart::Delegated) without [`delegate_to`](crate::ChildSpec::delegate_to).
    #[error("child {child} is delegated without a way to tell its delegate")]
    DelegatedInSilence {
        /// The child.
        child: ChildId,
    },
    /// The delegate of a child to be started is not there.
    #[error("child {child} is delegated to {to}, which does not exist")]
    UnknownDelegate {
        /// The child.
        child: ChildId,
        /// The id that nobody has.
        to: ChildId,
    },
    /// A back-off for a child that its supervisor never restarts.
    #[error("child {child} has a back-off and is never restarted by its supervisor")]
    BackoffUnused {
        /// The child.
        child: ChildId,
    },
    /// A back-off of no time, with a maximum below its beginning, or with a jitter outside 0 to 1.
    #[error("child {child} needs a back-off with 0 < initial <= max and a jitter from 0 to 1")]
    BadBackoff {
        /// The child.
        child: ChildId,
    },
    /// A start timeout of zero.
    #[error("child {child} has no time to start")]
    NoTimeToStart {
        /// The child.
        child: ChildId,
    },
    /// A restart intensity over no time (OTP: `invalid_period`).
    #[error("the intensity's period is zero")]
    ZeroPeriod,
}

/// Why a supervisor did not start. Nothing of its tree is left alive, unless it is [`StartError::Unkillable`].
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A child did not start; the children before it were stopped again, in reverse order.
    #[error("supervisor {supervisor}: child {child} did not start")]
    Child {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child that did not start.
        child: ChildId,
        /// Why.
        #[source]
        cause: ChildStartError,
    },
    /// A child did not start, and one of those before it survived being stopped and killed again. Nothing may
    /// be started in its place, so this goes up to the root without retries.
    #[error("supervisor {supervisor}: the start was taken back, but child {child} survived being killed")]
    Unkillable {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child that is still alive.
        child: ChildId,
        /// Why the start was taken back.
        #[source]
        cause: ChildStartError,
    },
    /// Two children have the same id.
    #[error("supervisor {supervisor}: two children are named {child}")]
    DuplicateChild {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The id.
        child: ChildId,
    },
    /// A delegated child or the prepare step names a child that is not there.
    #[error("supervisor {supervisor}: there is no child {child} to delegate to or to prepare")]
    UnknownChild {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The id that nobody has.
        child: ChildId,
    },
    /// The description makes no sense; nothing was started.
    #[error("supervisor {supervisor}: the description makes no sense")]
    BadSpec {
        /// The supervisor's id.
        supervisor: ChildId,
        /// What is wrong with it.
        #[source]
        cause: BadSpec,
    },
    /// The supervisor's own actor could not be spawned or was ended while it started.
    #[error("supervisor {supervisor}: {text}")]
    Spawn {
        /// The supervisor's id.
        supervisor: ChildId,
        /// What ractor said.
        text: String,
    },
}

/// The failure a supervisor exits with. Its parent receives it as a typed error.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SupervisorExit {
    /// More restarts than the intensity allows (OTP: `reached_max_restart_intensity`). The other children were
    /// stopped in reverse order before the supervisor exited.
    #[error("supervisor {supervisor}: more than {max} restarts in {period:?}, the last of child {child}")]
    ReachedMaxIntensity {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child whose exit was one too many.
        child: ChildId,
        /// The intensity: restarts allowed within the period.
        max: u32,
        /// The period.
        period: Duration,
        /// That exit.
        #[source]
        cause: ExitReason,
    },
    /// A child is still alive after it was killed (it blocks its thread). Nothing may run in its place, so
    /// this goes up to the root without restarts.
    #[error("supervisor {supervisor}: child {child} survived being killed")]
    Unkillable {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child, or the supervisor below which it happened.
        child: ChildId,
        /// The exit of the supervisor below, if it happened there.
        #[source]
        cause: Option<ExitReason>,
    },
}

/// Why a request to a running supervisor was refused (OTP: the `{error, …}` answers of `supervisor`).
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// No child has this id (OTP: `not_found`).
    #[error("there is no child {0}")]
    NotFound(ChildId),
    /// A child of this id exists and is not running (OTP: `already_present`).
    #[error("child {0} is already present")]
    AlreadyPresent(ChildId),
    /// A child of this id is running (OTP: `{already_started, Pid}`).
    #[error("child {0} is already started")]
    AlreadyStarted(ChildId),
    /// The child runs (OTP: `running`).
    #[error("child {0} is running")]
    Running(ChildId),
    /// The child is being started or waits for a retry (OTP: `restarting`).
    #[error("child {0} is being restarted")]
    Restarting(ChildId),
    /// The child was stopped and killed and is still alive.
    #[error("child {0} survived being killed")]
    Unkillable(ChildId),
    /// The child did not start.
    #[error("child {child} did not start")]
    StartFailed {
        /// The child.
        child: ChildId,
        /// Why.
        #[source]
        cause: ChildStartError,
    },
    /// The spec makes no sense (OTP: `bad_combination` and the like).
    #[error(transparent)]
    BadSpec(#[from] BadSpec),
    /// A dynamic supervisor has as many children as it may (Elixir: `max_children`).
    #[error("there are already {0} children")]
    MaxChildren(usize),
    /// A dynamic supervisor keeps no specs of children that are down (OTP: `simple_one_for_one`).
    #[error("a dynamic supervisor has no children that are down")]
    Dynamic,
    /// The supervisor is shutting down.
    #[error("the supervisor is shutting down")]
    ShuttingDown,
    /// The supervisor has not answered within this time.
    #[error("the supervisor did not answer within {0:?}")]
    Silent(Duration),
    /// The supervisor has ended (OTP: `noproc`).
    #[error("the supervisor has ended")]
    Gone,
}
