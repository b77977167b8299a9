//! The broker as a pure state machine: requests and time in, replies and events out. It knows no socket, no task and
//! no clock. `shared` drives it behind one lock; what each request does stands in `api`.
//!
//! All nodes of a cluster are one state: topics are kept once, as if every node had a replica that is never behind.
//! What makes nodes differ is who leads what (`cluster`, `topics`); a [`Caller`] says which node was asked.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use kohort_group::coordinator::{CoordinatorEffect, CoordinatorInput, GroupReply, GroupRequest, GroupView};
use kohort_protocol::{AnyRequest, AnyResponse, ErrorCode};

use crate::api;
use crate::api::fetch::ParkedFetch;
use crate::cluster::{Cluster, Led};
use crate::event::{BrokerEvent, CloseReason};
use crate::settings::Settings;
use crate::topics::{TopicRefusal, Topics};

/// How clients reach the nodes: as the client that asks reached one of them, on the ports of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advertised {
    pub(crate) host: String,
    /// By node id.
    pub(crate) ports: std::sync::Arc<[u16]>,
}

impl Advertised {
    /// The port of a node; 0 for one that is not known.
    pub(crate) fn port(&self, node: i32) -> i32 {
        let port = usize::try_from(node).ok().and_then(|node| self.ports.get(node));
        port.map_or(0, |port| i32::from(*port))
    }
}

/// Who asks, and which node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// Number of the call; comes back with the reply.
    pub(crate) call: u64,
    /// Id of the node that is asked.
    pub(crate) node: i32,
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

/// The state of all nodes.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) settings: Settings,
    pub(crate) cluster_id: String,
    pub(crate) topics: Topics,
    pub(crate) cluster: Cluster,
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
            cluster: Cluster::new(settings.nodes, &settings.coordinator, settings.seed),
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
        match (self.cluster.deadline(), fetch) {
            (Some(group), Some(fetch)) => Some(group.min(fetch)),
            (group, fetch) => group.or(fetch),
        }
    }

    /// Does what is due at `now`.
    pub(crate) fn on_deadline(&mut self, now: Instant, out: &mut Outcome) {
        api::fetch::on_deadline(self, now, out);
        for coordinator in self.cluster.all_mut() {
            if coordinator.deadline().is_some_and(|at| at <= now) {
                take_effects(coordinator.handle(CoordinatorInput::Deadline, now), out);
            }
        }
    }

    /// Nobody waits for this call any more. A member stays a member, as on Kafka.
    pub(crate) fn forget(&mut self, call: u64) {
        api::fetch::unpark(self, call);
    }

    /// Asks a coordinator.
    pub(crate) fn coordinate(
        &mut self,
        from: &Caller<'_>,
        led: Led,
        request: impl Into<GroupRequest>,
        now: Instant,
        out: &mut Outcome,
    ) {
        let Some(coordinator) = self.cluster.coordinator(led) else { return };
        let input = CoordinatorInput::Request {
            call: from.call,
            version: from.version,
            client_id: from.client_id.to_owned(),
            client_host: from.client_host.to_owned(),
            request: request.into(),
        };
        take_effects(coordinator.handle(input, now), out);
    }

    /// Creates a topic. Its partitions are led by the nodes that run, one after the other, unless `leaders` says by
    /// whom.
    pub(crate) fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        leaders: Option<&[i32]>,
        out: &mut Outcome,
    ) -> Result<(), TopicRefusal> {
        match leaders {
            Some(leaders) => self.topics.create(name, partitions, leaders)?,
            None => self.topics.create(name, partitions, &self.leaders())?,
        }
        out.events.push(BrokerEvent::TopicCreated { topic: name.to_owned(), partitions });
        Ok(())
    }

    /// The nodes that new partitions are given to in turn.
    pub(crate) fn leaders(&self) -> Vec<i32> {
        self.cluster.alive().collect()
    }

    /// Deletes a topic, and what groups committed of it.
    pub(crate) fn delete_topic(&mut self, name: &str, out: &mut Outcome) -> Result<(), ErrorCode> {
        let waiting = self.topics.delete(name).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        for coordinator in self.cluster.all_mut() {
            coordinator.forget_topic(name);
        }
        api::fetch::look_again(self, waiting, out);
        out.events.push(BrokerEvent::TopicDeleted { topic: name.to_owned() });
        Ok(())
    }

    /// What a group looks like, whoever coordinates it.
    pub(crate) fn group(&self, group_id: &str) -> Option<GroupView> {
        self.cluster.peek(group_id)?.group(group_id)
    }

    /// The ids of all groups, in order.
    pub(crate) fn group_ids(&self) -> Vec<String> {
        let ids: BTreeSet<&str> =
            self.cluster.all().flat_map(|coordinator| coordinator.group_ids()).collect();
        ids.into_iter().map(str::to_owned).collect()
    }

    /// What a broker that comes back makes of its groups: stable ones go on with a full session for every member,
    /// those in the middle of a rebalance lose their members, and ids that were given out are forgotten. Offsets
    /// stay.
    pub(crate) fn reload(&mut self, now: Instant) {
        self.cluster.set_all_alive();
        // Nobody waits for what is told to those that waited: every connection was cut.
        let _ = self.cluster.reload(now);
    }

    /// Another node coordinates the group from now on, and every group in the same partition of Kafka's
    /// `__consumer_offsets`.
    pub(crate) fn move_coordinator(&mut self, group: &str, to: i32, now: Instant, out: &mut Outcome) {
        self.lead_groups(self.cluster.place_of(group), to, now, out);
    }

    fn lead_groups(&mut self, partition: usize, to: i32, now: Instant, out: &mut Outcome) {
        take_effects(self.cluster.lead(partition, to, now), out);
        let partition = i32::try_from(partition).unwrap_or(i32::MAX);
        out.events.push(BrokerEvent::CoordinatorMoved { partition, node: to });
    }

    /// Its coordinator answers COORDINATOR_LOAD_IN_PROGRESS for `wait`.
    pub(crate) fn load_for(&mut self, group: &str, wait: Duration, now: Instant, out: &mut Outcome) {
        take_effects(self.cluster.load_for(group, wait, now), out);
    }

    /// Another node leads the partition from now on, in a new epoch. Fetches that wait for it are told.
    pub(crate) fn move_leader(&mut self, topic: &str, partition: i32, to: i32, out: &mut Outcome) {
        let Some(place) = self.topics.partition_mut(topic, partition) else { return };
        place.leader = to;
        place.leader_epoch = place.leader_epoch.saturating_add(1);
        let leader_epoch = place.leader_epoch;
        let waiting = std::mem::take(&mut place.waiting);
        api::fetch::look_again(self, waiting, out);
        let topic = topic.to_owned();
        out.events.push(BrokerEvent::LeaderMoved { topic, partition, node: to, leader_epoch });
    }

    /// A node stops, or starts again. What a node led that does not run is led by the others at once; a node that
    /// comes back leads nothing until something is given to it, unless nobody was there to take over.
    pub(crate) fn set_alive(&mut self, node: i32, runs: bool, now: Instant, out: &mut Outcome) {
        self.cluster.set_alive(node, runs);
        if runs {
            take_effects(self.cluster.reload_of(node, now), out);
        }
        for (partition, to) in self.cluster.elect() {
            self.lead_groups(partition, to, now, out);
        }
        let heirs = self.leaders();
        if heirs.is_empty() {
            return;
        }
        let orphans = self.topics.led_by(|leader| !self.cluster.is_alive(leader));
        for ((topic, partition), to) in orphans.into_iter().zip(heirs.into_iter().cycle()) {
            self.move_leader(&topic, partition, to, out);
        }
    }
}

/// Puts a coordinator's effects where they belong.
pub(crate) fn take_effects(effects: Vec<CoordinatorEffect>, out: &mut Outcome) {
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
