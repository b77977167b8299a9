//! How the plan brings children down: one at a time, asked first, killed when their time is up, given up as
//! unkillable when even that does not help; and how a shutdown begins.

use super::child::{Pending, Purpose};
use super::{Action, Deferred, Key, Phase, Plan, State};
use crate::error::{SupervisorError, SupervisorExit};
use crate::event::SupervisorEvent;
use crate::reason::ExitReason;
use crate::spec::{ChildKind, Shutdown};
use std::sync::Arc;
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
    /// Works on the children that are left when the supervisor ends; ends it when none is.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        let last = self.children.alive().next_back();
        if let Some(last) = last {
            if self.flags.dynamic.is_none() {
                self.begin_stop(last, now);
            } else if !std::mem::replace(&mut self.swept, true) {
                // As OTP's simple_one_for_one: they do not know each other and go all at once.
                for key in self.children.alive().collect::<Vec<_>>() {
                    self.begin_stop(key, now);
                }
            }
            return false;
        }
        let failure = self.failure.take();
        let reason = match &failure {
            Some(exit) => ExitReason::Error(Arc::new(exit.clone())),
            None => ExitReason::Shutdown,
        };
        self.act(Action::Emit(SupervisorEvent::Shutdown { supervisor: self.flags.id.clone(), reason }));
        self.act(Action::End(failure));
        self.phase = Phase::Ended;
        false
    }

    /// Asks a child to go. Does nothing to one that is going already.
    pub(super) fn begin_stop(&mut self, key: Key, now: Instant) {
        let Some(child) = self.children.get_mut(key) else { return };
        let deadline = match child.shutdown {
            Shutdown::BrutalKill => Some(now),
            Shutdown::Timeout(limit) => earlier(now.checked_add(limit), self.cap),
            Shutdown::Infinity => self.cap,
        };
        let due = deadline.is_some_and(|deadline| deadline <= now);
        match child.state() {
            State::Down | State::Stopping | State::Lost | State::Starting { stop: true, .. } => {}
            State::Starting { purpose, .. } => {
                self.children.set(key, State::Starting { purpose, stop: true });
                self.children.set_until(key, deadline);
                if due {
                    self.harsher(key, now);
                }
            }
            State::Running => {
                child.killed = false;
                let (kind, brutal) = (child.kind, child.shutdown == Shutdown::BrutalKill);
                self.children.set(key, State::Stopping);
                if brutal || (due && kind == ChildKind::Worker) {
                    self.harsher(key, now);
                } else {
                    self.children.set_until(key, deadline.map(|deadline| patience(kind, deadline)));
                    self.act(Action::Stop { key, deadline });
                }
            }
        }
    }

    /// The next step with a child whose time is up.
    fn harsher(&mut self, key: Key, now: Instant) {
        let Some(child) = self.children.get_mut(key) else { return };
        if child.killed {
            return self.lose(key);
        }
        child.killed = true;
        let starting = matches!(child.state(), State::Starting { .. });
        self.children.set_until(key, Some(now + KILL_GRACE));
        self.act(if starting { Action::AbortStart(key) } else { Action::Kill(key) });
    }

    fn lose(&mut self, key: Key) {
        self.children.set(key, State::Lost);
        let Some(child) = self.children.get_mut(key) else { return };
        let (supervisor, id) = (self.flags.id.clone(), child.id.clone());
        for token in std::mem::take(&mut child.stop_tokens) {
            self.act(Action::Reply { token, result: Err(SupervisorError::Unkillable(id.clone())) });
        }
        let event = SupervisorEvent::Unkillable { supervisor: supervisor.clone(), child: id.clone() };
        self.act(Action::Emit(event));
        // It outranks whatever the supervisor was ending with: nobody may start this tree again over it.
        self.failure = Some(SupervisorExit::Unkillable { supervisor, child: id, cause: None });
        self.enter_ending();
    }

    pub(super) fn time(&mut self, now: Instant) {
        for key in self.children.due(now) {
            match self.children.get(key).map(|child| (child.pending, child.until())) {
                // Taken back meanwhile, by the loss of a child before it in this list.
                None | Some((_, None)) => {}
                Some((Pending::Delay, _)) => self.start(key, Purpose::Restart),
                Some(_) => self.harsher(key, now),
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
                let prepared = self.flags.prepare.as_ref().and_then(|(id, limit)| {
                    let child = self.children.by_id(id)?;
                    let until = earlier(now.checked_add(*limit), self.cap)?;
                    matches!(child.state(), State::Running).then_some((child.key, until))
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
        let stopping: Vec<Key> = self.children.alive().filter(|key| !self.is_up(*key)).collect();
        for key in stopping {
            let Some(child) = self.children.get(key).filter(|child| !child.killed) else { continue };
            let (kind, asked) = (child.kind, child.state() == State::Stopping);
            let until = earlier(child.until(), Some(patience(kind, cap)));
            self.children.set_until(key, until);
            if asked && kind == ChildKind::Supervisor {
                self.act(Action::Stop { key, deadline: Some(cap) });
            }
        }
    }

    /// Whether it is alive and nobody has asked it to stop.
    fn is_up(&self, key: Key) -> bool {
        let state = self.children.get(key).map(|child| child.state());
        matches!(state, Some(State::Running | State::Starting { stop: false, .. }))
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
        self.children.resign();
        for deferred in std::mem::take(&mut self.deferred) {
            if let Deferred::Request { token, .. } = deferred {
                self.act(Action::Reply { token, result: Err(SupervisorError::ShuttingDown) });
            }
        }
    }
}
