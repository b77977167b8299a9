//! What goes into a coordinator and what comes out, as plain data.

use kohort_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    SyncGroupRequest, SyncGroupResponse,
};

/// What the driver tells a coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "an input is made, moved once and taken apart")]
pub enum CoordinatorInput {
    /// A request came in.
    Request {
        /// The driver's number for it; comes back with the reply.
        call: u64,
        /// The request's version.
        version: i16,
        /// The client id of its header.
        client_id: String,
        /// Where it came from.
        client_host: String,
        /// The request.
        request: GroupRequest,
    },
    /// The time of [`Coordinator::deadline`](super::Coordinator::deadline) has come.
    Deadline,
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident $request:ident $reply:ident,)*) => {
        /// A request to the coordinator.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum GroupRequest { $($(#[$doc])* $name($request),)* }

        /// The reply to a [`GroupRequest`].
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum GroupReply { $($(#[$doc])* $name($reply),)* }

        $(
            impl From<$reply> for GroupReply {
                fn from(reply: $reply) -> Self {
                    GroupReply::$name(reply)
                }
            }

            impl From<$request> for GroupRequest {
                fn from(request: $request) -> Self {
                    GroupRequest::$name(request)
                }
            }
        )*
    };
}

requests! {
    /// JoinGroup.
    Join JoinGroupRequest JoinGroupResponse,
    /// SyncGroup.
    Sync SyncGroupRequest SyncGroupResponse,
    /// Heartbeat.
    Heartbeat HeartbeatRequest HeartbeatResponse,
    /// LeaveGroup.
    Leave LeaveGroupRequest LeaveGroupResponse,
    /// OffsetCommit.
    OffsetCommit OffsetCommitRequest OffsetCommitResponse,
    /// OffsetFetch.
    OffsetFetch OffsetFetchRequest OffsetFetchResponse,
}

/// What the driver has to do, in this order.
pub type CoordinatorEffects = Vec<CoordinatorEffect>;

/// One thing the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoordinatorEffect {
    /// Answer a call. A call whose request was repeated stays unanswered, as on Kafka.
    Reply {
        /// The call.
        call: u64,
        /// The reply.
        reply: GroupReply,
    },
    /// Something worth telling.
    Notice(CoordinatorNotice),
}

/// Something worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoordinatorNotice {
    /// A group began to rebalance.
    RebalanceStarted {
        /// The group.
        group_id: String,
        /// The generation that ends.
        generation: i32,
    },
    /// All members joined, or the time was over: a new generation.
    GenerationStarted {
        /// The group.
        group_id: String,
        /// The new generation.
        generation: i32,
        /// Its members.
        members: usize,
    },
    /// A LeaveGroup entry named neither a member id nor an instance id: whoever sent it left nothing.
    NamelessLeave {
        /// The group.
        group_id: String,
    },
    /// A member is gone.
    MemberRemoved {
        /// The group.
        group_id: String,
        /// The member.
        member_id: String,
        /// Why.
        reason: RemovalReason,
    },
}

/// Why a coordinator removed a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RemovalReason {
    /// It left.
    Left,
    /// No heartbeat for its session timeout.
    SessionExpired,
    /// It did not rejoin, or did not sync, within the rebalance timeout.
    RebalanceTimeout,
    /// The group is over its maximum size.
    GroupFull,
}

pub(super) fn reply(fx: &mut CoordinatorEffects, call: u64, reply: impl Into<GroupReply>) {
    fx.push(CoordinatorEffect::Reply { call, reply: reply.into() });
}
