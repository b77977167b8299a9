//! A group, its members, and the questions one asks of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{JoinGroupResponse, JoinMember};

/// A group's state, in Kafka's words. Legal predecessors are in [`GroupState::TRANSITIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GroupState {
    /// No members; offsets may be kept.
    Empty,
    /// Waits for members to (re)join. Heartbeats answer 27, joins are parked.
    PreparingRebalance,
    /// Waits for the leader's assignment. Syncs are parked.
    CompletingRebalance,
    /// Every member can have its assignment.
    Stable,
}

impl GroupState {
    /// Kafka's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }

    /// Every state.
    pub const ALL: [GroupState; 4] = [
        GroupState::Empty,
        GroupState::PreparingRebalance,
        GroupState::CompletingRebalance,
        GroupState::Stable,
    ];

    /// Which state may follow which: the setter refuses all others, the drawing in `docs/protocol.md` is made from
    /// this table, and the exploration test checks that each is walked.
    pub const TRANSITIONS: &'static [(GroupState, GroupState)] = &[
        (GroupState::Empty, GroupState::PreparingRebalance),
        (GroupState::PreparingRebalance, GroupState::Empty),
        (GroupState::PreparingRebalance, GroupState::CompletingRebalance),
        (GroupState::CompletingRebalance, GroupState::Stable),
        (GroupState::CompletingRebalance, GroupState::PreparingRebalance),
        (GroupState::Stable, GroupState::PreparingRebalance),
    ];
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An offset as it was committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CommittedOffset {
    /// The next offset to handle.
    pub offset: i64,
    /// Leader epoch, −1 if unknown.
    pub leader_epoch: i32,
    /// Free text.
    pub metadata: String,
}

/// What an onlooker may know of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// State.
    pub state: GroupState,
    /// Generation.
    pub generation: i32,
    /// Protocol type, if a member ever joined.
    pub protocol_type: Option<String>,
    /// The assignor chosen.
    pub protocol_name: Option<String>,
    /// Member id of the leader.
    pub leader: Option<String>,
    /// Members by id.
    pub members: BTreeMap<String, MemberView>,
    /// Member ids that were given out and did not join yet.
    pub pending: BTreeSet<String>,
    /// Committed offsets by topic and partition.
    pub offsets: BTreeMap<(String, i32), CommittedOffset>,
}

/// What an onlooker may know of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Client id.
    pub client_id: String,
    /// Client host.
    pub client_host: String,
    /// Group instance id.
    pub group_instance_id: Option<String>,
    /// Subscription blob for the assignor chosen, empty while there is none.
    pub metadata: Bytes,
    /// Assignment blob of this generation.
    pub assignment: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) group_instance_id: Option<String>,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    pub(super) protocols: Vec<(String, Bytes)>,
    pub(super) assignment: Bytes,
    pub(super) awaiting_join: Option<u64>,
    pub(super) awaiting_sync: Option<u64>,
    /// Has sent its SyncGroup in this generation.
    pub(super) synced: bool,
    /// Has never been in a generation.
    pub(super) is_new: bool,
    /// When it is removed unless it is heard of; `None` while a parked request keeps it alive.
    pub(super) expires: Option<Instant>,
}

impl Member {
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map(|(_, bytes)| bytes.clone())
            .unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) id: Arc<str>,
    pub(super) state: GroupState,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol_name: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// Invariant: exactly the members with a group instance id, by that id (KIP-345).
    pub(super) static_members: BTreeMap<String, String>,
    pub(super) pending: BTreeMap<String, Instant>,
    pub(super) offsets: BTreeMap<(String, i32), CommittedOffset>,
    /// When the join phase ends whoever is missing.
    pub(super) join_by: Option<Instant>,
    /// The initial delay runs: how much longer newcomers may stretch it.
    pub(super) initial_delay: Option<Duration>,
    /// A newcomer came since the initial delay was last stretched.
    pub(super) newcomer: bool,
    /// When members that did not sync are removed.
    pub(super) sync_by: Option<Instant>,
    /// When an Empty group is forgotten with its offsets.
    pub(super) retained_until: Option<Instant>,
}

impl Group {
    pub(super) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            state: GroupState::Empty,
            generation: 0,
            protocol_type: None,
            protocol_name: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending: BTreeMap::new(),
            offsets: BTreeMap::new(),
            join_by: None,
            initial_delay: None,
            newcomer: false,
            sync_by: None,
            retained_until: None,
        }
    }

    pub(super) fn to(&mut self, next: GroupState) {
        debug_assert!(GroupState::TRANSITIONS.contains(&(self.state, next)), "{:?} to {next:?}", self.state);
        self.state = next;
    }

    /// Members take a negative generation for none: behind the largest comes 1 again, not an overflow.
    pub(super) fn next_generation(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
    }

    pub(super) fn is(&self, states: &[GroupState]) -> bool {
        states.contains(&self.state)
    }

    pub(super) fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }

    pub(super) fn awaiting_join(&self) -> usize {
        self.members.values().filter(|member| member.awaiting_join.is_some()).count()
    }

    /// Known members and pending ids have all joined.
    pub(super) fn all_joined(&self) -> bool {
        self.pending.is_empty() && self.members.values().all(|member| member.awaiting_join.is_some())
    }

    /// Is this member, under this instance id if it names one, a member of the group? The id is checked before
    /// anything else of a request.
    pub(super) fn check_member(&self, member_id: &str, instance: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance {
            let owner = self.static_members.get(instance).ok_or(ErrorCode::UnknownMemberId)?;
            if owner != member_id {
                return Err(ErrorCode::FencedInstanceId);
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    /// Would the group accept a member with this type and these assignors? An Empty group takes anything.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if protocol_type.is_empty() || protocols.is_empty() {
            return false;
        }
        self.state == GroupState::Empty
            || self.members.is_empty()
            || (self.protocol_type.as_deref() == Some(protocol_type)
                && protocols.iter().any(|(name, _)| {
                    self.members.values().all(|member| member.protocols.iter().any(|(own, _)| own == name))
                }))
    }

    /// A leader that waits to join keeps the role; else one that does gets it. False if nobody waits.
    pub(super) fn elect_leader(&mut self) -> bool {
        let waits = |id: &String| self.members.get(id).is_some_and(|member| member.awaiting_join.is_some());
        if !self.leader.as_ref().is_some_and(waits) {
            let first = self.members.iter().find(|(_, member)| member.awaiting_join.is_some());
            let Some((id, _)) = first else { return false };
            self.leader = Some(id.clone());
        }
        true
    }

    /// Each member votes for the first of its assignors that all others offer too. On a tie, the first in the
    /// order of a Java HashMap of 16 buckets wins, as on Kafka.
    pub(super) fn elect_protocol(&self) -> Option<String> {
        let offered_by_all = |name: &str| {
            self.members.values().all(|member| member.protocols.iter().any(|(offered, _)| offered == name))
        };
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| offered_by_all(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        let tied = votes.into_iter().filter(|(_, count)| *count == most).map(|(name, _)| name);
        tied.min_by_key(|name| java_bucket(name)).map(str::to_owned)
    }

    /// The answer that puts a member into the current generation.
    pub(super) fn joined(&self, member_id: &str) -> JoinGroupResponse {
        let leads = self.leader.as_deref() == Some(member_id);
        let protocol = self.protocol_name.as_deref().unwrap_or_default();
        let members = if leads { self.members.iter() } else { Default::default() };
        JoinGroupResponse {
            error: ErrorCode::None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: members
                .map(|(id, member)| JoinMember {
                    member_id: id.clone(),
                    group_instance_id: member.group_instance_id.clone(),
                    metadata: member.metadata(protocol),
                })
                .collect(),
        }
    }

    pub(super) fn view(&self) -> GroupView {
        GroupView {
            state: self.state,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone(),
            members: self
                .members
                .iter()
                .map(|(id, member)| {
                    let view = MemberView {
                        client_id: member.client_id.clone(),
                        client_host: member.client_host.clone(),
                        group_instance_id: member.group_instance_id.clone(),
                        metadata: member.metadata(self.protocol_name.as_deref().unwrap_or_default()),
                        assignment: member.assignment.clone(),
                    };
                    (id.clone(), view)
                })
                .collect(),
            pending: self.pending.keys().cloned().collect(),
            offsets: self.offsets.clone(),
        }
    }
}

/// `String.hashCode`, spread as `java.util.HashMap` does, over 16 buckets.
fn java_bucket(name: &str) -> u32 {
    let hash =
        name.encode_utf16().fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
    (hash ^ (hash >> 16)) & 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_start_again_behind_the_largest() {
        let mut group = Group::new("g".into());
        group.generation = i32::MAX - 1;
        let mut next = || {
            group.next_generation();
            group.generation
        };
        assert_eq!([next(), next(), next()], [i32::MAX, 1, 2]);
    }

    #[test]
    fn x_01_ties_go_by_the_order_of_a_java_hash_map() {
        let mut names = ["range", "roundrobin", "sticky", "cooperative-sticky"];
        names.sort_by_key(|name| java_bucket(name));
        assert_eq!(names, ["sticky", "range", "roundrobin", "cooperative-sticky"]);
    }
}
