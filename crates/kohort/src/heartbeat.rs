//! The heart: beats while it is armed, reports what came of each beat, decides nothing.
//!
//! | message | effect |
//! |---|---|
//! | `Arm` | forgets the beat in flight, beats from one interval on |
//! | `Hasten` | the next beats come early: waits double from 5 ms up to the interval |
//! | `Disarm` | forgets the beat in flight, rests |
//! | `Tick` | sends a beat, as a task of its own; one in flight at the most |
//! | `Beaten` | reports to the manager, waits for the rest of the interval |
//!
//! A beat that panics is caught by its task and reported; everything else that ends this actor is the
//! supervisor's to see and the manager's to count.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kohort_client::{Address, Client};
use kohort_group::membership::{Beat, Failure, Input};
use kohort_protocol::ErrorCode;
use kohort_protocol::messages::HeartbeatRequest;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use crate::event::MemberEvent;
use crate::manager::{ManagerMessage, failure_of, panic_text};
use crate::member::Incarnation;

pub(crate) struct Heartbeat;

pub(crate) struct HeartbeatArguments {
    pub(crate) incarnation: Arc<Incarnation>,
    pub(crate) client: Client,
}

pub(crate) enum HeartbeatMessage {
    Arm(Armed),
    Hasten { epoch: u64 },
    Disarm,
    Tick { epoch: u64 },
    Beaten { epoch: u64, sent: Instant, beat: Beat },
}

pub(crate) struct Armed {
    pub(crate) epoch: u64,
    pub(crate) to: Address,
    pub(crate) request: HeartbeatRequest,
    pub(crate) manager: ActorRef<ManagerMessage>,
}

pub(crate) struct State {
    incarnation: Arc<Incarnation>,
    client: Client,
    armed: Option<Arc<Armed>>,
    timer: Option<JoinHandle<()>>,
    in_flight: Option<AbortHandle>,
    /// The next wait, while beats come early.
    hastened: Option<Duration>,
}

/// About what it takes others to give partitions back that nothing holds up; each later beat waits twice as long, so
/// that whoever waits does so for at most twice the time that was needed.
const HASTENED: Duration = Duration::from_millis(5);

impl State {
    /// Explicitly, not by a guard: after a kill the state lives on for a moment in the supervisor's mailbox.
    fn rest(&mut self) {
        self.armed = None;
        self.hastened = None;
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
        if let Some(beat) = self.in_flight.take() {
            beat.abort();
        }
    }

    /// From one beat to the next.
    fn next_wait(&mut self) -> Duration {
        let interval = self.incarnation.config.membership.heartbeat_interval;
        let early = self.hastened.take().filter(|wait| *wait < interval);
        self.hastened = early.map(|wait| wait * 2);
        early.unwrap_or(interval)
    }

    fn tick_in(&mut self, myself: &ActorRef<HeartbeatMessage>, wait: Duration, epoch: u64) {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
        let myself = myself.clone();
        self.timer = Some(tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = myself.cast(HeartbeatMessage::Tick { epoch });
        }));
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.rest();
    }
}

impl Actor for Heartbeat {
    type Msg = HeartbeatMessage;
    type State = State;
    type Arguments = HeartbeatArguments;

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let HeartbeatArguments { incarnation, client } = arguments;
        Ok(State { incarnation, client, armed: None, timer: None, in_flight: None, hastened: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            HeartbeatMessage::Arm(armed) => {
                state.rest();
                let epoch = armed.epoch;
                state.armed = Some(Arc::new(armed));
                let interval = state.incarnation.config.membership.heartbeat_interval;
                state.tick_in(&myself, interval, epoch);
            }
            HeartbeatMessage::Hasten { epoch } => {
                if state.armed.as_ref().is_some_and(|armed| armed.epoch == epoch) {
                    state.hastened = Some(HASTENED);
                    if state.in_flight.is_none() {
                        let wait = state.next_wait();
                        state.tick_in(&myself, wait, epoch);
                    }
                }
            }
            HeartbeatMessage::Disarm => state.rest(),
            HeartbeatMessage::Tick { epoch } => {
                let Some(armed) = state.armed.clone().filter(|armed| armed.epoch == epoch) else {
                    return Ok(());
                };
                if state.in_flight.is_none() {
                    beat(state, armed, myself);
                }
            }
            HeartbeatMessage::Beaten { epoch, sent, beat } => {
                let Some(armed) = state.armed.clone().filter(|armed| armed.epoch == epoch) else {
                    return Ok(());
                };
                state.in_flight = None;
                let duration = sent.elapsed();
                let member = state.incarnation.name.clone();
                state.incarnation.emit(MemberEvent::Heartbeat { member, duration, result: result_of(&beat) });
                let _ = armed.manager.cast(ManagerMessage::Input(Input::Beat { epoch, beat }));
                // Due an interval after the last was sent, whenever the answer came.
                let wait = state.next_wait().saturating_sub(duration);
                state.tick_in(&myself, wait, epoch);
            }
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Self::Msg>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.rest();
        Ok(())
    }
}

fn beat(state: &mut State, armed: Arc<Armed>, myself: ActorRef<HeartbeatMessage>) {
    let epoch = armed.epoch;
    let sent = Instant::now();
    let membership = &state.incarnation.config.membership;
    // A silent coordinator must be noticed with time left to find it again within the session.
    let timeout = membership.request_timeout.min(membership.session_timeout / 2);
    let (incarnation, client) = (state.incarnation.clone(), state.client.clone());
    let task = tokio::spawn(async move {
        // Disarmed since this task was made: the LeaveGroup or JoinGroup may be out already.
        if incarnation.armed.load(Ordering::Acquire) != armed.epoch {
            return None;
        }
        Some(client.call(&armed.to, &armed.request, timeout).await)
    });
    state.in_flight = Some(task.abort_handle());
    tokio::spawn(async move {
        let beat = match task.await {
            Ok(Some(Ok(answer))) => Beat::Answered(answer.error),
            Ok(Some(Err(error))) => Beat::Failed(failure_of(&error)),
            Ok(None) => return,
            Err(error) if error.is_panic() => Beat::Panicked(panic_text(error)),
            Err(_) => return,
        };
        let _ = myself.cast(HeartbeatMessage::Beaten { epoch, sent, beat });
    });
}

fn result_of(beat: &Beat) -> &'static str {
    match beat {
        Beat::Answered(ErrorCode::None) => "ok",
        Beat::Answered(ErrorCode::RebalanceInProgress) => "rebalance_in_progress",
        Beat::Answered(_) => "error",
        Beat::Failed(Failure::Network(_) | Failure::Unconnected(_)) => "no_answer",
        Beat::Failed(_) => "failed",
        Beat::Panicked(_) => "panicked",
    }
}
