//! Handlers and applications that do what they should not, or at the worst moment.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kohort::{
    Assignor, CloseOptions, CommitError, ConfigError, Context, ErrorCode, Handler, Health, LeaveOutcome,
    MemberEvent, Record, TerminalReason,
};
use kohort_protocol::ApiKey;
use tokio::time::{Instant, sleep};

use crate::support::{GROUP, Seen, TOPIC, broker, eventually, group, millis, recording, secs, stable, until};

#[tokio::test(start_paused = true)]
async fn a_close_without_any_limit_is_a_close() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let report = member.close(CloseOptions::timeout(Duration::MAX)).await;
    assert_eq!((report.leave, report.forced), (LeaveOutcome::Left, false));
}

#[tokio::test(start_paused = true)]
async fn a_span_or_number_that_no_clock_or_memory_can_hold_is_refused_by_name() {
    let broker = broker(1).await;
    let handler = |_: &kohort::TopicPartition| Seen::default().handler();
    let max = Duration::MAX;
    let refused = [
        ("close_timeout", group(&broker).close_timeout(max).handler(handler).build()),
        ("session_timeout_padding", group(&broker).session_timeout_padding(max).handler(handler).build()),
        ("max_processing_time", group(&broker).max_processing_time(max).handler(handler).build()),
        ("members", group(&broker).members(1_000_000_000_000).handler(handler).build()),
    ];
    for (name, built) in refused {
        match built {
            Err(ConfigError::Invalid { setting, .. }) => assert_eq!(setting, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn ended_resolves_when_the_runtime_of_the_member_is_gone() {
    let first = tokio::runtime::Runtime::new().unwrap();
    let member = first.block_on(async {
        let broker = broker(1).await;
        let (group, _) = recording(&broker);
        let mut events = group.events();
        let member = group.start().await.unwrap();
        stable(&mut events).await;
        member
    });
    first.shutdown_timeout(secs(1));
    let second = tokio::runtime::Runtime::new().unwrap();
    let ended = second.block_on(async { tokio::time::timeout(secs(10), member.ended()).await });
    let ended = ended.expect("it resolves");
    assert!(matches!(ended, Err(TerminalReason::Crashed { .. })), "{ended:?}");
}

/// Handles nothing badly, but panics in one hook.
struct PanicsIn(&'static str);

impl Handler for PanicsIn {
    type Error = Infallible;

    async fn handle(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), Infallible> {
        Ok(())
    }

    async fn revoked(&mut self, _: &mut Context) -> Result<(), Infallible> {
        assert!(self.0 != "revoked", "on purpose");
        Ok(())
    }

    async fn lost(&mut self, _: &mut Context) -> Result<(), Infallible> {
        assert!(self.0 != "lost", "on purpose");
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn panics_in_revoked_cost_neither_the_rebalance_nor_the_leave() {
    let broker = broker(12).await;
    let panicking = group(&broker).handler(|_| PanicsIn("revoked")).build().unwrap();
    let mut events = panicking.events();
    let member = panicking.start().await.unwrap();
    stable(&mut events).await;
    sleep(secs(1)).await;
    let (other, _) = recording(&broker);
    let mut others = other.events();
    let second = other.start().await.unwrap();
    stable(&mut others).await;
    let told = until(&mut events, |event| matches!(event, MemberEvent::PartitionFailed { .. })).await;
    assert!(format!("{told:?}").contains("on purpose"), "{told:?}");
    stable(&mut events).await;
    eventually("it is well again", || matches!(member.status().health, Health::Healthy)).await;
    let report = member.close(CloseOptions::default()).await;
    assert_eq!((report.leave, report.forced), (LeaveOutcome::Left, false));
    second.close(CloseOptions::default()).await;
}

#[tokio::test(start_paused = true)]
async fn panics_in_lost_do_not_end_the_member() {
    let broker = broker(12).await;
    let group = group(&broker).handler(|_| PanicsIn("lost")).build().unwrap();
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    sleep(secs(1)).await;
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::IllegalGeneration);
    until(&mut events, |event| matches!(event, MemberEvent::Lost { .. })).await;
    stable(&mut events).await;
    sleep(secs(5)).await;
    assert!(matches!(member.status().health, Health::Healthy), "{:?}", member.status().health);
}

type Said = Arc<Mutex<Vec<(Result<(), CommitError>, Duration)>>>;

/// Commits by hand, in `assigned` or in every record after a while, and writes down how that went.
struct Commits {
    at: &'static str,
    said: Said,
}

impl Commits {
    async fn commit(&self, cx: &mut Context) {
        let begun = Instant::now();
        let done = cx.commit().await;
        self.said.lock().unwrap().push((done, begun.elapsed()));
    }
}

impl Handler for Commits {
    type Error = Infallible;

    async fn handle(&mut self, _: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        if self.at == "handle" {
            sleep(secs(1)).await;
            self.commit(cx).await;
        }
        Ok(())
    }

    async fn assigned(&mut self, cx: &mut Context) -> Result<(), Infallible> {
        if self.at == "assigned" {
            self.commit(cx).await;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_nothing_is_done_at_once() {
    let broker = broker(1).await;
    let said = Said::default();
    let group = {
        let said = said.clone();
        group(&broker).handler(move |_| Commits { at: "assigned", said: said.clone() }).build().unwrap()
    };
    let _member = group.start().await.unwrap();
    eventually("the hook ran", || !said.lock().unwrap().is_empty()).await;
    assert!(matches!(said.lock().unwrap()[0], (Ok(()), took) if took.is_zero()));
    assert_eq!(broker.committed(GROUP, TOPIC, 0), None);
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_the_record_in_hand_does_not_wait_for_the_drain_that_waits_for_the_record() {
    for closes in [false, true] {
        let broker = broker(1).await;
        for _ in 0..10 {
            broker.produce(TOPIC, "key", "value").await.unwrap();
        }
        let said = Said::default();
        let group = {
            let said = said.clone();
            group(&broker)
                .rebalance_timeout(secs(30))
                .handler(move |_| Commits { at: "handle", said: said.clone() })
                .build()
                .unwrap()
        };
        let mut events = group.events();
        let member = group.start().await.unwrap();
        stable(&mut events).await;
        eventually("two are done", || said.lock().unwrap().len() == 2).await;
        if closes {
            sleep(millis(500)).await;
            let report = member.close(CloseOptions::default()).await;
            assert!(!report.forced, "{report:?}");
        } else {
            broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
            stable(&mut events).await;
            eventually("all are done", || said.lock().unwrap().len() == 10).await;
        }
        for (done, took) in &*said.lock().unwrap() {
            assert!(done.is_ok() && *took < millis(100), "{done:?} after {took:?}; closes: {closes}");
        }
    }
}

/// Fails always, or hangs always.
struct Hopeless {
    hangs: bool,
    calls: Arc<AtomicUsize>,
}

impl Handler for Hopeless {
    type Error = &'static str;

    async fn handle(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), &'static str> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Err("no")
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_in_its_pause_is_not_fetched_for() {
    let broker = broker(1).await;
    for _ in 0..100 {
        broker.produce_to(TOPIC, 0, Some(b"key"), Some(&[7; 100_000])).await.unwrap();
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let group = {
        let calls = calls.clone();
        group(&broker)
            .worker_max_restarts(100, secs(60))
            .handler(move |_| Hopeless { hangs: false, calls: calls.clone() })
            .build()
            .unwrap()
    };
    let _member = group.start().await.unwrap();
    eventually("it failed eight times", || calls.load(Ordering::SeqCst) == 8).await;
    let fetches = broker.requests(ApiKey::Fetch).len();
    assert!(fetches <= 8 * 4, "{fetches} Fetches for 8 failures");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_again_is_aborted_again_until_the_workers_give_up() {
    let broker = broker(1).await;
    broker.produce(TOPIC, "key", "value").await.unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let group = {
        let calls = calls.clone();
        group(&broker)
            .max_processing_time(secs(5))
            .worker_max_restarts(1, secs(600))
            .handler(move |_| Hopeless { hangs: true, calls: calls.clone() })
            .build()
            .unwrap()
    };
    let member = group.start().await.unwrap();
    let ended = tokio::time::timeout(secs(600), member.ended()).await.expect("it ends");
    assert!(matches!(ended, Err(TerminalReason::WorkersGaveUp { .. })), "{ended:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

struct Slow;

impl Handler for Slow {
    type Error = Infallible;

    async fn handle(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), Infallible> {
        sleep(secs(8)).await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_close_or_a_drop_does_not_cut_a_close_that_runs() {
    for drops in [false, true] {
        let broker = broker(1).await;
        broker.produce(TOPIC, "key", "value").await.unwrap();
        let group = group(&broker).close_timeout(secs(2)).handler(|_| Slow).build().unwrap();
        let mut events = group.events();
        let member = group.start().await.unwrap();
        stable(&mut events).await;
        sleep(secs(1)).await;
        let first = member.reference();
        let first = tokio::spawn(async move { first.close(CloseOptions::timeout(secs(60))).await });
        sleep(millis(10)).await;
        let second = if drops {
            drop(member);
            None
        } else {
            Some(member.close(CloseOptions::timeout(secs(1))).await)
        };
        let report = first.await.unwrap();
        assert!(report.leave == LeaveOutcome::Left && !report.forced, "drops: {drops}: {report:?}");
        assert!(second.is_none_or(|second| second == report));
    }
}

/// Whatever part of the tree is killed, at whatever moment of a life with a rebalance and perhaps a close: there
/// is one outcome, nothing is lost, and silence afterwards.
#[tokio::test(start_paused = true)]
async fn a_kill_at_any_moment_leads_to_one_end_and_silence() {
    for assignor in [Assignor::Range, Assignor::CooperativeSticky] {
        for child in ["heartbeat", "manager", "partitions", "fetchers"] {
            for moment in (0..12).map(|n| n * 127) {
                killed_at(&assignor, child, moment).await;
            }
        }
    }
}

async fn killed_at(assignor: &Assignor, child: &str, moment: u64) {
    const RECORDS: usize = 40;
    let what = format!("{} {child} {moment}", assignor.name());
    let broker = broker(4).await;
    for n in 0..RECORDS {
        broker.produce(TOPIC, format!("{n}"), "value").await.unwrap();
    }
    broker.faults().on_any().delay_answer(millis(30));
    let seen = Seen::default();
    let with = || {
        let seen = seen.clone();
        group(&broker).assignors([assignor.clone()]).handler(move |_| seen.handler()).build().unwrap()
    };
    let (one, two) = (with(), with());
    let mut events = one.events();
    let member = one.start().await.unwrap();
    sleep(millis(700)).await;
    let second = two.start().await.unwrap();
    sleep(millis(moment)).await;
    if moment % 2 == 1 {
        let closing = member.reference();
        tokio::spawn(async move { closing.close(CloseOptions::timeout(secs(5))).await });
        sleep(millis(moment / 8)).await;
    }
    let children = member.which_children().await.unwrap_or_default();
    if let Some(cell) = children.iter().find(|one| one.id == child).and_then(|one| one.cell.clone()) {
        cell.kill();
    }
    sleep(secs(30)).await;
    member.close(CloseOptions::timeout(secs(5))).await;
    let ends = std::iter::from_fn(|| events.try_next())
        .filter(|event| matches!(event, MemberEvent::Terminated { .. } | MemberEvent::Closed { .. }))
        .count();
    assert_eq!(ends, 1, "{what}");
    eventually("all are handled", || seen.counts().len() == RECORDS).await;
    let report = second.close(CloseOptions::timeout(secs(5))).await;
    assert!(!report.forced, "{what}: {report:?}");
    sleep(secs(20)).await;
    broker.clear_requests();
    sleep(secs(20)).await;
    assert!(broker.all_requests().is_empty(), "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_panics_ends_the_member_with_one_event() {
    let broker = broker(1).await;
    let panicking = Assignor::custom("panics", |_, _| panic!("on purpose"));
    let group = group(&broker).assignors([panicking]).handler(|_| Seen::default().handler()).build().unwrap();
    let mut events = group.events();
    let member = group.start().await.unwrap();
    let ended = member.ended().await.unwrap_err();
    assert!(matches!(&ended, TerminalReason::Crashed { what } if what.contains("on purpose")), "{ended}");
    let terminated = std::iter::from_fn(|| events.try_next())
        .filter(|event| matches!(event, MemberEvent::Terminated { .. }))
        .count();
    assert_eq!(terminated, 1);
    assert!(member.which_children().await.is_err(), "the tree is gone");
}
