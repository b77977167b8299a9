//! The broker as a pure state machine: requests and time in, replies and events out. It knows no socket, no task and
//! no clock. `shared` drives it behind one lock; what each request does stands in `api`.
//!
//! There is one node. Partitions name their leader and answers name node ids, so that more can follow.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use kohort_group::Coordinator;
use kohort_group::coordinator::{
    CoordinatorEffect, CoordinatorInput, GroupReply, GroupRequest, GroupState, GroupView,
};
use kohort_protocol::messages::{HeartbeatRequest, LeaveGroupRequest, LeaveMember};
use kohort_protocol::{AnyRequest, AnyResponse};

use crate::api;
use crate::api::fetch::ParkedFetch;
use crate::event::{BrokerEvent, CloseReason};
use crate::settings::Settings;
use crate::topics::{TopicRefusal, Topics};

/// The one node's id.
pub(crate) const NODE_ID: i32 = 0;

/// Calls that the node makes itself; nobody waits for their replies.
const INTERNAL_CALL: u64 = 0;

/// Where a connection reached the broker, and so where its client can reach it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advertised {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// Number of the call; comes back with the reply. Never 0.
    pub(crate) call: u64,
    pub(crate) version: i16,
    pub(crate) client_id: &'a str,
    pub(crate) client_host: &'a str,
    pub(crate) advertised: &'a Advertised,
}

/// How a call ends.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a reply is made, moved once and taken apart")]
pub(crate) enum Reply {
    /// With an answer.
    Answer(AnyResponse),
    /// Without one, as the request wanted.
    Nothing,
    /// With the end of the connection.
    Close(CloseReason),
}

/// What came of one input.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) replies: Vec<(u64, Reply)>,
    pub(crate) events: Vec<BrokerEvent>,
}

impl Outcome {
    pub(crate) fn answer(&mut self, call: u64, answer: impl Into<AnyResponse>) {
        self.replies.push((call, Reply::Answer(answer.into())));
    }
}

/// One broker's state.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) settings: Settings,
    pub(crate) cluster_id: String,
    pub(crate) topics: Topics,
    pub(crate) coordinator: Coordinator,
    pub(crate) next_producer_id: i64,
    /// Fetches that wait for records.
    pub(crate) fetches: HashMap<u64, ParkedFetch>,
    /// Invariant: exactly the deadlines of `fetches`.
    pub(crate) fetch_deadlines: BTreeSet<(Instant, u64)>,
}

impl Node {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            cluster_id: format!("kohort-{:016x}", settings.seed),
            topics: Topics::new(settings.max_partitions, settings.max_partition_bytes),
            coordinator: Coordinator::new(settings.coordinator.clone(), settings.seed),
            next_producer_id: 0,
            fetches: HashMap::new(),
            fetch_deadlines: BTreeSet::new(),
            settings,
        }
    }

    /// Takes one request. Its reply stands in `out`, or comes with a later input.
    pub(crate) fn handle(&mut self, from: &Caller<'_>, request: AnyRequest, now: Instant, out: &mut Outcome) {
        api::dispatch(self, from, request, now, out);
    }

    /// When [`Node::on_deadline`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let fetch = self.fetch_deadlines.first().map(|(at, _)| *at);
        match (self.coordinator.deadline(), fetch) {
            (Some(group), Some(fetch)) => Some(group.min(fetch)),
            (group, fetch) => group.or(fetch),
        }
    }

    /// Does what is due at `now`.
    pub(crate) fn on_deadline(&mut self, now: Instant, out: &mut Outcome) {
        api::fetch::on_deadline(self, now, out);
        if self.coordinator.deadline().is_some_and(|at| at <= now) {
            let effects = self.coordinator.handle(CoordinatorInput::Deadline, now);
            take_effects(effects, out);
        }
    }

    /// Nobody waits for this call any more. A member stays a member, as on Kafka.
    pub(crate) fn forget(&mut self, call: u64) {
        api::fetch::unpark(self, call);
    }

    /// Asks the coordinator.
    pub(crate) fn coordinate(
        &mut self,
        from: &Caller<'_>,
        request: impl Into<GroupRequest>,
        now: Instant,
        out: &mut Outcome,
    ) {
        let input = CoordinatorInput::Request {
            call: from.call,
            version: from.version,
            client_id: from.client_id.to_owned(),
            client_host: from.client_host.to_owned(),
            request: request.into(),
        };
        let effects = self.coordinator.handle(input, now);
        take_effects(effects, out);
    }

    /// Creates a topic that this node leads.
    pub(crate) fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        out: &mut Outcome,
    ) -> Result<(), TopicRefusal> {
        self.topics.create(name, partitions, NODE_ID)?;
        out.events.push(BrokerEvent::TopicCreated { topic: name.to_owned(), partitions });
        Ok(())
    }

    /// What a broker that comes back makes of its groups: stable ones go on with a full session for every member,
    /// those in the middle of a rebalance lose their members. Offsets stay.
    pub(crate) fn reload(&mut self, now: Instant, out: &mut Outcome) {
        let ids: Vec<String> = self.coordinator.group_ids().map(str::to_owned).collect();
        for group_id in ids {
            let Some(group) = self.coordinator.group(&group_id) else { continue };
            match group.state {
                GroupState::Empty => {}
                GroupState::Stable => self.renew_sessions(&group_id, &group, now, out),
                _ => self.remove_members(group_id, &group, now, out),
            }
        }
        // Nobody waits for these.
        out.replies.clear();
    }

    fn renew_sessions(&mut self, group_id: &str, group: &GroupView, now: Instant, out: &mut Outcome) {
        for (member_id, member) in &group.members {
            let beat = HeartbeatRequest {
                group_id: group_id.to_owned(),
                generation: group.generation,
                member_id: member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
            };
            self.coordinate_internally(4, beat, now, out);
        }
    }

    fn remove_members(&mut self, group_id: String, group: &GroupView, now: Instant, out: &mut Outcome) {
        let pending = group.pending.iter().map(|member_id| (member_id, None));
        let members = group.members.iter().map(|(id, member)| (id, member.group_instance_id.clone()));
        let members = pending.chain(members).map(|(member_id, group_instance_id)| LeaveMember {
            member_id: member_id.clone(),
            group_instance_id,
            reason: None,
        });
        let leave = LeaveGroupRequest { members: members.collect(), group_id };
        self.coordinate_internally(5, leave, now, out);
    }

    fn coordinate_internally(
        &mut self,
        version: i16,
        request: impl Into<GroupRequest>,
        now: Instant,
        out: &mut Outcome,
    ) {
        let advertised = Advertised { host: String::new(), port: 0 };
        let from =
            Caller { call: INTERNAL_CALL, version, client_id: "", client_host: "", advertised: &advertised };
        self.coordinate(&from, request, now, out);
    }

    /// All connections are cut: what was parked is forgotten.
    pub(crate) fn cut(&mut self) {
        let calls: Vec<u64> = self.fetches.keys().copied().collect();
        for call in calls {
            self.forget(call);
        }
    }
}

fn take_effects(effects: Vec<CoordinatorEffect>, out: &mut Outcome) {
    for effect in effects {
        match effect {
            CoordinatorEffect::Reply { call, reply } => match answer(reply) {
                Some(answer) => out.replies.push((call, Reply::Answer(answer))),
                None => debug_assert!(false, "a reply that no request here has"),
            },
            CoordinatorEffect::Notice(notice) => out.events.extend(BrokerEvent::from_notice(notice)),
            _ => debug_assert!(false, "an effect that this driver does not know"),
        }
    }
}

fn answer(reply: GroupReply) -> Option<AnyResponse> {
    match reply {
        GroupReply::Join(reply) => Some(reply.into()),
        GroupReply::Sync(reply) => Some(reply.into()),
        GroupReply::Heartbeat(reply) => Some(reply.into()),
        GroupReply::Leave(reply) => Some(reply.into()),
        GroupReply::OffsetCommit(reply) => Some(reply.into()),
        GroupReply::OffsetFetch(reply) => Some(reply.into()),
        _ => None,
    }
}

/// How long a request may wait, from milliseconds on the wire.
pub(crate) fn millis(value: i32) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
