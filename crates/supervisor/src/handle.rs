//! The reference to a running supervisor: requests, shutdown, its end. It owns nothing: dropping it changes
//! nothing.

use crate::actor::Message;
use crate::error::SupervisorError;
use crate::event::SupervisorEvent;
use crate::id::ChildId;
use crate::reason::ExitReason;
use crate::snapshot::{Level, TreeSnapshot};
use crate::spec::{ChildKind, ChildSpec, Restart};
use kohort_telemetry::{EventStream, Hub};
use ractor::{ActorCell, ActorId, ActorStatus};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What a child is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ChildStatus {
    /// Its start is under way.
    Starting,
    /// It runs.
    Running,
    /// It was asked to stop or killed, and is not down yet.
    Stopping,
    /// It is down and waits to be restarted (OTP: `restarting`).
    Restarting,
    /// It is down (OTP: `undefined`).
    Down,
    /// It survived being killed.
    Unkillable,
}

impl ChildStatus {
    /// `starting`, `running`, `stopping`, `restarting`, `down`, `unkillable`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChildStatus::Starting => "starting",
            ChildStatus::Running => "running",
            ChildStatus::Stopping => "stopping",
            ChildStatus::Restarting => "restarting",
            ChildStatus::Down => "down",
            ChildStatus::Unkillable => "unkillable",
        }
    }
}

/// Names a child by its id or by its actor. Made from either.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildTarget {
    /// The child of this id.
    Id(ChildId),
    /// The child whose running incarnation is this actor.
    Actor(ActorId),
}

impl<T: Into<ChildId>> From<T> for ChildTarget {
    fn from(id: T) -> ChildTarget {
        ChildTarget::Id(id.into())
    }
}

impl From<&ActorCell> for ChildTarget {
    fn from(cell: &ActorCell) -> ChildTarget {
        ChildTarget::Actor(cell.get_id())
    }
}

impl From<ActorCell> for ChildTarget {
    fn from(cell: ActorCell) -> ChildTarget {
        ChildTarget::Actor(cell.get_id())
    }
}

/// One child, as [`SupervisorRef::which_children`] lists it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildInfo {
    /// Its id.
    pub id: ChildId,
    /// How often it was started, the start under way included.
    pub incarnation: u64,
    /// The actor, while there is one.
    pub cell: Option<ActorCell>,
    /// Worker or supervisor.
    pub kind: ChildKind,
    /// When it is restarted.
    pub restart: Restart,
    /// What it is doing.
    pub status: ChildStatus,
}

/// How many children there are (OTP: `count_children/1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildCounts {
    /// Child specs, running or not.
    pub specs: usize,
    /// Children that run.
    pub active: usize,
    /// Specs of kind supervisor.
    pub supervisors: usize,
    /// Specs of kind worker.
    pub workers: usize,
}

/// A reference to a supervisor. Cheap to clone; owns nothing.
///
/// Requests are answered by the supervisor's message loop, which never waits for a child: they are answered
/// during a slow start and during a shutdown too. Every request future is cancel safe in the sense that the
/// supervisor stays consistent; a request that was sent is performed.
#[derive(Clone)]
pub struct SupervisorRef {
    inner: Arc<Inner>,
}

struct Inner {
    cell: ActorCell,
    id: ChildId,
    hub: Hub<SupervisorEvent>,
    // Written by the supervisor before a deliberate end; read when its cell has stopped.
    verdict: Arc<OnceLock<ExitReason>>,
    ended: watch::Receiver<Option<Arc<ExitReason>>>,
}

impl SupervisorRef {
    /// Makes the reference and the task that watches for the end, a kill included.
    pub(crate) fn new(cell: ActorCell, id: ChildId, hub: Hub<SupervisorEvent>) -> SupervisorRef {
        let (tell, ended) = watch::channel(None);
        let verdict: Arc<OnceLock<ExitReason>> = Arc::default();
        let watched = cell.clone();
        let said = Arc::clone(&verdict);
        tokio::spawn(async move {
            let _ = watched.wait(None).await;
            let reason = said.get().cloned().unwrap_or(ExitReason::Killed);
            tell.send_replace(Some(Arc::new(reason)));
        });
        SupervisorRef { inner: Arc::new(Inner { cell, id, hub, verdict, ended }) }
    }

    /// Says what it is about to end with; the first word stands.
    pub(crate) fn verdict(&self, reason: ExitReason) {
        let _ = self.inner.verdict.set(reason);
    }

    /// The supervisor's actor.
    pub fn cell(&self) -> &ActorCell {
        &self.inner.cell
    }

    /// The supervisor's own id.
    pub fn id(&self) -> &ChildId {
        &self.inner.id
    }

    /// Subscribes to its events; `capacity` is what is kept for a slow reader.
    pub fn events(&self, capacity: usize) -> EventStream<SupervisorEvent> {
        self.inner.hub.subscribe(capacity)
    }

    /// The reference behind a cell, for example one from [`which_children`](SupervisorRef::which_children);
    /// `None` when it is no supervisor of this crate or has ended.
    pub async fn of(cell: &ActorCell) -> Option<SupervisorRef> {
        let (reply, answer) = oneshot::channel();
        cell.send_message(Message::Identify(reply)).ok()?;
        answer.await.ok()
    }

    /// Every child, in start order (OTP: `which_children/1`). Fails only when the supervisor has ended.
    pub async fn which_children(&self) -> Result<Vec<ChildInfo>, SupervisorError> {
        self.ask(Message::WhichChildren).await
    }

    /// How many children there are (OTP: `count_children/1`). Fails only when the supervisor has ended.
    pub async fn count_children(&self) -> Result<ChildCounts, SupervisorError> {
        let mut counts = ChildCounts::default();
        for child in self.which_children().await? {
            counts.specs += 1;
            counts.active +=
                usize::from(matches!(child.status, ChildStatus::Running | ChildStatus::Stopping));
            match child.kind {
                ChildKind::Supervisor => counts.supervisors += 1,
                ChildKind::Worker => counts.workers += 1,
            }
        }
        Ok(counts)
    }

    /// The whole tree below, as plain data; within a second.
    pub async fn snapshot(&self) -> Result<TreeSnapshot, SupervisorError> {
        self.snapshot_within(Duration::from_secs(1)).await
    }

    /// The whole tree below, as plain data. Every supervisor in it is asked by the caller, siblings at the same
    /// time; one that has not answered within `limit` (its thread is blocked, or a foreign stop runs in it) is
    /// shown without its children. Fails when this supervisor itself has ended or does not answer.
    pub async fn snapshot_within(&self, limit: Duration) -> Result<TreeSnapshot, SupervisorError> {
        let now = Instant::now();
        let deadline = now.checked_add(limit).unwrap_or(now + Duration::from_secs(86_400));
        match gather(self.inner.cell.clone(), deadline).await {
            Some(tree) => Ok(tree),
            None if self.is_running() => Err(SupervisorError::Silent(limit)),
            None => Err(SupervisorError::Gone),
        }
    }

    /// Adds a child after the others and starts it (OTP: `start_child/2`). Answers when it runs; a spec whose
    /// start fails is not kept.
    pub async fn start_child(&self, spec: ChildSpec) -> Result<ActorCell, SupervisorError> {
        self.ask(|reply| Message::StartChild(Box::new(spec), reply)).await?
    }

    /// Stops a child by its [`Shutdown`](crate::Shutdown) and keeps its spec, unless it is temporary (OTP:
    /// `terminate_child/2`). Answers when it is down; `Ok` too when it already was. A restart that was pending
    /// for it does not happen.
    pub async fn terminate_child(&self, child: impl Into<ChildTarget>) -> Result<(), SupervisorError> {
        let child = child.into();
        self.ask(|reply| Message::TerminateChild(child, reply)).await?
    }

    /// Starts a child that is down (OTP: `restart_child/2`). Answers when it runs. Not counted as a restart.
    pub async fn restart_child(&self, id: impl Into<ChildId>) -> Result<ActorCell, SupervisorError> {
        let id = id.into();
        self.ask(|reply| Message::RestartChild(id, reply)).await?
    }

    /// Asks for [`restart_child`](SupervisorRef::restart_child) without waiting, as a child does from within
    /// the tree; the outcome of a delegated child's start comes as a [`DelegateNotice`](crate::DelegateNotice).
    /// False when the supervisor has ended.
    pub fn request_restart_child(&self, id: impl Into<ChildId>) -> bool {
        let (reply, _) = oneshot::channel();
        self.inner.cell.send_message(Message::RestartChild(id.into(), reply)).is_ok()
    }

    /// Removes the spec of a child that is down (OTP: `delete_child/2`).
    pub async fn delete_child(&self, id: impl Into<ChildId>) -> Result<(), SupervisorError> {
        let id = id.into();
        self.ask(|reply| Message::DeleteChild(id, reply)).await?
    }

    /// Shuts the supervisor down in order, each child within its own shutdown time, and waits for the end.
    /// A child must not await this in a handler, since its own stop is part of it; it asks with
    /// [`request_shutdown`](SupervisorRef::request_shutdown).
    pub async fn shutdown(&self) -> Arc<ExitReason> {
        self.request_shutdown(None);
        self.ended().await
    }

    /// As [`shutdown`](SupervisorRef::shutdown), with a deadline that caps every graceful wait in the whole
    /// subtree: what has not stopped by then is killed, still in order and one at a time. Only a child that
    /// blocks its thread can make it take longer: 5 s, after which it counts as unkillable.
    pub async fn shutdown_within(&self, limit: Duration) -> Arc<ExitReason> {
        self.request_shutdown(Some(limit));
        self.ended().await
    }

    /// Asks for a shutdown without waiting, within `limit` if given. A second request can only bring the
    /// deadline forward.
    pub fn request_shutdown(&self, limit: Option<Duration>) {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        // A supervisor that cannot be reached has ended, which is what was asked for.
        let _ = self.inner.cell.send_message(Message::Shutdown(deadline));
    }

    /// Waits for the end and says why; any number of callers may, also after it. Cancel safe.
    pub async fn ended(&self) -> Arc<ExitReason> {
        let mut ended = self.inner.ended.clone();
        match ended.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(Some(reason)) => reason,
            // The watching task is gone, and with it the runtime that the supervisor lived on.
            _ => Arc::new(self.inner.verdict.get().cloned().unwrap_or(ExitReason::Aborted)),
        }
    }

    /// Whether it has not ended yet; a shutdown may be under way.
    pub fn is_running(&self) -> bool {
        self.inner.cell.get_status() != ActorStatus::Stopped
    }

    async fn ask<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> Message,
    ) -> Result<T, SupervisorError> {
        let (reply, answer) = oneshot::channel();
        self.inner.cell.send_message(message(reply)).map_err(|_| SupervisorError::Gone)?;
        answer.await.map_err(|_| SupervisorError::Gone)
    }
}

type Gathering = Pin<Box<dyn Future<Output = Option<TreeSnapshot>> + Send>>;

fn gather(cell: ActorCell, deadline: Instant) -> Gathering {
    Box::pin(async move {
        let (reply, answer) = oneshot::channel();
        cell.send_message(Message::Snapshot(reply)).ok()?;
        let Level { mut node, below } = tokio::time::timeout_at(deadline, answer).await.ok()?.ok()?;
        let mut asked = JoinSet::new();
        for (index, cell) in below {
            asked.spawn(async move { (index, gather(cell, deadline).await) });
        }
        while let Some(told) = asked.join_next().await {
            if let Ok((index, Some(tree))) = told
                && let Some(child) = node.children.get_mut(index)
            {
                if tree.status == ChildStatus::Stopping {
                    child.status = ChildStatus::Stopping;
                }
                child.supervisor = tree.supervisor;
                child.children = tree.children;
            }
        }
        Some(node)
    })
}

impl fmt::Debug for SupervisorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorRef")
            .field("id", &self.inner.id)
            .field("actor", &self.inner.cell.get_id())
            .finish_non_exhaustive()
    }
}
