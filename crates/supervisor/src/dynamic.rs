//! The dynamic supervisor: children of one kind, started by argument while it runs. It is a one_for_one
//! supervisor without first children that keeps no specs of children that are down.

use crate::builder::{Strategy, SupervisorBuilder};
use crate::error::{StartError, SupervisorError};
use crate::event::SupervisorEvent;
use crate::handle::SupervisorRef;
use crate::id::ChildId;
use crate::spec::ChildSpec;
use kohort_telemetry::{EventStream, Hub};
use ractor::ActorCell;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

type Make<T> = Arc<dyn Fn(T) -> ChildSpec + Send + Sync>;

/// Describes a supervisor whose children are started by argument (OTP: `simple_one_for_one`; Elixir:
/// `DynamicSupervisor`). Can be started more than once.
///
/// ```
/// # use kohort_supervisor::{ChildSpec, DynamicSupervisor, Restart};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let connections = DynamicSupervisor::new(|port: u16| {
///     ChildSpec::task(format!("port-{port}"), move || async move { std::future::pending::<()>().await })
///         .restart(Restart::Temporary)
/// })
/// .max_children(100)
/// .start()
/// .await?;
/// let first = connections.start_child(8080).await?;
/// connections.start_child(8081).await?;
/// connections.terminate_child(first).await?;
/// assert_eq!(connections.count_children().await?.active, 1);
/// connections.shutdown().await;
/// # Ok(()) }
/// ```
///
/// Children stop all at once when it shuts down, as in OTP, since they do not know each other. The id that the
/// spec is given has to be free, as in every supervisor of this crate: it usually names the argument.
pub struct DynamicSupervisor<T> {
    builder: SupervisorBuilder,
    make: Make<T>,
}

impl<T> DynamicSupervisor<T> {
    /// `make` gives the child for an argument. It is called by [`DynamicRef::start_child`]; restarts use the
    /// spec that it gave.
    pub fn new(make: impl Fn(T) -> ChildSpec + Send + Sync + 'static) -> DynamicSupervisor<T> {
        let mut builder = SupervisorBuilder::new(Strategy::OneForOne);
        builder.dynamic = Some(usize::MAX);
        DynamicSupervisor { builder, make: Arc::new(make) }
    }

    /// How many children there may be at once, those that wait for a restart included. Default: no limit.
    pub fn max_children(mut self, max: usize) -> DynamicSupervisor<T> {
        self.builder.dynamic = Some(max);
        self
    }

    /// As [`SupervisorBuilder::id`].
    pub fn id(mut self, id: impl Into<ChildId>) -> DynamicSupervisor<T> {
        self.builder = self.builder.id(id);
        self
    }

    /// As [`SupervisorBuilder::intensity`]. The restarts of all children count together.
    pub fn intensity(mut self, max: u32, period: Duration) -> DynamicSupervisor<T> {
        self.builder = self.builder.intensity(max, period);
        self
    }

    /// As [`SupervisorBuilder::hub`].
    pub fn hub(mut self, hub: Hub<SupervisorEvent>) -> DynamicSupervisor<T> {
        self.builder = self.builder.hub(hub);
        self
    }

    /// As [`SupervisorBuilder::events`].
    pub fn events(&self, capacity: usize) -> EventStream<SupervisorEvent> {
        self.builder.events(capacity)
    }

    /// Starts it as a root; see [`SupervisorBuilder::start`].
    pub async fn start(&self) -> Result<DynamicRef<T>, StartError> {
        Ok(self.bind(self.builder.start().await?))
    }

    /// Starts it linked to any ractor actor; see [`SupervisorBuilder::start_linked`].
    pub async fn start_linked(&self, parent: ActorCell) -> Result<DynamicRef<T>, StartError> {
        Ok(self.bind(self.builder.start_linked(parent).await?))
    }

    /// This supervisor as a child of another one; see [`SupervisorBuilder::spec`]. Children that were started
    /// go with an incarnation of it; [`bind`](DynamicSupervisor::bind) reaches the running one.
    pub fn spec(&self, id: impl Into<ChildId>) -> ChildSpec {
        self.builder.clone().spec(id)
    }

    /// The reference that starts children by argument, for a running supervisor that was started from this
    /// description: for example one nested by [`spec`](DynamicSupervisor::spec) and found by
    /// [`SupervisorRef::of`].
    pub fn bind(&self, supervisor: SupervisorRef) -> DynamicRef<T> {
        DynamicRef { supervisor, make: Arc::clone(&self.make) }
    }
}

impl<T> Clone for DynamicSupervisor<T> {
    fn clone(&self) -> DynamicSupervisor<T> {
        DynamicSupervisor { builder: self.builder.clone(), make: Arc::clone(&self.make) }
    }
}

impl<T> fmt::Debug for DynamicSupervisor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamicSupervisor").field("builder", &self.builder).finish_non_exhaustive()
    }
}

/// A reference to a dynamic supervisor: a [`SupervisorRef`] that starts children by argument. Cheap to clone;
/// owns nothing.
pub struct DynamicRef<T> {
    supervisor: SupervisorRef,
    make: Make<T>,
}

impl<T> DynamicRef<T> {
    /// Starts a child for this argument (OTP: `start_child/2`). Answers when it runs; refused with
    /// [`SupervisorError::MaxChildren`] when there are too many.
    pub async fn start_child(&self, argument: T) -> Result<ActorCell, SupervisorError> {
        self.supervisor.start_child((self.make)(argument)).await
    }
}

impl<T> Deref for DynamicRef<T> {
    type Target = SupervisorRef;

    fn deref(&self) -> &SupervisorRef {
        &self.supervisor
    }
}

impl<T> Clone for DynamicRef<T> {
    fn clone(&self) -> DynamicRef<T> {
        DynamicRef { supervisor: self.supervisor.clone(), make: Arc::clone(&self.make) }
    }
}

impl<T> fmt::Debug for DynamicRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.supervisor.fmt(f)
    }
}
