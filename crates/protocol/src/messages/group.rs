//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the classic group protocol.

use bytes::Bytes;

use crate::ErrorCode;

/// JoinGroup (key 11).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct JoinGroupRequest {
    /// The group.
    pub group_id: String,
    /// `session.timeout.ms`: without a heartbeat for so long the member is removed.
    pub session_timeout_ms: i32,
    /// How long the coordinator waits for members to rejoin. Version 0 has none: there the session timeout serves.
    pub rebalance_timeout_ms: i32,
    /// Empty on a first join.
    pub member_id: String,
    /// `group.instance.id` of a static member (KIP-345), version 5 and above.
    pub group_instance_id: Option<String>,
    /// `consumer` for consumers.
    pub protocol_type: String,
    /// The assignors the member speaks, preferred first.
    pub protocols: Vec<JoinProtocol>,
    /// Why the member joins (KIP-800), version 8 and above.
    pub reason: Option<String>,
}

/// One assignor that a member offers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct JoinProtocol {
    /// The assignor's name.
    pub name: String,
    /// The member's subscription, as this assignor wants it.
    pub metadata: Bytes,
}

/// Answer to [`JoinGroupRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct JoinGroupResponse {
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// The group's generation, −1 with an error.
    pub generation: i32,
    /// The group's protocol type, version 7 and above.
    pub protocol_type: Option<String>,
    /// The assignor chosen.
    pub protocol_name: Option<String>,
    /// Member id of the leader.
    pub leader: String,
    /// The leader must not compute an assignment (KIP-814), version 9 and above.
    pub skip_assignment: bool,
    /// The member's id.
    pub member_id: String,
    /// All members, for the leader only.
    pub members: Vec<JoinMember>,
}

/// A member as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct JoinMember {
    /// Member id.
    pub member_id: String,
    /// Group instance id of a static member.
    pub group_instance_id: Option<String>,
    /// The member's subscription.
    pub metadata: Bytes,
}

/// SyncGroup (key 14).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SyncGroupRequest {
    /// The group.
    pub group_id: String,
    /// The generation joined.
    pub generation: i32,
    /// Member id.
    pub member_id: String,
    /// Group instance id, version 3 and above.
    pub group_instance_id: Option<String>,
    /// Protocol type, version 5 and above.
    pub protocol_type: Option<String>,
    /// Assignor chosen, version 5 and above.
    pub protocol_name: Option<String>,
    /// The assignments, from the leader only.
    pub assignments: Vec<MemberAssignment>,
}

/// What the leader assigns to one member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct MemberAssignment {
    /// Member id.
    pub member_id: String,
    /// The assignment blob.
    pub assignment: Bytes,
}

/// Answer to [`SyncGroupRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SyncGroupResponse {
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// Protocol type, version 5 and above.
    pub protocol_type: Option<String>,
    /// Assignor chosen, version 5 and above.
    pub protocol_name: Option<String>,
    /// The member's assignment blob.
    pub assignment: Bytes,
}

/// Heartbeat (key 12).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct HeartbeatRequest {
    /// The group.
    pub group_id: String,
    /// The member's generation.
    pub generation: i32,
    /// Member id.
    pub member_id: String,
    /// Group instance id, version 3 and above.
    pub group_instance_id: Option<String>,
}

/// Answer to [`HeartbeatRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct HeartbeatResponse {
    /// What went wrong, if anything.
    pub error: ErrorCode,
}

/// LeaveGroup (key 13). A batch from version 3 (KIP-345); before that exactly one member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LeaveGroupRequest {
    /// The group.
    pub group_id: String,
    /// The members that leave.
    pub members: Vec<LeaveMember>,
}

/// One member that leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LeaveMember {
    /// Member id; empty to remove a static member by its instance id alone.
    pub member_id: String,
    /// Group instance id, version 3 and above.
    pub group_instance_id: Option<String>,
    /// Why it leaves (KIP-800), version 5 and above.
    pub reason: Option<String>,
}

/// Answer to [`LeaveGroupRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LeaveGroupResponse {
    /// What went wrong for the whole request, if anything.
    pub error: ErrorCode,
    /// A result for each member, version 3 and above.
    pub members: Vec<LeftMember>,
}

/// What became of one member that leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LeftMember {
    /// Member id.
    pub member_id: String,
    /// Group instance id.
    pub group_instance_id: Option<String>,
    /// What went wrong, if anything.
    pub error: ErrorCode,
}
