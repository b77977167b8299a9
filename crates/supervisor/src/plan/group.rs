//! The restart of several children: one_for_all and rest_for_one. Stops those that live in reverse order, then
//! starts all in order.

use super::child::Purpose;
use super::{Deferred, Key, Plan, State};
use crate::reason::ExitReason;
use crate::spec::Restart;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::{Duration, Instant};

/// A restart of several children under way.
pub(super) struct Group {
    keys: BTreeSet<Key>,
    pub(super) stage: Stage,
    /// The back-off of the child that failed: no start before it.
    until: Option<Instant>,
}

pub(super) enum Stage {
    Stopping,
    /// All are down; the back-off runs.
    Delayed,
    Starting {
        last: Option<Key>,
        asked: bool,
    },
    /// A start of this child failed; its retry is in the mailbox.
    Waiting(Key),
}

impl Group {
    pub(super) fn holds(&self, key: Key) -> bool {
        self.keys.contains(&key)
    }

    /// Whether what does not concern it has to wait.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.stage, Stage::Stopping | Stage::Starting { .. })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.until.filter(|_| matches!(self.stage, Stage::Delayed))
    }
}

impl Plan {
    /// Begins the restart of the children from this one on. One that waits, for a retry or its back-off, is
    /// taken over.
    pub(super) fn begin_group(&mut self, from: Key, delay: Option<Duration>, now: Instant) {
        let mut keys = self.children.keys_from(from);
        let mut until = delay.map(|delay| now + delay);
        if let Some(old) = self.group.take() {
            keys.extend(old.keys);
            until = until.max(old.until);
        }
        self.group = Some(Group { keys, until, stage: Stage::Stopping });
    }

    /// Begins the same restart again.
    pub(super) fn regroup(&mut self, until: Option<Instant>) {
        if let Some(group) = &mut self.group {
            group.stage = Stage::Stopping;
            group.until = until;
        }
    }

    pub(super) fn leave_group(&mut self, key: Key) {
        if let Some(group) = &mut self.group {
            group.keys.remove(&key);
        }
    }

    /// A group under way has its own view of an exit: it is about to stop that child, or has just started it.
    pub(super) fn judge_or_defer(&mut self, key: Key, incarnation: u64, reason: ExitReason, now: Instant) {
        match &self.group {
            Some(group) if group.holds(key) && !matches!(group.stage, Stage::Starting { .. }) => {}
            Some(group) if group.is_busy() => {
                self.deferred.push_back(Deferred::Exit { key, incarnation, reason })
            }
            _ => self.judge(key, reason, now),
        }
    }

    pub(super) fn step_group(&mut self, now: Instant) -> bool {
        let Some(group) = &mut self.group else { return false };
        match group.stage {
            Stage::Starting { asked: true, .. } => false,
            // As OTP's mailbox: what came before the retry is judged before it.
            Stage::Waiting(_) => self.step_deferred(now),
            Stage::Stopping => {
                let last = self.children.alive().rev().find(|key| group.keys.contains(key));
                if let Some(last) = last {
                    self.begin_stop(last, now);
                    return false;
                }
                group.stage = Stage::Delayed;
                // As OTP's terminate_children: temporary children do not come back.
                let temporary = |key: &Key| {
                    self.children.get(*key).is_some_and(|child| child.restart == Restart::Temporary)
                };
                for key in group.keys.iter().copied().filter(temporary).collect::<Vec<_>>() {
                    self.forget(key);
                }
                true
            }
            Stage::Delayed => {
                if group.until.is_some_and(|until| until > now) {
                    return self.step_deferred(now);
                }
                group.stage = Stage::Starting { last: None, asked: false };
                true
            }
            Stage::Starting { last, asked: false } => {
                let after = last.map_or(Bound::Unbounded, Bound::Excluded);
                match group.keys.range((after, Bound::Unbounded)).next().copied() {
                    None => {
                        self.group = None;
                        true
                    }
                    Some(key) => {
                        group.stage = Stage::Starting { last: Some(key), asked: true };
                        let down = self.children.get(key).is_some_and(|child| child.state() == State::Down);
                        if down {
                            self.start(key, Purpose::Group);
                        } else if let Some(group) = &mut self.group {
                            group.stage = Stage::Starting { last: Some(key), asked: false };
                        }
                        !down
                    }
                }
            }
        }
    }
}
