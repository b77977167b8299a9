//! What a supervisor does next, decided without actors and without a clock: an input and the time go in,
//! actions come out. The actor performs them; nothing here waits.
//!
//! A plan is in one of these phases, each reachable only from those above it:
//!
//! | phase | what happens |
//! |---|---|
//! | running | exits are judged, requests are served |
//! | running, with a group | one_for_all or rest_for_one is stopping and starting its children; exits and requests that it does not concern wait until it is done |
//! | preparing | a shutdown was asked for; one child gets ready, the others run on, nothing is restarted |
//! | ending | children are stopped in reverse order, one at a time |
//! | ended | the end was told; inputs change nothing |

mod child;
mod intensity;
mod request;
mod stop;
#[cfg(test)]
mod tests;

pub(crate) use child::{Child, Key, State};
pub(crate) use request::{Reply, Request};
pub(crate) use stop::KILL_GRACE;

use crate::builder::Strategy;
use crate::error::{ChildStartError, SupervisorError, SupervisorExit};
use crate::event::SupervisorEvent;
use crate::id::ChildId;
use crate::reason::ExitReason;
use crate::spec::{ChildSpec, Restart};
use child::Purpose;
use intensity::Intensity;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a plan is told.
pub(crate) enum Input {
    /// A child's actor ended.
    Exited { key: Key, incarnation: u64, reason: ExitReason },
    /// A start that was asked for ended, one way or the other.
    Started { key: Key, incarnation: u64, result: Result<(), ChildStartError> },
    /// The message to oneself that `Action::Retry` asked for.
    Retry(Key),
    /// The time of `Plan::deadline` has come.
    Time,
    /// The supervisor is asked to end.
    Shutdown(Option<Instant>),
    /// The prepare step is over.
    Prepared,
    /// A caller wants something.
    Request { token: u64, request: Request },
}

/// What the actor is to do, in order.
#[derive(Debug)]
pub(crate) enum Action {
    /// Keep the spec of a child that was added.
    File(Key, Box<ChildSpec>),
    /// Start this incarnation; answer with `Input::Started`.
    Start { key: Key, incarnation: u64 },
    /// Cancel the start under way; it still answers.
    AbortStart(Key),
    /// Ask it to stop; the deadline is for a supervisor to pass on.
    Stop { key: Key, deadline: Option<Instant> },
    /// Kill it.
    Kill(Key),
    /// Answer with `Input::Retry`, through the mailbox so that other messages get in before.
    Retry(Key),
    /// The child is no more; drop its spec.
    Forget(Key),
    /// Open the prepare step with this child.
    Prepare { key: Key, deadline: Instant },
    /// Tell the delegate of this child that it runs.
    TellStarted { key: Key, incarnation: u64 },
    /// Tell the delegate of this child that it ended.
    TellExited { key: Key, incarnation: u64, reason: ExitReason },
    /// Answer a request.
    Reply { token: u64, result: Result<Reply, SupervisorError> },
    /// Emit an event.
    Emit(SupervisorEvent),
    /// Everything is down: end, with this failure or in order.
    End(Option<SupervisorExit>),
}

enum Phase {
    Running,
    Preparing { key: Key, until: Instant },
    Ending,
    Ended,
}

/// A restart of several children.
struct Group {
    /// In order.
    keys: Vec<Key>,
    stage: Stage,
}

impl Group {
    fn holds(&self, key: Key) -> bool {
        self.keys.binary_search(&key).is_ok()
    }
}

enum Stage {
    Stopping,
    Starting {
        cursor: usize,
        asked: bool,
    },
    /// A start of this child failed; its retry is in the mailbox.
    Waiting(Key),
}

enum Deferred {
    Exit { key: Key, incarnation: u64, reason: ExitReason },
    Request { token: u64, request: Request },
}

/// The supervisor's whole decision state.
pub(crate) struct Plan {
    id: ChildId,
    strategy: Strategy,
    intensity: Intensity,
    prepare: Option<(ChildId, Duration)>,
    /// In start order, which is the order of their keys.
    children: Vec<Child>,
    last_key: Key,
    phase: Phase,
    group: Option<Group>,
    deferred: VecDeque<Deferred>,
    cap: Option<Instant>,
    failure: Option<SupervisorExit>,
    actions: Vec<Action>,
}

impl Plan {
    pub(crate) fn new(
        id: ChildId,
        strategy: Strategy,
        max: u32,
        period: Duration,
        prepare: Option<(ChildId, Duration)>,
    ) -> Plan {
        Plan {
            id,
            strategy,
            intensity: Intensity::new(max, period),
            prepare,
            children: Vec::new(),
            last_key: 0,
            phase: Phase::Running,
            group: None,
            deferred: VecDeque::new(),
            cap: None,
            failure: None,
            actions: Vec::new(),
        }
    }

    /// Takes in a child that the ordered start has started as incarnation 1.
    pub(crate) fn adopt(&mut self, spec: &ChildSpec) -> Key {
        let key = self.add(spec);
        if let Some(child) = self.children.last_mut() {
            child.incarnation = 1;
            child.state = State::Running;
        }
        key
    }

    fn add(&mut self, spec: &ChildSpec) -> Key {
        self.last_key += 1;
        self.children.push(Child::new(self.last_key, spec));
        self.last_key
    }

    /// The children, in start order.
    pub(crate) fn children(&self) -> &[Child] {
        &self.children
    }

    /// Whether this child is waiting for a restart rather than just down.
    pub(crate) fn is_restarting(&self, child: &Child) -> bool {
        child.retry || self.group.as_ref().is_some_and(|group| group.holds(child.key))
    }

    /// When `Input::Time` is due, if nothing else comes first.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let preparing = match self.phase {
            Phase::Preparing { until, .. } => Some(until),
            _ => None,
        };
        self.children.iter().filter_map(|child| child.until).chain(preparing).min()
    }

    #[must_use]
    pub(crate) fn handle(&mut self, input: Input, now: Instant) -> Vec<Action> {
        if !matches!(self.phase, Phase::Ended) {
            match input {
                Input::Exited { key, incarnation, reason } => self.exited(key, incarnation, reason, now),
                Input::Started { key, incarnation, result } => self.started(key, incarnation, result, now),
                Input::Retry(key) => self.retry(key, now),
                Input::Time => self.time(now),
                Input::Shutdown(deadline) => self.shutdown(deadline, now),
                Input::Prepared => self.prepared(),
                Input::Request { token, request } => self.request(token, request, now),
            }
            self.settle(now);
        }
        std::mem::take(&mut self.actions)
    }

    fn index(&self, key: Key) -> Option<usize> {
        self.children.binary_search_by_key(&key, |child| child.key).ok()
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn exited(&mut self, key: Key, incarnation: u64, reason: ExitReason, now: Instant) {
        let Some(index) = self.index(key) else { return };
        let child = &mut self.children[index];
        if child.incarnation != incarnation || !child.state.has_actor() {
            return;
        }
        let before = std::mem::replace(&mut child.state, State::Down);
        child.until = None;
        let waiters = std::mem::take(&mut child.stop_tokens);
        let restart = child.restart.clone();
        let event = SupervisorEvent::ChildExited {
            supervisor: self.id.clone(),
            child: child.id.clone(),
            kind: child.kind,
            incarnation,
            reason: reason.clone(),
        };
        self.act(Action::Emit(event));
        if matches!(restart, Restart::Delegated { .. }) {
            self.act(Action::TellExited { key, incarnation, reason: reason.clone() });
        }
        let asked = !waiters.is_empty();
        for token in waiters {
            self.act(Action::Reply { token, result: Ok(Reply::Done) });
        }
        if reason.is_unkillable() {
            let child = self.children[index].id.clone();
            self.fail(SupervisorExit::Unkillable { supervisor: self.id.clone(), child, cause: Some(reason) });
            return;
        }
        match self.phase {
            Phase::Preparing { key: preparing, .. } if preparing == key => self.phase = Phase::Ending,
            Phase::Running => match before {
                State::Running => self.judge_or_defer(key, incarnation, reason, now),
                // Stopped on request: only a temporary child's spec goes with it.
                _ if asked && restart == Restart::Temporary => self.forget(key),
                _ => {}
            },
            _ => {}
        }
    }

    /// A group under way has its own view of an exit: it is about to stop that child, or has just started it.
    fn judge_or_defer(&mut self, key: Key, incarnation: u64, reason: ExitReason, now: Instant) {
        match &self.group {
            None => self.judge(key, reason, now),
            Some(group) if group.holds(key) && !matches!(group.stage, Stage::Starting { .. }) => {}
            Some(_) => self.deferred.push_back(Deferred::Exit { key, incarnation, reason }),
        }
    }

    /// OTP's `do_restart`: restart type by exit reason.
    fn judge(&mut self, key: Key, reason: ExitReason, now: Instant) {
        let Some(index) = self.index(key) else { return };
        match self.children[index].restart {
            Restart::Permanent => self.restart(key, reason, now),
            Restart::Transient if reason.is_abnormal() => self.restart(key, reason, now),
            Restart::Transient | Restart::Delegated { .. } => {}
            Restart::Temporary => self.forget(key),
        }
    }

    fn restart(&mut self, key: Key, reason: ExitReason, now: Instant) {
        let Some(index) = self.index(key) else { return };
        if !self.admit(index, reason, now) {
            return;
        }
        let from = match self.strategy {
            Strategy::OneForOne => return self.start(key, Purpose::Restart),
            Strategy::OneForAll => 0,
            Strategy::RestForOne => index,
        };
        let keys = self.children[from..].iter().map(|child| child.key).collect();
        self.group = Some(Group { keys, stage: Stage::Stopping });
    }

    /// Counts a restart; false when it was one too many and the supervisor ends.
    fn admit(&mut self, index: usize, reason: ExitReason, now: Instant) -> bool {
        if self.intensity.admit(now) {
            return true;
        }
        let (max, period) = (self.intensity.max, self.intensity.period);
        let child = self.children[index].id.clone();
        self.act(Action::Emit(SupervisorEvent::IntensityReached {
            supervisor: self.id.clone(),
            child: child.clone(),
            max,
            period,
            reason: reason.clone(),
        }));
        self.fail(SupervisorExit::ReachedMaxIntensity {
            supervisor: self.id.clone(),
            child,
            max,
            period,
            cause: reason,
        });
        false
    }

    fn start(&mut self, key: Key, purpose: Purpose) {
        let Some(index) = self.index(key) else { return };
        let child = &mut self.children[index];
        child.incarnation += 1;
        child.retry = false;
        child.killed = false;
        child.state = State::Starting { purpose, stop: false };
        let incarnation = child.incarnation;
        self.act(Action::Start { key, incarnation });
    }

    fn started(&mut self, key: Key, incarnation: u64, result: Result<(), ChildStartError>, now: Instant) {
        let Some(index) = self.index(key) else { return };
        let child = &mut self.children[index];
        let State::Starting { purpose, stop } = child.state else { return };
        if child.incarnation != incarnation {
            return;
        }
        match result {
            Ok(()) => {
                child.state = State::Running;
                let token = child.start_token.take();
                let delegated = matches!(child.restart, Restart::Delegated { .. });
                let (supervisor, id, kind) = (self.id.clone(), child.id.clone(), child.kind);
                self.act(Action::Emit(SupervisorEvent::ChildStarted {
                    supervisor: supervisor.clone(),
                    child: id.clone(),
                    kind,
                    incarnation,
                }));
                if matches!(purpose, Purpose::Restart | Purpose::Group) {
                    self.act(Action::Emit(SupervisorEvent::ChildRestarted {
                        supervisor,
                        child: id,
                        kind,
                        incarnation,
                    }));
                }
                if delegated {
                    self.act(Action::TellStarted { key, incarnation });
                }
                if let Some(token) = token {
                    self.act(Action::Reply { token, result: Ok(Reply::Started(key)) });
                }
                if stop {
                    self.begin_stop(key, now);
                }
            }
            Err(error) => self.start_failed(index, purpose, stop, error),
        }
        if let Some(Group { stage: Stage::Starting { cursor, asked }, .. }) = &mut self.group
            && matches!(purpose, Purpose::Group)
        {
            *cursor += 1;
            *asked = false;
        }
    }

    fn start_failed(&mut self, index: usize, purpose: Purpose, stop: bool, error: ChildStartError) {
        let child = &mut self.children[index];
        let key = child.key;
        child.state = State::Down;
        child.until = None;
        let incarnation = child.incarnation;
        let start_token = child.start_token.take();
        let stop_tokens = std::mem::take(&mut child.stop_tokens);
        let (id, kind, restart) = (child.id.clone(), child.kind, child.restart.clone());
        child.cause = Some(ExitReason::Error(Arc::new(error.clone())));
        self.act(Action::Emit(SupervisorEvent::ChildStartFailed {
            supervisor: self.id.clone(),
            child: id.clone(),
            kind,
            incarnation,
            error: error.clone(),
        }));
        if matches!(restart, Restart::Delegated { .. }) {
            let reason = ExitReason::Error(Arc::new(error.clone()));
            self.act(Action::TellExited { key, incarnation, reason });
        }
        if let Some(token) = start_token {
            let result = Err(SupervisorError::StartFailed { child: id, cause: error.clone() });
            self.act(Action::Reply { token, result });
        }
        for token in stop_tokens {
            self.act(Action::Reply { token, result: Ok(Reply::Done) });
        }
        let reason = ExitReason::Error(Arc::new(error));
        if reason.is_unkillable() {
            let child = self.children[index].id.clone();
            let supervisor = self.id.clone();
            self.fail(SupervisorExit::Unkillable { supervisor, child, cause: Some(reason) });
            return;
        }
        let running = matches!(self.phase, Phase::Running);
        match purpose {
            Purpose::New => self.forget(key),
            Purpose::Request => {}
            _ if stop || !running => {
                if restart == Restart::Temporary {
                    self.forget(key);
                }
            }
            Purpose::Restart => {
                self.children[index].retry = true;
                self.act(Action::Retry(key));
            }
            Purpose::Group => {
                if let Some(group) = &mut self.group {
                    group.stage = Stage::Waiting(key);
                    self.act(Action::Retry(key));
                }
            }
        }
    }

    /// OTP's `try_again_restart`: each try is counted.
    fn retry(&mut self, key: Key, now: Instant) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let waiting = matches!(&self.group, Some(Group { stage: Stage::Waiting(of), .. }) if *of == key);
        let Some(index) = self.index(key) else {
            if waiting {
                self.regroup();
            }
            return;
        };
        if !waiting && !self.children[index].retry {
            return;
        }
        self.children[index].retry = false;
        let cause = self.children[index].cause.clone().unwrap_or(ExitReason::Aborted);
        if self.admit(index, cause, now) {
            if waiting { self.regroup() } else { self.start(key, Purpose::Restart) }
        }
    }

    fn regroup(&mut self) {
        if let Some(group) = &mut self.group {
            group.stage = Stage::Stopping;
        }
    }

    fn forget(&mut self, key: Key) {
        self.children.retain(|child| child.key != key);
        if let Some(group) = &mut self.group {
            group.keys.retain(|other| *other != key);
        }
        self.act(Action::Forget(key));
    }

    /// Takes every step that needs no further input.
    fn settle(&mut self, now: Instant) {
        loop {
            let again = match self.phase {
                Phase::Ended | Phase::Preparing { .. } => false,
                Phase::Ending => self.sweep(now),
                Phase::Running if self.group.is_some() => self.step_group(now),
                Phase::Running => self.step_deferred(now),
            };
            if !again {
                return;
            }
        }
    }

    fn sweep(&mut self, now: Instant) -> bool {
        let keys: Vec<Key> = self.children.iter().map(|child| child.key).collect();
        if self.stop_last(&keys, now) {
            return false;
        }
        let failure = self.failure.take();
        let reason = match &failure {
            Some(exit) => ExitReason::Error(Arc::new(exit.clone())),
            None => ExitReason::Shutdown,
        };
        self.act(Action::Emit(SupervisorEvent::Shutdown { supervisor: self.id.clone(), reason }));
        self.act(Action::End(failure));
        self.phase = Phase::Ended;
        false
    }

    fn step_group(&mut self, now: Instant) -> bool {
        let Some(group) = &mut self.group else { return false };
        match group.stage {
            Stage::Waiting(_) => false,
            Stage::Stopping => {
                let keys = group.keys.clone();
                if self.stop_last(&keys, now) {
                    return false;
                }
                // As OTP's terminate_children: temporary children do not come back.
                for key in keys {
                    let index = self.index(key);
                    if index.is_some_and(|index| self.children[index].restart == Restart::Temporary) {
                        self.forget(key);
                    }
                }
                if let Some(group) = &mut self.group {
                    group.stage = Stage::Starting { cursor: 0, asked: false };
                }
                true
            }
            Stage::Starting { asked: true, .. } => false,
            Stage::Starting { cursor, asked: false } => match group.keys.get(cursor).copied() {
                None => {
                    self.group = None;
                    true
                }
                Some(key) => {
                    group.stage = Stage::Starting { cursor, asked: true };
                    self.start(key, Purpose::Group);
                    false
                }
            },
        }
    }

    fn step_deferred(&mut self, now: Instant) -> bool {
        match self.deferred.pop_front() {
            None => false,
            Some(Deferred::Request { token, request }) => {
                self.request(token, request, now);
                true
            }
            Some(Deferred::Exit { key, incarnation, reason }) => {
                let still = self.index(key).is_some_and(|index| {
                    let child = &self.children[index];
                    child.incarnation == incarnation && matches!(child.state, State::Down)
                });
                if still {
                    self.judge(key, reason, now);
                }
                true
            }
        }
    }
}
