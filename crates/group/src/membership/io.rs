//! What goes into a membership and what comes out, as plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kohort_protocol::messages::{
    CoordinatorAddress, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse, SyncGroupRequest, SyncGroupResponse,
};
use kohort_protocol::{ErrorCode, TopicPartition};

use super::MemberState;
use crate::verdict::GroupApi;

/// The broker that coordinates the group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// Node id.
    pub id: i32,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: i32,
}

/// What the driver tells a membership.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Input {
    /// Begin: find the coordinator, join.
    Start,
    /// The time of [`Membership::deadline`](super::Membership::deadline) has come.
    Deadline,
    /// The question of this round was answered, or could not be.
    Answered {
        /// The round of the [`Effect::Ask`].
        round: u64,
        /// The answer.
        answer: Result<Answer, Failure>,
    },
    /// A heartbeat incarnation runs.
    HeartbeatStarted {
        /// Its number.
        incarnation: u64,
    },
    /// A heartbeat incarnation ended.
    HeartbeatExited {
        /// Its number.
        incarnation: u64,
        /// How.
        exit: ExitKind,
    },
    /// A new heartbeat could not be started.
    HeartbeatStartFailed {
        /// Why.
        error: String,
    },
    /// The outcome of one beat.
    Beat {
        /// The arm epoch of [`Effect::ArmHeartbeat`] that the beat belongs to.
        epoch: u64,
        /// What came of it.
        beat: Beat,
    },
    /// The workers finished the record in hand and stopped delivering.
    Drained {
        /// The round of [`Effect::DrainWorkers`].
        round: u64,
    },
    /// The workers ran their hook and are gone.
    Released {
        /// The round of [`Effect::ReleaseWorkers`].
        round: u64,
        /// Partitions whose handler had to be aborted in the middle of a record.
        aborted: Vec<TopicPartition>,
    },
    /// Everything before `position` is handled.
    Handled {
        /// The generation the worker belongs to.
        generation: i32,
        /// The partition.
        partition: TopicPartition,
        /// The next offset to handle.
        position: i64,
        /// Records handled since the last report.
        records: u64,
    },
    /// The reset policy gave a partition without a committed offset its start.
    PositionReset {
        /// The generation the worker belongs to.
        generation: i32,
        /// The partition.
        partition: TopicPartition,
        /// The offset it starts at.
        offset: i64,
    },
    /// Commit what is handled now.
    Commit,
    /// The workers of a partition gave up for good.
    WorkersGaveUp {
        /// The partition, if one is to blame.
        partition: Option<TopicPartition>,
        /// Why.
        cause: String,
    },
    /// Close the membership.
    Close {
        /// Whether to leave the group (KIP-1092).
        operation: GroupMembershipOperation,
        /// When it must be over.
        deadline: Instant,
    },
}

/// Whether a close leaves the group (KIP-1092).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GroupMembershipOperation {
    /// A dynamic member leaves; a static member stays.
    #[default]
    Default,
    /// Leave, whatever the member is.
    LeaveGroup,
    /// Stay: the slot is kept until the session timeout.
    RemainInGroup,
}

impl GroupMembershipOperation {
    /// All of them.
    pub const ALL: [GroupMembershipOperation; 3] = [
        GroupMembershipOperation::Default,
        GroupMembershipOperation::LeaveGroup,
        GroupMembershipOperation::RemainInGroup,
    ];

    /// Does a close with this option send a LeaveGroup? KIP-1092: a static member (KIP-345) keeps its place unless
    /// told otherwise.
    pub fn leaves(self, is_static: bool) -> bool {
        match self {
            GroupMembershipOperation::Default => !is_static,
            GroupMembershipOperation::LeaveGroup => true,
            GroupMembershipOperation::RemainInGroup => false,
        }
    }
}

/// What came of one beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beat {
    /// The coordinator answered.
    Answered(ErrorCode),
    /// No answer: connection, time-out, unreadable bytes.
    Failed(Failure),
    /// The beat panicked: a defect in the code.
    Panicked(String),
}

/// How an actor ended, as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ExitKind {
    /// It was asked to stop by its owner.
    Shutdown,
    /// It stopped though nobody asked.
    Normal,
    /// It was killed.
    Killed,
    /// Its task was aborted.
    Aborted,
    /// It panicked.
    Panicked(String),
    /// It returned an error.
    Failed(String),
    /// It could not be started.
    StartFailed(String),
}

impl ExitKind {
    /// A fixed word for logs and labels.
    pub fn name(&self) -> &'static str {
        match self {
            ExitKind::Shutdown => "shutdown",
            ExitKind::Normal => "stopped",
            ExitKind::Killed => "killed",
            ExitKind::Aborted => "aborted",
            ExitKind::Panicked(_) => "panicked",
            ExitKind::Failed(_) => "failed",
            ExitKind::StartFailed(_) => "start_failed",
        }
    }
}

impl std::fmt::Display for ExitKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitKind::Panicked(text) | ExitKind::Failed(text) | ExitKind::StartFailed(text) => {
                write!(f, "{}: {text}", self.name())
            }
            _ => f.write_str(self.name()),
        }
    }
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// No connection could be opened: nothing was sent. Worth another try.
    Unconnected(String),
    /// A connection was lost, or no answer came in time: whether the broker acted is unknown. Worth another try.
    Network(String),
    /// The answer could not be read; the connection was given up. Worth another try.
    Malformed(String),
    /// Broker and client share no version of the request.
    Unsupported(String),
    /// The client that does the asking is gone.
    ClientDied(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Unconnected(text)
            | Failure::Network(text)
            | Failure::Malformed(text)
            | Failure::Unsupported(text)
            | Failure::ClientDied(text) => f.write_str(text),
        }
    }
}

/// A question to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Question {
    /// Who coordinates the group? To any broker.
    FindCoordinator(FindCoordinatorRequest),
    /// How many partitions have these topics? To any broker; creates none of them.
    PartitionCounts(Vec<String>),
    /// Which topics match this pattern? To any broker.
    MatchingTopics(String),
    /// To the coordinator.
    Join(JoinGroupRequest),
    /// To the coordinator.
    Sync(SyncGroupRequest),
    /// To the coordinator.
    FetchOffsets(OffsetFetchRequest),
    /// To the coordinator.
    CommitOffsets(OffsetCommitRequest),
    /// To the coordinator.
    Leave(LeaveGroupRequest),
}

/// The answer to a [`Question`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// To [`Question::FindCoordinator`].
    Coordinator(CoordinatorAddress),
    /// To [`Question::PartitionCounts`]; a topic that does not exist, or could not be looked up, is left out.
    PartitionCounts(BTreeMap<String, i32>),
    /// To [`Question::MatchingTopics`].
    MatchingTopics(BTreeSet<String>),
    /// To [`Question::Join`].
    Joined {
        /// The version it was asked in.
        version: i16,
        /// The answer.
        response: JoinGroupResponse,
    },
    /// To [`Question::Sync`].
    Synced(SyncGroupResponse),
    /// To [`Question::FetchOffsets`].
    Offsets(OffsetFetchResponse),
    /// To [`Question::CommitOffsets`].
    Committed(OffsetCommitResponse),
    /// To [`Question::Leave`].
    Left(LeaveGroupResponse),
}

/// What the driver has to do, in this order.
pub type Effects = Vec<Effect>;

/// One thing the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Ask, and bring the outcome back as [`Input::Answered`] with the same round.
    Ask {
        /// Ties the answer to the question.
        round: u64,
        /// The coordinator to ask; `None` for any broker.
        to: Option<Node>,
        /// The question.
        question: Question,
        /// No longer than this.
        within: Duration,
    },
    /// Beat from now on, at the heartbeat interval; replaces what was armed before.
    ArmHeartbeat {
        /// Ties each beat's outcome to this arming.
        epoch: u64,
        /// The coordinator.
        to: Node,
        /// What to send.
        request: HeartbeatRequest,
    },
    /// Another rebalance may follow at once, and only a beat tells of it: the next beats of this arming come early, after
    /// waits that double up to the heartbeat interval.
    HastenHeartbeat {
        /// The arming.
        epoch: u64,
    },
    /// No beat may be sent any more.
    DisarmHeartbeat,
    /// Start a new heartbeat; the old one has ended.
    RestartHeartbeat,
    /// Start a worker for each of these.
    StartWorkers {
        /// The generation they belong to.
        generation: i32,
        /// Where each starts.
        partitions: Vec<StartPosition>,
    },
    /// These workers finish the record in hand, report what they handled, and deliver no more.
    DrainWorkers {
        /// For [`Input::Drained`].
        round: u64,
        /// Whose workers.
        partitions: Vec<TopicPartition>,
        /// No longer than this.
        within: Duration,
    },
    /// These workers run their hook and end; their fetches end too. No new handler call from this moment on.
    ReleaseWorkers {
        /// For [`Input::Released`].
        round: u64,
        /// Whose workers.
        partitions: Vec<TopicPartition>,
        /// The hook.
        hook: Hook,
        /// Then they are killed.
        within: Duration,
    },
    /// Something worth telling.
    Notice(Notice),
    /// The close is over; the driver idles until it is stopped.
    Closed(CloseReport),
    /// The member is over: tell the user once, then fail.
    Terminate(TerminalCause),
}

/// Where a partition's worker starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartPosition {
    /// The partition.
    pub partition: TopicPartition,
    /// The committed offset; `None`: the reset policy decides.
    pub committed: Option<i64>,
}

/// Which hook a worker runs before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hook {
    /// The partition is given back; commits still count.
    Revoked,
    /// The partition is gone already; commits are refused.
    Lost,
}

/// Why a member rejoins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejoinReason {
    /// The coordinator says that the group rebalances.
    RebalanceInProgress,
    /// The generation is over.
    IllegalGeneration,
    /// The coordinator does not know the member id.
    UnknownMemberId,
    /// No good heartbeat for a session timeout: the member fenced itself.
    SessionExpired,
    /// The heartbeat crashed.
    HeartbeatCrash,
    /// As leader, it saw partitions or topics appear.
    MetadataChanged,
    /// As leader of a cooperative group, it waited in vain for the join that completes the assignment.
    AssignmentIncomplete,
    /// It joined, and a generation had passed meanwhile without it: what it kept through the rebalance may be another's.
    GenerationMissed,
    /// A join or sync did not come through.
    JoinFailed,
}

impl RejoinReason {
    /// A fixed word for logs, labels and the reason field of JoinGroup (KIP-800).
    pub fn name(&self) -> &'static str {
        match self {
            RejoinReason::RebalanceInProgress => "rebalance_in_progress",
            RejoinReason::IllegalGeneration => "illegal_generation",
            RejoinReason::UnknownMemberId => "unknown_member_id",
            RejoinReason::SessionExpired => "session_expired",
            RejoinReason::HeartbeatCrash => "heartbeat_crash",
            RejoinReason::MetadataChanged => "metadata_changed",
            RejoinReason::AssignmentIncomplete => "assignment_incomplete",
            RejoinReason::GenerationMissed => "generation_missed",
            RejoinReason::JoinFailed => "join_failed",
        }
    }
}

/// Something worth telling; the driver turns it into an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The state changed.
    State {
        /// From.
        from: MemberState,
        /// To.
        to: MemberState,
    },
    /// The coordinator is known.
    CoordinatorFound(Node),
    /// A question came to nothing; it, or what follows from it, is tried again.
    Retrying {
        /// The request; `None` for metadata.
        api: Option<GroupApi>,
        /// What came back.
        reason: String,
        /// Attempts so far.
        attempt: u32,
        /// Until the next try.
        wait: Duration,
    },
    /// JoinGroup succeeded.
    Joined {
        /// The new generation.
        generation: i32,
        /// The member id.
        member_id: String,
        /// Is this member the leader?
        leader: bool,
        /// Members of the group, known to the leader only.
        members: Option<usize>,
    },
    /// SyncGroup succeeded.
    Synced {
        /// The generation.
        generation: i32,
    },
    /// The member gives up its generation and rejoins.
    Rebalance {
        /// Why.
        reason: RejoinReason,
        /// The generation given up, −1 if there was none.
        generation: i32,
    },
    /// Partitions were assigned.
    Assigned {
        /// The generation.
        generation: i32,
        /// The partitions.
        partitions: Vec<TopicPartition>,
    },
    /// Partitions were given back.
    Revoked(Vec<TopicPartition>),
    /// Partitions were lost.
    Lost(Vec<TopicPartition>),
    /// A partition of the assignment cannot be worked on.
    PartitionFailed {
        /// The partition.
        partition: TopicPartition,
        /// What the coordinator said.
        error: ErrorCode,
    },
    /// Another member's subscription, or this member's assignment, could not be read.
    UnreadableBlob {
        /// The member that wrote or was to read it.
        member_id: String,
        /// What is wrong with it.
        error: String,
    },
    /// Offsets were committed.
    Committed(Vec<(TopicPartition, i64)>),
    /// A commit failed.
    CommitFailed {
        /// What came back.
        reason: String,
        /// Partitions concerned.
        partitions: usize,
        /// Is it tried again?
        retriable: bool,
    },
    /// The heartbeat crashed and the member goes on.
    HeartbeatCrash {
        /// How it ended.
        exit: ExitKind,
        /// Crashes in the window, this one included.
        crashes_in_window: u32,
    },
    /// The broker's JoinGroup is too old for static membership (KIP-345): the member is dynamic. Told once.
    StaticMembershipUnsupported {
        /// The version that the broker speaks.
        version: i16,
    },
    /// The leader could not look a topic up, three times, and assigns without it. It looks again soon.
    MissingTopic {
        /// Subscribed to by some member.
        topic: String,
    },
    /// Five generations or more within 60 s. Told once until it calms down.
    RebalanceStorm {
        /// Generations in the last 60 s.
        generations: usize,
    },
}

/// Why a member ended for good, as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TerminalCause {
    /// A newer member took the group instance id.
    FencedInstanceId,
    /// Not authorized for the group.
    GroupAuthorizationFailed,
    /// The heartbeat crashed more often than `crash_rejoin_max_restarts` allows.
    CrashLoop {
        /// How it ended the last time.
        cause: ExitKind,
        /// Crashes in the window.
        crashes: u32,
    },
    /// A defect: the heartbeat's beat panicked.
    Crashed {
        /// The panic's text.
        what: String,
    },
    /// The broker refuses the member for good.
    Refused {
        /// The request it refused.
        api: GroupApi,
        /// Its code.
        code: ErrorCode,
        /// What was asked, for the message.
        detail: String,
    },
    /// Broker and client share no version of a request.
    Unsupported {
        /// What is missing.
        detail: String,
    },
    /// The client that does the asking is gone.
    ClientDied {
        /// What became of it.
        detail: String,
    },
    /// The workers of a partition gave up.
    WorkersGaveUp {
        /// The partition, if one is to blame.
        partition: Option<TopicPartition>,
        /// Why.
        cause: String,
    },
}

/// What a close did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct CloseReport {
    /// Offsets committed while closing.
    pub committed: BTreeMap<TopicPartition, i64>,
    /// Was the group left?
    pub leave: LeaveOutcome,
    /// Partitions with handled work that could not be committed, or whose record in hand was aborted.
    pub dropped: Vec<TopicPartition>,
    /// The deadline cut something short.
    pub forced: bool,
}

/// What became of the LeaveGroup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub enum LeaveOutcome {
    /// None was sent: not asked for, never joined, or no coordinator known.
    #[default]
    NotSent,
    /// The coordinator confirmed it.
    Left,
    /// Sent, and no good answer came: a code, a failure, or silence.
    Unconfirmed(String),
}
