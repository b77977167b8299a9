//! The membership runtime, in real time and over TCP: handlers that block their thread keep no heart from
//! beating.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::convert::Infallible;
use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use kohort::{AutoOffsetReset, ConsumerGroup, Context, Handler, MemberEvent, Record};
use kohort_broker::{ApiKey, Broker, CoordinatorConfig};

/// Blocks the thread, as no handler should.
struct Blocking;

impl Handler for Blocking {
    type Error = Infallible;

    async fn handle(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), Infallible> {
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    }
}

#[test]
fn d_07_a_handler_that_blocks_the_only_thread_for_three_session_timeouts_costs_nothing() {
    // The broker has a runtime of its own, as it would have in another process.
    let brokers = tokio::runtime::Runtime::new().unwrap();
    let broker = brokers.block_on(async {
        let config = CoordinatorConfig {
            min_session_timeout: Duration::from_millis(500),
            ..CoordinatorConfig::default()
        };
        let broker = Broker::builder()
            .listen("127.0.0.1:0")
            .topic("orders", 1)
            .coordinator(config)
            .start()
            .await
            .unwrap();
        broker.produce("orders", "key", "value").await.unwrap();
        broker
    });
    let handlers = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    handlers.block_on(async {
        let group = ConsumerGroup::builder("orders-service", ["orders"])
            .bootstrap_servers(broker.bootstrap_servers())
            .session_timeout(Duration::from_secs(1))
            .heartbeat_interval(Duration::from_millis(200))
            .crash_rejoin_max_jitter(Duration::from_millis(100))
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .handler(|_| Blocking)
            .build()
            .unwrap();
        let mut events = group.events();
        let member = group.start().await.unwrap();
        let wait = async { while !matches!(events.next().await, Some(MemberEvent::Commit { .. })) {} };
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect("the record is handled and committed");
        let generations = broker.group("orders-service").unwrap().generation;
        assert_eq!(generations, 1, "no rebalance");
        let beats = broker.requests(ApiKey::Heartbeat);
        let gap = beats.windows(2).map(|pair| pair[1].at - pair[0].at).max().unwrap();
        assert!(gap < Duration::from_millis(900), "the longest pause between two beats was {gap:?}");
        member.close(kohort::CloseOptions::timeout(Duration::from_secs(5))).await;
    });
}

#[test]
fn d_07_when_every_thread_is_blocked_hearts_beat_and_a_revoke_is_answered_by_its_deadline() {
    const BLOCKED: Duration = Duration::from_secs(5);
    let brokers = tokio::runtime::Runtime::new().unwrap();
    let broker = brokers.block_on(async {
        let config = CoordinatorConfig {
            min_session_timeout: Duration::from_millis(500),
            ..CoordinatorConfig::default()
        };
        let builder = Broker::builder().listen("127.0.0.1:0").topic("orders", 4).coordinator(config);
        let broker = builder.start().await.unwrap();
        for partition in 0..4 {
            broker.produce_to("orders", partition, None, Some(b"value")).await.unwrap();
        }
        broker
    });
    let with = |blocked: Duration| {
        ConsumerGroup::builder("orders-service", ["orders"])
            .bootstrap_servers(broker.bootstrap_servers())
            .session_timeout(Duration::from_secs(1))
            .heartbeat_interval(Duration::from_millis(200))
            .rebalance_timeout(Duration::from_secs(3))
            .crash_rejoin_max_jitter(Duration::from_millis(100))
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .handler(kohort::handler_fn(move |_| async move {
                std::thread::sleep(blocked);
                Ok::<(), Infallible>(())
            }))
            .build()
            .unwrap()
    };
    let (blocking, other) = (with(BLOCKED), with(Duration::ZERO));
    let handlers =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let member = handlers.block_on(blocking.start()).unwrap();
    // From here on this thread looks on; both threads of the handlers are soon blocked.
    let patience = std::time::Instant::now() + Duration::from_secs(10);
    let wait_until = |what: &str, holds: &dyn Fn() -> bool| {
        while !holds() {
            assert!(std::time::Instant::now() < patience, "never: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_until("it has its partitions", &|| member.status().assignment.len() == 4);
    let id = member.status().member_id;
    // The heart has no thread of the handlers': it goes on through a session timeout.
    let beats = || broker.requests(ApiKey::Heartbeat).len();
    let before = beats();
    wait_until("hearts beat on", &|| beats() >= before + 7);
    assert_eq!(broker.group("orders-service").unwrap().generation, 1, "nobody is evicted");
    broker.clear_requests();
    let second = brokers.block_on(other.start()).unwrap();
    let joined = || {
        let joins = broker.requests(ApiKey::JoinGroup);
        joins.into_iter().find(|join| join.member_id.as_ref() == Some(&id)).map(|join| join.at)
    };
    wait_until("it joins", &|| joined().is_some());
    let asked = broker.requests(ApiKey::JoinGroup)[0].at;
    let took = joined().unwrap() - asked;
    assert!(took <= Duration::from_secs(3), "by the rebalance timeout, though no worker answers: {took:?}");
    brokers.block_on(second.close(kohort::CloseOptions::timeout(Duration::from_secs(1))));
    drop(member);
    handlers.shutdown_timeout(Duration::from_secs(10));
}

/// Symptom: a member that joins the group, owned by nobody.
#[test]
fn a_start_that_is_dropped_leaves_nothing_running() {
    let brokers = tokio::runtime::Runtime::new().unwrap();
    let broker = brokers.block_on(async {
        Broker::builder().listen("127.0.0.1:0").topic("orders", 1).start().await.unwrap()
    });
    let handlers = tokio::runtime::Runtime::new().unwrap();
    let group = ConsumerGroup::builder("orders-service", ["orders"])
        .bootstrap_servers(broker.bootstrap_servers())
        .handler(kohort::handler_fn(|_| async { Ok::<(), Infallible>(()) }))
        .build()
        .unwrap();
    handlers.block_on(async {
        {
            let mut start = std::pin::pin!(group.start());
            std::future::poll_fn(|cx| {
                let polled = start.as_mut().poll(cx);
                assert!(polled.is_pending(), "the other runtime starts it");
                Poll::Ready(())
            })
            .await;
            // Not awaited any more, while the tree comes up on the other runtime.
            while broker.requests(ApiKey::JoinGroup).is_empty() {
                std::thread::yield_now();
            }
        }
        for member in group.running() {
            let ended = tokio::time::timeout(Duration::from_secs(20), member.ended()).await;
            assert!(ended.expect("it closes").is_ok());
        }
        assert!(group.running().is_empty());
    });
}

/// Symptom: `crashed: there is no partitions supervisor to start workers` on a loaded machine.
#[test]
fn an_assignment_that_comes_before_the_handlers_runtime_has_started_its_part_is_waited_for() {
    let brokers = tokio::runtime::Runtime::new().unwrap();
    let broker = brokers.block_on(async {
        let broker = Broker::builder().listen("127.0.0.1:0").topic("orders", 1).start().await.unwrap();
        broker.produce("orders", "key", "value").await.unwrap();
        broker
    });
    let handlers = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    handlers.block_on(async {
        let group = ConsumerGroup::builder("orders-service", ["orders"])
            .bootstrap_servers(broker.bootstrap_servers())
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .handler(kohort::handler_fn(|_| async { Ok::<(), Infallible>(()) }))
            .build()
            .unwrap();
        let mut events = group.events();
        // The thread that the partitions supervisor is to start on is busy while the member joins.
        tokio::spawn(async { std::thread::sleep(Duration::from_millis(500)) });
        let member = group.start().await.unwrap();
        let wait = async {
            while !matches!(events.next().await, Some(MemberEvent::Assigned { .. })) {}
            member.close(kohort::CloseOptions::timeout(Duration::from_secs(5))).await
        };
        let report = tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the member lives");
        assert!(!report.forced, "{report:?}");
        assert!(member.ended().await.is_ok());
    });
}
