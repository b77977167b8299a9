//! What a supervisor is told about a child: how to start it, when to restart it, how to stop it. Data only;
//! the plan reads it and the actor performs it.

use crate::error::BadSpec;
use crate::handle::SupervisorRef;
use crate::id::ChildId;
use crate::reason::ExitReason;
use crate::task::{self, TaskOutput};
use ractor::{Actor, ActorCell, ActorProcessingErr, SpawnErr};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// When a child that exited is restarted (OTP: `restart()`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restart {
    /// Always. The default, as in OTP.
    Permanent,
    /// When it exited abnormally: killed, aborted, by panic or error.
    Transient,
    /// Never; its spec goes with it.
    Temporary,
    /// By decision of another child, its delegate. The supervisor owns the child, orders its start and stop
    /// and restarts it with its siblings in one_for_all, but its own exit is only told to the delegate:
    /// neither restarted nor counted. This is the one addition to OTP's restart types.
    Delegated {
        /// The child that decides.
        to: ChildId,
    },
}

/// How a child is stopped (OTP: `shutdown()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shutdown {
    /// Killed at once, without `post_stop` (OTP: `brutal_kill`).
    BrutalKill,
    /// Asked to stop, killed when it is alive after this time (OTP: `timeout()`). The default for a worker is
    /// 5 s, as in OTP.
    Timeout(Duration),
    /// Asked to stop and waited for (OTP: `infinity`). The default for a supervisor.
    Infinity,
}

/// What a child is (OTP: `worker()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ChildKind {
    /// An actor that works.
    Worker,
    /// A supervisor of this crate: it is asked to shut down by message and passes a deadline on.
    Supervisor,
}

impl ChildKind {
    /// `worker` or `supervisor`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChildKind::Worker => "worker",
            ChildKind::Supervisor => "supervisor",
        }
    }
}

/// Delayed restart of one child; ours, not OTP's, and off by default. The delay doubles from `initial` to `max`
/// with every restart and begins again once the child has run for a healthy period. Each restart is counted when
/// the child exits, and each failed try when it fails, so an intensity has to leave room for what happens within
/// its period. A shutdown and `terminate_child` do not wait for a delay.
///
/// In one_for_all and rest_for_one the others are stopped at once and the start of all waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    pub(crate) initial: Duration,
    pub(crate) max: Duration,
    pub(crate) jitter: f64,
    pub(crate) seed: u64,
    pub(crate) reset_after: Option<Duration>,
}

impl Backoff {
    /// `initial`, 2 × `initial`, 4 × `initial` … at most `max`; without jitter; healthy after `max`.
    pub fn new(initial: Duration, max: Duration) -> Backoff {
        Backoff { initial, max, jitter: 0.0, seed: 0, reset_after: None }
    }

    /// Takes a random share of at most `share` (0 to 1) off each delay. The same seed and child id give the
    /// same delays.
    pub fn jitter(mut self, share: f64, seed: u64) -> Backoff {
        self.jitter = share;
        self.seed = seed;
        self
    }

    /// How long a child has to have run for its next delay to be the initial one again. Default: `max`.
    pub fn reset_after(mut self, healthy: Duration) -> Backoff {
        self.reset_after = Some(healthy);
        self
    }
}

/// What a child's start is given.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StartContext {
    /// The supervisor. A child may keep it and send requests to it; it must not await an answer from within
    /// its own start, because the supervisor may itself still be starting.
    pub supervisor: SupervisorRef,
    /// The child's id.
    pub id: ChildId,
    /// Which start of this child it is, from 1.
    pub incarnation: u64,
}

impl StartContext {
    /// The actor to link the child to, for `spawn_linked`.
    pub fn cell(&self) -> ActorCell {
        self.supervisor.cell().clone()
    }
}

/// What a delegate is told about a child delegated to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DelegateNotice {
    /// It runs.
    ChildStarted {
        /// The child.
        id: ChildId,
        /// Its incarnation, from 1.
        incarnation: u64,
        /// The actor.
        cell: ActorCell,
    },
    /// It ended, or a start of it failed (the incarnation then never had a `ChildStarted`).
    ChildExited {
        /// The child.
        id: ChildId,
        /// The incarnation that ended: one older than the latest `ChildStarted` is an old story.
        incarnation: u64,
        /// Why.
        reason: ExitReason,
    },
}

impl DelegateNotice {
    /// The child it is about.
    pub fn id(&self) -> &ChildId {
        match self {
            DelegateNotice::ChildStarted { id, .. } | DelegateNotice::ChildExited { id, .. } => id,
        }
    }
}

pub(crate) type StartFuture = Pin<Box<dyn Future<Output = Result<ActorCell, ActorProcessingErr>> + Send>>;
pub(crate) type Start = Arc<dyn Fn(StartContext) -> StartFuture + Send + Sync>;
pub(crate) type Notify = Arc<dyn Fn(&ActorCell, DelegateNotice) + Send + Sync>;

/// How a supervisor starts, restarts and stops one child (OTP: `child_spec()`). Cheap to clone.
///
/// Defaults as in OTP: permanent, a worker, 5 s to stop. A start may take 10 s (a supervisor's start is bound
/// by its children's).
#[derive(Clone)]
pub struct ChildSpec {
    pub(crate) id: ChildId,
    pub(crate) start: Start,
    pub(crate) restart: Restart,
    pub(crate) shutdown: Option<Shutdown>,
    pub(crate) kind: ChildKind,
    pub(crate) significant: bool,
    pub(crate) backoff: Option<Box<Backoff>>,
    pub(crate) start_timeout: Option<Duration>,
    pub(crate) runtime: Option<Handle>,
    pub(crate) notify: Option<Notify>,
}

impl ChildSpec {
    /// A child started by a function, which spawns an actor linked to [`StartContext::cell`] as its last step
    /// and answers its cell. It runs as a task of its own; it may be cancelled at its start timeout, or when
    /// the supervisor stops.
    pub fn new<F, R>(id: impl Into<ChildId>, start: F) -> ChildSpec
    where
        F: Fn(StartContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ActorCell, ActorProcessingErr>> + Send + 'static,
    {
        ChildSpec {
            id: id.into(),
            start: Arc::new(move |context| Box::pin(start(context))),
            restart: Restart::Permanent,
            shutdown: None,
            kind: ChildKind::Worker,
            significant: false,
            backoff: None,
            start_timeout: None,
            runtime: None,
            notify: None,
        }
    }

    /// A child that is a ractor actor; `make` gives the actor and its arguments for each start.
    pub fn actor<A, F>(id: impl Into<ChildId>, make: F) -> ChildSpec
    where
        A: Actor,
        F: Fn() -> (A, A::Arguments) + Send + Sync + 'static,
    {
        ChildSpec::new(id, move |context| {
            let (actor, arguments) = make();
            async move {
                match A::spawn_linked(None, actor, arguments, context.cell()).await {
                    Ok((actor, _)) => Ok(actor.get_cell()),
                    Err(SpawnErr::StartupFailed(error)) => Err(error),
                    Err(other) => Err(other.into()),
                }
            }
        })
    }

    /// A child that is a future; `make` gives one for each start. How it ends is the child's exit: `()` or `Ok`
    /// normal, an `Err` that error, a panic that panic. A stop drops the future at its next await, and so does a
    /// kill; while it blocks its thread, neither gets through.
    pub fn task<F, R>(id: impl Into<ChildId>, make: F) -> ChildSpec
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output: TaskOutput> + Send + 'static,
    {
        ChildSpec::task_with(id, move |_| make())
    }

    /// As [`task`](ChildSpec::task), for a future that wants to know its supervisor or its incarnation.
    pub fn task_with<F, R>(id: impl Into<ChildId>, make: F) -> ChildSpec
    where
        F: Fn(StartContext) -> R + Send + Sync + 'static,
        R: Future<Output: TaskOutput> + Send + 'static,
    {
        ChildSpec::new(id, move |context| {
            let parent = context.cell();
            task::start(make(context), parent)
        })
    }

    /// When it is restarted. Default: [`Restart::Permanent`].
    pub fn restart(mut self, restart: Restart) -> ChildSpec {
        self.restart = restart;
        self
    }

    /// How it is stopped. Default: 5 s for a worker, [`Shutdown::Infinity`] for a supervisor.
    pub fn shutdown(mut self, shutdown: Shutdown) -> ChildSpec {
        self.shutdown = Some(shutdown);
        self
    }

    /// What it is. Default: [`ChildKind::Worker`].
    pub fn kind(mut self, kind: ChildKind) -> ChildSpec {
        self.kind = kind;
        self
    }

    /// Whether its end counts for the supervisor's [`AutoShutdown`](crate::AutoShutdown). Only for transient
    /// and temporary children. Default: no.
    pub fn significant(mut self, significant: bool) -> ChildSpec {
        self.significant = significant;
        self
    }

    /// Delays its restarts. Default: none, as in OTP.
    pub fn backoff(mut self, backoff: Backoff) -> ChildSpec {
        self.backoff = Some(Box::new(backoff));
        self
    }

    /// How long its start may take. Default: 10 s for a worker, unbounded for a supervisor.
    pub fn start_timeout(mut self, limit: Duration) -> ChildSpec {
        self.start_timeout = Some(limit);
        self
    }

    /// The runtime on which its start runs, so that the actor lives there. Default: the supervisor's.
    pub fn on(mut self, runtime: Handle) -> ChildSpec {
        self.runtime = Some(runtime);
        self
    }

    /// Makes it [`Restart::Delegated`] to the child `to`. `notify` is called on the supervisor's task with the
    /// delegate's cell and should only send a message to it. Notices are kept while the delegate is not
    /// running.
    pub fn delegate_to(
        mut self,
        to: impl Into<ChildId>,
        notify: impl Fn(&ActorCell, DelegateNotice) + Send + Sync + 'static,
    ) -> ChildSpec {
        self.restart = Restart::Delegated { to: to.into() };
        self.notify = Some(Arc::new(notify));
        self
    }

    /// Refuses what makes no sense, as far as the spec alone can tell; a supervisor checks it too, before it
    /// starts anything (OTP: `check_childspecs/1`).
    pub fn check(&self) -> Result<(), BadSpec> {
        let child = || self.id.clone();
        let never_restarted = matches!(self.restart, Restart::Temporary | Restart::Delegated { .. });
        match (&self.restart, &self.backoff) {
            (Restart::Permanent, _) if self.significant => {
                return Err(BadSpec::SignificantPermanent { child: child() });
            }
            (Restart::Delegated { .. }, _) if self.significant => {
                return Err(BadSpec::SignificantDelegated { child: child() });
            }
            (Restart::Delegated { to }, _) if *to == self.id => {
                return Err(BadSpec::DelegatedToItself { child: child() });
            }
            (Restart::Delegated { .. }, _) if self.notify.is_none() => {
                return Err(BadSpec::DelegatedInSilence { child: child() });
            }
            (_, Some(_)) if never_restarted => return Err(BadSpec::BackoffUnused { child: child() }),
            (_, Some(backoff)) => {
                let bad_jitter = !(0.0..=1.0).contains(&backoff.jitter);
                if backoff.initial.is_zero() || backoff.max < backoff.initial || bad_jitter {
                    return Err(BadSpec::BadBackoff { child: child() });
                }
            }
            _ => {}
        }
        if self.start_timeout.is_some_and(|limit| limit.is_zero()) {
            return Err(BadSpec::NoTimeToStart { child: child() });
        }
        Ok(())
    }

    /// The child's id.
    pub fn id(&self) -> &ChildId {
        &self.id
    }

    pub(crate) fn effective_shutdown(&self) -> Shutdown {
        self.shutdown.unwrap_or(match self.kind {
            ChildKind::Worker => Shutdown::Timeout(Duration::from_secs(5)),
            ChildKind::Supervisor => Shutdown::Infinity,
        })
    }

    pub(crate) fn effective_start_timeout(&self) -> Option<Duration> {
        match (self.start_timeout, self.kind) {
            (Some(limit), _) => Some(limit),
            (None, ChildKind::Worker) => Some(Duration::from_secs(10)),
            (None, ChildKind::Supervisor) => None,
        }
    }
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("id", &self.id)
            .field("restart", &self.restart)
            .field("shutdown", &self.effective_shutdown())
            .field("kind", &self.kind)
            .field("significant", &self.significant)
            .field("backoff", &self.backoff)
            .field("start_timeout", &self.effective_start_timeout())
            .finish_non_exhaustive()
    }
}
