//! Into the group: JoinGroup, then SyncGroup, and what their answers mean.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kohort_protocol::consumer::{Assignment, Subscription};
use kohort_protocol::messages::{
    JoinGroupRequest, JoinGroupResponse, JoinProtocol, SyncGroupRequest, SyncGroupResponse,
};

use kohort_protocol::sticky::StickyUserData;
use kohort_protocol::{EncodeError, ErrorCode};

use super::heartbeat::reason_of;
use super::leader::Leadership;
use super::{
    Answer, Effect, Effects, Failure, MemberState, Membership, Notice, Question, RejoinReason, TerminalCause,
};
use crate::assignor::Assignor;
use crate::verdict::{Forget, GroupApi, Verdict, verdict};

pub(super) const PROTOCOL_TYPE: &str = "consumer";
/// Version of the subscription and assignment blobs we write: 1 (KIP-429), read by every client.
pub(super) const BLOB_VERSION: i16 = 1;
/// Version 2 and above say the generation that owned partitions are of (KIP-792).
const COOPERATIVE_BLOB_VERSION: i16 = 3;

/// The group question that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Open {
    Join,
    LeaderMetadata,
    Sync,
    Offsets,
    LastCommit,
    Leave,
}

/// Generations of the last minute.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Storm {
    joined: VecDeque<Instant>,
    told: bool,
}

const STORM_WINDOW: Duration = Duration::from_secs(60);
const STORM_GENERATIONS: usize = 5;

impl Storm {
    /// Counts a generation; the number to tell of when a storm begins.
    fn generation(&mut self, now: Instant) -> Option<usize> {
        self.joined.push_back(now);
        while self.joined.len() > 1000
            || self.joined.front().is_some_and(|at| now.saturating_duration_since(*at) > STORM_WINDOW)
        {
            self.joined.pop_front();
        }
        let storm = self.joined.len() >= STORM_GENERATIONS;
        let begins = storm && !self.told;
        self.told = storm;
        begins.then_some(self.joined.len())
    }
}

impl Membership {
    pub(super) fn advance_join(&mut self, now: Instant, fx: &mut Effects) {
        if self.ending.is_some() || self.open.is_some() || self.not_before.is_some_and(|at| at > now) {
            return;
        }
        let Some(to) = self.coordinator.clone() else { return };
        let protocols = match self.subscriptions() {
            Ok(protocols) => protocols,
            Err(error) => {
                return self.terminate(TerminalCause::Unsupported { detail: error.to_string() }, now, fx);
            }
        };
        let request = JoinGroupRequest {
            group_id: self.config.group_id.clone(),
            session_timeout_ms: millis(self.config.session_timeout),
            rebalance_timeout_ms: millis(self.config.rebalance_timeout),
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id(),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols,
            reason: None,
        };
        self.not_before = None;
        self.to(MemberState::PreparingRebalance, fx);
        let within = self.config.join_timeout();
        let round = self.ask(Some(to), Question::Join(request), within, fx);
        self.open = Some((round, Open::Join));
    }

    /// The assignor of this name, if the member offers it.
    fn offers(&self, name: &str) -> Option<&Assignor> {
        self.config.assignors.iter().find(|assignor| assignor.name() == name)
    }

    /// What the member tells each assignor: its topics, and to the sticky ones what it has or had.
    fn subscriptions(&self) -> Result<Vec<JoinProtocol>, EncodeError> {
        let topics = self.subscription.topics.iter().cloned().collect();
        let plain = Subscription { topics, ..Subscription::default() };
        let mut protocols = Vec::with_capacity(self.config.assignors.len());
        for assignor in &self.config.assignors {
            let metadata = match assignor {
                Assignor::Sticky => {
                    let (previous, generation) = self.previous.clone();
                    let data = StickyUserData { previous, generation }.encode()?;
                    Subscription { user_data: Some(data), ..plain.clone() }.encode(BLOB_VERSION)?
                }
                Assignor::CooperativeSticky if self.is_cooperative() => {
                    let owned_partitions = self.assignment.iter().cloned().collect();
                    let owning =
                        Subscription { owned_partitions, generation: self.previous.1, ..plain.clone() };
                    owning.encode(COOPERATIVE_BLOB_VERSION)?
                }
                _ => plain.encode(BLOB_VERSION)?,
            };
            protocols.push(JoinProtocol { name: assignor.name().into(), metadata });
        }
        Ok(protocols)
    }

    pub(super) fn on_group_answer(
        &mut self,
        open: Open,
        answer: Result<Answer, Failure>,
        now: Instant,
        fx: &mut Effects,
    ) {
        match (open, answer) {
            (Open::Join, Ok(Answer::Joined { version, response })) => {
                self.check_static(version, fx);
                self.on_joined(response, now, fx);
            }
            (Open::LeaderMetadata, Ok(Answer::PartitionCounts(counts))) => {
                self.on_leader_metadata(counts, now, fx);
            }
            (Open::Sync, Ok(Answer::Synced(response))) => self.on_synced(response, now, fx),
            (Open::Offsets, Ok(Answer::Offsets(response))) => self.on_offsets(response, now, fx),
            (Open::LastCommit, answer) => self.on_last_commit(answer, now, fx),
            (Open::Leave, answer) => self.on_left(answer, now, fx),
            (open, answer) => {
                let failure = match answer {
                    Err(failure) => failure,
                    Ok(_) => Failure::Malformed("an answer to another request".into()),
                };
                if let Some(reason) = self.passing(failure, now, fx) {
                    self.on_unanswered(open, reason, now, fx);
                }
            }
        }
    }

    /// A failure that another try may mend comes back as its text; any other ends the member.
    pub(super) fn passing(&mut self, failure: Failure, now: Instant, fx: &mut Effects) -> Option<String> {
        match failure {
            Failure::ClientDied(detail) => self.terminate(TerminalCause::ClientDied { detail }, now, fx),
            Failure::Unsupported(detail) => self.terminate(TerminalCause::Unsupported { detail }, now, fx),
            Failure::Unconnected(reason) | Failure::Network(reason) | Failure::Malformed(reason) => {
                return Some(reason);
            }
        }
        None
    }

    fn on_unanswered(&mut self, open: Open, reason: String, now: Instant, fx: &mut Effects) {
        match open {
            Open::Join => {
                self.to(MemberState::Unjoined, fx);
                self.lose_coordinator(Some(GroupApi::JoinGroup), reason, now, fx);
            }
            // Never resent: what became of the first is unknown, so it starts again with a join.
            Open::Sync => {
                self.rejoin(RejoinReason::JoinFailed, Forget::Nothing, now, fx);
                self.lose_coordinator(Some(GroupApi::SyncGroup), reason, now, fx);
            }
            Open::LeaderMetadata => self.pace(None, reason, now, fx),
            // Whether the coordinator is there is the heart's to find out.
            Open::Offsets => self.pace(Some(GroupApi::OffsetFetch), reason, now, fx),
            Open::LastCommit | Open::Leave => {}
        }
    }

    /// A broker that cannot say the instance id makes the member dynamic, everywhere, the leave included.
    fn check_static(&mut self, version: i16, fx: &mut Effects) {
        const FIRST_STATIC: i16 = 5;
        if self.config.group_instance_id.is_some() && version < FIRST_STATIC && !self.downgraded {
            self.downgraded = true;
            fx.push(Effect::Notice(Notice::StaticMembershipUnsupported { version }));
        }
    }

    fn on_joined(&mut self, response: JoinGroupResponse, now: Instant, fx: &mut Effects) {
        let api = GroupApi::JoinGroup;
        match verdict(api, response.error) {
            Verdict::Success => self.enter_generation(response, now, fx),
            // KIP-394. A second demand in a row is not the handshake: it is paced like any refusal.
            Verdict::JoinWithGivenId => {
                let handshake = self.member_id.is_empty() && !response.member_id.is_empty();
                self.member_id = response.member_id;
                self.to(MemberState::Unjoined, fx);
                if !handshake {
                    self.pace(Some(api), response.error.to_string(), now, fx);
                }
            }
            Verdict::Retry | Verdict::Surface | Verdict::Log => {
                self.to(MemberState::Unjoined, fx);
                self.pace(Some(api), response.error.to_string(), now, fx);
            }
            Verdict::FindCoordinator => {
                self.to(MemberState::Unjoined, fx);
                self.lose_coordinator(Some(api), response.error.to_string(), now, fx);
            }
            Verdict::Rejoin(forget) => {
                self.rejoin(reason_of(forget), forget, now, fx);
                self.pace_after_first(api, response.error, now, fx);
            }
            Verdict::Fenced => self.terminate(TerminalCause::FencedInstanceId, now, fx),
            Verdict::Unauthorized => self.terminate(TerminalCause::GroupAuthorizationFailed, now, fx),
            Verdict::Refused => {
                let detail = self.what_was_offered(response.error);
                self.refused(api, response.error, detail, now, fx);
            }
        }
    }

    /// The answer to a JoinGroup that a rejoin overtook changes nothing, with one exception: while the member still
    /// has the id that it named, only another process can have taken its instance. (Under another id it may have
    /// been the member itself, whose next join replaced this one.)
    pub(super) fn on_overtaken_join(
        &mut self,
        named: &str,
        answer: Result<Answer, Failure>,
        now: Instant,
        fx: &mut Effects,
    ) {
        let Ok(Answer::Joined { response, .. }) = answer else { return };
        let fenced = verdict(GroupApi::JoinGroup, response.error) == Verdict::Fenced;
        if fenced && self.ending.is_none() && !named.is_empty() && named == self.member_id {
            self.terminate(TerminalCause::FencedInstanceId, now, fx);
        }
    }

    fn enter_generation(&mut self, response: JoinGroupResponse, now: Instant, fx: &mut Effects) {
        if response.protocol_type.as_deref().is_some_and(|kind| kind != PROTOCOL_TYPE) {
            let detail = format!("the group is of type {:?}", response.protocol_type.unwrap_or_default());
            return self.refused(GroupApi::JoinGroup, ErrorCode::InconsistentGroupProtocol, detail, now, fx);
        }
        let leads = response.leader == response.member_id;
        let offered = response.protocol_name.as_deref().is_some_and(|name| self.offers(name).is_some());
        if leads && !response.skip_assignment && !offered {
            let detail = format!(
                "the group chose {:?}, which this member did not offer",
                response.protocol_name.unwrap_or_default()
            );
            return self.refused(GroupApi::JoinGroup, ErrorCode::InconsistentGroupProtocol, detail, now, fx);
        }
        let follows = self.generation.checked_add(1).is_none_or(|next| next == response.generation);
        if self.works_while_joining() && response.generation != self.generation && !follows {
            self.member_id = response.member_id;
            return self.rejoin(RejoinReason::GenerationMissed, Forget::Generation, now, fx);
        }
        // The id of a static member is its instance id and a UUID.
        let of_instance = |instance: &String| {
            let rest =
                response.leader.strip_prefix(instance.as_str()).and_then(|rest| rest.strip_prefix('-'));
            rest.is_some_and(|uuid| uuid.len() == 36)
        };
        self.succeeds_leader = !leads && self.instance_id().as_ref().is_some_and(of_instance);
        self.member_id = response.member_id;
        self.generation = response.generation;
        self.protocol_name = response.protocol_name;
        self.heartbeat.last_good = Some(now);
        fx.push(Effect::Notice(Notice::Joined {
            generation: self.generation,
            member_id: self.member_id.clone(),
            leader: leads,
            members: leads.then_some(response.members.len()),
        }));
        if let Some(generations) = self.storm.generation(now) {
            fx.push(Effect::Notice(Notice::RebalanceStorm { generations }));
        }
        self.leadership = leads.then(|| Leadership::of(response.members, response.skip_assignment, fx));
        self.to(MemberState::CompletingRebalance, fx);
    }

    fn what_was_offered(&self, code: ErrorCode) -> String {
        match code {
            ErrorCode::InconsistentGroupProtocol => {
                let names: Vec<_> = self.config.assignors.iter().map(|assignor| assignor.name()).collect();
                format!("this member offers the assignors {}", names.join(", "))
            }
            ErrorCode::InvalidSessionTimeout => {
                format!(
                    "this member asks for a session timeout of {} ms",
                    self.config.session_timeout.as_millis()
                )
            }
            _ => String::new(),
        }
    }

    /// As leader: partition counts, then the assignment. Then SyncGroup.
    pub(super) fn advance_sync(&mut self, now: Instant, fx: &mut Effects) {
        if self.open.is_some() || self.not_before.is_some_and(|at| at > now) {
            return;
        }
        self.not_before = None;
        if let Some(Leadership { counts: None, skip_assignment: false, topics, .. }) = &self.leadership {
            let question = Question::PartitionCounts(topics.iter().cloned().collect());
            let round = self.ask(None, question, self.config.request_timeout, fx);
            self.open = Some((round, Open::LeaderMetadata));
            return;
        }
        let Some(to) = self.coordinator.clone() else { return };
        let assignor = self.protocol_name.as_deref().and_then(|name| self.offers(name)).cloned();
        let assignments = match (&mut self.leadership, &assignor) {
            (Some(leadership), Some(assignor)) if !leadership.skip_assignment => {
                match leadership.assignments(assignor) {
                    Ok(assignments) => assignments,
                    Err(detail) => return self.terminate(TerminalCause::Unsupported { detail }, now, fx),
                }
            }
            _ => Vec::new(),
        };
        let request = SyncGroupRequest {
            group_id: self.config.group_id.clone(),
            generation: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id(),
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: self.protocol_name.clone(),
            assignments,
        };
        let round = self.ask(Some(to), Question::Sync(request), self.config.join_timeout(), fx);
        self.open = Some((round, Open::Sync));
    }

    fn on_synced(&mut self, response: SyncGroupResponse, now: Instant, fx: &mut Effects) {
        let api = GroupApi::SyncGroup;
        match verdict(api, response.error) {
            Verdict::Success => self.take_assignment(&response, now, fx),
            Verdict::Rejoin(forget) => {
                self.rejoin(reason_of(forget), forget, now, fx);
                self.pace_after_first(api, response.error, now, fx);
            }
            Verdict::FindCoordinator => {
                self.rejoin(RejoinReason::JoinFailed, Forget::Nothing, now, fx);
                self.lose_coordinator(Some(api), response.error.to_string(), now, fx);
            }
            Verdict::Fenced => self.terminate(TerminalCause::FencedInstanceId, now, fx),
            Verdict::Unauthorized => self.terminate(TerminalCause::GroupAuthorizationFailed, now, fx),
            Verdict::Refused => self.refused(api, response.error, String::new(), now, fx),
            Verdict::JoinWithGivenId | Verdict::Retry | Verdict::Surface | Verdict::Log => {
                self.rejoin(RejoinReason::JoinFailed, Forget::Nothing, now, fx);
                self.pace(Some(api), response.error.to_string(), now, fx);
            }
        }
    }

    /// A cooperative assignment leaves out what moves, and relies on the next join of those who give it back. One
    /// that vanishes before it joins, and has a static successor, never does: the successor takes its place
    /// without a rebalance. The leader knows what it left out; a leader's static successor does not know what
    /// its predecessor did, and below JoinGroup v9 is not even told that it leads.
    fn may_be_incomplete(&self) -> bool {
        let skips = |leadership: &Leadership| leadership.skip_assignment || leadership.incomplete;
        self.shares_cooperatively() && (self.succeeds_leader || self.leadership.as_ref().is_some_and(skips))
    }

    /// May another member give something back in this generation, and thereby begin the next? A follower cannot know;
    /// the leader does.
    fn may_be_followed(&self) -> bool {
        let leaves_out = |leadership: &Leadership| leadership.skip_assignment || leadership.incomplete;
        self.shares_cooperatively() && self.leadership.as_ref().is_none_or(leaves_out)
    }

    /// Is the assignor that the group chose cooperative? In a change-over eager members may be among its members, and
    /// lead it.
    fn shares_cooperatively(&self) -> bool {
        let chosen = self.protocol_name.as_deref().and_then(|name| self.offers(name));
        chosen.is_some_and(Assignor::is_cooperative)
    }

    fn take_assignment(&mut self, response: &SyncGroupResponse, now: Instant, fx: &mut Effects) {
        let differs =
            |theirs: &Option<String>, ours: &str| theirs.as_deref().is_some_and(|name| name != ours);
        if differs(&response.protocol_type, PROTOCOL_TYPE)
            || differs(&response.protocol_name, self.protocol_name.as_deref().unwrap_or_default())
        {
            let detail =
                format!("SyncGroup answered for {:?} / {:?}", response.protocol_type, response.protocol_name);
            return self.refused(GroupApi::SyncGroup, ErrorCode::InconsistentGroupProtocol, detail, now, fx);
        }
        let decoded = if response.assignment.is_empty() {
            Ok(Assignment::default())
        } else {
            Assignment::decode(&response.assignment)
        };
        let problem = match &decoded {
            Err(error) => Some(error.to_string()),
            Ok(assignment) => assignment
                .partitions
                .iter()
                .find(|partition| !self.subscription.topics.contains(&*partition.topic))
                .map(|partition| format!("it names {partition}, whose topic is not subscribed to")),
        };
        if let Some(error) = problem {
            let member_id = self.member_id.clone();
            fx.push(Effect::Notice(Notice::UnreadableBlob { member_id, error: error.clone() }));
            self.rejoin(RejoinReason::JoinFailed, Forget::Nothing, now, fx);
            return self.pace(Some(GroupApi::SyncGroup), error, now, fx);
        }
        self.assignment =
            decoded.map(|assignment| assignment.partitions.into_iter().collect()).unwrap_or_default();
        self.previous = (self.assignment.iter().cloned().collect(), self.generation);
        self.awaiting_offsets = self.assignment.difference(&self.owned).cloned().collect();
        let moved: BTreeSet<_> = self.owned.difference(&self.assignment).cloned().collect();
        if self.awaiting_offsets.is_empty() {
            self.joining.reset();
        }
        self.lookup.backoff.reset();
        self.heartbeat.last_good = Some(now);
        self.heartbeat.undisturbed = Some(now);
        self.heartbeat.answered = Some(now);
        self.complete_by = self.may_be_incomplete().then(|| now + self.config.rebalance_timeout);
        if let Some(leadership) = &mut self.leadership {
            leadership.watch_at = Some(now + leadership.wait(&self.config));
        }
        fx.push(Effect::Notice(Notice::Synced { generation: self.generation }));
        // What is added while something is given back starts with the join behind that, and is told of then.
        let added =
            if moved.is_empty() { self.awaiting_offsets.iter().cloned().collect() } else { Vec::new() };
        fx.push(Effect::Notice(Notice::Assigned { generation: self.generation, partitions: added }));
        self.to(MemberState::Stable, fx);
        if !moved.is_empty() {
            // KIP-429: what moves is given back now; the join behind it lets its next owner have it.
            self.to(MemberState::Revoking, fx);
            self.begin_handover(moved, now, self.handover_timeout(now), false, fx);
        } else if self.may_be_followed() {
            self.hasten_heartbeat(fx);
        }
    }

    /// The first rejoin after a good generation follows at once; those after it are paced.
    pub(super) fn pace_after_first(
        &mut self,
        api: GroupApi,
        code: ErrorCode,
        now: Instant,
        fx: &mut Effects,
    ) {
        let first = self.joining.attempt() == 0;
        self.pace(Some(api), code.to_string(), now, fx);
        if first {
            self.not_before = None;
        }
    }

    /// The next group question waits a back-off.
    pub(super) fn pace(&mut self, api: Option<GroupApi>, reason: String, now: Instant, fx: &mut Effects) {
        let wait = self.joining.next(&mut self.chance);
        self.not_before = Some(now + wait);
        let attempt = self.joining.attempt();
        fx.push(Effect::Notice(Notice::Retrying { api, reason, attempt, wait }));
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
