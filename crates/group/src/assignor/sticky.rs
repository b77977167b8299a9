//! The sticky assignors: first as even as the subscriptions allow, then as sticky as evenness allows.
//!
//! 1. Members keep what they claim, if it exists, they subscribe to it, and nobody has a newer claim.
//! 2. What is left over goes to whoever may have it and has the least.
//! 3. While a chain of hand-overs leads from a member to one that has at least two fewer, it is made. With equal
//!    subscriptions there are only chains of one, and a quota does the same at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kohort_protocol::TopicPartition;

use super::{MemberSubscription, Shares};

/// Shares partitions as evenly and as stickily as can be.
pub(super) fn assign(members: &[&MemberSubscription], topics: &BTreeMap<String, i32>) -> Shares {
    let claims = claims(members, topics);
    share(members, topics, &claims)
}

/// As [`assign`], but what moves from one member to another is left out for now: its owner sees it missing, gives
/// it back and rejoins, and then it is free (KIP-429).
pub(super) fn assign_cooperative(members: &[&MemberSubscription], topics: &BTreeMap<String, i32>) -> Shares {
    let claims = claims(members, topics);
    let mut shares = share(members, topics, &claims);
    for (member_id, share) in &mut shares {
        share.retain(|partition| {
            claims.get(partition).is_none_or(|owner| members[*owner].member_id == *member_id)
        });
    }
    shares
}

/// Who owns what: by partition, the index of the member whose claim stands. Of two claims the newer generation's
/// stands; of two of one generation neither does.
fn claims(
    members: &[&MemberSubscription],
    topics: &BTreeMap<String, i32>,
) -> BTreeMap<TopicPartition, usize> {
    let mut newest: BTreeMap<&TopicPartition, (i32, Option<usize>)> = BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        for partition in member.owned.iter().collect::<BTreeSet<_>>() {
            let exists =
                topics.get(&*partition.topic).is_some_and(|count| (0..*count).contains(&partition.partition));
            if !exists || !member.topics.contains(&*partition.topic) {
                continue;
            }
            let claim = newest.entry(partition).or_insert((member.generation, Some(index)));
            match member.generation.cmp(&claim.0) {
                std::cmp::Ordering::Greater => *claim = (member.generation, Some(index)),
                std::cmp::Ordering::Equal if claim.1 != Some(index) => claim.1 = None,
                _ => {}
            }
        }
    }
    newest.into_iter().filter_map(|(partition, (_, owner))| Some((partition.clone(), owner?))).collect()
}

fn share(
    members: &[&MemberSubscription],
    topics: &BTreeMap<String, i32>,
    claims: &BTreeMap<TopicPartition, usize>,
) -> Shares {
    let subscribed: BTreeSet<&String> =
        topics.keys().filter(|topic| members.iter().any(|member| member.topics.contains(*topic))).collect();
    let mut held: Vec<BTreeSet<TopicPartition>> = members.iter().map(|_| BTreeSet::new()).collect();
    for (partition, owner) in claims {
        held[*owner].insert(partition.clone());
    }
    let mut free: VecDeque<TopicPartition> = VecDeque::new();
    for topic in &subscribed {
        let name: std::sync::Arc<str> = topic.as_str().into();
        for number in 0..topics.get(*topic).copied().unwrap_or(0) {
            let partition = TopicPartition::new(name.clone(), number);
            if !claims.contains_key(&partition) {
                free.push_back(partition);
            }
        }
    }
    let wanted =
        |member: &MemberSubscription| member.topics.iter().filter(|topic| subscribed.contains(topic)).count();
    let takers: Vec<usize> = (0..members.len()).filter(|index| wanted(members[*index]) > 0).collect();
    if takers.iter().all(|index| wanted(members[*index]) == subscribed.len()) {
        by_quota(&takers, &mut held, free);
    } else {
        to_the_least(members, &mut held, free);
        even_out(members, &mut held);
    }
    members
        .iter()
        .zip(held)
        .map(|(member, share)| (member.member_id.clone(), share.into_iter().collect()))
        .collect()
}

/// Everybody may have everything: each gets the quota, some one more.
fn by_quota(takers: &[usize], held: &mut [BTreeSet<TopicPartition>], mut free: VecDeque<TopicPartition>) {
    let total = free.len() + takers.iter().map(|taker| held[*taker].len()).sum::<usize>();
    let (Some(quota), Some(mut extra)) = (total.checked_div(takers.len()), total.checked_rem(takers.len()))
    else {
        return;
    };
    let mut given_up = Vec::new();
    for taker in takers {
        let mut keeps = quota;
        if held[*taker].len() > quota && extra > 0 {
            extra -= 1;
            keeps += 1;
        }
        while held[*taker].len() > keeps
            && let Some(partition) = held[*taker].pop_last()
        {
            given_up.push(partition);
        }
    }
    free.extend(given_up);
    // Around and around, so that the partitions of one topic spread.
    let mut targets: VecDeque<(usize, usize)> = VecDeque::new();
    for taker in takers.iter().filter(|taker| held[**taker].len() <= quota) {
        let mut target = quota;
        if extra > 0 {
            extra -= 1;
            target += 1;
        }
        targets.push_back((*taker, target));
    }
    while let Some((taker, target)) = targets.pop_front() {
        if held[taker].len() < target
            && let Some(partition) = free.pop_front()
        {
            held[taker].insert(partition);
            targets.push_back((taker, target));
        }
    }
}

fn to_the_least(
    members: &[&MemberSubscription],
    held: &mut [BTreeSet<TopicPartition>],
    free: VecDeque<TopicPartition>,
) {
    for partition in free {
        let takers = (0..members.len()).filter(|index| members[*index].topics.contains(&*partition.topic));
        if let Some(least) = takers.min_by_key(|index| held[*index].len()) {
            held[least].insert(partition);
        }
    }
}

/// Each chain makes the sum of squares smaller, so this comes to an end.
fn even_out(members: &[&MemberSubscription], held: &mut [BTreeSet<TopicPartition>]) {
    while let Some(chain) = chain(members, held) {
        for (from, partition, to) in chain {
            held[from].remove(&partition);
            held[to].insert(partition);
        }
    }
}

/// The shortest chain of hand-overs from a member to one that has at least two fewer.
fn chain(
    members: &[&MemberSubscription],
    held: &[BTreeSet<TopicPartition>],
) -> Option<Vec<(usize, TopicPartition, usize)>> {
    let mut ends: Vec<usize> = (0..members.len()).collect();
    ends.sort_by_key(|index| held[*index].len());
    let most = held.iter().map(BTreeSet::len).max()?;
    for end in ends {
        if held[end].len() + 2 > most {
            return None;
        }
        // From the end backwards: who could give something to whom.
        let mut takes: BTreeMap<usize, (TopicPartition, usize)> = BTreeMap::new();
        let mut queue = VecDeque::from([end]);
        while let Some(taker) = queue.pop_front() {
            for giver in 0..members.len() {
                if giver == end || takes.contains_key(&giver) {
                    continue;
                }
                let Some(partition) =
                    held[giver].iter().find(|one| members[taker].topics.contains(&*one.topic))
                else {
                    continue;
                };
                takes.insert(giver, (partition.clone(), taker));
                if held[giver].len() >= held[end].len() + 2 {
                    let mut steps = Vec::new();
                    let mut from = giver;
                    while let Some((partition, to)) = takes.get(&from) {
                        steps.push((from, partition.clone(), *to));
                        from = *to;
                    }
                    return Some(steps);
                }
                queue.push_back(giver);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::Assignor;
    use super::*;
    use crate::seed::Seeded;

    type Group = BTreeMap<String, (BTreeSet<String>, Vec<TopicPartition>, i32)>;

    fn subscriptions(group: &Group) -> Vec<MemberSubscription> {
        group
            .iter()
            .map(|(id, (topics, owned, generation))| MemberSubscription {
                member_id: id.clone(),
                group_instance_id: None,
                topics: topics.clone(),
                owned: owned.clone(),
                generation: *generation,
            })
            .collect()
    }

    fn cluster(chance: &mut Seeded) -> BTreeMap<String, i32> {
        (0..1 + chance.below(5)).map(|n| (format!("t{n}"), chance.below(9) as i32)).collect()
    }

    fn rebalance(
        assignor: Assignor,
        group: &mut Group,
        topics: &BTreeMap<String, i32>,
        generation: i32,
    ) -> Shares {
        let shares = assignor.assign(&subscriptions(group), topics);
        for (id, (_, owned, of)) in group.iter_mut() {
            owned.clone_from(&shares[id]);
            *of = generation;
        }
        shares
    }

    /// No chain of hand-overs would make it more even, and every partition somebody wants has one owner.
    fn check(group: &Group, topics: &BTreeMap<String, i32>, shares: &Shares) {
        let members = subscriptions(group);
        let members: Vec<&MemberSubscription> = members.iter().collect();
        let mut seen = BTreeSet::new();
        for member in &members {
            for partition in &shares[&member.member_id] {
                assert!(
                    member.topics.contains(&*partition.topic) && seen.insert(partition.clone()),
                    "{partition}"
                );
            }
        }
        let wanted: i32 = topics
            .iter()
            .filter(|(topic, _)| members.iter().any(|member| member.topics.contains(*topic)))
            .map(|(_, count)| count)
            .sum();
        assert_eq!(seen.len() as i32, wanted);
        let held: Vec<BTreeSet<_>> =
            members.iter().map(|member| shares[&member.member_id].iter().cloned().collect()).collect();
        assert_eq!(chain(&members, &held), None, "could be more even: {held:?}");
    }

    fn moved(before: &Shares, after: &Shares) -> usize {
        let owners = |shares: &Shares| -> BTreeMap<TopicPartition, String> {
            shares.iter().flat_map(|(id, list)| list.iter().map(|one| (one.clone(), id.clone()))).collect()
        };
        let after = owners(after);
        owners(before)
            .iter()
            .filter(|(partition, id)| after.get(*partition).is_some_and(|now| now != *id))
            .count()
    }

    #[test]
    fn shares_stay_complete_and_even_through_random_lives_of_a_group() {
        for seed in 0..300 {
            let mut chance = Seeded::new(seed);
            let mut topics = cluster(&mut chance);
            let equal = chance.below(2) == 0;
            let subscribe = |chance: &mut Seeded, topics: &BTreeMap<String, i32>| {
                topics.keys().filter(|_| equal || chance.below(3) > 0).cloned().collect::<BTreeSet<_>>()
            };
            let mut group = Group::new();
            for life in 0..12 {
                match chance.below(4) {
                    0 if group.len() > 1 => drop(group.pop_first()),
                    1 => {
                        let topic = format!("t{}", chance.below(6));
                        *topics.entry(topic).or_default() += 1;
                    }
                    _ => {
                        let topics = subscribe(&mut chance, &topics);
                        group.insert(format!("m{}", chance.below(1000)), (topics, Vec::new(), -1));
                    }
                }
                let before: Shares =
                    group.iter().map(|(id, (_, owned, _))| (id.clone(), owned.clone())).collect();
                let shares = rebalance(Assignor::Sticky, &mut group, &topics, life);
                check(&group, &topics, &shares);
                let again = rebalance(Assignor::Sticky, &mut group, &topics, life + 1);
                assert_eq!(moved(&shares, &again), 0, "seed {seed}: nothing changed, nothing moves");
                if equal {
                    let total: usize = shares.values().map(Vec::len).sum();
                    let quota = total.checked_div(group.len()).unwrap_or(0);
                    // Who joins takes no more than its own share from the others.
                    let newcomers = before.values().filter(|owned| owned.is_empty()).count();
                    assert!(moved(&before, &shares) <= newcomers * (quota + 1) + topics.len(), "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn who_leaves_costs_the_others_nothing_of_what_they_have() {
        let topics = BTreeMap::from([("t".to_string(), 12)]);
        let all: BTreeSet<String> = topics.keys().cloned().collect();
        let mut group: Group = ["a", "b", "c", "d"]
            .map(|id| (id.to_string(), (all.clone(), Vec::new(), -1)))
            .into_iter()
            .collect();
        let before = rebalance(Assignor::Sticky, &mut group, &topics, 1);
        assert!(before.values().all(|share| share.len() == 3));
        group.remove("b");
        let after = rebalance(Assignor::Sticky, &mut group, &topics, 2);
        assert!(after.values().all(|share| share.len() == 4));
        for id in ["a", "c", "d"] {
            assert!(before[id].iter().all(|partition| after[id].contains(partition)));
        }
        group.insert("e".into(), (all, Vec::new(), -1));
        let joined = rebalance(Assignor::Sticky, &mut group, &topics, 3);
        assert_eq!((joined["e"].len(), moved(&after, &joined)), (3, 3), "only what the newcomer gets moves");
    }

    #[test]
    fn c_assign_06_of_two_claims_the_newer_generations_stands() {
        let topics = BTreeMap::from([("t".to_string(), 4)]);
        let all: BTreeSet<String> = topics.keys().cloned().collect();
        let claim =
            |numbers: &[i32]| numbers.iter().map(|n| TopicPartition::new("t", *n)).collect::<Vec<_>>();
        let group = Group::from([
            ("older".to_string(), (all.clone(), claim(&[0, 1]), 4)),
            ("newer".to_string(), (all.clone(), claim(&[0, 1]), 5)),
        ]);
        let shares = Assignor::Sticky.assign(&subscriptions(&group), &topics);
        assert_eq!(shares["newer"], claim(&[0, 1]));
        assert_eq!(shares["older"], claim(&[2, 3]));
        // Claims of one generation contradict each other: neither stands, and the share is even all the same.
        let group = Group::from([
            ("a".to_string(), (all.clone(), claim(&[0, 1, 2, 3]), 5)),
            ("b".to_string(), (all, claim(&[0, 1, 9, -1]), 5)),
        ]);
        let shares = Assignor::Sticky.assign(&subscriptions(&group), &topics);
        assert_eq!((shares["a"].len(), shares["b"].len()), (2, 2));
    }

    #[test]
    fn a_chain_of_hand_overs_evens_out_what_no_single_one_could() {
        let topics = BTreeMap::from([("x".to_string(), 5), ("y".to_string(), 4)]);
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
        let group = Group::from([
            ("a".to_string(), (set(&["x"]), (0..5).map(|n| TopicPartition::new("x", n)).collect(), 1)),
            ("b".to_string(), (set(&["x", "y"]), (0..4).map(|n| TopicPartition::new("y", n)).collect(), 1)),
            ("c".to_string(), (set(&["y"]), Vec::new(), -1)),
        ]);
        let shares = Assignor::Sticky.assign(&subscriptions(&group), &topics);
        let sizes: Vec<_> = ["a", "b", "c"].iter().map(|id| shares[*id].len()).collect();
        assert_eq!(sizes, [3, 3, 3]);
    }

    #[test]
    fn cooperative_takes_first_and_gives_in_the_next_round_and_is_done_in_two() {
        for seed in 0..300 {
            let mut chance = Seeded::new(seed);
            let topics = cluster(&mut chance);
            let all: BTreeSet<String> = topics.keys().cloned().collect();
            let mut group = Group::new();
            for life in 0..8 {
                if chance.below(3) == 0 && group.len() > 1 {
                    group.pop_first();
                } else {
                    group.insert(format!("m{}", chance.below(1000)), (all.clone(), Vec::new(), -1));
                }
                let before: Shares =
                    group.iter().map(|(id, (_, owned, _))| (id.clone(), owned.clone())).collect();
                let first = rebalance(Assignor::CooperativeSticky, &mut group, &topics, 2 * life);
                assert_eq!(moved(&before, &first), 0, "seed {seed}: nothing goes from hand to hand");
                let second = rebalance(Assignor::CooperativeSticky, &mut group, &topics, 2 * life + 1);
                check(&group, &topics, &second);
            }
        }
    }
}
