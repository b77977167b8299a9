//! What the broker tells the world: typed telemetry. It decides nothing.

use std::fmt::Display;
use std::sync::Arc;

use kohort_group::coordinator::{CoordinatorNotice, RemovalReason};
use kohort_protocol::{ApiKey, DecodeError, EncodeError, FrameError};
use kohort_telemetry::{Event, Label};
use thiserror::Error;

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed it.
    #[error("closed by the peer")]
    Peer,
    /// Reading or writing failed.
    #[error("input or output failed: {0}")]
    Io(String),
    /// The length in front of a frame is unusable.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A request cannot be read.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The request, or this version of it, is not served.
    #[error("api key {key} version {version} is not served")]
    NotServed {
        /// The api key.
        key: i16,
        /// The version.
        version: i16,
    },
    /// A Produce request without acknowledgement failed, and this is the only way to say so.
    #[error("a Produce request with acks=0 failed")]
    UnacknowledgedProduce,
    /// An answer cannot be written in the version asked for.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A scripted fault.
    #[error("a scripted fault")]
    Fault,
    /// The broker stopped.
    #[error("the broker stopped")]
    Stopped,
    /// Serving it panicked: a defect of the broker, or of a fault's predicate.
    #[error("serving it panicked")]
    Panicked,
}

impl CloseReason {
    fn kind(&self) -> &'static str {
        match self {
            CloseReason::Peer => "peer",
            CloseReason::Io(_) => "io",
            CloseReason::Frame(_) => "frame",
            CloseReason::Malformed(_) => "malformed",
            CloseReason::NotServed { .. } => "not_served",
            CloseReason::UnacknowledgedProduce => "unacknowledged_produce",
            CloseReason::Encode(_) => "encode",
            CloseReason::Fault => "fault",
            CloseReason::Stopped => "stopped",
            CloseReason::Panicked => "panicked",
        }
    }
}

/// Something that happened in a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerEvent {
    /// `started`: connections are accepted.
    Started {
        /// Where, as in `bootstrap.servers`.
        address: String,
    },
    /// `stopped`: all connections are cut.
    Stopped,
    /// `connection_opened`.
    ConnectionOpened {
        /// The connection's number.
        connection: u64,
        /// Who connected.
        peer: String,
    },
    /// `connection_refused`: there are too many already.
    ConnectionRefused {
        /// Who connected.
        peer: String,
        /// How many there may be.
        max: usize,
    },
    /// `connection_closed`.
    ConnectionClosed {
        /// The connection's number.
        connection: u64,
        /// Who was connected.
        peer: String,
        /// Why it ended.
        reason: CloseReason,
    },
    /// `request`: a request came in and could be read.
    RequestReceived {
        /// The connection's number.
        connection: u64,
        /// Which request.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// The client's name for itself.
        client_id: Arc<str>,
        /// The client's number for it.
        correlation_id: i32,
    },
    /// `fault`: a scripted fault met a request.
    FaultInjected {
        /// The connection's number.
        connection: u64,
        /// Which request.
        api: ApiKey,
        /// What was done: `error`, `delay`, ….
        kind: &'static str,
    },
    /// `topic_created`.
    TopicCreated {
        /// The topic's name.
        topic: String,
        /// Its partitions.
        partitions: i32,
    },
    /// `topic_deleted`.
    TopicDeleted {
        /// The topic's name.
        topic: String,
    },
    /// `partitions_created`: a topic got more partitions.
    PartitionsCreated {
        /// The topic's name.
        topic: String,
        /// How many it has now.
        partitions: i32,
    },
    /// `group_deleted`: an operator deleted a group.
    GroupDeleted {
        /// The group.
        group_id: String,
    },
    /// `node_started`: one of several nodes accepts connections.
    NodeStarted {
        /// The node's id.
        node: i32,
        /// Where.
        address: String,
    },
    /// `node_stopped`: one of several nodes cut its connections.
    NodeStopped {
        /// The node's id.
        node: i32,
    },
    /// `coordinator_moved`: another node coordinates the groups of a partition.
    CoordinatorMoved {
        /// The partition of what is `__consumer_offsets` on Kafka.
        partition: i32,
        /// The node's id.
        node: i32,
    },
    /// `leader_moved`: another node leads a partition.
    LeaderMoved {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The node's id.
        node: i32,
        /// The new leader's epoch.
        leader_epoch: i32,
    },
    /// `rebalance_started`: a group began to rebalance.
    RebalanceStarted {
        /// The group.
        group_id: String,
        /// The generation that ends.
        generation: i32,
    },
    /// `generation_started`: all members joined, or the time was over.
    GenerationStarted {
        /// The group.
        group_id: String,
        /// The new generation.
        generation: i32,
        /// Its members.
        members: usize,
    },
    /// `member_removed`.
    MemberRemoved {
        /// The group.
        group_id: String,
        /// The member.
        member_id: String,
        /// Why.
        reason: RemovalReason,
    },
    /// A LeaveGroup entry named neither a member id nor an instance id; it removed nobody.
    NamelessLeave {
        /// The group.
        group_id: String,
    },
    /// `lagged`: this subscriber was too slow and lost events.
    Lagged {
        /// How many.
        missed: u64,
    },
}

impl BrokerEvent {
    /// What the coordinator has to tell; `None` for what this version does not know.
    pub(crate) fn from_notice(notice: CoordinatorNotice) -> Option<Self> {
        match notice {
            CoordinatorNotice::RebalanceStarted { group_id, generation } => {
                Some(Self::RebalanceStarted { group_id, generation })
            }
            CoordinatorNotice::GenerationStarted { group_id, generation, members } => {
                Some(Self::GenerationStarted { group_id, generation, members })
            }
            CoordinatorNotice::MemberRemoved { group_id, member_id, reason } => {
                Some(Self::MemberRemoved { group_id, member_id, reason })
            }
            CoordinatorNotice::NamelessLeave { group_id } => Some(Self::NamelessLeave { group_id }),
            _ => None,
        }
    }
}

fn removal(reason: RemovalReason) -> String {
    format!("{reason:?}")
}

impl Event for BrokerEvent {
    fn name(&self) -> &'static str {
        match self {
            BrokerEvent::Started { .. } => "kohort.broker.started",
            BrokerEvent::Stopped => "kohort.broker.stopped",
            BrokerEvent::ConnectionOpened { .. } => "kohort.broker.connection_opened",
            BrokerEvent::ConnectionRefused { .. } => "kohort.broker.connection_refused",
            BrokerEvent::ConnectionClosed { .. } => "kohort.broker.connection_closed",
            BrokerEvent::RequestReceived { .. } => "kohort.broker.request",
            BrokerEvent::FaultInjected { .. } => "kohort.broker.fault",
            BrokerEvent::TopicCreated { .. } => "kohort.broker.topic_created",
            BrokerEvent::TopicDeleted { .. } => "kohort.broker.topic_deleted",
            BrokerEvent::PartitionsCreated { .. } => "kohort.broker.partitions_created",
            BrokerEvent::GroupDeleted { .. } => "kohort.broker.group_deleted",
            BrokerEvent::NodeStarted { .. } => "kohort.broker.node_started",
            BrokerEvent::NodeStopped { .. } => "kohort.broker.node_stopped",
            BrokerEvent::CoordinatorMoved { .. } => "kohort.broker.coordinator_moved",
            BrokerEvent::LeaderMoved { .. } => "kohort.broker.leader_moved",
            BrokerEvent::RebalanceStarted { .. } => "kohort.broker.rebalance_started",
            BrokerEvent::GenerationStarted { .. } => "kohort.broker.generation_started",
            BrokerEvent::MemberRemoved { .. } => "kohort.broker.member_removed",
            BrokerEvent::NamelessLeave { .. } => "kohort.broker.nameless_leave",
            BrokerEvent::Lagged { .. } => "kohort.broker.lagged",
        }
    }

    fn measurements(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        match self {
            BrokerEvent::GenerationStarted { members, .. } => visit("members", *members as f64),
            BrokerEvent::Lagged { missed } => visit("missed", *missed as f64),
            _ => {}
        }
    }

    fn labels(&self, visit: &mut dyn FnMut(Label, &str)) {
        match self {
            BrokerEvent::RequestReceived { api, .. } => visit(Label::Api, api.name()),
            BrokerEvent::FaultInjected { api, kind, .. } => {
                visit(Label::Api, api.name());
                visit(Label::Kind, kind);
            }
            BrokerEvent::ConnectionClosed { reason, .. } => visit(Label::Kind, reason.kind()),
            BrokerEvent::MemberRemoved { reason, .. } => visit(Label::Kind, &removal(*reason)),
            _ => {}
        }
    }

    // Group ids and topics come from whoever connects, without a bound: values here, not labels.
    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display)) {
        match self {
            BrokerEvent::Started { address } => visit("address", address),
            BrokerEvent::ConnectionOpened { connection, peer } => {
                visit("connection", connection);
                visit("peer", peer);
            }
            BrokerEvent::ConnectionRefused { peer, max } => {
                visit("peer", peer);
                visit("max", max);
            }
            BrokerEvent::ConnectionClosed { connection, peer, reason } => {
                visit("connection", connection);
                visit("peer", peer);
                visit("reason", reason);
            }
            BrokerEvent::RequestReceived { connection, version, client_id, correlation_id, .. } => {
                visit("connection", connection);
                visit("version", version);
                visit("client_id", client_id);
                visit("correlation_id", correlation_id);
            }
            BrokerEvent::FaultInjected { connection, .. } => visit("connection", connection),
            BrokerEvent::TopicDeleted { topic } => visit("topic", topic),
            BrokerEvent::GroupDeleted { group_id } | BrokerEvent::NamelessLeave { group_id } => {
                visit("group_id", group_id);
            }
            BrokerEvent::NodeStarted { node, address } => {
                visit("node", node);
                visit("address", address);
            }
            BrokerEvent::NodeStopped { node } => visit("node", node),
            BrokerEvent::CoordinatorMoved { partition, node } => {
                visit("partition", partition);
                visit("node", node);
            }
            BrokerEvent::LeaderMoved { topic, partition, node, leader_epoch } => {
                visit("topic", topic);
                visit("partition", partition);
                visit("node", node);
                visit("leader_epoch", leader_epoch);
            }
            BrokerEvent::TopicCreated { topic, partitions }
            | BrokerEvent::PartitionsCreated { topic, partitions } => {
                visit("topic", topic);
                visit("partitions", partitions);
            }
            BrokerEvent::RebalanceStarted { group_id, generation }
            | BrokerEvent::GenerationStarted { group_id, generation, .. } => {
                visit("group_id", group_id);
                visit("generation", generation);
            }
            BrokerEvent::MemberRemoved { group_id, member_id, .. } => {
                visit("group_id", group_id);
                visit("member_id", member_id);
            }
            BrokerEvent::Stopped | BrokerEvent::Lagged { .. } => {}
        }
    }

    fn level(&self) -> tracing::Level {
        match self {
            BrokerEvent::RequestReceived { .. } => tracing::Level::TRACE,
            BrokerEvent::ConnectionOpened { .. }
            | BrokerEvent::ConnectionClosed {
                reason: CloseReason::Peer | CloseReason::Stopped | CloseReason::Fault,
                ..
            }
            | BrokerEvent::FaultInjected { .. } => tracing::Level::DEBUG,
            BrokerEvent::ConnectionClosed { .. }
            | BrokerEvent::ConnectionRefused { .. }
            | BrokerEvent::NamelessLeave { .. }
            | BrokerEvent::Lagged { .. } => tracing::Level::WARN,
            _ => tracing::Level::INFO,
        }
    }

    fn lagged(missed: u64) -> Self {
        BrokerEvent::Lagged { missed }
    }
}
