//! Answers that a broker keeps giving, or gives once at the worst moment: nothing is asked for without a pause, and
//! nothing is lost.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kohort::{
    Assignor, CloseOptions, ConsumerGroup, Context, ErrorCode, Handler, MemberEvent, Record, connector_fn,
};
use kohort_broker::{Broker, Fault};
use kohort_protocol::ApiKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use crate::support::{
    GROUP, TOPIC, broker, commit_from_outside, eventually, group, recording, secs, stable, until,
};

/// A topic made anew, or an unclean election: the log is shorter than what was committed.
#[tokio::test(start_paused = true)]
async fn a_committed_offset_beyond_the_end_of_the_log_loses_nothing() {
    let broker = broker(1).await;
    for _ in 0..10 {
        broker.produce(TOPIC, "key", "value").await.unwrap();
    }
    commit_from_outside(&broker, 50).await;
    let (group, seen) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    let reset = until(&mut events, |event| matches!(event, MemberEvent::OffsetReset { .. })).await;
    assert!(matches!(reset, MemberEvent::OffsetReset { from: Some(50), to: 0, .. }), "{reset:?}");
    eventually("all are handled", || seen.counts().len() == 10).await;
    member.close(CloseOptions::default()).await;
    assert_eq!(broker.committed(GROUP, TOPIC, 0), Some(10));
}

#[tokio::test(start_paused = true)]
async fn one_metadata_error_at_the_start_costs_a_moment() {
    for code in [ErrorCode::LeaderNotAvailable, ErrorCode::UnknownServerError] {
        let broker = broker(1).await;
        broker.produce(TOPIC, "key", "value").await.unwrap();
        let (group, seen) = recording(&broker);
        let rule = broker.faults().on(ApiKey::Metadata).times(1).error(code);
        let _member = group.start().await.unwrap();
        sleep(secs(5)).await;
        assert_eq!((rule.hits(), seen.len()), (1, 1), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_metadata_error_in_a_rebalance_takes_no_partitions_away() {
    for assignor in [Assignor::Range, Assignor::CooperativeSticky] {
        let broker = broker(4).await;
        let with = || -> ConsumerGroup {
            let seen = crate::support::Seen::default();
            group(&broker).assignors([assignor.clone()]).handler(move |_| seen.handler()).build().unwrap()
        };
        let (one, two) = (with(), with());
        let mut events = one.events();
        let first = one.start().await.unwrap();
        stable(&mut events).await;
        // Its fetchers have asked for the leaders: the next to ask is the group's leader.
        eventually("it fetches", || !broker.requests(ApiKey::Fetch).is_empty()).await;
        let rule = broker.faults().on(ApiKey::Metadata).times(1).error(ErrorCode::LeaderNotAvailable);
        let second = two.start().await.unwrap();
        sleep(secs(20)).await;
        let owned = (first.status().assignment.len(), second.status().assignment.len());
        assert_eq!(owned, (2, 2), "{}", assignor.name());
        assert_eq!(rule.hits(), 1, "{}", assignor.name());
        while let Some(event) = events.try_next() {
            match event {
                MemberEvent::Assigned { partitions, .. } if !assignor.is_cooperative() => {
                    assert_eq!(partitions.len(), 2);
                }
                MemberEvent::Revoked { partitions, .. } if assignor.is_cooperative() => {
                    assert_eq!(partitions.len(), 2);
                }
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_comes_after_its_consumer_is_read_within_seconds() {
    let broker = Broker::builder().in_memory().start().await.unwrap();
    let (group, seen) = recording(&broker);
    let mut events = group.events();
    let _member = group.start().await.unwrap();
    until(&mut events, |event| matches!(event, MemberEvent::MissingTopic { topic, .. } if topic == TOPIC))
        .await;
    sleep(secs(30)).await;
    let asked = broker.requests(ApiKey::Metadata).len();
    assert!(asked <= 15, "{asked} looks in half a minute");
    broker.create_topic(TOPIC, 1).await.unwrap();
    broker.produce(TOPIC, "key", "value").await.unwrap();
    sleep(secs(10)).await;
    assert_eq!(seen.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rejoins_after_refusals_that_do_not_end_are_paced() {
    for (api, code) in [
        (ApiKey::OffsetFetch, ErrorCode::IllegalGeneration),
        (ApiKey::SyncGroup, ErrorCode::NotCoordinator),
        (ApiKey::SyncGroup, ErrorCode::CoordinatorNotAvailable),
    ] {
        let broker = broker(1).await;
        let (group, _) = recording(&broker);
        let rule = broker.faults().on(api).times(10_000).error(code);
        let _member = group.start().await.unwrap();
        sleep(secs(60)).await;
        assert!((3..=60).contains(&rule.hits()), "{api} {code}: {} in a minute", rule.hits());
    }
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_stays_out_of_range_is_reset_at_a_slower_and_slower_pace() {
    let broker = broker(1).await;
    broker.produce(TOPIC, "key", "value").await.unwrap();
    let (group, seen) = recording(&broker);
    let rule = broker.faults().on(ApiKey::Fetch).times(10_000).error(ErrorCode::OffsetOutOfRange);
    let _member = group.start().await.unwrap();
    sleep(secs(60)).await;
    assert!((3..=60).contains(&rule.hits()), "{} in a minute", rule.hits());
    rule.clear();
    eventually("it is read in the end", || seen.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn c_coord_05_offsets_that_cannot_be_fetched_need_a_lookup_only_when_the_coordinator_moved() {
    for (fault, lookups) in [
        (Fault::Disconnect, 0),
        (Fault::DisconnectAfter, 0),
        (Fault::DropAnswer, 0),
        (Fault::Error(ErrorCode::CoordinatorLoadInProgress), 0),
        (Fault::Error(ErrorCode::NotCoordinator), 1),
        (Fault::Error(ErrorCode::CoordinatorNotAvailable), 1),
    ] {
        let broker = broker(1).await;
        broker.produce(TOPIC, "key", "value").await.unwrap();
        let (group, seen) = recording(&broker);
        broker.faults().on(ApiKey::OffsetFetch).times(1).inject(fault);
        let _member = group.start().await.unwrap();
        eventually("it reads", || seen.len() == 1).await;
        assert_eq!(broker.requests(ApiKey::OffsetFetch).len(), 2, "{fault:?}: it asked again");
        assert_eq!(broker.requests(ApiKey::FindCoordinator).len(), 1 + lookups, "{fault:?}");
        assert_eq!(broker.group(GROUP).unwrap().generation, 1, "{fault:?}: no rejoin");
    }
}

struct Hangs;

impl Handler for Hangs {
    type Error = Infallible;

    async fn handle(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), Infallible> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_fetched_ahead_of_handlers_that_hang_is_bounded() {
    const BOUND: usize = 2 << 20;
    let broker = broker(100).await;
    for partition in 0..100 {
        for _ in 0..4 {
            broker.produce_to(TOPIC, partition, Some(b"key"), Some(&[1; 300_000])).await.unwrap();
        }
    }
    let (bytes, memory) = (Arc::new(AtomicUsize::new(0)), broker.memory());
    let counting = {
        let bytes = bytes.clone();
        connector_fn(move |host, port| {
            let (memory, bytes) = (memory.clone(), bytes.clone());
            async move {
                let (mut from, mut to) = tokio::io::split(memory.connect(&host, port).await?);
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                let (mut asked, mut told) = tokio::io::split(theirs);
                tokio::spawn(async move { tokio::io::copy(&mut asked, &mut to).await });
                tokio::spawn(async move {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(length @ 1..) = from.read(&mut buffer).await {
                        bytes.fetch_add(length, Ordering::SeqCst);
                        if told.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
                Ok(ours)
            }
        })
    };
    let group =
        group(&broker).connector(counting).max_buffered_bytes(BOUND).handler(|_| Hangs).build().unwrap();
    let mut events = group.events();
    let _member = group.start().await.unwrap();
    stable(&mut events).await;
    sleep(secs(30)).await;
    let read = bytes.load(Ordering::SeqCst);
    assert!(read > BOUND / 2 && read < BOUND * 2, "{read} bytes for a bound of {BOUND}");
}
