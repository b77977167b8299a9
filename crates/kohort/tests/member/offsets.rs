//! Where a partition starts: at what is committed; by the reset policy when nothing usable is, and only then.

use kohort::{AutoOffsetReset, CloseOptions, ErrorCode, Health, MemberEvent, TerminalReason, TopicPartition};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;
use tokio::time::{Instant, sleep};

use crate::support::{
    GROUP, Seen, Slow, TOPIC, broker, commit_from_outside, eventually, evict, group, recorder, recording,
    secs, stable, until,
};

/// A group with this reset policy that writes down what it handles.
fn policy(broker: &Broker, reset: AutoOffsetReset) -> (kohort::ConsumerGroup, Seen) {
    let seen = Seen::default();
    (recorder(group(broker).auto_offset_reset(reset), &seen), seen)
}

async fn produce(broker: &Broker, records: usize) {
    for _ in 0..records {
        broker.produce(TOPIC, "key", "value").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c_ofetch_01_a_restart_resumes_at_the_committed_offset_and_never_at_the_log_end() {
    let broker = broker(1).await;
    produce(&broker, 10).await;
    let (first, seen) = policy(&broker, AutoOffsetReset::Earliest);
    let member = first.start().await.unwrap();
    eventually("ten are handled", || seen.len() == 10).await;
    let report = member.close(CloseOptions::default()).await;
    assert_eq!(report.committed.values().copied().collect::<Vec<_>>(), [10]);
    produce(&broker, 5).await;
    let (again, seen) = policy(&broker, AutoOffsetReset::Latest);
    let mut events = again.events();
    let member = again.start().await.unwrap();
    eventually("the five are handled", || seen.len() == 5).await;
    member.close(CloseOptions::default()).await;
    assert_eq!(seen.counts().into_keys().collect::<Vec<_>>(), (10..15).map(|n| (0, n)).collect::<Vec<_>>());
    let resets = std::iter::from_fn(|| events.try_next());
    assert_eq!(resets.filter(|event| matches!(event, MemberEvent::OffsetReset { .. })).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn c_ofetch_02_without_a_committed_offset_the_policy_applies_and_none_is_an_error() {
    for (reset, start) in [(AutoOffsetReset::Earliest, Some(0)), (AutoOffsetReset::Latest, Some(5))] {
        let broker = broker(1).await;
        produce(&broker, 5).await;
        let (group, _) = policy(&broker, reset);
        let mut events = group.events();
        let _member = group.start().await.unwrap();
        let told = until(&mut events, |event| matches!(event, MemberEvent::OffsetReset { .. })).await;
        let MemberEvent::OffsetReset { partition, from, to, policy, .. } = told else { unreachable!() };
        assert_eq!((partition, from, Some(to)), (TopicPartition::new(TOPIC, 0), None, start));
        assert_eq!(policy, reset.as_str());
    }

    let broker = broker(1).await;
    produce(&broker, 5).await;
    let (group, seen) = policy(&broker, AutoOffsetReset::None);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    let told = until(&mut events, |event| matches!(event, MemberEvent::PartitionFailed { .. })).await;
    let MemberEvent::PartitionFailed { partition, reason, .. } = told else { unreachable!() };
    assert_eq!(partition, TopicPartition::new(TOPIC, 0));
    assert_eq!(
        reason,
        "no offset is committed, and auto.offset.reset is none: it is not read until an offset is committed for it and it is \
         assigned anew"
    );
    sleep(secs(60)).await;
    assert_eq!((broker.requests(ApiKey::ListOffsets).len(), broker.requests(ApiKey::Fetch).len()), (0, 0));
    assert_eq!((seen.len(), broker.committed(GROUP, TOPIC, 0)), (0, None));
    let status = member.status();
    assert!(
        matches!(&status.health, Health::Unhealthy { cause } if *cause == format!("orders-0: {reason}")),
        "{:?}",
        status.health
    );
    assert_eq!(status.assignment[0].failure.as_ref(), Some(&reason));
    member.close(CloseOptions::default()).await;

    // An operator commits one, the member is started again: it goes on there.
    commit_from_outside(&broker, 3).await;
    let member = group.start().await.unwrap();
    eventually("from there on all is handled", || seen.len() == 2).await;
    assert!(matches!(member.status().health, Health::Healthy));
}

/// Committed 20; the log starts at 30 and ends at 40.
#[tokio::test(start_paused = true)]
async fn d_28_an_offset_that_retention_removed_is_reset_once_by_policy_or_named_and_left_alone() {
    for (reset, to) in [
        (AutoOffsetReset::Earliest, Some(30)),
        (AutoOffsetReset::Latest, Some(40)),
        (AutoOffsetReset::None, None),
    ] {
        let broker = broker(1).await;
        produce(&broker, 40).await;
        broker.delete_records(TOPIC, 0, 30).await.unwrap();
        commit_from_outside(&broker, 20).await;
        let (group, seen) = policy(&broker, reset);
        let mut events = group.events();
        let member = group.start().await.unwrap();
        let told = until(&mut events, |event| {
            matches!(event, MemberEvent::OffsetReset { .. } | MemberEvent::PartitionFailed { .. })
        })
        .await;
        match (to, told) {
            (Some(start), MemberEvent::OffsetReset { from, to, policy, .. }) => {
                assert_eq!((from, to, policy), (Some(20), start, reset.as_str()));
                produce(&broker, 1).await;
                let left = usize::try_from(41 - start).unwrap();
                eventually("what is left is handled", || seen.len() == left).await;
            }
            (None, MemberEvent::PartitionFailed { partition, reason, .. }) => {
                assert_eq!(partition, TopicPartition::new(TOPIC, 0));
                assert!(reason.starts_with("offset 20 is not in the log any more"), "{reason}");
            }
            (_, told) => panic!("{}: {told:?}", reset.as_str()),
        }
        assert!(broker.requests(ApiKey::ListOffsets).len() <= 1, "{}: one at the most", reset.as_str());
        broker.clear_requests();
        sleep(secs(60)).await;
        let listed = broker.requests(ApiKey::ListOffsets).len();
        assert_eq!(listed, 0, "{}: no loop", reset.as_str());
        let fetched = broker.requests(ApiKey::Fetch).len();
        assert!(fetched <= 121, "{}: {fetched} in a minute", reset.as_str());
        assert_eq!(fetched == 0, to.is_none(), "{}", reset.as_str());
        let again = std::iter::from_fn(|| events.try_next());
        let again = again.filter(|event| {
            matches!(event, MemberEvent::OffsetReset { .. } | MemberEvent::PartitionFailed { .. })
        });
        assert_eq!(again.count(), 0, "{}: told once", reset.as_str());
        member.close(CloseOptions::default()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn d_29_and_c_ofetch_04_an_error_while_loading_offsets_is_never_taken_for_no_offset() {
    let broker = broker(1).await;
    produce(&broker, 50).await;
    commit_from_outside(&broker, 42).await;
    // A transaction that stays open for 20 s, then one answer that never comes.
    let unstable = broker.faults().on(ApiKey::OffsetFetch).error(ErrorCode::UnstableOffsetCommit);
    let (group, seen) = recording(&broker);
    let mut events = group.events();
    let begun = Instant::now();
    let _member = group.start().await.unwrap();
    sleep(secs(20)).await;
    assert!((3..=30).contains(&unstable.hits()), "asked again and again, paced: {}", unstable.hits());
    unstable.clear();
    let lost = broker.faults().on(ApiKey::OffsetFetch).times(1).drop_answer();
    eventually("it starts where it was", || seen.len() == 8).await;
    assert_eq!(lost.hits(), 1);
    assert_eq!(seen.counts().into_keys().next(), Some((0, 42)), "neither earliest nor latest");
    assert!(begun.elapsed() < secs(35), "{:?}", begun.elapsed());
    let told = std::iter::from_fn(|| events.try_next());
    let told: Vec<_> = told
        .filter(|event| matches!(event, MemberEvent::OffsetReset { .. } | MemberEvent::Terminated { .. }))
        .collect();
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(broker.group(GROUP).unwrap().members.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn d_29_a_group_whose_offsets_may_not_be_read_ends_the_member() {
    let broker = broker(1).await;
    broker.faults().on(ApiKey::OffsetFetch).error(ErrorCode::GroupAuthorizationFailed);
    let (group, _) = recording(&broker);
    let member = group.start().await.unwrap();
    let ended = member.ended().await;
    assert!(matches!(ended, Err(TerminalReason::GroupAuthorizationFailed)), "{ended:?}");
    assert_eq!(broker.requests(ApiKey::OffsetFetch).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn d_30_a_member_evicted_while_its_handler_is_busy_tries_one_commit_and_joins_as_a_newcomer() {
    let broker = broker(1).await;
    produce(&broker, 5).await;
    let seen = Seen::default();
    let group = {
        let seen = seen.clone();
        group(&broker)
            .commit_interval(secs(60))
            .handler(move |_| Slow { seen: seen.clone(), each: secs(1) })
            .build()
            .unwrap()
    };
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    eventually("one is handled, and the next in hand", || seen.len() == 1).await;
    let before = member.status().member_id;
    broker.clear_requests();
    // It hears of a rebalance, and only its commit says that it is not counted in any more.
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
    evict(&broker, &before).await;
    let lost = until(&mut events, |event| matches!(event, MemberEvent::Lost { .. })).await;
    assert!(matches!(lost, MemberEvent::Lost { partitions, .. } if partitions.len() == 1));
    stable(&mut events).await;
    let commits = broker.requests(ApiKey::OffsetCommit);
    assert_eq!(commits.len(), 1, "one try");
    let joins = broker.requests(ApiKey::JoinGroup);
    assert_eq!(joins[0].member_id.as_deref(), Some(""), "as a newcomer");
    assert!(joins[0].at - commits[0].at <= secs(1), "{:?}", joins[0].at - commits[0].at);
    let now = member.status().member_id;
    assert!(!now.is_empty() && now != before);
    sleep(secs(20)).await;
    assert_eq!(member.status().member_id, now, "the id of the new join survives");
    assert_eq!(seen.counts()[&(0, 0)], 2, "what was not committed is handled again");
    assert_eq!(seen.counts().len(), 5, "and nothing is lost");
}
