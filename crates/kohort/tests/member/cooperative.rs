//! The cooperative protocol (KIP-429) and the sticky assignors on real actors.

use std::collections::BTreeSet;

use kohort::{Assignor, ConsumerGroup, MemberEvent, MemberRef, TopicPartition};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;
use tokio::time::Instant;

use crate::support::{
    GROUP, Seen, TOPIC, broker, eventually, group, kill_child, millis, secs, stable, until,
};

fn members(broker: &Broker, assignor: Assignor, count: usize) -> (ConsumerGroup, Seen) {
    let seen = Seen::default();
    let group = {
        let seen = seen.clone();
        group(broker).assignors([assignor]).members(count).handler(move |_| seen.handler()).build().unwrap()
    };
    (group, seen)
}

fn owned(member: &MemberRef) -> BTreeSet<TopicPartition> {
    member.status().assignment.into_iter().map(|partition| partition.partition).collect()
}

async fn produce(broker: &Broker, records: usize) {
    for n in 0..records {
        broker.produce(TOPIC, format!("key-{n}"), "value").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c_reb_06_only_what_moves_is_revoked_and_the_rest_goes_on_without_a_pause() {
    let broker = broker(6).await;
    let (one, first_seen) = members(&broker, Assignor::CooperativeSticky, 1);
    let (two, second_seen) = members(&broker, Assignor::CooperativeSticky, 1);
    let (mut one_events, mut two_events) = (one.events(), two.events());
    let first = one.start().await.unwrap();
    stable(&mut one_events).await;
    produce(&broker, 60).await;
    eventually("all are handled", || first_seen.len() == 60).await;
    let before = owned(&first);
    broker.clear_requests();

    let second = two.start().await.unwrap();
    eventually("they share", || owned(&first).len() == 3 && owned(&second).len() == 3).await;
    assert!(owned(&first).is_subset(&before), "what stays, stays where it was");
    let (mut revoked, mut lost) = (Vec::new(), 0);
    while let Some(event) = one_events.try_next() {
        match event {
            MemberEvent::Revoked { partitions, .. } => revoked.push(partitions.len()),
            MemberEvent::Lost { .. } => lost += 1,
            _ => {}
        }
    }
    assert_eq!((revoked, lost), (vec![3], 0), "what moves, once");
    let generations = broker.group(GROUP).unwrap().generation;
    assert!(generations <= 3, "at most two rounds for the change: generation {generations}");
    until(
        &mut two_events,
        |event| matches!(event, MemberEvent::Assigned { partitions, .. } if partitions.len() == 3),
    )
    .await;

    produce(&broker, 60).await;
    eventually("everything is handled", || first_seen.len() + second_seen.len() == 120).await;
    let both: Vec<_> = first_seen.counts().into_iter().chain(second_seen.counts()).collect();
    assert!(both.iter().all(|(_, count)| *count == 1), "and once");
    let distinct: BTreeSet<_> = both.iter().map(|(key, _)| key).collect();
    assert_eq!(distinct.len(), 120);

    // Who leaves gives the rest back to the other, which keeps what it has.
    let kept = owned(&first);
    second.close(Default::default()).await;
    eventually("the first has all again", || owned(&first).len() == 6).await;
    assert!(kept.is_subset(&owned(&first)));
    let mut revoked = 0;
    while let Some(event) = one_events.try_next() {
        revoked += usize::from(matches!(event, MemberEvent::Revoked { .. } | MemberEvent::Lost { .. }));
    }
    assert_eq!(revoked, 0);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_to_a_cooperative_group_does_not_wait_for_a_heartbeat_of_its_own() {
    let broker = broker(6).await;
    let (one, _) = members(&broker, Assignor::CooperativeSticky, 1);
    let (two, _) = members(&broker, Assignor::CooperativeSticky, 1);
    let (mut one_events, mut two_events) = (one.events(), two.events());
    let _first = one.start().await.unwrap();
    stable(&mut one_events).await;
    let _second = two.start().await.unwrap();
    // The first hears of the second by a heartbeat. From then on nobody has to wait for one.
    until(&mut one_events, |event| matches!(event, MemberEvent::Rebalance { .. })).await;
    let told = tokio::time::Instant::now();
    let has_half = |event: &MemberEvent| matches!(event, MemberEvent::Assigned { partitions, .. } if partitions.len() == 3);
    until(&mut two_events, has_half).await;
    assert!(told.elapsed() <= millis(20), "{:?}", told.elapsed());

    // Then hearts are as slow as ever.
    tokio::time::sleep(secs(2)).await;
    broker.clear_requests();
    tokio::time::sleep(secs(2)).await;
    let beats = broker.requests(ApiKey::Heartbeat).len();
    assert!((6..=10).contains(&beats), "{beats} beats of two members in two seconds");
}

#[tokio::test(start_paused = true)]
async fn kept_partitions_are_handled_while_the_rebalance_waits_for_a_slow_member() {
    let broker = broker(4).await;
    let (group, seen) = members(&broker, Assignor::CooperativeSticky, 1);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    // Its next join is answered late.
    broker.faults().on(ApiKey::JoinGroup).times(1).delay_answer(secs(5));
    broker.faults().on(ApiKey::Heartbeat).times(1).error(kohort::ErrorCode::RebalanceInProgress);
    until(&mut events, |event| matches!(event, MemberEvent::Rebalance { .. })).await;
    let begun = tokio::time::Instant::now();
    produce(&broker, 40).await;
    eventually("all are handled meanwhile", || seen.len() == 40).await;
    assert!(begun.elapsed() < secs(2), "{:?}", begun.elapsed());
    eventually("all are committed in the new generation", || {
        (0..4).map(|number| broker.committed(GROUP, TOPIC, number).unwrap_or(0)).sum::<i64>() == 40
    })
    .await;
    assert_eq!(member.status().generation, 2);
    assert!(seen.counts().values().all(|count| *count == 1));
}

/// Symptom: a cooperative member whose JoinGroup got lost was thrown out of the group, and handled every record beside the
/// new owner, long after its session was over.
#[tokio::test(start_paused = true)]
async fn d_06_a_cooperative_member_whose_join_got_lost_notices_within_a_beat_that_the_group_went_on_without_it()
 {
    let broker = broker(4).await;
    let (one, first_seen) = members(&broker, Assignor::CooperativeSticky, 1);
    let (two, second_seen) = members(&broker, Assignor::CooperativeSticky, 1);
    let (mut one_events, mut two_events) = (one.events(), two.events());
    let first = one.start().await.unwrap();
    stable(&mut one_events).await;
    let id = first.status().member_id;
    let lost = broker.faults().on(ApiKey::JoinGroup).member(&id).times(1).drop();
    let _second = two.start().await.unwrap();
    until(&mut one_events, |event| matches!(event, MemberEvent::Rebalance { .. })).await;
    let began = Instant::now();
    // It is counted in for the whole rebalance timeout, because it says so, and works.
    tokio::time::sleep(secs(8)).await;
    produce(&broker, 40).await;
    eventually("it works meanwhile", || first_seen.len() == 40).await;
    assert!(lost.hits() == 1 && began.elapsed() < secs(9), "{:?}", began.elapsed());
    // Then everything is the second's.
    let all = |event: &MemberEvent| matches!(event, MemberEvent::Assigned { partitions, .. } if partitions.len() == 4);
    until(&mut two_events, all).await;
    let thrown_out = Instant::now();
    until(
        &mut one_events,
        |event| matches!(event, MemberEvent::Lost { partitions, .. } if partitions.len() == 4),
    )
    .await;
    assert!(thrown_out.elapsed() <= millis(510), "a heartbeat interval: {:?}", thrown_out.elapsed());
    eventually("it is back as a newcomer", || owned(&first).len() == 2).await;
    assert_ne!(first.status().member_id, id);
    produce(&broker, 40).await;
    eventually("all is handled", || first_seen.len() + second_seen.len() >= 80).await;
    let both: Vec<_> = first_seen.counts().into_iter().chain(second_seen.counts()).collect();
    assert!(
        both.iter().all(|(_, times)| *times == 1),
        "and once: what it did in the rebalance was committed"
    );
    let distinct: BTreeSet<_> = both.iter().map(|(at, _)| at).collect();
    assert_eq!(distinct.len(), 80);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_heart_of_a_cooperative_member_costs_its_partitions_nothing() {
    let broker = broker(4).await;
    let (group, seen) = members(&broker, Assignor::CooperativeSticky, 1);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    produce(&broker, 20).await;
    eventually("all are handled", || seen.len() == 20).await;
    for _ in 0..3 {
        kill_child(&member, "heartbeat").await;
        until(&mut events, |event| matches!(event, MemberEvent::Sync { .. })).await;
    }
    produce(&broker, 20).await;
    eventually("all are handled", || seen.len() == 40).await;
    kill_child(&member, "heartbeat").await;
    assert!(member.ended().await.is_err());
    assert!(seen.counts().values().all(|count| *count == 1));
    assert_eq!((0..4).map(|number| broker.committed(GROUP, TOPIC, number).unwrap_or(0)).sum::<i64>(), 40);
}

#[tokio::test(start_paused = true)]
async fn an_identity_that_goes_in_the_middle_of_a_cooperative_join_loses_the_kept_partitions_first() {
    let broker = broker(2).await;
    let (group, seen) = members(&broker, Assignor::CooperativeSticky, 1);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.faults().on(ApiKey::JoinGroup).times(1).error(kohort::ErrorCode::UnknownMemberId);
    broker.faults().on(ApiKey::Heartbeat).times(1).error(kohort::ErrorCode::RebalanceInProgress);
    until(
        &mut events,
        |event| matches!(event, MemberEvent::Lost { partitions, .. } if partitions.len() == 2),
    )
    .await;
    until(
        &mut events,
        |event| matches!(event, MemberEvent::Assigned { partitions, .. } if partitions.len() == 2),
    )
    .await;
    produce(&broker, 10).await;
    eventually("it goes on", || seen.len() == 10).await;
    assert!(!member.status().member_id.is_empty());
}

#[tokio::test(start_paused = true)]
async fn eager_sticky_members_get_back_what_they_had() {
    let broker = broker(6).await;
    let (group, seen) = members(&broker, Assignor::Sticky, 2);
    let running = group.start_all().await.unwrap();
    eventually("they share", || running.iter().all(|member| owned(member).len() == 3)).await;
    let before: Vec<_> = running.iter().map(|member| owned(member)).collect();
    let third = {
        let seen = seen.clone();
        crate::support::group(&broker)
            .assignors([Assignor::Sticky])
            .handler(move |_| seen.handler())
            .build()
            .unwrap()
    };
    let third = third.start().await.unwrap();
    eventually("three share", || {
        owned(&third).len() == 2 && running.iter().all(|member| owned(member).len() == 2)
    })
    .await;
    for (member, before) in running.iter().zip(&before) {
        assert!(owned(member).is_subset(before), "each keeps two of its three");
    }
    produce(&broker, 60).await;
    eventually("everything is handled", || seen.counts().len() == 60).await;
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_custom_assignor_shares_as_it_likes_and_a_broken_one_ends_its_leader() {
    let all_to_the_first = |members: &[kohort::MemberSubscription],
                            topics: &std::collections::BTreeMap<String, i32>| {
        let first = members.iter().map(|member| member.member_id.clone()).min().unwrap();
        let all = topics
            .iter()
            .flat_map(|(topic, count)| (0..*count).map(|n| TopicPartition::new(topic.as_str(), n)));
        kohort::Shares::from([(first, all.collect())])
    };
    let broker = broker(4).await;
    let with = |assignor: Assignor| {
        group(&broker)
            .assignors([assignor])
            .members(2)
            .handler(|_| Seen::default().handler())
            .build()
            .unwrap()
    };
    let group = with(Assignor::custom("all-to-the-first", all_to_the_first));
    let members = group.start_all().await.unwrap();
    let sizes = || {
        let mut sizes: Vec<_> = members.iter().map(|member| owned(member).len()).collect();
        sizes.sort_unstable();
        sizes
    };
    eventually("one has everything", || sizes() == [0, 4] && broker.group(GROUP).unwrap().members.len() == 2)
        .await;
    for member in &members {
        member.close(Default::default()).await;
    }

    let twice = with(Assignor::custom("twice", |members, _| {
        members.iter().map(|member| (member.member_id.clone(), vec![TopicPartition::new(TOPIC, 0)])).collect()
    }));
    let mut events = twice.events();
    let _members = twice.start_all().await.unwrap();
    let ended = until(&mut events, |event| matches!(event, MemberEvent::Terminated { .. })).await;
    assert!(
        matches!(ended, MemberEvent::Terminated { reason, .. } if reason.to_string().contains("to both"))
    );
}

/// Symptom: no `Revoked` event, or one that named the partitions of the new assignment.
#[tokio::test(start_paused = true)]
async fn a_member_that_gives_back_all_it_owns_tells_of_all_of_it() {
    let broker = broker(2).await;
    let group = group(&broker)
        .assignors([Assignor::CooperativeSticky])
        .metadata_max_age(secs(5))
        .handler(|_| Seen::default().handler())
        .build()
        .unwrap();
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let had = owned(&member);
    assert_eq!(had.len(), 2);
    assert!(broker.delete_topic(TOPIC).await);
    let revoked = until(&mut events, |event| matches!(event, MemberEvent::Revoked { .. })).await;
    match revoked {
        MemberEvent::Revoked { partitions, .. } => assert_eq!(BTreeSet::from_iter(partitions), had),
        other => panic!("{other:?}"),
    }
    assert!(owned(&member).is_empty());
}
