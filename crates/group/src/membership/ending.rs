//! The end of a member: a close (KIP-1092) or a terminal reason. Both run the same way: hand partitions over,
//! leave the group if it is to be left, say so, be over; and both are bounded by a deadline.

use std::time::{Duration, Instant};

use kohort_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse, LeaveMember};
use kohort_protocol::{ErrorCode, TopicPartition};

use super::commit::codes_of;
use super::join::Open;
use super::{
    Answer, CloseReport, Effect, Effects, Failure, GroupMembershipOperation, Hook, LeaveOutcome, MemberState,
    Membership, Notice, Question, TerminalCause,
};
use crate::verdict::{GroupApi, Verdict, verdict};

/// The longest that an end waits for others to complete a rebalance, so that its work can be committed.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    kind: Kind,
    deadline: Instant,
    leave: bool,
    /// A JoinGroup was out when it began, and may still be held by the coordinator.
    joining: bool,
    /// Until when a commit that the rebalance puts off is tried again.
    patient_until: Instant,
    /// Handled, but not committed, because nobody knew the coordinator.
    uncommitted: Vec<(TopicPartition, i64)>,
    /// Whose record in hand was cut off.
    pub(super) aborted: Vec<TopicPartition>,
    pub(super) report: CloseReport,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kind {
    Close,
    Terminal(TerminalCause),
}

impl Ending {
    pub(super) fn timer(&self) -> Option<Instant> {
        Some(self.deadline)
    }

    /// Is a commit that the rebalance puts off tried again? Others complete it within moments, or it takes longer than an
    /// end may wait for.
    pub(super) fn waits_for_the_rebalance(&self, now: Instant) -> bool {
        now < self.patient_until
    }

    /// No beat goes out beside a JoinGroup.
    pub(super) fn may_beat(&self) -> bool {
        !self.joining
    }

    /// What is left of the time for handing over.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.deadline.saturating_duration_since(now) * 9 / 10
    }
}

impl Membership {
    pub(super) fn on_close(
        &mut self,
        operation: GroupMembershipOperation,
        deadline: Instant,
        now: Instant,
        fx: &mut Effects,
    ) {
        match &mut self.ending {
            Some(Ending { kind: Kind::Close, deadline: earlier, .. }) => *earlier = deadline.min(*earlier),
            Some(_) => {}
            None => {
                let leave = operation.leaves(self.instance_id().is_some());
                self.begin_ending(Kind::Close, deadline, leave, false, now, fx);
            }
        }
        if self.ending.as_ref().is_some_and(|ending| ending.deadline <= now) {
            self.on_ending_deadline(fx);
        }
    }

    /// Ends the member for good. The first reason stands; while closing, it only makes the close poorer.
    pub(super) fn terminate(&mut self, cause: TerminalCause, now: Instant, fx: &mut Effects) {
        // A member that the group still counts in hands over and leaves; one that is out stays silent.
        let counted_in = matches!(
            cause,
            TerminalCause::CrashLoop { .. }
                | TerminalCause::Crashed { .. }
                | TerminalCause::WorkersGaveUp { .. }
        );
        if let Some(ending) = &mut self.ending {
            if !counted_in {
                ending.leave = false;
                self.generation = -1;
                if self.state == MemberState::Leaving {
                    self.finish_ending(fx);
                } else {
                    self.lose_while_ending(now, fx);
                }
            }
            return;
        }
        let deadline = now + self.config.terminal_timeout;
        // The place of a static member is kept for the one that is started in its stead.
        let leave = counted_in && self.instance_id().is_none();
        self.begin_ending(Kind::Terminal(cause), deadline, leave, !counted_in, now, fx);
    }

    pub(super) fn refused(
        &mut self,
        api: GroupApi,
        code: ErrorCode,
        detail: String,
        now: Instant,
        fx: &mut Effects,
    ) {
        self.terminate(TerminalCause::Refused { api, code, detail }, now, fx);
    }

    fn begin_ending(
        &mut self,
        kind: Kind,
        deadline: Instant,
        leave: bool,
        lost: bool,
        now: Instant,
        fx: &mut Effects,
    ) {
        let total = deadline.saturating_duration_since(now);
        let joining = matches!(self.open.take(), Some((_, Open::Join)));
        // Whoever leads the generation that is being completed would wait for itself.
        let leads = self.state == MemberState::CompletingRebalance && self.leadership.is_some();
        let patience = if leads { Duration::ZERO } else { PATIENCE.min(total / 4) };
        self.ending = Some(Ending {
            kind,
            deadline,
            leave,
            joining,
            patient_until: now + patience,
            uncommitted: Vec::new(),
            aborted: Vec::new(),
            report: CloseReport::default(),
        });
        self.leadership = None;
        self.not_before = None;
        self.heartbeat.rejoin_at = None;
        self.awaiting_offsets.clear();
        if lost {
            self.generation = -1;
        }
        let between_generations = !matches!(self.state, MemberState::Stable | MemberState::Revoking);
        match self.state {
            MemberState::Revoking => {
                self.to(MemberState::PrepareLeaving, fx);
                self.hasten_handover(now, total, fx);
                if lost {
                    self.lose_handover(now, fx);
                }
            }
            _ if !self.owned.is_empty() => {
                self.to(MemberState::PrepareLeaving, fx);
                // A tenth is kept for the LeaveGroup.
                let all = self.owned.clone();
                self.begin_handover(all, now, total * 9 / 10, lost, fx);
                // A cooperative member that joins owns partitions, but the next generation no longer counts on it.
                if between_generations {
                    self.hand_over_as_lost();
                }
            }
            _ => {
                // An eager member that joins has given everything back before.
                self.give_up_assignment(if self.generation < 0 { Hook::Lost } else { Hook::Revoked }, fx);
                self.leave_or_finish(now, fx);
            }
        }
    }

    /// The generation went while the member ends.
    pub(super) fn lose_while_ending(&mut self, now: Instant, fx: &mut Effects) {
        if let Some(ending) = &mut self.ending
            && self.member_id.is_empty()
        {
            ending.leave = false;
        }
        self.lose_handover(now, fx);
    }

    pub(super) fn leave_or_finish(&mut self, now: Instant, fx: &mut Effects) {
        if self.generation < 0
            && let Some(ending) = &mut self.ending
        {
            ending.uncommitted.clear();
        }
        let Some(ending) = &self.ending else { return };
        let leaves = self.leave_request().is_some();
        // With work that could not be committed the search goes on for as long as the end may take.
        let searches =
            ending.report.forced && ending.deadline > now && (leaves || !ending.uncommitted.is_empty());
        if self.coordinator.is_none() && searches {
            self.to(MemberState::Leaving, fx);
            self.lookup.start_over();
        } else if leaves && self.coordinator.is_some() {
            self.to(MemberState::Leaving, fx);
            self.advance_leave(now, fx);
        } else {
            self.finish_ending(fx);
        }
    }

    /// What is left over of a handover. It is committed after all if the coordinator is found in time.
    pub(super) fn keep_uncommitted(&mut self) {
        let unknown = self.coordinator.is_none() && self.generation >= 0;
        if let Some(ending) = self.ending.as_mut().filter(|_| unknown) {
            ending.uncommitted.extend(self.ledger.uncommitted());
        }
    }

    /// A member that never got an id has nothing to leave.
    fn leave_request(&self) -> Option<LeaveGroupRequest> {
        let wanted = self.ending.as_ref().is_some_and(|ending| ending.leave);
        if !wanted || self.member_id.is_empty() {
            return None;
        }
        let reason = match &self.ending {
            Some(Ending { kind: Kind::Terminal(_), .. }) => "the member ends for a terminal reason",
            _ => "the member closes",
        };
        Some(LeaveGroupRequest {
            group_id: self.config.group_id.clone(),
            members: vec![LeaveMember {
                member_id: self.member_id.clone(),
                group_instance_id: self.instance_id(),
                reason: Some(reason.into()),
            }],
        })
    }

    pub(super) fn advance_leave(&mut self, now: Instant, fx: &mut Effects) {
        let (Some(ending), Some(to), None) = (&self.ending, self.coordinator.clone(), &self.open) else {
            return;
        };
        let within = ending.deadline.saturating_duration_since(now).min(self.config.request_timeout);
        if !ending.uncommitted.is_empty() {
            let question = Question::CommitOffsets(self.commit_request(&ending.uncommitted));
            let round = self.ask(Some(to), question, within, fx);
            self.open = Some((round, Open::LastCommit));
            return;
        }
        let Some(request) = self.leave_request() else { return self.finish_ending(fx) };
        let round = self.ask(Some(to), Question::Leave(request), within, fx);
        self.open = Some((round, Open::Leave));
    }

    /// The commit that the coordinator was looked for. A failure that another look may mend leaves it to be tried again.
    pub(super) fn on_last_commit(&mut self, answer: Result<Answer, Failure>, now: Instant, fx: &mut Effects) {
        let response = match answer {
            Ok(Answer::Committed(response)) => response,
            Ok(_) => return self.give_up_uncommitted(),
            Err(failure) => {
                let api = Some(GroupApi::OffsetCommit);
                return self.lose_coordinator(api, failure.to_string(), now, fx);
            }
        };
        let codes = codes_of(response);
        let Some(ending) = &mut self.ending else { return };
        let (mut committed, mut moved) = (Vec::new(), None);
        for (partition, offset) in &ending.uncommitted {
            let code = codes.get(partition).copied().unwrap_or(ErrorCode::UnknownServerError);
            match verdict(GroupApi::OffsetCommit, code) {
                Verdict::Success => committed.push((partition.clone(), *offset)),
                // Put off for a rebalance: an end does not wait for that.
                Verdict::Retry if code != ErrorCode::RebalanceInProgress => moved = Some(code),
                Verdict::FindCoordinator => moved = Some(code),
                _ => {}
            }
        }
        let done = |partition: &TopicPartition| committed.iter().any(|(other, _)| other == partition);
        ending.uncommitted.retain(|(partition, _)| !done(partition));
        ending.report.dropped.retain(|partition| !done(partition) || ending.aborted.contains(partition));
        ending.report.committed.extend(committed.iter().cloned());
        // All that was handled is committed and nothing was aborted: late, but in order.
        ending.report.forced = !ending.report.dropped.is_empty();
        if !committed.is_empty() {
            fx.push(Effect::Notice(Notice::Committed(committed)));
        }
        match moved {
            Some(code) => self.lose_coordinator(Some(GroupApi::OffsetCommit), code.to_string(), now, fx),
            None => self.give_up_uncommitted(),
        }
    }

    fn give_up_uncommitted(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.uncommitted.clear();
        }
    }

    pub(super) fn on_left(&mut self, answer: Result<Answer, Failure>, now: Instant, fx: &mut Effects) {
        let outcome = match answer {
            Ok(Answer::Left(response)) => {
                let code = first_error(&response);
                if verdict(GroupApi::LeaveGroup, code) == Verdict::FindCoordinator {
                    if let Some(ending) = &mut self.ending {
                        ending.report.leave = LeaveOutcome::Unconfirmed(code.to_string());
                    }
                    return self.lose_coordinator(Some(GroupApi::LeaveGroup), code.to_string(), now, fx);
                }
                if response.members.len() > 1 {
                    LeaveOutcome::Unconfirmed(format!(
                        "an answer for {} members instead of one",
                        response.members.len()
                    ))
                } else if code.is_error() {
                    LeaveOutcome::Unconfirmed(code.to_string())
                } else {
                    LeaveOutcome::Left
                }
            }
            Ok(_) => LeaveOutcome::Unconfirmed("an answer to another request".into()),
            // It never went out: the coordinator may have moved with its node.
            Err(Failure::Unconnected(reason)) => {
                return self.lose_coordinator(Some(GroupApi::LeaveGroup), reason, now, fx);
            }
            // Not resent: whether it arrived is unknown, and the session timeout does the rest.
            Err(failure) => LeaveOutcome::Unconfirmed(failure.to_string()),
        };
        if let Some(ending) = &mut self.ending {
            ending.report.leave = outcome;
        }
        self.finish_ending(fx);
    }

    /// While leaving, no broker could say where the coordinator is: the group is not left, the session timeout
    /// does the rest. Only a close that is forced anyway uses up its time with asking on.
    pub(super) fn leave_in_vain(&mut self, reason: String, now: Instant, fx: &mut Effects) {
        if self.ending.as_ref().is_some_and(|ending| ending.report.forced) {
            return self.lookup_again(reason, now, fx);
        }
        self.finish_ending(fx);
    }

    /// The time is over: what is not done is dropped, and one LeaveGroup goes out if none did.
    pub(super) fn on_ending_deadline(&mut self, fx: &mut Effects) {
        if self.handover.take().is_some() {
            let dropped: Vec<_> = self.ledger.dirty().cloned().collect();
            if let Some(ending) = &mut self.ending {
                ending.report.forced = true;
                ending.report.dropped.extend(dropped);
            }
            self.rounds += 1;
            let within = Duration::ZERO;
            let partitions = self.owned.iter().cloned().collect();
            fx.push(Effect::ReleaseWorkers { round: self.rounds, partitions, hook: Hook::Lost, within });
            self.give_up_assignment(Hook::Lost, fx);
        }
        let request = if matches!(self.open, Some((_, Open::Leave))) {
            if let Some(ending) = &mut self.ending {
                ending.report.leave = LeaveOutcome::Unconfirmed("no answer within the close timeout".into());
            }
            None
        } else {
            self.leave_request()
        };
        if let (Some(request), Some(to)) = (request, self.coordinator.clone()) {
            if self.state != MemberState::Leaving {
                self.to(MemberState::Leaving, fx);
            }
            self.ask(Some(to), Question::Leave(request), Duration::ZERO, fx);
            if let Some(ending) = &mut self.ending {
                ending.report.leave =
                    LeaveOutcome::Unconfirmed("not waited for: the close timeout was over".into());
            }
        }
        self.finish_ending(fx);
    }

    fn finish_ending(&mut self, fx: &mut Effects) {
        let Some(ending) = self.ending.take() else { return };
        self.open = None;
        match ending.kind {
            Kind::Close => {
                let mut report = ending.report;
                report.dropped.sort();
                report.dropped.dedup();
                self.to(MemberState::Left, fx);
                fx.push(Effect::Closed(report));
            }
            Kind::Terminal(cause) => {
                self.to(MemberState::Fatal, fx);
                fx.push(Effect::Terminate(cause));
            }
        }
    }
}

/// The top-level code, or that of the only member. An empty list counts as success.
fn first_error(response: &LeaveGroupResponse) -> ErrorCode {
    if response.error.is_error() {
        return response.error;
    }
    response.members.iter().map(|member| member.error).find(|code| code.is_error()).unwrap_or_default()
}
