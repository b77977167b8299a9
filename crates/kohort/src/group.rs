//! A consumer group as this process takes part in it: the checked definition, from which members start.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use kohort_supervisor::{ChildKind, ChildSpec, Restart, Shutdown};
use kohort_telemetry::Hub;
use ractor::ActorProcessingErr;
use tokio::runtime::Handle;

use crate::config::{Config, ConsumerGroupBuilder, invalid};
use crate::error::{ConfigError, StartError};
use crate::event::{MemberEvent, MemberEvents, MemberName};
use crate::member::{Incarnation, Member, MemberRef};
use crate::tree;
use crate::worker::WorkerFactory;

/// The checked definition of a group's members. Cheap to clone; clones are the same group.
#[derive(Clone)]
pub struct ConsumerGroup {
    inner: Arc<Inner>,
}

struct Inner {
    config: Arc<Config>,
    factory: Arc<dyn WorkerFactory>,
    events: Hub<MemberEvent>,
    members: Mutex<Vec<Weak<Incarnation>>>,
}

/// Events kept for a subscriber that is slow.
const EVENTS_KEPT: usize = 1024;
/// What the tree itself may take beyond a close's timeout.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(1);

impl ConsumerGroup {
    /// Begins to describe a group that consumes these topics.
    ///
    /// ```
    /// use kohort::{ConsumerGroup, OwnedRecord, handler_fn};
    ///
    /// let group = ConsumerGroup::builder("orders-service", ["orders"])
    ///     .bootstrap_servers(["localhost:9092"])
    ///     .handler(handler_fn(|record: OwnedRecord| async move {
    ///         println!("{record:?}");
    ///         Ok::<(), std::convert::Infallible>(())
    ///     }))
    ///     .build()?;
    /// # Ok::<(), kohort::ConfigError>(())
    /// ```
    pub fn builder(
        group_id: impl Into<String>,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> ConsumerGroupBuilder {
        ConsumerGroupBuilder::new(group_id.into(), topics.into_iter().map(Into::into).collect())
    }

    pub(crate) fn new(config: Config, factory: Arc<dyn WorkerFactory>) -> Self {
        let inner =
            Inner { config: Arc::new(config), factory, events: Hub::new(), members: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// `group.id`.
    pub fn group_id(&self) -> &str {
        &self.inner.config.membership.group_id
    }

    /// The topics subscribed to.
    pub fn topics(&self) -> &[String] {
        &self.inner.config.membership.topics
    }

    /// The events of all members of this group, from now on. 1024 are kept for a slow reader; what is lost
    /// beyond that comes as [`MemberEvent::Lagged`].
    pub fn events(&self) -> MemberEvents {
        self.inner.events.subscribe(EVENTS_KEPT)
    }

    /// Starts the one member of this group, without a supervisor: when it ends for a terminal reason it stays
    /// down. Call it from within a tokio runtime; handlers run there. No broker needs to be there yet.
    ///
    /// # Errors
    /// [`StartError`]. A group of several [`members`](ConsumerGroupBuilder::members) is refused as
    /// [`StartError::SeveralMembers`]; see [`ConsumerGroup::start_all`].
    ///
    /// # Cancel safety
    /// A dropped future leaves nothing running.
    pub async fn start(&self) -> Result<Member, StartError> {
        self.only_one()?;
        self.start_member(1).await
    }

    /// Starts all members, without a supervisor.
    ///
    /// # Errors
    /// [`StartError`]; those started before are then closed.
    pub async fn start_all(&self) -> Result<Vec<Member>, StartError> {
        let mut members = Vec::new();
        for index in 1..=self.inner.config.members {
            members.push(self.start_member(index).await?);
        }
        Ok(members)
    }

    /// The one member of this group as a child of an application's supervisor: transient (a clean close is not
    /// restarted), stopped within the close timeout plus 1 s. A member that ends for a terminal reason is
    /// started fresh by that supervisor, with an empty crash window.
    ///
    /// # Errors
    /// [`ConfigError`] for a group of several [`members`](ConsumerGroupBuilder::members); see
    /// [`ConsumerGroup::child_specs`].
    pub fn child_spec(&self, id: &str) -> Result<ChildSpec, ConfigError> {
        let members = self.inner.config.members;
        if members != 1 {
            return Err(invalid("members", members, "child_spec is for one member; use child_specs"));
        }
        Ok(self.spec_of(id.to_owned(), 1))
    }

    /// All members as children `id-1` … `id-n`, each as [`ConsumerGroup::child_spec`] describes.
    pub fn child_specs(&self, id: &str) -> Vec<ChildSpec> {
        (1..=self.inner.config.members).map(|index| self.spec_of(format!("{id}-{index}"), index)).collect()
    }

    /// The members of this group that live now in this process, whoever started them.
    pub fn running(&self) -> Vec<MemberRef> {
        let mut members = self.inner.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| member.upgrade().is_some_and(|member| !member.is_over()));
        let mut running: Vec<MemberRef> = members
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|member| member.is_started())
            .map(MemberRef::new)
            .collect();
        running.sort_by(|a, b| a.name().cmp(b.name()));
        running
    }

    fn only_one(&self) -> Result<(), StartError> {
        match self.inner.config.members {
            1 => Ok(()),
            members => Err(StartError::SeveralMembers { members }),
        }
    }

    async fn start_member(&self, index: usize) -> Result<Member, StartError> {
        let handlers = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let incarnation = self.incarnation(index)?;
        tree::start(&incarnation, self.inner.factory.clone(), handlers, None).await?;
        Ok(Member::new(incarnation))
    }

    fn spec_of(&self, id: String, index: usize) -> ChildSpec {
        let group = self.clone();
        ChildSpec::new(id, move |context| {
            let group = group.clone();
            async move {
                let handlers = Handle::current();
                let incarnation = group.incarnation(index).map_err(ActorProcessingErr::from)?;
                let parent = Some(context.cell());
                let started = tree::start(&incarnation, group.inner.factory.clone(), handlers, parent).await;
                started.map(|root| root.cell().clone()).map_err(ActorProcessingErr::from)
            }
        })
        .kind(ChildKind::Supervisor)
        .restart(Restart::Transient)
        .shutdown(Shutdown::Timeout(self.inner.config.close_timeout + CLOSE_GRACE))
    }

    /// A new life of a member, known to the group.
    fn incarnation(&self, index: usize) -> Result<Arc<Incarnation>, StartError> {
        let config = &self.inner.config;
        let instance_id =
            config.instance_id.as_ref().map(|id| id.resolve(index, config.members)).transpose()?;
        let name = MemberName { group: self.group_id().into(), index };
        let incarnation = Incarnation::new(name, config.clone(), instance_id, self.inner.events.clone());
        let mut members = self.inner.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| member.upgrade().is_some_and(|member| !member.is_over()));
        members.push(Arc::downgrade(&incarnation));
        Ok(incarnation)
    }
}

impl std::fmt::Debug for ConsumerGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerGroup").field("config", &self.inner.config.membership).finish_non_exhaustive()
    }
}
