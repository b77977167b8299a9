//! When and how offsets are committed, and what the coordinator's answer means.

use std::collections::BTreeMap;
use std::time::Instant;

use kohort_protocol::messages::{
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitResponse, OffsetCommitTopic,
};
use kohort_protocol::{ErrorCode, TopicPartition};

use super::heartbeat::reason_of;
use super::{Answer, Effect, Effects, Failure, MemberState, Membership, Notice, Question, TerminalCause};
use crate::backoff::{Backoff, BackoffConfig};
use crate::verdict::{Forget, GroupApi, Verdict, verdict};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Committing {
    in_flight: Option<InFlight>,
    /// Somebody wants what is handled committed now.
    pub(super) asked: bool,
    /// When the interval is over; set when the first work after a commit appears.
    due: Option<Instant>,
    backoff: Backoff,
    not_before: Option<Instant>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct InFlight {
    round: u64,
    /// In which it was asked for.
    generation: i32,
    /// Of what is committed already, for the answer's sake.
    proof: bool,
    offsets: Vec<(TopicPartition, i64)>,
}

impl Committing {
    pub(super) fn new(backoff: BackoffConfig) -> Self {
        Self { in_flight: None, asked: false, due: None, backoff: Backoff::new(backoff), not_before: None }
    }

    pub(super) fn asked_in(&self, round: u64) -> bool {
        self.in_flight.as_ref().is_some_and(|commit| commit.round == round)
    }

    pub(super) fn no_pause(&mut self) {
        self.not_before = None;
    }

    /// The generation is over: an answer that still comes belongs to nobody.
    pub(super) fn forget(&mut self) {
        self.in_flight = None;
        self.asked = false;
        self.due = None;
        self.not_before = None;
        self.backoff.reset();
    }
}

impl Membership {
    /// Only while a commit is possible and wanted does its time count.
    pub(super) fn commit_deadline(&self) -> Option<Instant> {
        if self.committing.in_flight.is_some() || self.coordinator.is_none() {
            return None;
        }
        let paced = self.committing.not_before;
        let work = match self.state {
            _ if !self.ledger.is_dirty() => None,
            MemberState::Stable | MemberState::PreparingRebalance | MemberState::Unjoined => {
                if self.committing.asked { paced } else { self.committing.due.max(paced) }
            }
            MemberState::Revoking | MemberState::PrepareLeaving if self.handover_commits() => paced,
            MemberState::Revoking if self.keeps_working() => self.committing.due.max(paced),
            _ => None,
        };
        let proof = self.proof_due().map(|at| paced.map_or(at, |paced| at.max(paced)));
        work.into_iter().chain(proof).min()
    }

    /// When a cooperative member that joins has to show that it is still counted in: no beats go out beside its
    /// JoinGroup, and if that was lost the partitions it works on are soon another's. A commit that is taken proves it,
    /// and extends the session as a beat does.
    fn proof_due(&self) -> Option<Instant> {
        let known = self.ledger.is_dirty() || self.ledger.known().next().is_some();
        let last_good = self.heartbeat.last_good.filter(|_| known && self.works_while_joining())?;
        Some(last_good + self.config.heartbeat_interval)
    }

    pub(super) fn advance_commit(&mut self, now: Instant, fx: &mut Effects) {
        let proof = self.proof_due().is_some_and(|at| at <= now);
        if !self.ledger.is_dirty() {
            self.committing.asked = false;
            self.committing.due = None;
            if proof {
                let known = self.ledger.known().collect();
                self.send_commit(known, true, now, fx);
            }
            return;
        }
        let due = *self.committing.due.get_or_insert(now + self.config.commit_interval);
        let many = self.ledger.unacknowledged() >= self.config.commit_threshold;
        if due <= now || self.committing.asked || many || proof {
            self.commit_now(now, fx);
        }
    }

    /// Sends what is dirty, one commit in flight at a time.
    pub(super) fn commit_now(&mut self, now: Instant, fx: &mut Effects) {
        if !self.may_commit(now) {
            return;
        }
        self.committing.asked = false;
        self.committing.due = None;
        let offsets = self.ledger.begin_commit();
        self.send_commit(offsets, false, now, fx);
    }

    fn may_commit(&self, now: Instant) -> bool {
        self.committing.in_flight.is_none()
            && self.generation >= 0
            && self.coordinator.is_some()
            && self.committing.not_before.is_none_or(|at| at <= now)
    }

    fn send_commit(
        &mut self,
        offsets: Vec<(TopicPartition, i64)>,
        proof: bool,
        now: Instant,
        fx: &mut Effects,
    ) {
        let (true, Some(to)) = (self.may_commit(now), self.coordinator.clone()) else { return };
        self.committing.not_before = None;
        if offsets.is_empty() {
            return;
        }
        let request = self.commit_request(&offsets);
        let within = self.config.request_timeout;
        let round = self.ask(Some(to), Question::CommitOffsets(request), within, fx);
        self.committing.in_flight = Some(InFlight { round, generation: self.generation, proof, offsets });
    }

    pub(super) fn commit_request(&self, offsets: &[(TopicPartition, i64)]) -> OffsetCommitRequest {
        let mut topics: BTreeMap<&str, Vec<OffsetCommitPartition>> = BTreeMap::new();
        for (partition, offset) in offsets {
            topics.entry(&partition.topic).or_default().push(OffsetCommitPartition {
                partition: partition.partition,
                offset: *offset,
                leader_epoch: -1,
                metadata: None,
            });
        }
        OffsetCommitRequest {
            group_id: self.config.group_id.clone(),
            generation: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id(),
            topics: topics
                .into_iter()
                .map(|(name, partitions)| OffsetCommitTopic { name: name.to_owned(), partitions })
                .collect(),
        }
    }

    pub(super) fn on_committed(&mut self, answer: Result<Answer, Failure>, now: Instant, fx: &mut Effects) {
        let Some(InFlight { generation, offsets, proof, .. }) = self.committing.in_flight.take() else {
            return;
        };
        let response = match answer {
            Ok(Answer::Committed(response)) => response,
            Ok(_) => return self.commit_unanswered(&offsets, "an answer to another request".into(), now, fx),
            Err(Failure::ClientDied(detail)) => {
                return self.terminate(TerminalCause::ClientDied { detail }, now, fx);
            }
            Err(Failure::Unsupported(detail)) => {
                return self.terminate(TerminalCause::Unsupported { detail }, now, fx);
            }
            Err(failure) => return self.commit_unanswered(&offsets, failure.to_string(), now, fx),
        };
        let codes = codes_of(response);
        let mut committed = Vec::new();
        let mut failed: BTreeMap<ErrorCode, usize> = BTreeMap::new();
        for (partition, offset) in &offsets {
            // A partition that the answer leaves out is as good as unanswered.
            let code = codes.get(partition).copied().unwrap_or(ErrorCode::UnknownServerError);
            match verdict(GroupApi::OffsetCommit, code) {
                Verdict::Success => {
                    self.ledger.commit_succeeded(partition);
                    committed.push((partition.clone(), *offset));
                    continue;
                }
                Verdict::Surface => self.ledger.commit_refused(partition, code),
                _ => self.ledger.commit_failed(partition),
            }
            *failed.entry(code).or_default() += 1;
        }
        if !committed.is_empty() && generation == self.generation && self.works_while_joining() {
            self.heartbeat.last_good = Some(now);
        }
        if !committed.is_empty() && !proof {
            if let Some(ending) = &mut self.ending {
                ending.report.committed.extend(committed.iter().cloned());
            }
            fx.push(Effect::Notice(Notice::Committed(committed)));
        }
        if failed.is_empty() {
            self.committing.backoff.reset();
            self.lookup.backoff.reset();
        }
        for (code, partitions) in failed {
            if generation == self.generation {
                self.on_commit_error(code, partitions, now, fx);
            } else {
                // A cooperative member has moved on meanwhile: this says nothing of where it stands now.
                fx.push(Effect::Notice(Notice::CommitFailed {
                    reason: code.to_string(),
                    partitions,
                    retriable: true,
                }));
                self.pace_commit(now);
            }
        }
    }

    fn on_commit_error(&mut self, code: ErrorCode, partitions: usize, now: Instant, fx: &mut Effects) {
        let verdict = verdict(GroupApi::OffsetCommit, code);
        let retriable = matches!(verdict, Verdict::Retry | Verdict::FindCoordinator);
        fx.push(Effect::Notice(Notice::CommitFailed { reason: code.to_string(), partitions, retriable }));
        match verdict {
            Verdict::Success | Verdict::Surface | Verdict::Log | Verdict::JoinWithGivenId => {}
            Verdict::Retry => {
                self.pace_commit(now);
                let over = self.ending.as_ref().is_some_and(|ending| !ending.waits_for_the_rebalance(now));
                if over && code == ErrorCode::RebalanceInProgress {
                    self.give_up_commit(now, fx);
                }
            }
            Verdict::FindCoordinator => {
                self.pace_commit(now);
                self.lose_coordinator(Some(GroupApi::OffsetCommit), code.to_string(), now, fx);
            }
            // The group has gone on, perhaps with this member: the answer to its JoinGroup says. Until that comes, or the
            // session is over, it works on.
            Verdict::Rejoin(Forget::Generation) if self.works_while_joining() => self.pace_commit(now),
            Verdict::Rejoin(forget) => self.rejoin(reason_of(forget), forget, now, fx),
            Verdict::Fenced => self.terminate(TerminalCause::FencedInstanceId, now, fx),
            Verdict::Unauthorized => self.terminate(TerminalCause::GroupAuthorizationFailed, now, fx),
            Verdict::Refused => self.refused(GroupApi::OffsetCommit, code, String::new(), now, fx),
        }
    }

    fn commit_unanswered(
        &mut self,
        offsets: &[(TopicPartition, i64)],
        reason: String,
        now: Instant,
        fx: &mut Effects,
    ) {
        for (partition, _) in offsets {
            self.ledger.commit_failed(partition);
        }
        fx.push(Effect::Notice(Notice::CommitFailed {
            reason: reason.clone(),
            partitions: offsets.len(),
            retriable: true,
        }));
        self.pace_commit(now);
        self.lose_coordinator(Some(GroupApi::OffsetCommit), reason, now, fx);
    }

    fn pace_commit(&mut self, now: Instant) {
        self.committing.asked = true;
        self.committing.not_before = Some(now + self.committing.backoff.next(&mut self.chance));
    }
}

/// What the coordinator says of each partition.
pub(super) fn codes_of(response: OffsetCommitResponse) -> BTreeMap<TopicPartition, ErrorCode> {
    let mut codes = BTreeMap::new();
    for topic in response.topics {
        for partition in topic.partitions {
            codes.insert(TopicPartition::new(topic.name.as_str(), partition.partition), partition.error);
        }
    }
    codes
}
