//! The states of a member, in Kafka's words, and which may follow which.

use std::fmt;

/// Where a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MemberState {
    /// Not in the group: looks for its coordinator or waits to join. No heartbeats and no workers, but for a
    /// cooperative member, which works and beats on.
    Unjoined,
    /// A JoinGroup is outstanding. No heartbeats; workers only of a cooperative member.
    PreparingRebalance,
    /// Joined; as leader computes the assignment; a SyncGroup is outstanding. Heartbeats flow.
    CompletingRebalance,
    /// In the group with an assignment; loads offsets, works, commits. Heartbeats flow.
    Stable,
    /// Gives its partitions back before it rejoins: drain, commit, `revoked` or `lost`. Heartbeats flow while
    /// its generation stands.
    Revoking,
    /// Gives its partitions back before it ends. Heartbeats flow while its generation stands, unless its JoinGroup is
    /// out.
    PrepareLeaving,
    /// A LeaveGroup is outstanding, or the coordinator is looked for, for a last commit and the LeaveGroup. No
    /// heartbeats.
    Leaving,
    /// Closed. Nothing follows.
    Left,
    /// Ended for a terminal reason. Nothing follows.
    Fatal,
}

use MemberState as S;

/// The legal transitions, as data: the setter refuses all others, the drawing in `docs/protocol.md` is
/// made from this table, and the exploration test checks that each is walked.
pub const TRANSITIONS: &[(MemberState, MemberState)] = &[
    (S::Unjoined, S::PreparingRebalance),
    (S::Unjoined, S::Revoking),
    (S::Unjoined, S::PrepareLeaving),
    (S::Unjoined, S::Leaving),
    (S::Unjoined, S::Left),
    (S::Unjoined, S::Fatal),
    (S::PreparingRebalance, S::Unjoined),
    (S::PreparingRebalance, S::CompletingRebalance),
    (S::PreparingRebalance, S::Revoking),
    (S::PreparingRebalance, S::PrepareLeaving),
    (S::PreparingRebalance, S::Leaving),
    (S::PreparingRebalance, S::Left),
    (S::PreparingRebalance, S::Fatal),
    (S::CompletingRebalance, S::Unjoined),
    (S::CompletingRebalance, S::Stable),
    (S::CompletingRebalance, S::Revoking),
    (S::CompletingRebalance, S::PrepareLeaving),
    (S::CompletingRebalance, S::Leaving),
    (S::CompletingRebalance, S::Left),
    (S::CompletingRebalance, S::Fatal),
    (S::Stable, S::Unjoined),
    (S::Stable, S::Revoking),
    (S::Stable, S::PrepareLeaving),
    (S::Stable, S::Leaving),
    (S::Stable, S::Left),
    (S::Stable, S::Fatal),
    (S::Revoking, S::Unjoined),
    (S::Revoking, S::PrepareLeaving),
    (S::PrepareLeaving, S::Leaving),
    (S::PrepareLeaving, S::Left),
    (S::PrepareLeaving, S::Fatal),
    (S::Leaving, S::Left),
    (S::Leaving, S::Fatal),
];

impl MemberState {
    /// Every state.
    pub const ALL: [MemberState; 9] = [
        S::Unjoined,
        S::PreparingRebalance,
        S::CompletingRebalance,
        S::Stable,
        S::Revoking,
        S::PrepareLeaving,
        S::Leaving,
        S::Left,
        S::Fatal,
    ];

    /// May `next` follow this state?
    pub fn may_become(self, next: MemberState) -> bool {
        TRANSITIONS.contains(&(self, next))
    }

    /// Left and Fatal.
    pub fn is_final(self) -> bool {
        matches!(self, S::Left | S::Fatal)
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
