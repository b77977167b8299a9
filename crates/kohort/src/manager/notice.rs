//! What the core has to tell, as events.

use std::collections::HashMap;
use std::time::Duration;

use kohort_group::Notice;
use kohort_group::membership::Question;
use kohort_protocol::ErrorCode;
use tokio::time::Instant;

use super::{CommitWaiter, State};
use crate::event::MemberEvent;

/// When joins and syncs were sent, for their durations.
#[derive(Default)]
pub(super) struct Asked {
    join: Option<Instant>,
    sync: Option<Instant>,
}

impl Asked {
    pub(super) fn note(&mut self, question: &Question) {
        match question {
            Question::Join(_) => self.join = Some(Instant::now()),
            Question::Sync(_) => self.sync = Some(Instant::now()),
            _ => {}
        }
    }
}

fn since(asked: Option<Instant>) -> Duration {
    asked.map(|at| at.elapsed()).unwrap_or_default()
}

impl State {
    pub(super) fn tell(&mut self, notice: Notice) {
        let member = self.incarnation.name.clone();
        let event = match notice {
            Notice::State { from, to } => MemberEvent::StateChanged { member, from, to },
            Notice::CoordinatorFound(node) => {
                if self.reachable == Some(true) {
                    return;
                }
                self.reachable = Some(true);
                MemberEvent::Reachable { member, coordinator: format!("{}:{}", node.host, node.port) }
            }
            Notice::Retrying { api, reason, attempt, wait } => {
                // Said once per change, beside the event for each attempt.
                if self.reachable != Some(false) && attempt >= 2 && self.core.coordinator().is_none() {
                    self.reachable = Some(false);
                    let reason = reason.clone();
                    self.incarnation.emit(MemberEvent::Unreachable { member: member.clone(), reason });
                }
                self.incarnation.snapshot().trouble.clone_from(&reason);
                let api = api.map_or("Metadata", |api| api.name());
                MemberEvent::Retrying { member, api, reason, attempt, wait }
            }
            Notice::Joined { generation, member_id, leader, .. } => {
                let duration = since(self.asked.join);
                MemberEvent::Join { member, duration, generation, member_id, leader }
            }
            Notice::Synced { generation } => {
                MemberEvent::Sync { member, duration: since(self.asked.sync), generation }
            }
            Notice::Rebalance { reason, generation } => {
                MemberEvent::Rebalance { member, kind: reason.name(), generation }
            }
            Notice::Assigned { generation, partitions } => {
                MemberEvent::Assigned { member, generation, partitions }
            }
            Notice::Revoked(partitions) => {
                self.forget(&partitions);
                MemberEvent::Revoked { member, partitions }
            }
            Notice::Lost(partitions) => {
                self.forget(&partitions);
                MemberEvent::Lost { member, partitions }
            }
            Notice::PartitionFailed { partition, error } => {
                MemberEvent::PartitionFailed { member, partition, reason: error.to_string() }
            }
            Notice::UnreadableBlob { member_id, error } => {
                MemberEvent::UnreadableBlob { member, member_id, reason: error }
            }
            Notice::Committed(offsets) => {
                self.confirm(&offsets);
                MemberEvent::Commit { member, offsets }
            }
            Notice::CommitFailed { reason, partitions, retriable } => {
                self.refuse();
                MemberEvent::CommitFailed { member, reason, partitions, retriable }
            }
            Notice::HeartbeatCrash { exit, crashes_in_window } => {
                self.incarnation.snapshot().crashes = self.core.crash_window().clone();
                MemberEvent::HeartbeatCrash { member, exit: exit.to_string(), crashes_in_window }
            }
            Notice::StaticMembershipUnsupported { version } => {
                MemberEvent::StaticMembershipUnsupported { member, version }
            }
            Notice::MissingTopic { topic } => MemberEvent::MissingTopic { member, topic },
            Notice::RebalanceStorm { generations } => MemberEvent::RebalanceStorm { member, generations },
            _ => return,
        };
        self.incarnation.emit(event);
    }

    /// These are not ours any more: nobody can wait for their commits, and `status()` does not show them.
    fn forget(&mut self, partitions: &[kohort_protocol::TopicPartition]) {
        self.waiters.retain(|waiter| !partitions.contains(&waiter.partition));
        self.incarnation.slots().retain(|partition, _| !partitions.contains(partition));
    }

    /// Why nobody needs to wait for this commit.
    pub(super) fn refusal(&self, waiter: &CommitWaiter) -> Option<ErrorCode> {
        let (offset, code) = self.core.refused_commit(&waiter.partition)?;
        (offset >= waiter.offset).then_some(code)
    }

    /// Tells those who wait for what was refused for good.
    fn refuse(&mut self) {
        for waiter in std::mem::take(&mut self.waiters) {
            match self.refusal(&waiter) {
                // Who waited may have gone away.
                Some(code) => drop(waiter.confirm.send(Err(code))),
                None => self.waiters.push(waiter),
            }
        }
    }

    /// Tells those who wait for these offsets, and writes them down for `status()`.
    fn confirm(&mut self, offsets: &[(kohort_protocol::TopicPartition, i64)]) {
        let offsets: HashMap<_, _> = offsets.iter().map(|(partition, offset)| (partition, *offset)).collect();
        for (partition, slot) in self.incarnation.slots().iter() {
            if let Some(offset) = offsets.get(partition) {
                slot.set_committed(*offset);
            }
        }
        for waiter in std::mem::take(&mut self.waiters) {
            if offsets.get(&waiter.partition).is_some_and(|offset| *offset >= waiter.offset) {
                // Who waited may have gone away; the commit stands.
                let _ = waiter.confirm.send(Ok(()));
            } else {
                self.waiters.push(waiter);
            }
        }
    }
}
