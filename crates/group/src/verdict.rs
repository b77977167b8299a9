//! What an error code means, by the request it answers. The one place where codes enter the member's core.

use kohort_protocol::ErrorCode;

/// The requests of the group protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupApi {
    /// FindCoordinator.
    FindCoordinator,
    /// JoinGroup.
    JoinGroup,
    /// SyncGroup.
    SyncGroup,
    /// Heartbeat.
    Heartbeat,
    /// LeaveGroup.
    LeaveGroup,
    /// OffsetCommit.
    OffsetCommit,
    /// OffsetFetch.
    OffsetFetch,
}

impl GroupApi {
    /// All of them.
    pub const ALL: [GroupApi; 7] = [
        GroupApi::FindCoordinator,
        GroupApi::JoinGroup,
        GroupApi::SyncGroup,
        GroupApi::Heartbeat,
        GroupApi::LeaveGroup,
        GroupApi::OffsetCommit,
        GroupApi::OffsetFetch,
    ];

    /// Kafka's name of the request.
    pub fn name(self) -> &'static str {
        match self {
            GroupApi::FindCoordinator => "FindCoordinator",
            GroupApi::JoinGroup => "JoinGroup",
            GroupApi::SyncGroup => "SyncGroup",
            GroupApi::Heartbeat => "Heartbeat",
            GroupApi::LeaveGroup => "LeaveGroup",
            GroupApi::OffsetCommit => "OffsetCommit",
            GroupApi::OffsetFetch => "OffsetFetch",
        }
    }
}

/// What of its identity a member forgets before it rejoins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forget {
    /// Nothing: the group rebalances.
    Nothing,
    /// The generation; the member id stays.
    Generation,
    /// Member id and generation.
    Identity,
}

/// What a member does on an error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// No error.
    Success,
    /// JoinGroup: join again at once with the id that came along (KIP-394).
    JoinWithGivenId,
    /// Ask the same broker again after a back-off.
    Retry,
    /// Forget the coordinator, find it again, then go on. SyncGroup goes on with a rejoin.
    FindCoordinator,
    /// Rejoin the group.
    Rejoin(Forget),
    /// Tell the user; neither retry nor rejoin.
    Surface,
    /// Log it and go on: the member is leaving anyway.
    Log,
    /// The member's instance id was taken by a newer member: stop for good.
    Fenced,
    /// The member may not use the group: stop for good.
    Unauthorized,
    /// The group or the broker refuses the member for a reason that no retry mends: stop for good.
    Refused,
}

/// What `code` means when it answers `api`, for a member that is still in the generation it asked from.
pub fn verdict(api: GroupApi, code: ErrorCode) -> Verdict {
    use ErrorCode as E;
    use GroupApi as A;
    use Verdict as V;
    match (api, code) {
        (_, E::None) => V::Success,

        (A::LeaveGroup, E::CoordinatorNotAvailable | E::NotCoordinator) => V::FindCoordinator,
        (A::LeaveGroup, _) => V::Log,

        (_, E::GroupAuthorizationFailed) => V::Unauthorized,
        (A::FindCoordinator, E::CoordinatorNotAvailable | E::NotCoordinator) => V::Retry,
        (_, E::CoordinatorNotAvailable | E::NotCoordinator) => V::FindCoordinator,
        (A::SyncGroup, E::CoordinatorLoadInProgress) => V::Rejoin(Forget::Nothing),
        (_, E::CoordinatorLoadInProgress) => V::Retry,

        (A::JoinGroup, E::MemberIdRequired) => V::JoinWithGivenId,
        (A::JoinGroup, E::RebalanceInProgress) => V::Retry,
        (A::SyncGroup | A::Heartbeat, E::RebalanceInProgress) => V::Rejoin(Forget::Nothing),
        // The offsets stay dirty: the heartbeat brings the rejoin, and the commit is tried again before it.
        (A::OffsetCommit, E::RebalanceInProgress) => V::Retry,
        (
            A::JoinGroup | A::SyncGroup | A::Heartbeat | A::OffsetCommit | A::OffsetFetch,
            E::IllegalGeneration,
        ) => V::Rejoin(Forget::Generation),
        (
            A::JoinGroup | A::SyncGroup | A::Heartbeat | A::OffsetCommit | A::OffsetFetch,
            E::UnknownMemberId,
        ) => V::Rejoin(Forget::Identity),
        (A::FindCoordinator, E::FencedInstanceId) => V::Refused,
        (_, E::FencedInstanceId) => V::Fenced,

        (A::OffsetCommit, E::RequestTimedOut) => V::FindCoordinator,
        (A::OffsetCommit | A::OffsetFetch, E::UnknownTopicOrPartition) => V::Retry,
        (
            A::OffsetCommit,
            E::OffsetMetadataTooLarge | E::InvalidCommitOffsetSize | E::TopicAuthorizationFailed,
        ) => V::Surface,
        (A::OffsetFetch, E::UnstableOffsetCommit) => V::Retry,
        (A::OffsetFetch, E::TopicAuthorizationFailed) => V::Surface,

        // A failure inside the broker passes; the member rejoins in place rather than be rebuilt.
        (A::SyncGroup, code) if is_transient(code) => V::Rejoin(Forget::Nothing),
        (_, code) if is_transient(code) => V::Retry,
        _ => V::Refused,
    }
}

/// Codes that a broker answers for a moment, whatever was asked.
fn is_transient(code: ErrorCode) -> bool {
    use ErrorCode as E;
    matches!(
        code,
        E::UnknownServerError
            | E::RequestTimedOut
            | E::LeaderNotAvailable
            | E::NotLeaderOrFollower
            | E::BrokerNotAvailable
            | E::ReplicaNotAvailable
            | E::NetworkException
            | E::NotEnoughReplicas
            | E::NotEnoughReplicasAfterAppend
            | E::KafkaStorageError
            | E::ThrottlingQuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reaction table of the design, row by row.
    #[test]
    fn the_reaction_table() {
        use ErrorCode as E;
        use GroupApi as A;
        use Verdict as V;
        let nothing = V::Rejoin(Forget::Nothing);
        let generation = V::Rejoin(Forget::Generation);
        let identity = V::Rejoin(Forget::Identity);
        // code, Heartbeat, SyncGroup, JoinGroup, OffsetCommit, LeaveGroup
        let rows = [
            (E::RebalanceInProgress, nothing, nothing, V::Retry, V::Retry, V::Log),
            (E::IllegalGeneration, generation, generation, generation, generation, V::Log),
            (E::UnknownMemberId, identity, identity, identity, identity, V::Log),
            (E::CoordinatorLoadInProgress, V::Retry, nothing, V::Retry, V::Retry, V::Log),
            (
                E::CoordinatorNotAvailable,
                V::FindCoordinator,
                V::FindCoordinator,
                V::FindCoordinator,
                V::FindCoordinator,
                V::FindCoordinator,
            ),
            (
                E::NotCoordinator,
                V::FindCoordinator,
                V::FindCoordinator,
                V::FindCoordinator,
                V::FindCoordinator,
                V::FindCoordinator,
            ),
            (E::FencedInstanceId, V::Fenced, V::Fenced, V::Fenced, V::Fenced, V::Log),
            (
                E::GroupAuthorizationFailed,
                V::Unauthorized,
                V::Unauthorized,
                V::Unauthorized,
                V::Unauthorized,
                V::Log,
            ),
        ];
        for (code, heartbeat, sync, join, commit, leave) in rows {
            assert_eq!(verdict(A::Heartbeat, code), heartbeat, "Heartbeat {code}");
            assert_eq!(verdict(A::SyncGroup, code), sync, "SyncGroup {code}");
            assert_eq!(verdict(A::JoinGroup, code), join, "JoinGroup {code}");
            assert_eq!(verdict(A::OffsetCommit, code), commit, "OffsetCommit {code}");
            assert_eq!(verdict(A::LeaveGroup, code), leave, "LeaveGroup {code}");
        }
        assert_eq!(verdict(A::JoinGroup, E::MemberIdRequired), V::JoinWithGivenId);
        for code in [
            E::InconsistentGroupProtocol,
            E::InvalidSessionTimeout,
            E::InvalidGroupId,
            E::UnsupportedVersion,
            E::GroupMaxSizeReached,
        ] {
            assert_eq!(verdict(A::JoinGroup, code), V::Refused, "C-JOIN-06, C-JOIN-07: {code}");
        }
        assert_eq!(verdict(A::Heartbeat, E::TopicAuthorizationFailed), V::Refused, "C-HB-13");
        assert_eq!(verdict(A::FindCoordinator, E::CoordinatorNotAvailable), V::Retry, "X-14");
        assert_eq!(verdict(A::SyncGroup, E::UnknownServerError), nothing, "D-01");
        assert_eq!(verdict(A::OffsetFetch, E::UnstableOffsetCommit), V::Retry, "C-OFETCH-04");
        assert_eq!(verdict(A::OffsetCommit, E::OffsetMetadataTooLarge), V::Surface, "C-COMMIT-11");
    }

    #[test]
    fn every_code_has_a_verdict_for_every_request_and_only_none_succeeds() {
        for api in GroupApi::ALL {
            for code in ErrorCode::ALL.iter().copied().chain([ErrorCode::Other(999)]) {
                assert_eq!(
                    verdict(api, code) == Verdict::Success,
                    code == ErrorCode::None,
                    "{} {code}",
                    api.name()
                );
            }
        }
    }

    #[test]
    fn a_member_that_leaves_is_stopped_by_no_code() {
        for code in ErrorCode::ALL.iter().copied() {
            let verdict = verdict(GroupApi::LeaveGroup, code);
            assert!(matches!(verdict, Verdict::Success | Verdict::Log | Verdict::FindCoordinator), "{code}");
        }
    }
}
