//! The manager: drives the pure membership core and performs its effects. The only place where they are
//! performed; nothing in here waits for the network or for a worker.
//!
//! | message | effect |
//! |---|---|
//! | `Input` | to the core: answers, beats, workers' reports |
//! | `Delegate` | a heartbeat or the partitions supervisor started or ended: remembered, told to the core |
//! | `Timer` | the core's deadline |
//! | `Look` | a worker whose handler has its record for too long is told of and aborted |
//! | `Commit` | to the core; the waiter is told when the offset is committed, or dropped with the generation |
//! | `Prepare` | the tree is to shut down: closes the membership, then lets the shutdown go on |

mod ask;
mod notice;
mod partitions;
mod stuck;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kohort_client::{Address, Client};
use kohort_group::membership::{CloseReport, ExitKind, Node, Question, TerminalCause};
use kohort_group::{Effect, Input, MemberState, Membership, MembershipConfig};
use kohort_protocol::{ErrorCode, TopicPartition};
use kohort_supervisor::{DelegateNotice, ExitReason, PrepareDone, PrepareRequest, SupervisorRef};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

pub(crate) use self::ask::{failure_of, panic_message, panic_text};
use self::partitions::Partitions;

use crate::config::LONGEST;
use crate::error::{TerminalReason, WorkerFailed};
use crate::fetch::FetchTable;
use crate::heartbeat::{Armed, HeartbeatMessage};
use crate::member::Incarnation;
use crate::status::Run;
use crate::worker::WorkerFactory;

pub(crate) struct Manager;

pub(crate) struct ManagerArguments {
    pub(crate) incarnation: Arc<Incarnation>,
    pub(crate) client: Client,
    pub(crate) root: SupervisorRef,
    pub(crate) factory: Arc<dyn WorkerFactory>,
    pub(crate) table: FetchTable,
}

pub(crate) enum ManagerMessage {
    Input(Input),
    Delegate(DelegateNotice),
    Timer,
    Look,
    Commit(CommitWaiter),
    Prepare(PrepareRequest),
}

impl ManagerMessage {
    pub(crate) fn handled(generation: i32, partition: TopicPartition, position: i64, records: u64) -> Self {
        ManagerMessage::Input(Input::Handled { generation, partition, position, records })
    }
}

/// Somebody waits until `offset` is committed or refused for good; dropped when neither can be any more.
pub(crate) struct CommitWaiter {
    pub(crate) partition: TopicPartition,
    pub(crate) generation: i32,
    pub(crate) offset: i64,
    pub(crate) confirm: oneshot::Sender<Result<(), ErrorCode>>,
}

pub(crate) struct State {
    incarnation: Arc<Incarnation>,
    core: Membership,
    client: Client,
    root: SupervisorRef,
    factory: Arc<dyn WorkerFactory>,
    table: FetchTable,
    /// The heartbeat that lives, and the last incarnation that was heard of.
    heartbeat: Option<ActorRef<HeartbeatMessage>>,
    heartbeat_incarnation: u64,
    partitions: Option<Partitions>,
    /// Whether the worker of a partition may go on.
    runs: BTreeMap<TopicPartition, Arc<Run>>,
    /// Questions that are out, by round.
    asking: HashMap<u64, AbortHandle>,
    asked: notice::Asked,
    timer: Option<(Instant, JoinHandle<()>)>,
    looking: JoinHandle<()>,
    /// When the stuck worker of a partition was last told of.
    told_stuck: HashMap<TopicPartition, Instant>,
    waiters: Vec<CommitWaiter>,
    reachable: Option<bool>,
    closing: Option<PrepareDone>,
    /// What the workers gave up with.
    workers_failure: Option<Arc<dyn Error + Send + Sync>>,
}

impl State {
    /// Explicitly, not by a guard: after a kill the state lives on for a moment in the supervisor's mailbox.
    fn cancel_all(&mut self) {
        self.asking.drain().for_each(|(_, question)| question.abort());
        self.looking.abort();
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        self.runs.values().for_each(|run| run.release());
        self.partitions = None;
        self.incarnation.armed.store(0, Ordering::Release);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

impl Actor for Manager {
    type Msg = ManagerMessage;
    type State = State;
    type Arguments = ManagerArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let ManagerArguments { incarnation, client, root, factory, table } = arguments;
        let config = incarnation.config.clone();
        let seed = config.seed.unwrap_or_else(|| RandomState::new().hash_one(myself.get_id()));
        let seed = seed ^ (incarnation.name.index as u64).rotate_left(32);
        let membership = MembershipConfig {
            group_instance_id: incarnation.instance_id.clone(),
            ..config.membership.clone()
        };
        myself.cast(ManagerMessage::Input(Input::Start))?;
        Ok(State {
            core: Membership::new(membership, seed),
            incarnation,
            client,
            root,
            factory,
            table,
            heartbeat: None,
            heartbeat_incarnation: 0,
            partitions: Some(Partitions::new(myself.clone())),
            runs: BTreeMap::new(),
            asking: HashMap::new(),
            asked: notice::Asked::default(),
            timer: None,
            looking: stuck::look(config.max_processing_time, myself.clone()),
            told_stuck: HashMap::new(),
            waiters: Vec::new(),
            reachable: None,
            closing: None,
            workers_failure: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let input = match message {
            ManagerMessage::Input(input) => input,
            ManagerMessage::Timer => {
                state.timer = None;
                Input::Deadline
            }
            ManagerMessage::Look => {
                state.look_for_stuck_workers()?;
                return Ok(());
            }
            ManagerMessage::Commit(waiter) => {
                let current = state.core.counts_worker(waiter.generation);
                if current
                    && state.core.committed(&waiter.partition).is_some_and(|offset| offset >= waiter.offset)
                {
                    // Who waits may have gone away; the commit stands.
                    let _ = waiter.confirm.send(Ok(()));
                    return Ok(());
                }
                if !current {
                    return Ok(());
                }
                if let Some(code) = state.refusal(&waiter) {
                    let _ = waiter.confirm.send(Err(code));
                    return Ok(());
                }
                state.waiters.retain(|waiter| !waiter.confirm.is_closed());
                state.waiters.push(waiter);
                Input::Commit
            }
            ManagerMessage::Delegate(notice) => match state.on_delegate(notice) {
                Some(input) => input,
                None => return Ok(()),
            },
            ManagerMessage::Prepare(request) => state.on_prepare(request),
        };
        state.step(&myself, input)
    }

    async fn post_stop(&self, _: ActorRef<Self::Msg>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.cancel_all();
        Ok(())
    }
}

impl State {
    /// Message → input → effects → one timer.
    fn step(&mut self, myself: &ActorRef<ManagerMessage>, input: Input) -> Result<(), ActorProcessingErr> {
        if let Input::Answered { round, .. } = &input {
            self.asking.remove(round);
        }
        let effects = self.core.handle(input, Instant::now().into_std());
        let mut end = Ok(());
        for effect in effects {
            if let Err(reason) = self.perform(myself, effect) {
                end = Err(reason.into());
            }
        }
        self.write_down();
        self.set_timer(myself);
        end
    }

    fn set_timer(&mut self, myself: &ActorRef<ManagerMessage>) {
        let due = self.core.deadline().map(Instant::from_std);
        if self.timer.as_ref().map(|(at, _)| *at) == due {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        if let Some(at) = due {
            let myself = myself.clone();
            let timer = tokio::spawn(async move {
                tokio::time::sleep_until(at).await;
                let _ = myself.cast(ManagerMessage::Timer);
            });
            self.timer = Some((at, timer));
        }
    }

    fn on_delegate(&mut self, notice: DelegateNotice) -> Option<Input> {
        match notice {
            DelegateNotice::ChildStarted { id, incarnation, cell } if id == "heartbeat" => {
                self.heartbeat = Some(cell.into());
                self.heartbeat_incarnation = incarnation;
                Some(Input::HeartbeatStarted { incarnation })
            }
            DelegateNotice::ChildExited { id, incarnation, reason } if id == "heartbeat" => {
                if incarnation > self.heartbeat_incarnation {
                    self.heartbeat_incarnation = incarnation;
                    return Some(Input::HeartbeatStartFailed { error: chain(&reason) });
                }
                if incarnation == self.heartbeat_incarnation {
                    self.heartbeat = None;
                }
                Some(Input::HeartbeatExited { incarnation, exit: exit_kind(&reason) })
            }
            DelegateNotice::ChildStarted { cell, .. } => {
                if let Some(partitions) = &mut self.partitions {
                    partitions.found(cell);
                }
                None
            }
            DelegateNotice::ChildExited { reason, .. } => {
                self.partitions = None;
                let failed = reason.find::<WorkerFailed>().cloned();
                let (partition, cause) = match &failed {
                    Some(failed) => (Some(failed.partition.clone()), failed.to_string()),
                    None => (None, chain(&reason)),
                };
                self.workers_failure = failed.map(|failed| Arc::new(failed) as Arc<dyn Error + Send + Sync>);
                Some(Input::WorkersGaveUp { partition, cause })
            }
            _ => None,
        }
    }

    /// The shutdown has a deadline of its own; the close has to be over before it, or be swept away with it.
    fn on_prepare(&mut self, request: PrepareRequest) -> Input {
        let options = self.incarnation.close_options();
        let timeout = options.timeout_set().unwrap_or(self.incarnation.config.close_timeout).min(LONGEST);
        let now = Instant::now();
        let left = request.deadline.saturating_duration_since(now);
        let reserve = (left / 5).min(Duration::from_millis(500));
        let deadline = now + timeout.min(left - reserve);
        self.closing = Some(request.done);
        self.incarnation.snapshot().ending = true;
        Input::Close { operation: options.operation(), deadline: deadline.into_std() }
    }

    fn perform(&mut self, myself: &ActorRef<ManagerMessage>, effect: Effect) -> Result<(), TerminalReason> {
        match effect {
            Effect::Ask { round, to, question, within } => {
                self.asked.note(&question);
                // A LeaveGroup outlives the manager by a moment, so that a hurried close still tells the group.
                let leaving = matches!(question, Question::Leave(_));
                let within = if leaving { within.max(Duration::from_secs(1)) } else { within };
                let to = to.map(|node| address(&node));
                let asked = ask::ask(self.client.clone(), to, question, within, round, myself.clone());
                if !leaving {
                    self.asking.insert(round, asked);
                }
            }
            Effect::ArmHeartbeat { epoch, to, request } => {
                self.incarnation.armed.store(epoch, Ordering::Release);
                let armed = Armed { epoch, to: address(&to), request, manager: myself.clone() };
                self.to_heartbeat(HeartbeatMessage::Arm(armed));
            }
            Effect::HastenHeartbeat { epoch } => self.to_heartbeat(HeartbeatMessage::Hasten { epoch }),
            Effect::DisarmHeartbeat => {
                self.incarnation.armed.store(0, Ordering::Release);
                self.to_heartbeat(HeartbeatMessage::Disarm);
            }
            Effect::RestartHeartbeat => {
                self.root.request_restart_child("heartbeat");
            }
            Effect::StartWorkers { generation, partitions } => {
                self.start_workers(myself, generation, partitions)?
            }
            Effect::DrainWorkers { round, partitions, within } => {
                partitions.iter().filter_map(|one| self.runs.get(one)).for_each(|run| run.drain());
                let order = partitions::Order::Drain { round, partitions, within };
                self.to_partitions(order, Input::Drained { round }, myself)?;
            }
            Effect::ReleaseWorkers { round, partitions, hook, within } => {
                partitions.iter().filter_map(|one| self.runs.remove(one)).for_each(|run| run.release());
                let over = Input::Released { round, aborted: Vec::new() };
                self.to_partitions(
                    partitions::Order::Release { round, partitions, hook, within },
                    over,
                    myself,
                )?;
            }
            Effect::Notice(notice) => self.tell(notice),
            Effect::Closed(report) => self.on_closed(report),
            Effect::Terminate(cause) => return Err(self.on_terminate(cause)),
            _ => {}
        }
        Ok(())
    }

    fn to_heartbeat(&self, message: HeartbeatMessage) {
        if let Some(heartbeat) = &self.heartbeat {
            // One that ended meanwhile is about to be reported so.
            let _ = heartbeat.cast(message);
        }
    }

    /// Gives an order to the partitions supervisor's driver; without one there are no workers, and it is over.
    fn to_partitions(
        &self,
        order: partitions::Order,
        over: Input,
        myself: &ActorRef<ManagerMessage>,
    ) -> Result<(), TerminalReason> {
        match &self.partitions {
            Some(partitions) => partitions.give(order),
            None => {
                let _ = myself.cast(ManagerMessage::Input(over));
                Ok(())
            }
        }
    }

    fn on_closed(&mut self, report: CloseReport) {
        self.incarnation.set_closed(report);
        // Dropped: the shutdown goes on, and stops this actor in its turn.
        self.closing = None;
    }

    fn on_terminate(&mut self, cause: TerminalCause) -> TerminalReason {
        let reason = TerminalReason::of(cause, self.workers_failure.take());
        self.cancel_all();
        self.incarnation.set_terminal(reason.clone());
        self.write_down();
        reason
    }

    /// What `status()` reads.
    fn write_down(&mut self) {
        let mut snapshot = self.incarnation.snapshot();
        let core = &self.core;
        snapshot.state = core.state();
        snapshot.generation = core.generation();
        snapshot.last_good = core.last_good_heartbeat().map(Instant::from_std);
        if snapshot.member_id != core.member_id() {
            snapshot.member_id = core.member_id().to_owned();
        }
        if snapshot.coordinator.as_ref() != core.coordinator() {
            snapshot.coordinator = core.coordinator().cloned();
        }
        if !snapshot.assignment.iter().eq(core.assignment()) {
            snapshot.assignment = core.assignment().iter().cloned().collect();
        }
        if core.state() == MemberState::Stable && core.coordinator().is_some() {
            snapshot.trouble.clear();
        }
    }
}

fn address(node: &Node) -> Address {
    // The core accepts only ports that fit.
    Address::new(node.host.as_str(), u16::try_from(node.port).unwrap_or(0))
}

fn exit_kind(reason: &ExitReason) -> ExitKind {
    match reason {
        ExitReason::Normal => ExitKind::Normal,
        ExitReason::Shutdown => ExitKind::Normal,
        ExitReason::Killed => ExitKind::Killed,
        ExitReason::Aborted => ExitKind::Aborted,
        ExitReason::Panic(text) => ExitKind::Panicked(text.clone()),
        other => ExitKind::Failed(chain(other)),
    }
}

/// An error and all its causes in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
