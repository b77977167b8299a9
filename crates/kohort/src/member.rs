//! One running incarnation of a member, and the handles to it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kohort_group::{CrashWindow, MemberState};
use kohort_protocol::TopicPartition;
use kohort_supervisor::{ChildInfo, ExitReason, SupervisorError, SupervisorExit, SupervisorRef};
use kohort_telemetry::Hub;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::close::{CloseOptions, CloseReport};
use crate::config::{Config, LONGEST};
use crate::error::{TerminalReason, WorkerFailed};
use crate::event::{MemberEvent, MemberName};
use crate::group::CLOSE_GRACE;
use crate::status::{Health, MemberStatus, Slot, Snapshot};

type Outcome = Result<CloseReport, TerminalReason>;

/// What all parts of one incarnation share.
pub(crate) struct Incarnation {
    pub(crate) name: MemberName,
    pub(crate) config: Arc<Config>,
    pub(crate) instance_id: Option<String>,
    events: Hub<MemberEvent>,
    snapshot: Mutex<Snapshot>,
    slots: Mutex<BTreeMap<TopicPartition, Arc<Slot>>>,
    /// Which arming of the heart may beat; 0: none. Read right before a beat is sent.
    pub(crate) armed: AtomicU64,
    close_asked: Mutex<Option<CloseOptions>>,
    closed: OnceLock<CloseReport>,
    terminal: OnceLock<TerminalReason>,
    root: OnceLock<SupervisorRef>,
    outcome: watch::Sender<Option<Outcome>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Incarnation {
    pub(crate) fn new(
        name: MemberName,
        config: Arc<Config>,
        instance_id: Option<String>,
        events: Hub<MemberEvent>,
    ) -> Arc<Self> {
        let membership = &config.membership;
        let crashes = CrashWindow::new(membership.crash_rejoin_max_restarts, membership.crash_rejoin_window);
        let snapshot = Snapshot {
            state: MemberState::Unjoined,
            member_id: String::new(),
            generation: -1,
            coordinator: None,
            last_good: None,
            assignment: Vec::new(),
            crashes,
            trouble: String::new(),
            ending: false,
            since: Instant::now(),
        };
        Arc::new(Self {
            name,
            config,
            instance_id,
            events,
            snapshot: Mutex::new(snapshot),
            slots: Mutex::default(),
            armed: AtomicU64::new(0),
            close_asked: Mutex::default(),
            closed: OnceLock::new(),
            terminal: OnceLock::new(),
            root: OnceLock::new(),
            outcome: watch::Sender::new(None),
        })
    }

    pub(crate) fn emit(&self, event: MemberEvent) {
        self.events.emit(event);
    }

    pub(crate) fn snapshot(&self) -> MutexGuard<'_, Snapshot> {
        lock(&self.snapshot)
    }

    pub(crate) fn slots(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Arc<Slot>>> {
        lock(&self.slots)
    }

    pub(crate) fn is_started(&self) -> bool {
        self.root.get().is_some()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// The options of the close that is asked for; the default for one that a supervisor asks for.
    pub(crate) fn close_options(&self) -> CloseOptions {
        lock(&self.close_asked).unwrap_or_default()
    }

    pub(crate) fn set_closed(&self, report: CloseReport) {
        if self.closed.set(report.clone()).is_ok() {
            self.emit(MemberEvent::Closed { member: self.name.clone(), report });
        }
    }

    /// Sets the terminal reason, once, and tells of it, once.
    pub(crate) fn set_terminal(&self, reason: TerminalReason) {
        if self.terminal.set(reason.clone()).is_ok() {
            let class = reason.class();
            self.emit(MemberEvent::Terminated { member: self.name.clone(), class, reason });
        }
    }

    /// The tree runs; whatever its end, the outcome is known afterwards.
    pub(crate) fn set_root(self: &Arc<Self>, root: SupervisorRef) {
        if self.root.set(root.clone()).is_err() {
            return;
        }
        let conclusion = Conclusion(self.clone());
        let ended = root.clone();
        tokio::spawn(async move {
            let exit = ended.ended().await;
            conclusion.draw(&exit);
        });
        if let Some(options) = *lock(&self.close_asked) {
            self.request_shutdown(&root, options);
        }
    }

    fn request_shutdown(&self, root: &SupervisorRef, options: CloseOptions) {
        let timeout = options.timeout_set().unwrap_or(self.config.close_timeout);
        root.request_shutdown(Some(timeout.min(LONGEST) + CLOSE_GRACE));
    }

    fn conclude(&self, exit: &ExitReason) -> Outcome {
        if let Some(reason) = self.terminal.get() {
            return Err(reason.clone());
        }
        if let Some(report) = self.closed.get() {
            let forced = report.forced || exit.is_abnormal();
            return Ok(CloseReport { forced, ..report.clone() });
        }
        if !exit.is_abnormal() {
            // Swept away before the manager could close.
            self.set_closed(CloseReport { forced: true, ..CloseReport::default() });
            return Ok(self.closed.get().cloned().unwrap_or_default());
        }
        self.set_terminal(reason_of(exit));
        Err(self.terminal.get().cloned().unwrap_or_else(|| reason_of(exit)))
    }

    fn status(&self) -> MemberStatus {
        let snapshot = self.snapshot().clone();
        let slots = self.slots();
        let now = Instant::now();
        let assignment = snapshot
            .assignment
            .iter()
            .map(|partition| match slots.get(partition) {
                Some(slot) => slot.status(partition.clone()),
                None => Slot::new(None).status(partition.clone()),
            })
            .collect();
        MemberStatus {
            health: self.health(&snapshot, &slots, now),
            state: snapshot.state,
            member_id: snapshot.member_id,
            group_instance_id: self.instance_id.clone(),
            generation: snapshot.generation,
            coordinator: snapshot.coordinator.map(|node| format!("{}:{}", node.host, node.port)),
            last_good_heartbeat: snapshot.last_good.map(|at| now.saturating_duration_since(at)),
            assignment,
            crashes_in_window: snapshot.crashes.count(now.into_std()),
            crash_rejoin_max_restarts: self.config.membership.crash_rejoin_max_restarts,
        }
    }

    fn health(
        &self,
        snapshot: &Snapshot,
        slots: &BTreeMap<TopicPartition, Arc<Slot>>,
        now: Instant,
    ) -> Health {
        if let Some(reason) = self.terminal.get() {
            return Health::Failed { reason: reason.clone() };
        }
        if self.closed.get().is_some() || snapshot.ending || self.is_over() {
            return Health::Closed;
        }
        let heard = snapshot.last_good.unwrap_or(snapshot.since);
        let silent = now.saturating_duration_since(heard);
        if silent > self.config.membership.session_timeout {
            let trouble = if snapshot.trouble.is_empty() { "no answer yet" } else { &snapshot.trouble };
            return Health::Unhealthy { cause: format!("no good heartbeat for {silent:.1?}: {trouble}") };
        }
        if snapshot.state != MemberState::Stable {
            return Health::Rebalancing;
        }
        let failure = |(partition, slot): (&TopicPartition, &Arc<Slot>)| {
            slot.failure().map(|reason| format!("{partition}: {reason}"))
        };
        match slots.iter().find_map(failure) {
            Some(cause) => Health::Unhealthy { cause },
            None => Health::Healthy,
        }
    }
}

/// Whoever waits for the end is told, also when the runtime goes away under the tree.
struct Conclusion(Arc<Incarnation>);

impl Conclusion {
    fn draw(&self, exit: &ExitReason) {
        let outcome = self.0.conclude(exit);
        self.0.outcome.send_replace(Some(outcome));
    }
}

impl Drop for Conclusion {
    fn drop(&mut self) {
        if !self.0.is_over() {
            let what = "the runtime that it lived on is gone";
            self.0.set_terminal(TerminalReason::Crashed { what: what.into() });
            self.draw(&ExitReason::Aborted);
        }
    }
}

/// Reads the reason out of the exits of the tree.
fn reason_of(exit: &ExitReason) -> TerminalReason {
    if let Some(reason) = exit.find::<TerminalReason>() {
        return reason.clone();
    }
    if let Some(failed) = exit.find::<WorkerFailed>() {
        return TerminalReason::WorkersGaveUp {
            partition: Some(failed.partition.clone()),
            cause: failed.to_string(),
            source: Some(Arc::new(failed.clone())),
        };
    }
    let what = match exit.find::<SupervisorExit>() {
        Some(SupervisorExit::ReachedMaxIntensity { child, cause, .. }) => format!("{child}: {cause}"),
        Some(other) => other.to_string(),
        None => format!("the member's supervisor: {exit}"),
    };
    TerminalReason::Crashed { what }
}

/// A member that lives, or lived; owns nothing. Cheap to clone.
#[derive(Clone)]
pub struct MemberRef {
    incarnation: Arc<Incarnation>,
}

impl MemberRef {
    pub(crate) fn new(incarnation: Arc<Incarnation>) -> Self {
        Self { incarnation }
    }

    /// Which member it is.
    pub fn name(&self) -> &MemberName {
        &self.incarnation.name
    }

    /// How it is, now. Never waits, whatever the member is busy with.
    pub fn status(&self) -> MemberStatus {
        self.incarnation.status()
    }

    /// The parts of its tree (OTP: `which_children/1`): `heartbeat`, `manager`, `partitions`, `fetchers`. With
    /// a child's cell a drill can kill it, as one would in Erlang.
    ///
    /// # Errors
    /// [`SupervisorError::Gone`] after its end.
    pub async fn which_children(&self) -> Result<Vec<ChildInfo>, SupervisorError> {
        match self.incarnation.root.get() {
            Some(root) => root.which_children().await,
            None => Err(SupervisorError::Gone),
        }
    }

    /// Closes it: no new handler call, the record in hand finishes, commit, `revoked`, LeaveGroup as the
    /// options say, everything stops. Takes no longer than the timeout and a second, or five if a handler blocks
    /// its thread, which nothing can abort. A second close, or one after the end, changes nothing and gets the
    /// same report; one of a member that ended for a terminal reason gets an empty one.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the close.
    pub async fn close(&self, options: CloseOptions) -> CloseReport {
        self.ask_to_close(options);
        self.ended().await.unwrap_or_default()
    }

    /// Waits for its end: the report of a close, or why it ended for good. Any number may wait, also after it.
    ///
    /// # Errors
    /// [`TerminalReason`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) -> Result<CloseReport, TerminalReason> {
        let mut outcome = self.incarnation.outcome.subscribe();
        match outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
            Ok(Some(outcome)) => outcome,
            _ => Err(TerminalReason::Crashed { what: "the member's runtime is gone".into() }),
        }
    }

    fn ask_to_close(&self, options: CloseOptions) {
        let mut asked = lock(&self.incarnation.close_asked);
        if asked.is_some() {
            return;
        }
        *asked = Some(options);
        if let Some(root) = self.incarnation.root.get() {
            self.incarnation.request_shutdown(root, options);
        }
    }
}

impl std::fmt::Debug for MemberRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemberRef").field("name", self.name()).finish_non_exhaustive()
    }
}

/// A member started without a supervisor. It owns it: dropping this asks for a default close, without waiting
/// and without doing any I/O itself.
#[derive(Debug)]
pub struct Member {
    member: MemberRef,
}

impl Member {
    pub(crate) fn new(incarnation: Arc<Incarnation>) -> Self {
        Self { member: MemberRef::new(incarnation) }
    }

    /// A reference that does not own it.
    pub fn reference(&self) -> MemberRef {
        self.member.clone()
    }
}

impl Deref for Member {
    type Target = MemberRef;

    fn deref(&self) -> &MemberRef {
        &self.member
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.member.ask_to_close(CloseOptions::default());
    }
}
