//! Into the group: coordinator, JoinGroup, the leader's assignment, SyncGroup, committed offsets; and the
//! leader's watch over the topics.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kohort_protocol::consumer::{Assignment, Subscription};
use kohort_protocol::messages::{
    FindCoordinatorRequest, JoinGroupRequest, JoinGroupResponse, JoinMember, JoinProtocol, MemberAssignment,
    OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic, SyncGroupRequest, SyncGroupResponse,
};
use kohort_protocol::{ErrorCode, TopicPartition};

use super::heartbeat::reason_of;
use super::{
    Answer, Effect, Effects, Failure, MemberState, Membership, Node, Notice, Question, RejoinReason, StartPosition,
    TerminalCause,
};
use crate::assignor::{Assignor, MemberSubscription};
use crate::backoff::{Backoff, BackoffConfig};
use crate::verdict::{Forget, GroupApi, Verdict, verdict};

const PROTOCOL_TYPE: &str = "consumer";
/// Version of the subscription and assignment blobs we write: 1 (KIP-429), read by every client.
const BLOB_VERSION: i16 = 1;

/// The group question that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Open {
    Join,
    LeaderMetadata,
    Sync,
    Offsets,
    Leave,
}

/// The search for the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lookup {
    pub(super) asked: Option<u64>,
    not_before: Option<Instant>,
    /// Reset by a good answer of the coordinator, not by finding it: one that is found and refuses again is
    /// asked for at a slower and slower pace.
    pub(super) backoff: Backoff,
}

impl Lookup {
    pub(super) fn new(backoff: BackoffConfig) -> Self {
        Self { asked: None, not_before: None, backoff: Backoff::new(backoff) }
    }
}

/// What a leader knows of the group it leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Leadership {
    members: Vec<(String, Option<String>, BTreeSet<String>)>,
    topics: BTreeSet<String>,
    counts: Option<BTreeMap<String, i32>>,
    pub(super) asked: Option<u64>,
    watch_at: Option<Instant>,
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
    fn lookup_wanted(&self) -> bool {
        self.coordinator.is_none()
            && self.lookup.asked.is_none()
            && match self.state {
                MemberState::Unjoined
                | MemberState::CompletingRebalance
                | MemberState::Stable
                | MemberState::Revoking
                | MemberState::Leaving => true,
                MemberState::PrepareLeaving => self.ledger.is_dirty(),
                _ => false,
            }
    }

    pub(super) fn lookup_deadline(&self) -> Option<Instant> {
        if self.started && self.lookup_wanted() { self.lookup.not_before } else { None }
    }

    pub(super) fn advance_lookup(&mut self, now: Instant, fx: &mut Effects) {
        if !self.lookup_wanted() || self.lookup.not_before.is_some_and(|at| at > now) {
            return;
        }
        self.lookup.not_before = None;
        let request = FindCoordinatorRequest { key_type: 0, keys: vec![self.config.group_id.clone()] };
        let within = self.config.request_timeout;
        self.lookup.asked = Some(self.ask(None, Question::FindCoordinator(request), within, fx));
    }

    pub(super) fn on_coordinator(&mut self, answer: Result<Answer, Failure>, now: Instant, fx: &mut Effects) {
        let api = GroupApi::FindCoordinator;
        let address = match answer {
            Ok(Answer::Coordinator(address)) => address,
            Ok(_) => return self.lookup_again("an answer to another request".into(), now, fx),
            Err(failure) => {
                if let Some(reason) = self.passing(failure, now, fx) {
                    self.lookup_again(reason, now, fx);
                }
                return;
            }
        };
        match verdict(api, address.error) {
            Verdict::Success if address.host.is_empty() || !(1..=65535).contains(&address.port) => {
                self.lookup_again(format!("an unusable address: {:?} port {}", address.host, address.port), now, fx);
            }
            Verdict::Success => {
                let node = Node { id: address.node_id, host: address.host, port: address.port };
                fx.push(Effect::Notice(Notice::CoordinatorFound(node.clone())));
                self.coordinator = Some(node);
            }
            Verdict::Unauthorized => self.terminate(TerminalCause::GroupAuthorizationFailed, now, fx),
            Verdict::Refused => {
                let detail = address.error_message.unwrap_or_default();
                self.refused(api, address.error, detail, now, fx);
            }
            _ => self.lookup_again(address.error.to_string(), now, fx),
        }
    }

    fn lookup_again(&mut self, reason: String, now: Instant, fx: &mut Effects) {
        let wait = self.lookup.backoff.next(&mut self.chance);
        self.lookup.not_before = Some(now + wait);
        fx.push(Effect::Notice(Notice::Retrying {
            api: Some(GroupApi::FindCoordinator),
            reason,
            attempt: self.lookup.backoff.attempt(),
            wait,
        }));
    }

    /// The coordinator moved, or does not answer: look for it again. Membership and generation stay.
    pub(super) fn lose_coordinator(&mut self, api: Option<GroupApi>, reason: String, now: Instant, fx: &mut Effects) {
        if self.coordinator.take().is_none() {
            return;
        }
        let wait = self.lookup.backoff.next(&mut self.chance);
        self.lookup.not_before = Some(now + wait);
        let attempt = self.lookup.backoff.attempt();
        fx.push(Effect::Notice(Notice::Retrying { api, reason, attempt, wait }));
    }

    pub(super) fn advance_join(&mut self, now: Instant, fx: &mut Effects) {
        if self.ending.is_some() || self.open.is_some() || self.not_before.is_some_and(|at| at > now) {
            return;
        }
        let Some(to) = self.coordinator.clone() else { return };
        let subscription = Subscription { topics: self.config.topics.clone(), ..Subscription::default() };
        let metadata = subscription.encode(BLOB_VERSION);
        let request = JoinGroupRequest {
            group_id: self.config.group_id.clone(),
            session_timeout_ms: millis(self.config.session_timeout),
            rebalance_timeout_ms: millis(self.config.rebalance_timeout),
            member_id: self.member_id.clone(),
            group_instance_id: None,
            protocol_type: PROTOCOL_TYPE.into(),
            protocols: self
                .config
                .assignors
                .iter()
                .map(|assignor| JoinProtocol { name: assignor.name().into(), metadata: metadata.clone() })
                .collect(),
            reason: None,
        };
        self.not_before = None;
        self.to(MemberState::PreparingRebalance, fx);
        let within = self.config.join_timeout();
        let round = self.ask(Some(to), Question::Join(request), within, fx);
        self.open = Some((round, Open::Join));
    }

    pub(super) fn on_group_answer(&mut self, open: Open, answer: Result<Answer, Failure>, now: Instant, fx: &mut Effects) {
        match (open, answer) {
            (Open::Join, Ok(Answer::Joined(response))) => self.on_joined(response, now, fx),
            (Open::LeaderMetadata, Ok(Answer::PartitionCounts(counts))) => {
                if let Some(leadership) = &mut self.leadership {
                    leadership.counts = Some(counts);
                }
            }
            (Open::Sync, Ok(Answer::Synced(response))) => self.on_synced(response, now, fx),
            (Open::Offsets, Ok(Answer::Offsets(response))) => self.on_offsets(response, now, fx),
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
    fn passing(&mut self, failure: Failure, now: Instant, fx: &mut Effects) -> Option<String> {
        match failure {
            Failure::ClientDied(detail) => self.terminate(TerminalCause::ClientDied { detail }, now, fx),
            Failure::Unsupported(detail) => self.terminate(TerminalCause::Unsupported { detail }, now, fx),
            Failure::Network(reason) | Failure::Malformed(reason) => return Some(reason),
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
            Open::Offsets => self.lose_coordinator(Some(GroupApi::OffsetFetch), reason, now, fx),
            Open::Leave => {}
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

    fn enter_generation(&mut self, response: JoinGroupResponse, now: Instant, fx: &mut Effects) {
        if response.protocol_type.as_deref().is_some_and(|kind| kind != PROTOCOL_TYPE) {
            let detail = format!("the group is of type {:?}", response.protocol_type.unwrap_or_default());
            return self.refused(GroupApi::JoinGroup, ErrorCode::InconsistentGroupProtocol, detail, now, fx);
        }
        let leads = response.leader == response.member_id && !response.skip_assignment;
        let assignor = response.protocol_name.as_deref().and_then(Assignor::from_name);
        if leads && !assignor.is_some_and(|chosen| self.config.assignors.contains(&chosen)) {
            let detail = format!(
                "the group chose {:?}, which this member did not offer",
                response.protocol_name.unwrap_or_default()
            );
            return self.refused(GroupApi::JoinGroup, ErrorCode::InconsistentGroupProtocol, detail, now, fx);
        }
        self.member_id = response.member_id;
        self.generation = response.generation;
        self.protocol_name = response.protocol_name;
        self.heartbeat.last_good = Some(now);
        self.lookup.backoff.reset();
        fx.push(Effect::Notice(Notice::Joined {
            generation: self.generation,
            member_id: self.member_id.clone(),
            leader: leads,
            members: leads.then_some(response.members.len()),
        }));
        if let Some(generations) = self.storm.generation(now) {
            fx.push(Effect::Notice(Notice::RebalanceStorm { generations }));
        }
        self.leadership = leads.then(|| Leadership::of(response.members, fx));
        self.to(MemberState::CompletingRebalance, fx);
    }

    fn what_was_offered(&self, code: ErrorCode) -> String {
        match code {
            ErrorCode::InconsistentGroupProtocol => {
                let names: Vec<_> = self.config.assignors.iter().map(|assignor| assignor.name()).collect();
                format!("this member offers the assignors {}", names.join(", "))
            }
            ErrorCode::InvalidSessionTimeout => {
                format!("this member asks for a session timeout of {} ms", self.config.session_timeout.as_millis())
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
        if let Some(Leadership { counts: None, topics, .. }) = &self.leadership {
            let question = Question::PartitionCounts(topics.iter().cloned().collect());
            let round = self.ask(None, question, self.config.request_timeout, fx);
            self.open = Some((round, Open::LeaderMetadata));
            return;
        }
        let Some(to) = self.coordinator.clone() else { return };
        let assignor = self.protocol_name.as_deref().and_then(Assignor::from_name);
        let assignments = match (&self.leadership, assignor) {
            (Some(leadership), Some(assignor)) => leadership.assignments(assignor),
            _ => Vec::new(),
        };
        let request = SyncGroupRequest {
            group_id: self.config.group_id.clone(),
            generation: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: None,
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

    fn take_assignment(&mut self, response: &SyncGroupResponse, now: Instant, fx: &mut Effects) {
        let differs = |theirs: &Option<String>, ours: &str| theirs.as_deref().is_some_and(|name| name != ours);
        if differs(&response.protocol_type, PROTOCOL_TYPE)
            || differs(&response.protocol_name, self.protocol_name.as_deref().unwrap_or_default())
        {
            let detail = format!("SyncGroup answered for {:?} / {:?}", response.protocol_type, response.protocol_name);
            return self.refused(GroupApi::SyncGroup, ErrorCode::InconsistentGroupProtocol, detail, now, fx);
        }
        let decoded = if response.assignment.is_empty() {
            Ok(Assignment::default())
        } else {
            Assignment::decode(response.assignment.clone())
        };
        let problem = match &decoded {
            Err(error) => Some(error.to_string()),
            Ok(assignment) => assignment
                .partitions
                .iter()
                .find(|partition| !self.config.topics.iter().any(|topic| **topic == *partition.topic))
                .map(|partition| format!("it names {partition}, whose topic is not subscribed to")),
        };
        if let Some(error) = problem {
            let member_id = self.member_id.clone();
            fx.push(Effect::Notice(Notice::UnreadableBlob { member_id, error: error.clone() }));
            self.rejoin(RejoinReason::JoinFailed, Forget::Nothing, now, fx);
            return self.pace(Some(GroupApi::SyncGroup), error, now, fx);
        }
        self.assignment = decoded.map(|assignment| assignment.partitions.into_iter().collect()).unwrap_or_default();
        self.awaiting_offsets = self.assignment.clone();
        self.joining.reset();
        self.heartbeat.last_good = Some(now);
        if let Some(leadership) = &mut self.leadership {
            leadership.watch_at = Some(now + self.config.metadata_max_age);
        }
        fx.push(Effect::Notice(Notice::Synced { generation: self.generation }));
        fx.push(Effect::Notice(Notice::Assigned {
            generation: self.generation,
            partitions: self.assignment.iter().cloned().collect(),
        }));
        self.to(MemberState::Stable, fx);
    }

    pub(super) fn advance_offsets(&mut self, now: Instant, fx: &mut Effects) {
        if self.awaiting_offsets.is_empty() || self.open.is_some() || self.not_before.is_some_and(|at| at > now) {
            return;
        }
        let Some(to) = self.coordinator.clone() else { return };
        self.not_before = None;
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for partition in &self.awaiting_offsets {
            topics.entry(&partition.topic).or_default().push(partition.partition);
        }
        let topics = topics.into_iter().map(|(name, partitions)| OffsetFetchTopic { name: name.to_owned(), partitions });
        let group = OffsetFetchGroup { group_id: self.config.group_id.clone(), topics: Some(topics.collect()) };
        let request = OffsetFetchRequest { groups: vec![group], require_stable: true };
        let round = self.ask(Some(to), Question::FetchOffsets(request), self.config.request_timeout, fx);
        self.open = Some((round, Open::Offsets));
    }

    fn on_offsets(
        &mut self,
        response: kohort_protocol::messages::OffsetFetchResponse,
        now: Instant,
        fx: &mut Effects,
    ) {
        let Some(group) = response.groups.into_iter().next() else {
            return self.pace(Some(GroupApi::OffsetFetch), "an answer without the group".into(), now, fx);
        };
        if group.error.is_error() {
            return self.on_offsets_error(group.error, now, fx);
        }
        let mut starts = Vec::new();
        let mut worst = None;
        for topic in group.topics {
            for fetched in topic.partitions {
                let partition = TopicPartition::new(topic.name.as_str(), fetched.partition);
                if !self.awaiting_offsets.contains(&partition) {
                    continue;
                }
                match verdict(GroupApi::OffsetFetch, fetched.error) {
                    Verdict::Success => {
                        self.awaiting_offsets.remove(&partition);
                        let committed = (fetched.offset >= 0).then_some(fetched.offset);
                        if let Some(offset) = committed {
                            self.ledger.start(partition.clone(), offset);
                        }
                        starts.push(StartPosition { partition, committed });
                    }
                    Verdict::Surface => {
                        self.awaiting_offsets.remove(&partition);
                        fx.push(Effect::Notice(Notice::PartitionFailed { partition, error: fetched.error }));
                    }
                    _ => worst = Some(fetched.error),
                }
            }
        }
        if !starts.is_empty() {
            self.workers_running = true;
            fx.push(Effect::StartWorkers { generation: self.generation, partitions: starts });
        }
        if let Some(code) = worst {
            self.on_offsets_error(code, now, fx);
        } else if self.awaiting_offsets.is_empty() {
            self.joining.reset();
        } else {
            self.pace(Some(GroupApi::OffsetFetch), "an answer without all partitions".into(), now, fx);
        }
    }

    fn on_offsets_error(&mut self, code: ErrorCode, now: Instant, fx: &mut Effects) {
        let api = GroupApi::OffsetFetch;
        match verdict(api, code) {
            Verdict::FindCoordinator => self.lose_coordinator(Some(api), code.to_string(), now, fx),
            Verdict::Rejoin(forget) => self.rejoin(reason_of(forget), forget, now, fx),
            Verdict::Fenced => self.terminate(TerminalCause::FencedInstanceId, now, fx),
            Verdict::Unauthorized => self.terminate(TerminalCause::GroupAuthorizationFailed, now, fx),
            Verdict::Refused => self.refused(api, code, String::new(), now, fx),
            // An error is never taken for "no offset": the partition waits until its offset is known.
            _ => self.pace(Some(api), code.to_string(), now, fx),
        }
    }

    pub(super) fn leadership_deadline(&self) -> Option<Instant> {
        let leadership = self.leadership.as_ref().filter(|_| self.state == MemberState::Stable)?;
        if leadership.asked.is_some() { None } else { leadership.watch_at }
    }

    /// The leader looks now and then whether topics grew.
    pub(super) fn advance_watch(&mut self, now: Instant, fx: &mut Effects) {
        let due = self.leadership_deadline().is_some_and(|at| at <= now);
        let Some(leadership) = self.leadership.as_ref().filter(|_| due) else { return };
        let question = Question::PartitionCounts(leadership.topics.iter().cloned().collect());
        let round = self.ask(None, question, self.config.request_timeout, fx);
        if let Some(leadership) = &mut self.leadership {
            leadership.asked = Some(round);
        }
    }

    /// Growth leads to a rebalance. A failure, a topic left out or a smaller count is a passing error.
    pub(super) fn on_watched_metadata(&mut self, answer: Result<Answer, Failure>, now: Instant, fx: &mut Effects) {
        let Some(leadership) = &mut self.leadership else { return };
        leadership.asked = None;
        leadership.watch_at = Some(now + self.config.metadata_max_age);
        let (Ok(Answer::PartitionCounts(seen)), Some(known)) = (answer, &leadership.counts) else { return };
        if seen.iter().any(|(topic, count)| known.get(topic).is_none_or(|before| count > before)) {
            self.rejoin(RejoinReason::MetadataChanged, Forget::Nothing, now, fx);
        }
    }

    /// The first rejoin after a good generation follows at once; those after it are paced.
    fn pace_after_first(&mut self, api: GroupApi, code: ErrorCode, now: Instant, fx: &mut Effects) {
        let first = self.joining.attempt() == 0;
        self.pace(Some(api), code.to_string(), now, fx);
        if first {
            self.not_before = None;
        }
    }

    /// The next group question waits a back-off.
    fn pace(&mut self, api: Option<GroupApi>, reason: String, now: Instant, fx: &mut Effects) {
        let wait = self.joining.next(&mut self.chance);
        self.not_before = Some(now + wait);
        let attempt = self.joining.attempt();
        fx.push(Effect::Notice(Notice::Retrying { api, reason, attempt, wait }));
    }
}

impl Leadership {
    /// An unreadable subscription costs only the member that wrote it.
    fn of(members: Vec<JoinMember>, fx: &mut Effects) -> Self {
        let mut topics = BTreeSet::new();
        let members = members
            .into_iter()
            .map(|member| {
                let subscribed = match Subscription::decode(member.metadata) {
                    Ok(subscription) => subscription.topics.into_iter().collect::<BTreeSet<_>>(),
                    Err(error) => {
                        let (member_id, error) = (member.member_id.clone(), error.to_string());
                        fx.push(Effect::Notice(Notice::UnreadableBlob { member_id, error }));
                        BTreeSet::new()
                    }
                };
                topics.extend(subscribed.iter().cloned());
                (member.member_id, member.group_instance_id, subscribed)
            })
            .collect();
        Self { members, topics, counts: None, asked: None, watch_at: None }
    }

    fn assignments(&self, assignor: Assignor) -> Vec<MemberAssignment> {
        let members: Vec<MemberSubscription> = self
            .members
            .iter()
            .map(|(member_id, group_instance_id, topics)| MemberSubscription {
                member_id: member_id.clone(),
                group_instance_id: group_instance_id.clone(),
                topics: topics.clone(),
            })
            .collect();
        let empty = BTreeMap::new();
        let shares = assignor.assign(&members, self.counts.as_ref().unwrap_or(&empty));
        shares
            .into_iter()
            .map(|(member_id, partitions)| {
                let assignment = Assignment { partitions, user_data: None };
                MemberAssignment { member_id, assignment: assignment.encode(BLOB_VERSION) }
            })
            .collect()
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
