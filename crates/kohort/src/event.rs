//! What a member tells. Each event is typed data; where it goes is up to `kohort-telemetry`.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use kohort_group::MemberState;
use kohort_group::membership::CloseReport;
use kohort_protocol::TopicPartition;
use kohort_telemetry::{Event, EventStream, Label};

use crate::error::{TerminalClass, TerminalReason};

/// A stream of the events of a group's members; see [`ConsumerGroup::events`](crate::ConsumerGroup::events).
pub type MemberEvents = EventStream<MemberEvent>;

/// Which member an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberName {
    /// The group.
    pub group: Arc<str>,
    /// The member's place among the group's members in this process, from 1.
    pub index: usize,
}

/// `orders-service#1`
impl Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.group, self.index)
    }
}

/// An event of a member.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum MemberEvent {
    /// The member's state changed.
    StateChanged {
        /// The member.
        member: MemberName,
        /// From.
        from: MemberState,
        /// To.
        to: MemberState,
    },
    /// The cluster cannot be reached; told once, until it can be reached again.
    Unreachable {
        /// The member.
        member: MemberName,
        /// What was tried.
        reason: String,
    },
    /// The cluster can be reached again, or for the first time; the coordinator is known.
    Reachable {
        /// The member.
        member: MemberName,
        /// The coordinator.
        coordinator: String,
    },
    /// A request came to nothing and is tried again after a pause.
    Retrying {
        /// The member.
        member: MemberName,
        /// The request.
        api: &'static str,
        /// What came back.
        reason: String,
        /// Attempts so far.
        attempt: u32,
        /// The pause.
        wait: Duration,
    },
    /// A JoinGroup was answered.
    Join {
        /// The member.
        member: MemberName,
        /// From sending to the answer.
        duration: Duration,
        /// The new generation.
        generation: i32,
        /// The member id.
        member_id: String,
        /// Is the member the leader?
        leader: bool,
    },
    /// A SyncGroup was answered.
    Sync {
        /// The member.
        member: MemberName,
        /// From sending to the answer.
        duration: Duration,
        /// The generation.
        generation: i32,
    },
    /// A heartbeat was answered, or not.
    Heartbeat {
        /// The member.
        member: MemberName,
        /// From sending to the end.
        duration: Duration,
        /// `ok`, or a fixed word for what came instead.
        result: &'static str,
    },
    /// The member gives its generation up and rejoins.
    Rebalance {
        /// The member.
        member: MemberName,
        /// A fixed word for why.
        kind: &'static str,
        /// The generation given up.
        generation: i32,
    },
    /// The heartbeat crashed; the member rejoins in place.
    HeartbeatCrash {
        /// The member.
        member: MemberName,
        /// How the heartbeat ended.
        exit: String,
        /// Crashes in the window, this one included.
        crashes_in_window: u32,
    },
    /// The member ended for good. Exactly one per member that does not end by a close.
    Terminated {
        /// The member.
        member: MemberName,
        /// The reason's class, for labels and alerts.
        class: TerminalClass,
        /// The reason.
        reason: TerminalReason,
    },
    /// Partitions were assigned.
    Assigned {
        /// The member.
        member: MemberName,
        /// The generation.
        generation: i32,
        /// The partitions; none is possible.
        partitions: Vec<TopicPartition>,
    },
    /// Partitions were given back.
    Revoked {
        /// The member.
        member: MemberName,
        /// The partitions.
        partitions: Vec<TopicPartition>,
    },
    /// Partitions were lost: another member may have had them already.
    Lost {
        /// The member.
        member: MemberName,
        /// The partitions.
        partitions: Vec<TopicPartition>,
    },
    /// Offsets were committed.
    Commit {
        /// The member.
        member: MemberName,
        /// The offsets.
        offsets: Vec<(TopicPartition, i64)>,
    },
    /// A commit failed.
    CommitFailed {
        /// The member.
        member: MemberName,
        /// What came back.
        reason: String,
        /// How many partitions it was for.
        partitions: usize,
        /// Is it tried again?
        retriable: bool,
    },
    /// A partition had no usable committed offset; the reset policy gave its start.
    OffsetReset {
        /// The member.
        member: MemberName,
        /// The partition.
        partition: TopicPartition,
        /// The offset that could not be used, if there was one.
        from: Option<i64>,
        /// Where it starts.
        to: i64,
        /// `earliest` or `latest`.
        policy: &'static str,
    },
    /// A partition cannot be read or has no readable offset for now.
    PartitionFailed {
        /// The member.
        member: MemberName,
        /// The partition.
        partition: TopicPartition,
        /// What is wrong.
        reason: String,
    },
    /// A handler has had a record, or a batch, in hand for longer than `max_processing_time`; it is aborted, and its
    /// worker starts again with it. Told once a minute at the most for each partition.
    WorkerStuck {
        /// The member.
        member: MemberName,
        /// The partition.
        partition: TopicPartition,
        /// The record in hand.
        offset: i64,
        /// For how long.
        duration: Duration,
    },
    /// A worker failed and was started again.
    WorkerRestarted {
        /// The member.
        member: MemberName,
        /// The partition.
        partition: TopicPartition,
        /// Failures since the last record that was handled.
        failures: u32,
        /// The pause before it goes on.
        wait: Duration,
    },
    /// Another member's subscription, or this member's assignment, could not be read.
    UnreadableBlob {
        /// The member.
        member: MemberName,
        /// Whose it is.
        member_id: String,
        /// What is wrong.
        reason: String,
    },
    /// The broker is too old for the group instance id: the member is dynamic.
    StaticMembershipUnsupported {
        /// The member.
        member: MemberName,
        /// The JoinGroup version that the broker speaks; 5 is needed.
        version: i16,
    },
    /// A topic that the group subscribes to does not exist, or cannot be looked up; the partitions are assigned without
    /// it. Told by the group's leader in each such generation; it looks again every few seconds, and what comes is
    /// assigned then.
    MissingTopic {
        /// The member.
        member: MemberName,
        /// The topic.
        topic: String,
    },
    /// Five generations or more within 60 s.
    RebalanceStorm {
        /// The member.
        member: MemberName,
        /// Generations in the last 60 s.
        generations: usize,
    },
    /// The member was closed.
    Closed {
        /// The member.
        member: MemberName,
        /// What the close did.
        report: CloseReport,
    },
    /// This subscriber was too slow and missed events.
    Lagged {
        /// How many.
        missed: u64,
    },
}

impl MemberEvent {
    /// The member it is about; `None` for [`MemberEvent::Lagged`].
    pub fn member(&self) -> Option<&MemberName> {
        use MemberEvent::*;
        match self {
            StateChanged { member, .. }
            | Unreachable { member, .. }
            | Reachable { member, .. }
            | Retrying { member, .. }
            | Join { member, .. }
            | Sync { member, .. }
            | Heartbeat { member, .. }
            | Rebalance { member, .. }
            | HeartbeatCrash { member, .. }
            | Terminated { member, .. }
            | Assigned { member, .. }
            | Revoked { member, .. }
            | Lost { member, .. }
            | Commit { member, .. }
            | CommitFailed { member, .. }
            | OffsetReset { member, .. }
            | PartitionFailed { member, .. }
            | WorkerStuck { member, .. }
            | WorkerRestarted { member, .. }
            | UnreadableBlob { member, .. }
            | StaticMembershipUnsupported { member, .. }
            | MissingTopic { member, .. }
            | RebalanceStorm { member, .. }
            | Closed { member, .. } => Some(member),
            Lagged { .. } => None,
        }
    }
}

impl Event for MemberEvent {
    fn name(&self) -> &'static str {
        use MemberEvent::*;
        match self {
            StateChanged { .. } => "kohort.member.state_changed",
            Unreachable { .. } => "kohort.member.unreachable",
            Reachable { .. } => "kohort.member.reachable",
            Retrying { .. } => "kohort.member.retrying",
            Join { .. } => "kohort.member.join",
            Sync { .. } => "kohort.member.sync",
            Heartbeat { .. } => "kohort.member.heartbeat",
            Rebalance { .. } => "kohort.member.rebalance",
            HeartbeatCrash { .. } => "kohort.member.heartbeat_crash",
            Terminated { .. } => "kohort.member.member_terminated",
            Assigned { .. } => "kohort.member.partitions_assigned",
            Revoked { .. } => "kohort.member.partitions_revoked",
            Lost { .. } => "kohort.member.partitions_lost",
            Commit { .. } => "kohort.member.commit",
            CommitFailed { .. } => "kohort.member.commit_failed",
            OffsetReset { .. } => "kohort.member.offset_reset",
            PartitionFailed { .. } => "kohort.member.partition_failed",
            WorkerStuck { .. } => "kohort.member.worker_stuck",
            WorkerRestarted { .. } => "kohort.member.worker_restarted",
            UnreadableBlob { .. } => "kohort.member.unreadable_blob",
            StaticMembershipUnsupported { .. } => "kohort.member.static_membership_unsupported",
            MissingTopic { .. } => "kohort.member.missing_topic",
            RebalanceStorm { .. } => "kohort.member.rebalance_storm",
            Closed { .. } => "kohort.member.closed",
            Lagged { .. } => "kohort.member.lagged",
        }
    }

    fn measurements(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        use MemberEvent::*;
        match self {
            Join { duration, .. } | Sync { duration, .. } | Heartbeat { duration, .. } => {
                visit("duration_seconds", duration.as_secs_f64());
            }
            HeartbeatCrash { crashes_in_window, .. } => {
                visit("crashes_in_window", f64::from(*crashes_in_window))
            }
            Assigned { partitions, .. } | Revoked { partitions, .. } | Lost { partitions, .. } => {
                visit("partitions", partitions.len() as f64);
            }
            Commit { offsets, .. } => visit("partitions", offsets.len() as f64),
            CommitFailed { partitions, .. } => visit("partitions", *partitions as f64),
            _ => {}
        }
    }

    fn labels(&self, visit: &mut dyn FnMut(Label, &str)) {
        use MemberEvent::*;
        if let Some(member) = self.member() {
            visit(Label::Group, &member.group);
        }
        match self {
            Retrying { api, .. } => visit(Label::Api, api),
            Heartbeat { result, .. } => visit(Label::Result, result),
            Rebalance { kind, .. } => visit(Label::Kind, kind),
            Terminated { class, .. } => visit(Label::Class, class.as_str()),
            CommitFailed { retriable, .. } => {
                visit(Label::Kind, if *retriable { "retriable" } else { "refused" })
            }
            OffsetReset { policy, partition, .. } => {
                visit(Label::Topic, &partition.topic);
                visit(Label::Kind, policy);
            }
            PartitionFailed { partition, .. }
            | WorkerRestarted { partition, .. }
            | WorkerStuck { partition, .. } => {
                visit(Label::Topic, &partition.topic);
            }
            MissingTopic { topic, .. } => visit(Label::Topic, topic),
            Closed { report, .. } => visit(Label::Result, if report.forced { "forced" } else { "clean" }),
            _ => {}
        }
    }

    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display)) {
        use MemberEvent::*;
        if let Some(member) = self.member() {
            visit("member", &member.index);
        }
        match self {
            StateChanged { from, to, .. } => {
                visit("from", from);
                visit("to", to);
            }
            Unreachable { reason, .. } => visit("reason", reason),
            Reachable { coordinator, .. } => visit("coordinator", coordinator),
            Retrying { reason, attempt, wait, .. } => {
                visit("reason", reason);
                visit("attempt", attempt);
                visit("wait_ms", &wait.as_millis());
            }
            Join { generation, member_id, leader, .. } => {
                visit("generation", generation);
                visit("member_id", member_id);
                visit("leader", leader);
            }
            Sync { generation, .. } | Rebalance { generation, .. } => visit("generation", generation),
            HeartbeatCrash { exit, .. } => visit("exit", exit),
            Terminated { reason, .. } => visit("reason", reason),
            Assigned { generation, partitions, .. } => {
                visit("generation", generation);
                visit("assigned", &Listed(partitions));
            }
            Revoked { partitions, .. } | Lost { partitions, .. } => visit("given_up", &Listed(partitions)),
            CommitFailed { reason, .. } => visit("reason", reason),
            OffsetReset { partition, from, to, .. } => {
                visit("partition", partition);
                if let Some(from) = from {
                    visit("from", from);
                }
                visit("to", to);
            }
            PartitionFailed { partition, reason, .. } => {
                visit("partition", partition);
                visit("reason", reason);
            }
            WorkerStuck { partition, offset, duration, .. } => {
                visit("partition", partition);
                visit("offset", offset);
                visit("in_hand_ms", &duration.as_millis());
            }
            WorkerRestarted { partition, failures, wait, .. } => {
                visit("partition", partition);
                visit("failures", failures);
                visit("wait_ms", &wait.as_millis());
            }
            UnreadableBlob { member_id, reason, .. } => {
                visit("member_id", member_id);
                visit("reason", reason);
            }
            StaticMembershipUnsupported { version, .. } => visit("version", version),
            RebalanceStorm { generations, .. } => visit("generations", generations),
            Closed { report, .. } => {
                visit("leave", &format_args!("{:?}", report.leave));
                visit("dropped", &Listed(&report.dropped));
            }
            Heartbeat { .. } | Commit { .. } | MissingTopic { .. } => {}
            Lagged { missed } => visit("missed", missed),
        }
    }

    fn level(&self) -> tracing::Level {
        use MemberEvent::*;
        match self {
            Terminated { .. } => tracing::Level::ERROR,
            Closed { report, .. } if report.forced => tracing::Level::WARN,
            Unreachable { .. }
            | HeartbeatCrash { .. }
            | Lost { .. }
            | CommitFailed { .. }
            | PartitionFailed { .. }
            | WorkerStuck { .. }
            | WorkerRestarted { .. }
            | UnreadableBlob { .. }
            | StaticMembershipUnsupported { .. }
            | MissingTopic { .. }
            | RebalanceStorm { .. }
            | OffsetReset { from: Some(_), .. }
            | Lagged { .. } => tracing::Level::WARN,
            Reachable { .. }
            | Rebalance { .. }
            | Assigned { .. }
            | Revoked { .. }
            | OffsetReset { .. }
            | Closed { .. } => tracing::Level::INFO,
            StateChanged { .. } | Retrying { .. } | Join { .. } | Sync { .. } | Commit { .. } => {
                tracing::Level::DEBUG
            }
            Heartbeat { .. } => tracing::Level::TRACE,
        }
    }

    fn lagged(missed: u64) -> Self {
        MemberEvent::Lagged { missed }
    }
}

/// A list for people, cut where it gets long.
struct Listed<'a>(&'a [TopicPartition]);

impl Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        for (index, partition) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{partition}", if index > 0 { " " } else { "" })?;
        }
        if self.0.len() > SHOWN { write!(f, " and {} more", self.0.len() - SHOWN) } else { Ok(()) }
    }
}
