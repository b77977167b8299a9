//! How the plan brings children down: one at a time, asked first, killed when their time is up, given up as
//! unkillable when even that does not help; and how a shutdown begins.

use super::{Action, Child, Deferred, Key, Phase, Plan, State};
use crate::error::{SupervisorError, SupervisorExit};
use crate::event::SupervisorEvent;
use crate::spec::{ChildKind, Shutdown};
use std::time::{Duration, Instant};

/// How long a killed child may take to be gone before it counts as unkillable. A kill ends an actor at its
/// next await, so only a child that blocks its thread takes any time at all.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(5);

/// What a supervisor gets on top of the deadline that was passed to it: it kills by that deadline itself, in
/// order and waiting, and may have to find out that something is unkillable.
const SUPERVISOR_GRACE: Duration = Duration::from_secs(10);

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn patience(kind: ChildKind, deadline: Instant) -> Instant {
    match kind {
        ChildKind::Worker => deadline,
        ChildKind::Supervisor => deadline + SUPERVISOR_GRACE,
    }
}

impl Plan {
    /// Works on the last child of `keys` that is not down; false when all are.
    pub(super) fn stop_last(&mut self, keys: &[Key], now: Instant) -> bool {
        let last = keys.iter().rev().copied().find(|key| {
            let state = self.index(*key).map(|index| self.children[index].state);
            state.is_some_and(|state| !matches!(state, State::Down | State::Lost))
        });
        match last {
            None => false,
            Some(key) => {
                self.begin_stop(key, now);
                true
            }
        }
    }

    /// Asks a child to go. Does nothing to one that is going already.
    pub(super) fn begin_stop(&mut self, key: Key, now: Instant) {
        let Some(index) = self.index(key) else { return };
        let cap = self.cap;
        let child = &mut self.children[index];
        let deadline = match child.shutdown {
            Shutdown::BrutalKill => Some(now),
            Shutdown::Timeout(limit) => earlier(now.checked_add(limit), cap),
            Shutdown::Infinity => cap,
        };
        match child.state {
            State::Down | State::Stopping | State::Lost | State::Starting { stop: true, .. } => {}
            State::Starting { purpose, .. } => {
                child.state = State::Starting { purpose, stop: true };
                child.until = deadline;
                if deadline.is_some_and(|deadline| deadline <= now) {
                    self.harsher(index, now);
                }
            }
            State::Running => {
                child.state = State::Stopping;
                child.killed = false;
                let due = deadline.is_some_and(|deadline| deadline <= now);
                let brutal = child.shutdown == Shutdown::BrutalKill;
                if brutal || (due && child.kind == ChildKind::Worker) {
                    self.harsher(index, now);
                } else {
                    child.until = deadline.map(|deadline| patience(child.kind, deadline));
                    self.act(Action::Stop { key, deadline });
                }
            }
        }
    }

    /// The next step with a child whose time is up.
    fn harsher(&mut self, index: usize, now: Instant) {
        let child = &mut self.children[index];
        let key = child.key;
        if child.killed {
            return self.lose(index);
        }
        child.killed = true;
        child.until = Some(now + KILL_GRACE);
        match child.state {
            State::Starting { .. } => self.act(Action::AbortStart(key)),
            _ => self.act(Action::Kill(key)),
        }
    }

    fn lose(&mut self, index: usize) {
        let supervisor = self.id.clone();
        let child = &mut self.children[index];
        child.state = State::Lost;
        child.until = None;
        let id = child.id.clone();
        for token in std::mem::take(&mut child.stop_tokens) {
            self.act(Action::Reply { token, result: Err(SupervisorError::Unkillable(id.clone())) });
        }
        self.act(Action::Emit(SupervisorEvent::Unkillable {
            supervisor: supervisor.clone(),
            child: id.clone(),
        }));
        // It outranks whatever the supervisor was ending with: nobody may start this tree again over it.
        self.failure = Some(SupervisorExit::Unkillable { supervisor, child: id, cause: None });
        self.enter_ending();
    }

    pub(super) fn time(&mut self, now: Instant) {
        let due: Vec<Key> =
            self.children.iter().filter(|child| is_due(child, now)).map(|child| child.key).collect();
        for key in due {
            if let Some(index) = self.index(key) {
                self.harsher(index, now);
            }
        }
        if let Phase::Preparing { until, .. } = self.phase
            && until <= now
        {
            self.phase = Phase::Ending;
        }
    }

    pub(super) fn shutdown(&mut self, deadline: Option<Instant>, now: Instant) {
        self.cap = earlier(self.cap, deadline);
        self.tighten();
        match &mut self.phase {
            Phase::Running => {
                self.enter_ending();
                let prepared = self.prepare.clone().and_then(|(id, limit)| {
                    let child = self.children.iter().find(|child| child.id == id)?;
                    let until = earlier(now.checked_add(limit), self.cap)?;
                    matches!(child.state, State::Running).then_some((child.key, until))
                });
                if let Some((key, until)) = prepared {
                    self.phase = Phase::Preparing { key, until };
                    self.act(Action::Prepare { key, deadline: until });
                }
            }
            Phase::Preparing { until, .. } => {
                if let Some(cap) = self.cap {
                    *until = cap.min(*until);
                }
            }
            Phase::Ending | Phase::Ended => {}
        }
    }

    /// A deadline that came after a stop had begun holds for it as well.
    fn tighten(&mut self) {
        let Some(cap) = self.cap else { return };
        let mut passed_on = Vec::new();
        for child in self.children.iter_mut().filter(|child| !child.killed) {
            let stopping = matches!(child.state, State::Stopping);
            if stopping || matches!(child.state, State::Starting { stop: true, .. }) {
                child.until = earlier(child.until, Some(patience(child.kind, cap)));
                if stopping && child.kind == ChildKind::Supervisor {
                    passed_on.push(child.key);
                }
            }
        }
        for key in passed_on {
            self.act(Action::Stop { key, deadline: Some(cap) });
        }
    }

    pub(super) fn prepared(&mut self) {
        if matches!(self.phase, Phase::Preparing { .. }) {
            self.phase = Phase::Ending;
        }
    }

    /// Ends the supervisor with a failure, after its children. The first failure stands.
    pub(super) fn fail(&mut self, exit: SupervisorExit) {
        if self.failure.is_none() {
            self.failure = Some(exit);
        }
        self.enter_ending();
    }

    fn enter_ending(&mut self) {
        self.phase = Phase::Ending;
        self.group = None;
        for child in &mut self.children {
            child.retry = false;
        }
        for deferred in std::mem::take(&mut self.deferred) {
            if let Deferred::Request { token, .. } = deferred {
                self.act(Action::Reply { token, result: Err(SupervisorError::ShuttingDown) });
            }
        }
    }
}

fn is_due(child: &Child, now: Instant) -> bool {
    child.until.is_some_and(|until| until <= now)
}
