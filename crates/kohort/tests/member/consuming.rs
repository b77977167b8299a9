//! Consuming: every record once, commits that follow the work, workers that fail and go on.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kohort::{
    BatchError, BatchHandler, Context, Handler, MemberEvent, Record, RecordBatch, TerminalClass,
    TerminalReason,
};
use kohort_broker::Broker;
use kohort_protocol::records::{Compression, RecordBatchBuilder};

use crate::support::{
    GROUP, Seen, Slow, TOPIC, broker, eventually, group, recording, secs, stable, told, until,
};

async fn produce(broker: &Broker, records: usize) {
    for n in 0..records {
        broker.produce(TOPIC, format!("key-{n}"), format!("value-{n}")).await.unwrap();
    }
}

fn ends(broker: &Broker, partitions: i32) -> BTreeMap<i32, i64> {
    (0..partitions).map(|partition| (partition, broker.log_end_offset(TOPIC, partition).unwrap())).collect()
}

fn committed(broker: &Broker, partitions: i32) -> BTreeMap<i32, i64> {
    (0..partitions)
        .map(|partition| (partition, broker.committed(GROUP, TOPIC, partition).unwrap_or(-1)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn two_members_handle_every_record_once_and_commit_to_the_log_end() {
    let broker = broker(4).await;
    produce(&broker, 500).await;
    let seen = Seen::default();
    let group = {
        let seen = seen.clone();
        group(&broker).members(2).handler(move |_| seen.handler()).build().unwrap()
    };
    let members = group.start_all().await.unwrap();
    eventually("both members have partitions", || {
        members.iter().all(|member| member.status().assignment.len() == 2)
    })
    .await;
    produce(&broker, 500).await;
    eventually("all are handled", || seen.counts().len() == 1000).await;
    eventually("all are committed", || committed(&broker, 4) == ends(&broker, 4)).await;
    for member in &members {
        let report = member.close(Default::default()).await;
        assert!(!report.forced && report.dropped.is_empty(), "{report:?}");
    }
    assert!(seen.counts().values().all(|count| *count == 1), "an orderly rebalance repeats nothing");
}

#[tokio::test(start_paused = true)]
async fn c_crash_11_after_a_rejoin_with_committed_offsets_consuming_goes_on() {
    let broker = broker(1).await;
    produce(&broker, 10).await;
    let (group, seen) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    eventually("ten are handled", || seen.len() == 10).await;
    for round in 1..=3 {
        // So long that no fetch of the last generation is left to wake the fetcher up.
        broker.faults().on(kohort_protocol::ApiKey::JoinGroup).times(1).delay_answer(secs(2));
        crate::support::kill_child(&member, "heartbeat").await;
        until(&mut events, |event| matches!(event, MemberEvent::Revoked { .. })).await;
        stable(&mut events).await;
        produce(&broker, 10).await;
        eventually("ten more are handled", || seen.len() == 10 + round * 10).await;
    }
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_start_from_the_reset_policy_is_told_and_committed() {
    let broker = broker(1).await;
    produce(&broker, 7).await;
    let seen = Seen::default();
    let group = {
        let seen = seen.clone();
        group(&broker)
            .property("auto.offset.reset", "latest")
            .handler(move |_| seen.handler())
            .build()
            .unwrap()
    };
    let mut events = group.events();
    let _member = group.start().await.unwrap();
    let reset = until(&mut events, |event| matches!(event, MemberEvent::OffsetReset { .. })).await;
    assert!(
        matches!(reset, MemberEvent::OffsetReset { from: None, to: 7, policy: "latest", .. }),
        "{reset:?}"
    );
    eventually("the start is committed", || committed(&broker, 1)[&0] == 7).await;
    produce(&broker, 1).await;
    eventually("what comes later is handled", || seen.len() == 1).await;
}

/// Fails, or panics, a number of times at one offset.
struct Poisoned {
    seen: Seen,
    left: Arc<AtomicUsize>,
    panics: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the store is away")]
struct StoreAway;

impl Handler for Poisoned {
    type Error = StoreAway;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), StoreAway> {
        let spent = |left: &AtomicUsize| {
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        };
        if record.offset == 7 && cx.partition().partition == 0 && spent(&self.left) {
            if self.panics {
                panic!("record 7");
            }
            return Err(StoreAway);
        }
        self.seen.push(cx, record.offset);
        Ok(())
    }
}

async fn poisoned(times: usize, panics: bool) -> (Broker, kohort::ConsumerGroup, Seen) {
    let broker = broker(2).await;
    for partition in 0..2 {
        for n in 0..20 {
            broker.produce_to(TOPIC, partition, Some(b"key"), Some(format!("{n}").as_bytes())).await.unwrap();
        }
    }
    let (seen, left) = (Seen::default(), Arc::new(AtomicUsize::new(times)));
    let group = {
        let seen = seen.clone();
        group(&broker)
            .handler(move |_| Poisoned { seen: seen.clone(), left: left.clone(), panics })
            .build()
            .unwrap()
    };
    (broker, group, seen)
}

#[tokio::test(start_paused = true)]
async fn d_18_a_panicking_handler_is_restarted_and_the_record_delivered_again() {
    let (_broker, group, seen) = poisoned(1, true).await;
    let mut events = group.events();
    let member = group.start().await.unwrap();
    until(&mut events, |event| matches!(event, MemberEvent::WorkerRestarted { failures: 1, .. })).await;
    eventually("all are handled", || seen.counts().len() == 40).await;
    assert!(seen.counts().values().all(|count| *count == 1), "what was handled is not handled again");
    assert!(member.status().last_good_heartbeat.unwrap() < secs(6));
}

#[tokio::test(start_paused = true)]
async fn d_15_a_handler_that_always_fails_ends_the_member_with_its_error() {
    let (broker, group, seen) = poisoned(usize::MAX, false).await;
    let mut events = group.events();
    let member = group.start().await.unwrap();
    let reason = member.ended().await.unwrap_err();
    assert_eq!(reason.class(), TerminalClass::Workers);
    assert!(reason.to_string().contains("the store is away"), "{reason}");
    let mut cause: Option<&dyn std::error::Error> = Some(&reason);
    let mut found = false;
    while let Some(error) = cause {
        found |= error.downcast_ref::<StoreAway>().is_some();
        cause = error.source();
    }
    assert!(found, "the handler's own error is in the chain");
    // The work that was done is committed, and the group is left.
    eventually("the group is empty", || broker.group(GROUP).unwrap().members.is_empty()).await;
    assert_eq!(committed(&broker, 2)[&0], 7);
    assert_eq!(seen.counts().keys().filter(|(partition, _)| *partition == 1).count(), 20);
    let pauses = std::iter::from_fn(|| events.try_next())
        .filter(|event| matches!(event, MemberEvent::WorkerRestarted { .. }))
        .count();
    assert_eq!(pauses, 3);
    assert!(
        matches!(reason, TerminalReason::WorkersGaveUp { partition: Some(partition), .. } if partition.partition == 0)
    );
}

struct Batches(Seen);

impl BatchHandler for Batches {
    type Error = Infallible;

    async fn handle(&mut self, batch: &RecordBatch, cx: &mut Context) -> Result<(), BatchError<Infallible>> {
        for record in batch {
            if record.offset >= cx.position() {
                self.0.push(cx, record.offset);
            }
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn batches_are_handled_whole() {
    let broker = broker(2).await;
    produce(&broker, 100).await;
    let seen = Seen::default();
    let group = {
        let seen = seen.clone();
        group(&broker).batch_handler(move |_| Batches(seen.clone())).build().unwrap()
    };
    let member = group.start().await.unwrap();
    eventually("all are handled", || seen.counts().len() == 100).await;
    let report = member.close(Default::default()).await;
    assert_eq!(report.committed.values().sum::<i64>(), 100);
}

/// Symptom: after a kill everything was handled again that had come with one fetch, however long ago.
#[tokio::test(start_paused = true)]
async fn what_a_slow_handler_has_done_is_committed_every_interval_and_not_after_the_fetch() {
    for in_one_batch in [false, true] {
        let broker = broker(1).await;
        if in_one_batch {
            let mut batch = RecordBatchBuilder::new(Compression::None);
            for _ in 0..100 {
                batch.append(0, None, Some(b"value"), []).unwrap();
            }
            broker.produce_batch(TOPIC, 0, batch.build().unwrap()).await.unwrap();
        } else {
            produce(&broker, 100).await;
        }
        let seen = Seen::default();
        let group = {
            let seen = seen.clone();
            let slow = move |_: &_| Slow { seen: seen.clone(), each: secs(1) };
            group(&broker).commit_interval(secs(2)).handler(slow).build().unwrap()
        };
        let _member = group.start().await.unwrap();
        for handled in [10, 20, 40] {
            eventually("it gets on", || seen.len() == handled).await;
            let done = broker.committed(GROUP, TOPIC, 0).unwrap_or(0);
            let handled = i64::try_from(handled).unwrap();
            assert!(done >= handled - 4, "{done} of {handled} are committed; in one batch: {in_one_batch}");
        }
    }
}

/// Commits itself, after every record.
struct Committing(Seen);

impl Handler for Committing {
    type Error = kohort::CommitError;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), kohort::CommitError> {
        cx.commit().await?;
        self.0.push(cx, record.offset);
        Ok(())
    }

    async fn revoked(&mut self, cx: &mut Context) -> Result<(), kohort::CommitError> {
        cx.commit().await
    }
}

#[tokio::test(start_paused = true)]
async fn d_04_a_commit_from_a_handler_is_answered_at_once_even_while_draining() {
    let broker = broker(1).await;
    produce(&broker, 20).await;
    let seen = Seen::default();
    let group = {
        let seen = seen.clone();
        group(&broker).handler(move |_| Committing(seen.clone())).build().unwrap()
    };
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    eventually("all are handled", || seen.len() == 20).await;
    let before = tokio::time::Instant::now();
    let report = member.close(Default::default()).await;
    assert!(before.elapsed() < secs(1), "{:?}", before.elapsed());
    assert!(!report.forced);
    assert_eq!(committed(&broker, 1)[&0], 20);
}

/// Never comes back from the first record of partition 0, the first time.
struct StuckOnce {
    seen: Seen,
    left: Arc<AtomicUsize>,
}

impl Handler for StuckOnce {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        let spent = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if cx.partition().partition == 0 && record.offset == 3 && spent.is_ok() {
            std::future::pending::<()>().await;
        }
        self.seen.push(cx, record.offset);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn d_10_and_c_reb_07_a_handler_that_never_returns_is_told_of_aborted_and_started_again() {
    let broker = broker(2).await;
    for partition in 0..2 {
        for n in 0..10 {
            broker.produce_to(TOPIC, partition, Some(b"key"), Some(format!("{n}").as_bytes())).await.unwrap();
        }
    }
    let (seen, left) = (Seen::default(), Arc::new(AtomicUsize::new(usize::MAX)));
    let group = {
        let (seen, left) = (seen.clone(), left.clone());
        group(&broker)
            .max_processing_time(secs(5))
            .handler(move |_| StuckOnce { seen: seen.clone(), left: left.clone() })
            .build()
            .unwrap()
    };
    let mut events = group.events();
    let begun = tokio::time::Instant::now();
    let member = group.start().await.unwrap();
    let stuck = until(&mut events, |event| matches!(event, MemberEvent::WorkerStuck { .. })).await;
    assert!(
        matches!(&stuck, MemberEvent::WorkerStuck { partition, offset: 3, .. } if partition.partition == 0),
        "{stuck:?}"
    );
    assert!(begun.elapsed() >= secs(5) && begun.elapsed() < secs(6), "{:?}", begun.elapsed());
    assert_eq!(seen.len(), 13, "the other partition goes on");
    // It hangs again and again, and is not told of more often than once a minute; the other partition flows.
    tokio::time::sleep(secs(50)).await;
    let again = told(&mut events, |event| matches!(event, MemberEvent::WorkerStuck { .. }));
    assert!(again.is_empty(), "{again:?}");
    broker.produce_to(TOPIC, 1, Some(b"key"), Some(b"more")).await.unwrap();
    eventually("it is handled", || seen.len() == 14).await;
    left.store(0, Ordering::SeqCst);
    eventually("the record is handled in the end", || seen.counts().len() == 21).await;
    assert!(seen.counts().values().all(|count| *count == 1));
    assert_eq!(member.status().generation, 1, "and the member never left the group");
}
