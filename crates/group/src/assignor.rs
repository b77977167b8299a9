//! Assignors: how the leader shares partitions among members. Pure functions over plain data.
//!
//! Members are ordered by group instance id where they have one, else by member id, as Kafka orders them, so
//! that static members keep their share when their member ids change.

mod sticky;

use std::collections::{BTreeMap, BTreeSet};

use kohort_protocol::TopicPartition;

/// A member and the topics it subscribes to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemberSubscription {
    /// Member id.
    pub member_id: String,
    /// Group instance id of a static member.
    pub group_instance_id: Option<String>,
    /// The topics it subscribes to.
    pub topics: BTreeSet<String>,
    /// The partitions it had in `generation`, for the sticky assignors.
    pub owned: Vec<TopicPartition>,
    /// −1 if it never was in one.
    pub generation: i32,
}

/// Partitions by member id. Every member has an entry, with an empty list if nothing is left for it.
pub type Shares = BTreeMap<String, Vec<TopicPartition>>;

/// The strategies a member offers (`partition.assignment.strategy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Assignor {
    /// Kafka's `range`: per topic, contiguous, the remainder to the first members.
    Range,
    /// Kafka's `roundrobin`: partition by partition over all topics.
    RoundRobin,
    /// Kafka's `sticky` (KIP-54): as even as can be, and among such shares one that moves little. Eager.
    Sticky,
    /// Kafka's `cooperative-sticky` (KIP-429): as `sticky`; a partition that moves is first taken from its owner
    /// and given to the next in the rebalance that follows.
    CooperativeSticky,
}

impl Assignor {
    /// All of them.
    pub const ALL: [Assignor; 4] =
        [Assignor::Range, Assignor::RoundRobin, Assignor::Sticky, Assignor::CooperativeSticky];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
            Assignor::Sticky => "sticky",
            Assignor::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// The assignor of this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }

    /// Do members keep their partitions while the group rebalances?
    pub fn is_cooperative(self) -> bool {
        self == Assignor::CooperativeSticky
    }

    /// Shares the partitions of `topics` (name → number of partitions) among `members`. A topic that is not
    /// listed has no partitions; a topic nobody subscribes to is left out.
    pub fn assign(self, members: &[MemberSubscription], topics: &BTreeMap<String, i32>) -> Shares {
        let mut ordered: Vec<&MemberSubscription> = members.iter().collect();
        // A static member comes before a dynamic one (Kafka: AbstractPartitionAssignor.MemberInfo.compareTo).
        ordered.sort_by_key(|member| match &member.group_instance_id {
            Some(id) => (0, id, &member.member_id),
            None => (1, &member.member_id, &member.member_id),
        });
        let mut shares: Shares =
            members.iter().map(|member| (member.member_id.clone(), Vec::new())).collect();
        match self {
            Assignor::Range => range(&ordered, topics, &mut shares),
            Assignor::RoundRobin => round_robin(&ordered, topics, &mut shares),
            Assignor::Sticky => shares.extend(sticky::assign(&ordered, topics)),
            Assignor::CooperativeSticky => shares.extend(sticky::assign_cooperative(&ordered, topics)),
        }
        shares
    }
}

fn give(shares: &mut Shares, member: &MemberSubscription, partition: TopicPartition) {
    if let Some(share) = shares.get_mut(&member.member_id) {
        share.push(partition);
    }
}

fn range(members: &[&MemberSubscription], topics: &BTreeMap<String, i32>, shares: &mut Shares) {
    for (topic, count) in topics {
        let subscribed: Vec<_> = members.iter().filter(|member| member.topics.contains(topic)).collect();
        let Some(each) = usize::try_from(*count).unwrap_or(0).checked_div(subscribed.len()) else { continue };
        let remainder = usize::try_from(*count).unwrap_or(0) % subscribed.len();
        let name: std::sync::Arc<str> = topic.as_str().into();
        let mut partitions = 0..*count;
        for (index, member) in subscribed.into_iter().enumerate() {
            let share = each + usize::from(index < remainder);
            for partition in partitions.by_ref().take(share) {
                give(shares, member, TopicPartition::new(name.clone(), partition));
            }
        }
    }
}

fn round_robin(members: &[&MemberSubscription], topics: &BTreeMap<String, i32>, shares: &mut Shares) {
    let mut turn = 0;
    for (topic, count) in topics {
        if !members.iter().any(|member| member.topics.contains(topic)) {
            continue;
        }
        let name: std::sync::Arc<str> = topic.as_str().into();
        for partition in 0..*count {
            while !members[turn % members.len()].topics.contains(topic) {
                turn += 1;
            }
            give(shares, members[turn % members.len()], TopicPartition::new(name.clone(), partition));
            turn += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, instance: Option<&str>, topics: &[&str]) -> MemberSubscription {
        MemberSubscription {
            member_id: id.into(),
            group_instance_id: instance.map(Into::into),
            topics: topics.iter().map(|topic| topic.to_string()).collect(),
            owned: Vec::new(),
            generation: -1,
        }
    }

    fn topics(list: &[(&str, i32)]) -> BTreeMap<String, i32> {
        list.iter().map(|(name, count)| (name.to_string(), *count)).collect()
    }

    fn names(shares: &Shares, id: &str) -> Vec<String> {
        shares[id].iter().map(ToString::to_string).collect()
    }

    #[test]
    fn c_assign_01_range_gives_contiguous_shares_per_topic_and_the_remainder_to_the_first() {
        let members = [member("a", None, &["t1", "t2"]), member("b", None, &["t1", "t2"])];
        let shares = Assignor::Range.assign(&members, &topics(&[("t1", 3), ("t2", 3)]));
        assert_eq!(names(&shares, "a"), ["t1-0", "t1-1", "t2-0", "t2-1"]);
        assert_eq!(names(&shares, "b"), ["t1-2", "t2-2"]);
    }

    #[test]
    fn c_assign_02_round_robin_counts_over_all_topics() {
        let members = [member("x", Some("i1"), &["t1", "t2"]), member("a", Some("i2"), &["t1", "t2"])];
        let shares = Assignor::RoundRobin.assign(&members, &topics(&[("t1", 3), ("t2", 3)]));
        assert_eq!(names(&shares, "x"), ["t1-0", "t1-2", "t2-1"]);
        assert_eq!(names(&shares, "a"), ["t1-1", "t2-0", "t2-2"]);
    }

    #[test]
    fn c_assign_04_static_members_keep_their_share_when_member_ids_change() {
        let cluster = topics(&[("t1", 5), ("t2", 4)]);
        for assignor in [Assignor::Range, Assignor::RoundRobin] {
            let before = assignor.assign(
                &[member("a", Some("i1"), &["t1", "t2"]), member("b", Some("i2"), &["t1", "t2"])],
                &cluster,
            );
            let after = assignor.assign(
                &[member("z", Some("i1"), &["t1", "t2"]), member("c", Some("i2"), &["t1", "t2"])],
                &cluster,
            );
            assert_eq!(before["a"], after["z"]);
            assert_eq!(before["b"], after["c"]);
        }
    }

    #[test]
    fn c_assign_05_surplus_members_are_present_with_an_empty_share() {
        let members = [member("a", None, &["t"]), member("b", None, &["t"]), member("c", None, &["other"])];
        for assignor in Assignor::ALL {
            let shares = assignor.assign(&members, &topics(&[("t", 1)]));
            assert_eq!(shares.len(), 3);
            assert_eq!(names(&shares, "a"), ["t-0"]);
            assert!(shares["b"].is_empty() && shares["c"].is_empty());
        }
    }

    /// Laws that hold for any group: every partition exactly once, to a member that subscribes to it.
    #[test]
    fn every_partition_goes_to_exactly_one_subscriber() {
        let mut chance = crate::seed::Seeded::new(42);
        for _ in 0..2_000 {
            let cluster: BTreeMap<String, i32> =
                (0..1 + chance.below(4)).map(|n| (format!("t{n}"), chance.below(8) as i32)).collect();
            let members: Vec<_> = (0..1 + chance.below(6))
                .map(|n| MemberSubscription {
                    member_id: format!("m{n}"),
                    group_instance_id: (chance.below(2) == 0).then(|| format!("i{n}")),
                    topics: cluster.keys().filter(|_| chance.below(3) > 0).cloned().collect(),
                    owned: Vec::new(),
                    generation: -1,
                })
                .collect();
            for assignor in Assignor::ALL {
                let shares = assignor.assign(&members, &cluster);
                let mut seen = BTreeSet::new();
                for member in &members {
                    for partition in &shares[&member.member_id] {
                        assert!(member.topics.contains(&*partition.topic));
                        assert!(seen.insert(partition.clone()), "{partition} twice");
                    }
                }
                let expected: i32 = cluster
                    .iter()
                    .filter(|(topic, _)| members.iter().any(|member| member.topics.contains(*topic)))
                    .map(|(_, count)| *count)
                    .sum();
                assert_eq!(seen.len() as i32, expected);
            }
        }
    }
}
