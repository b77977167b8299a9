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
//! | ending | children are stopped in reverse order, one at a time; those of a dynamic supervisor all at once |
//! | ended | the end was told; inputs change nothing |

mod child;
mod delay;
mod group;
mod intensity;
#[cfg(test)]
mod model;
#[cfg(test)]
mod otp;
mod request;
mod stop;
#[cfg(test)]
mod tests;

pub(crate) use child::{Child, Children, Key, State};
pub(crate) use request::{Reply, Request};
pub(crate) use stop::KILL_GRACE;

use crate::builder::{AutoShutdown, Strategy};
use crate::error::{ChildStartError, SupervisorError, SupervisorExit};
use crate::event::SupervisorEvent;
use crate::id::ChildId;
use crate::reason::ExitReason;
use crate::spec::{ChildSpec, Restart};
use child::{Pending, Purpose};
use group::{Group, Stage};
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

enum Deferred {
    Exit { key: Key, incarnation: u64, reason: ExitReason },
    Request { token: u64, request: Request },
}

/// What a supervisor is told about itself (OTP: `sup_flags()`).
pub(crate) struct Flags {
    pub(crate) id: ChildId,
    pub(crate) strategy: Strategy,
    pub(crate) max: u32,
    pub(crate) period: Duration,
    pub(crate) auto_shutdown: AutoShutdown,
    pub(crate) prepare: Option<(ChildId, Duration)>,
    /// For a dynamic supervisor: how many children it may have.
    pub(crate) dynamic: Option<usize>,
}

/// The supervisor's whole decision state.
pub(crate) struct Plan {
    flags: Flags,
    intensity: Intensity,
    children: Children,
    phase: Phase,
    group: Option<Group>,
    deferred: VecDeque<Deferred>,
    cap: Option<Instant>,
    failure: Option<SupervisorExit>,
    /// A dynamic supervisor that ends has asked its children to go.
    swept: bool,
    actions: Vec<Action>,
}

impl Plan {
    pub(crate) fn new(flags: Flags) -> Plan {
        Plan {
            intensity: Intensity::new(flags.max, flags.period),
            flags,
            children: Children::default(),
            phase: Phase::Running,
            group: None,
            deferred: VecDeque::new(),
            cap: None,
            failure: None,
            swept: false,
            actions: Vec::new(),
        }
    }

    /// Takes in a child that the ordered start has started as incarnation 1.
    pub(crate) fn adopt(&mut self, spec: &ChildSpec, now: Instant) -> Key {
        let key = self.children.add(spec);
        self.children.set(key, State::Running);
        if let Some(child) = self.children.get_mut(key) {
            child.incarnation = 1;
            child.since = Some(now);
        }
        key
    }

    pub(crate) fn children(&self) -> &Children {
        &self.children
    }

    /// Whose restarts are in the intensity's window, oldest first.
    pub(crate) fn restarts(&self, now: Instant) -> impl Iterator<Item = Key> + '_ {
        self.intensity.window(now)
    }

    /// Whether this child is waiting for a restart rather than just down.
    pub(crate) fn is_restarting(&self, child: &Child) -> bool {
        child.pending != Pending::Nothing || self.group.as_ref().is_some_and(|group| group.holds(child.key))
    }

    /// Whether a shutdown has begun.
    pub(crate) fn is_ending(&self) -> bool {
        !matches!(self.phase, Phase::Running)
    }

    /// When `Input::Time` is due, if nothing else comes first.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let preparing = match self.phase {
            Phase::Preparing { until, .. } => Some(until),
            _ => None,
        };
        let group = self.group.as_ref().and_then(Group::deadline);
        self.children.next_due().into_iter().chain(preparing).chain(group).min()
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

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn exited(&mut self, key: Key, incarnation: u64, reason: ExitReason, now: Instant) {
        let Some(child) = self.children.get_mut(key) else { return };
        let before = child.state();
        if child.incarnation != incarnation || !before.has_actor() {
            return;
        }
        if let Some(delay) = &mut child.delay {
            delay.ran(child.since, now);
        }
        child.since = None;
        child.last_exit = Some(reason.clone());
        let waiters = std::mem::take(&mut child.stop_tokens);
        let (id, kind, restart) = (child.id.clone(), child.kind, child.restart.clone());
        self.children.set(key, State::Down);
        self.act(Action::Emit(SupervisorEvent::ChildExited {
            supervisor: self.flags.id.clone(),
            child: id.clone(),
            kind,
            incarnation,
            reason: reason.clone(),
        }));
        if matches!(restart, Restart::Delegated { .. }) {
            self.act(Action::TellExited { key, incarnation, reason: reason.clone() });
        }
        let asked = !waiters.is_empty();
        for token in waiters {
            self.act(Action::Reply { token, result: Ok(Reply::Done) });
        }
        if reason.is_unkillable() {
            let supervisor = self.flags.id.clone();
            return self.fail(SupervisorExit::Unkillable { supervisor, child: id, cause: Some(reason) });
        }
        match self.phase {
            Phase::Preparing { key: preparing, .. } if preparing == key => self.phase = Phase::Ending,
            Phase::Running => match before {
                State::Running => self.judge_or_defer(key, incarnation, reason, now),
                // Stopped on request.
                _ if asked => self.drop_spec_if_it_goes(key, &restart),
                _ => {}
            },
            _ => {}
        }
    }

    /// A child that is down and stays so: the specs of temporary children and of those of a dynamic supervisor
    /// go with it.
    fn drop_spec_if_it_goes(&mut self, key: Key, restart: &Restart) {
        if *restart == Restart::Temporary || self.flags.dynamic.is_some() {
            self.forget(key);
        }
    }

    /// OTP's `do_restart`: restart type by exit reason.
    fn judge(&mut self, key: Key, reason: ExitReason, now: Instant) {
        let Some(child) = self.children.get(key) else { return };
        match child.restart {
            Restart::Permanent => self.restart(key, reason, now),
            Restart::Transient if reason.is_abnormal() => self.restart(key, reason, now),
            Restart::Transient | Restart::Temporary | Restart::Delegated { .. } => {
                let (significant, restart) = (child.significant, child.restart.clone());
                self.drop_spec_if_it_goes(key, &restart);
                if significant {
                    self.auto_shutdown(now);
                }
            }
        }
    }

    /// OTP's `do_auto_shutdown`: a significant child has ended by itself and does not come back.
    fn auto_shutdown(&mut self, now: Instant) {
        let another = || {
            let active = |child: &Child| child.state() != State::Down || self.is_restarting(child);
            self.children.iter().any(|child| child.significant && active(child))
        };
        let due = match self.flags.auto_shutdown {
            AutoShutdown::Never => false,
            AutoShutdown::AnySignificant => true,
            AutoShutdown::AllSignificant => !another(),
        };
        if due {
            self.shutdown(None, now);
        }
    }

    fn restart(&mut self, key: Key, reason: ExitReason, now: Instant) {
        if !self.admit(key, reason, now) {
            return;
        }
        let delay = self.next_delay(key);
        match (self.flags.strategy, delay) {
            (Strategy::OneForOne, None) => self.start(key, Purpose::Restart),
            (Strategy::OneForOne, Some(delay)) => self.delay(key, delay, now),
            (Strategy::OneForAll, delay) => self.begin_group(0, delay, now),
            (Strategy::RestForOne, delay) => self.begin_group(key, delay, now),
        }
    }

    /// Counts a restart; false when it was one too many and the supervisor ends.
    fn admit(&mut self, key: Key, reason: ExitReason, now: Instant) -> bool {
        if self.intensity.admit(key, now) {
            return true;
        }
        let Some(child) = self.children.get(key) else { return false };
        let (supervisor, child) = (self.flags.id.clone(), child.id.clone());
        let (max, period) = (self.flags.max, self.flags.period);
        self.act(Action::Emit(SupervisorEvent::IntensityReached {
            supervisor: supervisor.clone(),
            child: child.clone(),
            max,
            period,
            reason: reason.clone(),
        }));
        self.fail(SupervisorExit::ReachedMaxIntensity { supervisor, child, max, period, cause: reason });
        false
    }

    /// How long the restart of this child has to wait, if it has a back-off; told as an event.
    fn next_delay(&mut self, key: Key) -> Option<Duration> {
        let child = self.children.get_mut(key)?;
        let delay = child.delay.as_mut()?.next();
        let (child, kind, incarnation) = (child.id.clone(), child.kind, child.incarnation + 1);
        let supervisor = self.flags.id.clone();
        self.act(Action::Emit(SupervisorEvent::RestartDelayed {
            supervisor,
            child,
            kind,
            incarnation,
            delay,
        }));
        Some(delay)
    }

    fn delay(&mut self, key: Key, delay: Duration, now: Instant) {
        if let Some(child) = self.children.get_mut(key) {
            child.pending = Pending::Delay;
            self.children.set_until(key, Some(now + delay));
        }
    }

    fn start(&mut self, key: Key, purpose: Purpose) {
        self.children.set_until(key, None);
        self.children.set(key, State::Starting { purpose, stop: false });
        let Some(child) = self.children.get_mut(key) else { return };
        child.incarnation += 1;
        child.pending = Pending::Nothing;
        child.killed = false;
        let incarnation = child.incarnation;
        self.act(Action::Start { key, incarnation });
    }

    fn started(&mut self, key: Key, incarnation: u64, result: Result<(), ChildStartError>, now: Instant) {
        let Some(child) = self.children.get_mut(key) else { return };
        let State::Starting { purpose, stop } = child.state() else { return };
        if child.incarnation != incarnation {
            return;
        }
        if let Some(Group { stage: Stage::Starting { asked, .. }, .. }) = &mut self.group
            && purpose == Purpose::Group
        {
            *asked = false;
        }
        if let Err(error) = result {
            return self.start_failed(key, purpose, stop, error, now);
        }
        child.since = Some(now);
        let token = child.start_token.take();
        let delegated = matches!(child.restart, Restart::Delegated { .. });
        let (supervisor, id, kind) = (self.flags.id.clone(), child.id.clone(), child.kind);
        self.children.set(key, State::Running);
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

    fn start_failed(&mut self, key: Key, purpose: Purpose, stop: bool, error: ChildStartError, now: Instant) {
        self.children.set(key, State::Down);
        let Some(child) = self.children.get_mut(key) else { return };
        let reason = ExitReason::Error(Arc::new(error.clone()));
        let incarnation = child.incarnation;
        child.last_exit = Some(reason.clone());
        let start_token = child.start_token.take();
        let stop_tokens = std::mem::take(&mut child.stop_tokens);
        let (id, kind, restart) = (child.id.clone(), child.kind, child.restart.clone());
        self.act(Action::Emit(SupervisorEvent::ChildStartFailed {
            supervisor: self.flags.id.clone(),
            child: id.clone(),
            kind,
            incarnation,
            error: error.clone(),
        }));
        if matches!(restart, Restart::Delegated { .. }) {
            self.act(Action::TellExited { key, incarnation, reason: reason.clone() });
        }
        if let Some(token) = start_token {
            let result = Err(SupervisorError::StartFailed { child: id.clone(), cause: error });
            self.act(Action::Reply { token, result });
        }
        for token in stop_tokens {
            self.act(Action::Reply { token, result: Ok(Reply::Done) });
        }
        if reason.is_unkillable() {
            let supervisor = self.flags.id.clone();
            return self.fail(SupervisorExit::Unkillable { supervisor, child: id, cause: Some(reason) });
        }
        match purpose {
            Purpose::New => self.forget(key),
            Purpose::Request => {}
            _ if stop || self.is_ending() => self.drop_spec_if_it_goes(key, &restart),
            Purpose::Restart | Purpose::Group => self.try_again(key, purpose, reason, now),
        }
    }

    /// A restart failed. Without a back-off it is tried again, and counted, when the mailbox comes to it; with
    /// one it is counted now and tried when the delay is over.
    fn try_again(&mut self, key: Key, purpose: Purpose, reason: ExitReason, now: Instant) {
        let grouped = purpose == Purpose::Group;
        if self.children.get(key).is_some_and(|child| child.delay.is_some()) {
            if self.admit(key, reason, now)
                && let Some(delay) = self.next_delay(key)
            {
                if grouped { self.regroup(Some(now + delay)) } else { self.delay(key, delay, now) }
            }
            return;
        }
        match &mut self.group {
            Some(group) if grouped => group.stage = Stage::Waiting(key),
            _ => {
                if let Some(child) = self.children.get_mut(key) {
                    child.pending = Pending::Retry;
                }
            }
        }
        self.act(Action::Retry(key));
    }

    /// OTP's `try_again_restart`: each try is counted.
    fn retry(&mut self, key: Key, now: Instant) {
        if self.is_ending() {
            return;
        }
        let waiting = matches!(&self.group, Some(Group { stage: Stage::Waiting(of), .. }) if *of == key);
        let Some(child) = self.children.get_mut(key) else {
            if waiting {
                self.regroup(None);
            }
            return;
        };
        if !waiting && child.pending != Pending::Retry {
            return;
        }
        child.pending = Pending::Nothing;
        let cause = child.last_exit.clone().unwrap_or(ExitReason::Aborted);
        if self.admit(key, cause, now) {
            if waiting { self.regroup(None) } else { self.start(key, Purpose::Restart) }
        }
    }

    fn forget(&mut self, key: Key) {
        self.children.remove(key);
        self.leave_group(key);
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

    fn step_deferred(&mut self, now: Instant) -> bool {
        match self.deferred.pop_front() {
            None => false,
            Some(Deferred::Request { token, request }) => {
                self.request(token, request, now);
                true
            }
            Some(Deferred::Exit { key, incarnation, reason }) => {
                let still = self
                    .children
                    .get(key)
                    .is_some_and(|child| child.incarnation == incarnation && child.state() == State::Down);
                if still {
                    self.judge(key, reason, now);
                }
                true
            }
        }
    }
}
