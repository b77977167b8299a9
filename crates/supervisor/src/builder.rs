//! How a supervisor is described and started. The description can be started any number of times: at the root,
//! or as a child that its parent restarts.

use crate::actor::{self, Arguments, SupervisorActor};
use crate::error::{BadSpec, StartError};
use crate::event::SupervisorEvent;
use crate::handle::SupervisorRef;
use crate::id::ChildId;
use crate::spec::{ChildKind, ChildSpec};
use kohort_telemetry::{EventStream, Hub};
use ractor::{Actor, ActorCell, ActorProcessingErr, SpawnErr};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

const UNNAMED: &str = "supervisor";

/// What else is restarted when one child is (OTP: `strategy()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// Nothing else.
    OneForOne,
    /// Every child: all are stopped in reverse order and started again in order. As in OTP that includes
    /// children that were down before.
    OneForAll,
    /// The child and those after it.
    RestForOne,
}

/// Whether the end of significant children ends the supervisor, as an ordered shutdown (OTP: `auto_shutdown()`).
/// Only an end by itself and for good counts: not one that is restarted, nor one by `terminate_child` or
/// together with siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AutoShutdown {
    /// No; significant children are refused. The default.
    #[default]
    Never,
    /// The first end of a significant child.
    AnySignificant,
    /// The end of the last significant child.
    AllSignificant,
}

/// Where a supervisor begins: `Supervisor::one_for_one().child(…).start().await?`.
#[derive(Clone, Copy, Debug)]
pub struct Supervisor;

impl Supervisor {
    /// A supervisor that restarts a failed child alone.
    pub fn one_for_one() -> SupervisorBuilder {
        SupervisorBuilder::new(Strategy::OneForOne)
    }

    /// A supervisor that restarts all children when one fails.
    pub fn one_for_all() -> SupervisorBuilder {
        SupervisorBuilder::new(Strategy::OneForAll)
    }

    /// A supervisor that restarts a failed child and those after it.
    pub fn rest_for_one() -> SupervisorBuilder {
        SupervisorBuilder::new(Strategy::RestForOne)
    }
}

type PrepareFn = Arc<dyn Fn(&ActorCell, PrepareRequest) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Prepare {
    pub(crate) child: ChildId,
    pub(crate) limit: Duration,
    pub(crate) ask: PrepareFn,
}

/// The first step of a shutdown: a child is asked to get ready while everything still runs.
#[derive(Debug)]
#[non_exhaustive]
pub struct PrepareRequest {
    /// When the shutdown goes on, ready or not.
    pub deadline: Instant,
    /// Ends the step, by [`PrepareDone::done`] or when it is dropped.
    pub done: PrepareDone,
}

/// Held while a child prepares; the shutdown goes on when it is gone.
#[must_use = "dropping it says that the child is ready"]
pub struct PrepareDone(Option<Box<dyn FnOnce() + Send + Sync>>);

impl PrepareDone {
    pub(crate) fn new(tell: impl FnOnce() + Send + Sync + 'static) -> PrepareDone {
        PrepareDone(Some(Box::new(tell)))
    }

    /// Says that the child is ready.
    pub fn done(self) {}
}

impl Drop for PrepareDone {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

impl fmt::Debug for PrepareDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrepareDone")
    }
}

/// Describes a supervisor (OTP: `sup_flags()` and the child specs). Can be started more than once.
#[derive(Clone)]
pub struct SupervisorBuilder {
    pub(crate) id: ChildId,
    pub(crate) strategy: Strategy,
    pub(crate) max: u32,
    pub(crate) period: Duration,
    pub(crate) auto_shutdown: AutoShutdown,
    pub(crate) children: Vec<ChildSpec>,
    /// For a dynamic supervisor: how many children it may have.
    pub(crate) dynamic: Option<usize>,
    pub(crate) prepare: Option<Prepare>,
    pub(crate) hub: Hub<SupervisorEvent>,
}

impl SupervisorBuilder {
    pub(crate) fn new(strategy: Strategy) -> SupervisorBuilder {
        SupervisorBuilder {
            id: ChildId::from(UNNAMED),
            strategy,
            max: 1,
            period: Duration::from_secs(5),
            auto_shutdown: AutoShutdown::Never,
            children: Vec::new(),
            dynamic: None,
            prepare: None,
            hub: Hub::new(),
        }
    }

    /// The name in events and errors. Default: as a child, the child's id; as a root, `supervisor`. Nothing is
    /// registered under it.
    pub fn id(mut self, id: impl Into<ChildId>) -> SupervisorBuilder {
        self.id = id.into();
        self
    }

    /// How many restarts are allowed within a period (OTP: `intensity` and `period`). Restart number `max + 1`
    /// within it ends the supervisor; 0 ends it at the first. The window slides and is never reset by success.
    /// Default: 1 in 5 s, as in OTP.
    pub fn intensity(mut self, max: u32, period: Duration) -> SupervisorBuilder {
        self.max = max;
        self.period = period;
        self
    }

    /// Whether the end of significant children ends this supervisor. Default: [`AutoShutdown::Never`].
    pub fn auto_shutdown(mut self, auto_shutdown: AutoShutdown) -> SupervisorBuilder {
        self.auto_shutdown = auto_shutdown;
        self
    }

    /// Adds a child. Children start in the order in which they were added and stop in reverse.
    pub fn child(mut self, spec: ChildSpec) -> SupervisorBuilder {
        self.children.push(spec);
        self
    }

    /// Adds children, in order.
    pub fn children(mut self, specs: impl IntoIterator<Item = ChildSpec>) -> SupervisorBuilder {
        self.children.extend(specs);
        self
    }

    /// Opens every shutdown with a step in which one child gets ready while the whole tree still runs and the
    /// supervisor still answers. `ask` is called on the supervisor's task and should only send a message to
    /// the child. The step ends when [`PrepareRequest::done`] is dropped or completed, when the child exits,
    /// or at its deadline: `limit` from now, or the shutdown's shared deadline if that is earlier. It is left
    /// out when the child is not running, and when the supervisor ends because of a failure.
    pub fn prepare(
        mut self,
        child: impl Into<ChildId>,
        limit: Duration,
        ask: impl Fn(&ActorCell, PrepareRequest) + Send + Sync + 'static,
    ) -> SupervisorBuilder {
        self.prepare = Some(Prepare { child: child.into(), limit, ask: Arc::new(ask) });
        self
    }

    /// Emits the events of every supervisor started from here through this hub. Default: a hub of its own.
    pub fn hub(mut self, hub: Hub<SupervisorEvent>) -> SupervisorBuilder {
        self.hub = hub;
        self
    }

    /// Subscribes to the events of every supervisor started from this builder; `capacity` is what is kept for
    /// a slow reader.
    pub fn events(&self, capacity: usize) -> EventStream<SupervisorEvent> {
        self.hub.subscribe(capacity)
    }

    /// Starts it as a root: linked to nothing, living on the current runtime until it is shut down or fails.
    ///
    /// Not cancel safe in the sense that a dropped future does not undo the start; but nothing leaks: a root
    /// that starts after its caller went away is shut down at once.
    pub async fn start(&self) -> Result<SupervisorRef, StartError> {
        let builder = self.clone();
        let (tell, told) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let started = builder.spawn(None).await;
            if let Err(Ok(orphan)) = tell.send(started) {
                orphan.request_shutdown(None);
            }
        });
        told.await.unwrap_or_else(|_| Err(self.not_spawned("the runtime is shutting down")))
    }

    /// Starts it linked to any ractor actor, which then gets its exit as a supervision event. That actor must
    /// stop it by [`SupervisorRef::shutdown`] to get the ordered shutdown with everything still answering;
    /// a plain `stop` also stops the children in order, but nothing answers meanwhile.
    pub async fn start_linked(&self, parent: ActorCell) -> Result<SupervisorRef, StartError> {
        self.spawn(Some(parent)).await
    }

    /// This supervisor as a child of another one: kind supervisor, shutdown infinity. Each restart starts it
    /// afresh from this description.
    pub fn spec(self, id: impl Into<ChildId>) -> ChildSpec {
        let id = id.into();
        let mut builder = self;
        if builder.id == UNNAMED {
            builder.id = id.clone();
        }
        let builder = Arc::new(builder);
        ChildSpec::new(id, move |context| {
            let builder = Arc::clone(&builder);
            async move {
                let started = builder.spawn(Some(context.cell())).await;
                match started {
                    Ok(supervisor) => Ok(supervisor.cell().clone()),
                    Err(error) => Err(ActorProcessingErr::from(error)),
                }
            }
        })
        .kind(ChildKind::Supervisor)
    }

    async fn spawn(&self, parent: Option<ActorCell>) -> Result<SupervisorRef, StartError> {
        let born = Arc::new(OnceLock::new());
        let arguments = Arguments { builder: self.clone(), born: Arc::clone(&born) };
        let spawned = match parent {
            Some(parent) => Actor::spawn_linked(None, SupervisorActor, arguments, parent).await,
            None => Actor::spawn(None, SupervisorActor, arguments).await,
        };
        match (spawned, born.get()) {
            (Ok(_), Some(supervisor)) => Ok(SupervisorRef::clone(supervisor)),
            (Ok((actor, _)), None) => {
                actor.kill();
                Err(self.not_spawned("it started without a reference"))
            }
            (Err(SpawnErr::StartupFailed(error)), _) => match error.downcast::<StartError>() {
                Ok(error) => Err(*error),
                Err(error) => Err(self.not_spawned(&error.to_string())),
            },
            (Err(error), _) => Err(self.not_spawned(&error.to_string())),
        }
    }

    fn not_spawned(&self, text: &str) -> StartError {
        StartError::Spawn { supervisor: self.id.clone(), text: text.to_owned() }
    }

    /// Refuses what makes no sense, with the reason (OTP: `check_childspecs/2`). A start does it first, before
    /// anything is started; the supervisors below are checked when they are started.
    pub fn check(&self) -> Result<(), StartError> {
        self.check_specs().map_err(|cause| StartError::BadSpec { supervisor: self.id.clone(), cause })?;
        let mut seen = std::collections::HashSet::new();
        for spec in &self.children {
            if !seen.insert(&spec.id) {
                return Err(StartError::DuplicateChild {
                    supervisor: self.id.clone(),
                    child: spec.id.clone(),
                });
            }
        }
        let delegates = self.children.iter().filter_map(actor::delegate_of);
        for id in delegates.chain(self.prepare.as_ref().map(|prepare| &prepare.child)) {
            if !seen.contains(id) {
                return Err(StartError::UnknownChild { supervisor: self.id.clone(), child: id.clone() });
            }
        }
        Ok(())
    }
}

impl SupervisorBuilder {
    fn check_specs(&self) -> Result<(), BadSpec> {
        if self.period.is_zero() {
            return Err(BadSpec::ZeroPeriod);
        }
        for spec in &self.children {
            spec.check()?;
            if spec.significant && self.auto_shutdown == AutoShutdown::Never {
                return Err(BadSpec::SignificantNever { child: spec.id.clone() });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for SupervisorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorBuilder")
            .field("id", &self.id)
            .field("strategy", &self.strategy)
            .field("max", &self.max)
            .field("period", &self.period)
            .field("auto_shutdown", &self.auto_shutdown)
            .field("children", &self.children)
            .field("prepare", &self.prepare.as_ref().map(|prepare| &prepare.child))
            .finish()
    }
}
