//! Giving partitions back, before a rejoin and before the end: drain → commit → hook. All of them, or, in a
//! cooperative rebalance, those that move.
//!
//! 1. *Draining*: workers finish the record in hand and report it.
//! 2. *Committing*: what is handled is committed, while the generation still stands.
//! 3. *Releasing*: the `revoked` hook runs, workers end.
//!
//! When the generation is gone, only the third step is left, with the `lost` hook. Each step has its share of
//! the time; then the next begins whatever is missing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kohort_protocol::TopicPartition;

use super::{Effect, Effects, Hook, MemberState, Membership};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Handover {
    step: Step,
    round: u64,
    partitions: BTreeSet<TopicPartition>,
    /// When the current step is over.
    pub(super) deadline: Instant,
    commit_by: Instant,
    release_by: Instant,
    hook: Hook,
    /// How long past `release_by` workers that were killed are waited for.
    grace: Duration,
    /// A step ran out of time.
    pub(super) cut_short: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Draining,
    Committing,
    Releasing,
}

/// A worker that is lost has no more than this to run its hook.
const LOST_WITHIN: Duration = Duration::from_secs(5);
/// A driver that was told to kill needs a moment to say that it did; it is not waited for beyond this.
const GRACE: Duration = Duration::from_secs(1);

impl Membership {
    /// How long giving partitions back may take before the JoinGroup has to be there. The coordinator counts from
    /// when the rebalance began, of which this member heard by a beat, up to an interval later.
    pub(super) fn handover_timeout(&self, now: Instant) -> Duration {
        let whole = self.config.handover_timeout();
        let since = self.heartbeat.undisturbed.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        whole - since.min(whole * 3 / 4)
    }

    /// Begins to give these partitions back, within `total`.
    pub(super) fn begin_handover(
        &mut self,
        partitions: BTreeSet<TopicPartition>,
        now: Instant,
        total: Duration,
        lost: bool,
        fx: &mut Effects,
    ) {
        self.rounds += 1;
        if lost {
            self.handover = Some(Handover {
                step: Step::Releasing,
                round: self.rounds,
                partitions,
                deadline: now,
                commit_by: now,
                release_by: now + total.min(LOST_WITHIN),
                hook: Hook::Lost,
                grace: GRACE,
                cut_short: false,
            });
            return self.release(now, fx);
        }
        let (drain, grace) = (total * 7 / 10, GRACE.min(total / 10));
        let draining = partitions.iter().cloned().collect();
        self.handover = Some(Handover {
            step: Step::Draining,
            round: self.rounds,
            partitions,
            deadline: now + drain,
            commit_by: now + total * 85 / 100,
            release_by: now + total - grace,
            hook: Hook::Revoked,
            grace,
            cut_short: false,
        });
        fx.push(Effect::DrainWorkers { round: self.rounds, partitions: draining, within: drain });
    }

    /// The generation is gone in the middle of a handover: nothing can be committed any more.
    pub(super) fn lose_handover(&mut self, now: Instant, fx: &mut Effects) {
        let Some(handover) = &mut self.handover else { return };
        if handover.step == Step::Releasing {
            // What this one leaves over is lost behind it.
            return;
        }
        handover.partitions.clone_from(&self.owned);
        handover.hook = Hook::Lost;
        handover.release_by = handover.release_by.min(now + LOST_WITHIN);
        self.release(now, fx);
    }

    /// An end overtakes the handover of a rejoin: what is left of it, and of the rest, must fit into `total`.
    pub(super) fn hasten_handover(&mut self, now: Instant, total: Duration, fx: &mut Effects) {
        let Some(handover) = &mut self.handover else { return };
        if handover.partitions.len() < self.owned.len() && handover.step != Step::Releasing {
            let all = self.owned.clone();
            return self.begin_handover(all, now, total * 9 / 10, false, fx);
        }
        handover.deadline = handover.deadline.min(now + total * 6 / 10);
        handover.commit_by = handover.commit_by.min(now + total * 75 / 100);
        handover.release_by = handover.release_by.min(now + total * 9 / 10);
    }

    /// The partitions may be with others as soon as the group is left: `lost`, not `revoked`, is the hook that runs
    /// once what is handled is committed.
    pub(super) fn hand_over_as_lost(&mut self) {
        if let Some(handover) = &mut self.handover {
            handover.hook = Hook::Lost;
        }
    }

    /// The commit that an end waits for would be answered after the rebalance, which an end does not wait for: what
    /// is not committed by now stays so.
    pub(super) fn give_up_commit(&mut self, now: Instant, fx: &mut Effects) {
        if let Some(handover) = self.handover.as_mut().filter(|handover| handover.step == Step::Committing) {
            handover.cut_short = true;
            self.release(now, fx);
            self.committing.asked = false;
        }
    }

    pub(super) fn on_drained(&mut self, round: u64, now: Instant, fx: &mut Effects) {
        if self
            .handover
            .as_ref()
            .is_some_and(|handover| handover.round == round && handover.step == Step::Draining)
        {
            self.begin_committing(now, fx);
        }
    }

    pub(super) fn on_released(
        &mut self,
        round: u64,
        aborted: Vec<TopicPartition>,
        now: Instant,
        fx: &mut Effects,
    ) {
        if self
            .handover
            .as_ref()
            .is_some_and(|handover| handover.round == round && handover.step == Step::Releasing)
        {
            self.finish_handover(aborted, now, fx);
        }
    }

    pub(super) fn on_handover_deadline(&mut self, now: Instant, fx: &mut Effects) {
        let Some(handover) = &mut self.handover else { return };
        handover.cut_short = true;
        match handover.step {
            Step::Draining => self.begin_committing(now, fx),
            Step::Committing => self.release(now, fx),
            Step::Releasing => self.finish_handover(Vec::new(), now, fx),
        }
    }

    pub(super) fn advance_handover(&mut self, now: Instant, fx: &mut Effects) {
        match self.handover.as_ref().map(|handover| handover.step) {
            Some(Step::Committing) => {}
            // The record in hand, or the hook, may wait for the commit that it asked for.
            Some(Step::Draining | Step::Releasing) if self.committing.asked && self.ledger.is_dirty() => {
                return self.commit_now(now, fx);
            }
            Some(_) if self.keeps_working() => return self.advance_commit(now, fx),
            _ => return,
        }
        let left = |handover: &Handover| self.ledger.is_dirty_in(&handover.partitions);
        if self.handover.as_ref().is_some_and(left) {
            self.commit_now(now, fx);
        } else {
            self.release(now, fx);
        }
    }

    /// Somebody wants a commit. One that the `revoked` hook asks for is the last there can be: no back-off keeps it.
    pub(super) fn on_commit_asked(&mut self) {
        self.committing.asked = true;
        if self.handover.as_ref().is_some_and(|handover| handover.step == Step::Releasing) {
            self.committing.no_pause();
        }
    }

    /// Does the member keep partitions that it goes on working on?
    pub(super) fn keeps_working(&self) -> bool {
        let kept = |handover: &Handover| !handover.partitions.is_superset(&self.owned);
        self.generation >= 0 && self.handover.as_ref().is_some_and(kept)
    }

    /// Is a handover waiting for a commit?
    pub(super) fn handover_commits(&self) -> bool {
        self.handover.as_ref().is_some_and(|handover| match handover.step {
            Step::Draining | Step::Releasing => self.committing.asked && self.generation >= 0,
            Step::Committing => true,
        })
    }

    fn begin_committing(&mut self, now: Instant, fx: &mut Effects) {
        if let Some(handover) = &mut self.handover {
            handover.step = Step::Committing;
            handover.deadline = handover.commit_by;
        }
        self.advance_handover(now, fx);
    }

    fn release(&mut self, now: Instant, fx: &mut Effects) {
        let Some(handover) = &mut self.handover else { return };
        handover.step = Step::Releasing;
        handover.deadline = handover.release_by + handover.grace;
        let within = handover.release_by.saturating_duration_since(now);
        let partitions = handover.partitions.iter().cloned().collect();
        fx.push(Effect::ReleaseWorkers { round: handover.round, partitions, hook: handover.hook, within });
    }

    fn finish_handover(&mut self, aborted: Vec<TopicPartition>, now: Instant, fx: &mut Effects) {
        let Some(handover) = self.handover.take() else { return };
        let dropped = self.ledger.dirty().filter(|partition| handover.partitions.contains(*partition));
        let dropped: Vec<_> = dropped.cloned().chain(aborted.iter().cloned()).collect();
        if handover.partitions.is_superset(&self.owned) {
            self.keep_uncommitted();
            self.give_up_assignment(handover.hook, fx);
        } else {
            self.give_up(&handover.partitions, fx);
        }
        if let Some(ending) = &mut self.ending {
            ending.report.forced |= handover.cut_short || !aborted.is_empty();
            ending.report.dropped.extend(dropped);
            ending.aborted.extend(aborted);
        }
        if self.owned.is_empty() || (self.ending.is_none() && self.generation >= 0) {
            return self.after_handover(now, fx);
        }
        // The identity went, or the end came, while only some were given back: now the rest.
        let (rest, lost) = (self.owned.clone(), self.generation < 0);
        let left = self.ending.as_ref().map(|ending| ending.left(now));
        self.begin_handover(rest, now, left.unwrap_or(self.handover_timeout(now)), lost, fx);
    }

    fn after_handover(&mut self, now: Instant, fx: &mut Effects) {
        if self.ending.is_some() {
            self.leave_or_finish(now, fx);
        } else {
            self.leadership = None;
            self.to(MemberState::Unjoined, fx);
        }
    }
}
