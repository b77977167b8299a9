//! Start, stop and start again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/wire.rs"]
mod wire;

use std::io::ErrorKind;
use std::time::Duration;

use kohort_broker::{Broker, BrokerError, BrokerEvent, ErrorCode, GroupState};
use kohort_protocol::messages::*;
use tokio::net::TcpStream;
use wire::*;

#[tokio::test]
async fn stop_and_restart_keep_address_and_data() {
    let broker = Broker::builder().topic("orders", 1).start().await.unwrap();
    let address = broker.address().unwrap();
    broker.produce("orders", "key", "before").await.unwrap();
    let mut wire = Wire::tcp(&broker).await;
    let joined = alone(&mut wire, "g").await;
    broker.stop().await;
    assert!(!broker.is_running());
    wire.closed().await;
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    broker.stop().await;

    broker.restart().await.unwrap();
    assert_eq!(broker.address(), Some(address));
    let mut wire = Wire::tcp(&broker).await;
    let answer = wire.latest(&fetch("orders", 0, 0, 0)).await;
    assert_eq!(values(&fetched(&answer).records), ["before"]);
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn b_load_03_a_stable_group_goes_on_with_a_full_session() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    // Longer than its session, yet there was nobody to expire it.
    broker.stop().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    broker.restart().await.unwrap();
    tokio::time::sleep(Duration::from_millis(9_990)).await;
    let mut wire = Wire::memory(&broker).await;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
    broker.restart().await.unwrap();
    tokio::time::sleep(Duration::from_millis(10_010)).await;
    let mut wire = Wire::memory(&broker).await;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::UnknownMemberId);
}

#[tokio::test(start_paused = true)]
async fn b_load_03_a_group_that_had_not_synced_comes_back_empty_with_its_offsets() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let place = OffsetCommitPartition { partition: 0, offset: 3, leader_epoch: -1, metadata: None };
    let topics = vec![OffsetCommitTopic { name: "orders".into(), partitions: vec![place] }];
    let commit = OffsetCommitRequest { group_id: "g".into(), generation: -1, topics, ..Default::default() };
    wire.latest(&commit).await;
    let given = wire.latest(&join("g", "")).await;
    let joined = wire.latest(&join("g", &given.member_id)).await;
    assert_eq!(broker.group("g").unwrap().state, GroupState::CompletingRebalance);
    broker.restart().await.unwrap();
    assert_eq!(broker.group("g").unwrap().state, GroupState::Empty);
    assert_eq!(broker.committed("g", "orders", 0), Some(3));
    let mut wire = Wire::memory(&broker).await;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::UnknownMemberId);
}

#[tokio::test(start_paused = true)]
async fn held_requests_end_with_the_broker() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    wire.send(&fetch("orders", 0, 0, 600_000), 12).await;
    assert!(wire.is_quiet_for(Duration::from_secs(1)).await);
    broker.stop().await;
    wire.closed().await;
    let refused = broker.memory().connect("memory", 9092).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    broker.restart().await.unwrap();
    let mut wire = Wire::memory(&broker).await;
    assert!(is_served(&mut wire).await);
}

#[tokio::test(start_paused = true)]
async fn a_listener_taken_before_a_restart_stays_good() {
    let broker = in_memory().await;
    let memory = broker.memory();
    broker.restart().await.unwrap();
    assert!(memory.connect("memory", 9092).await.is_ok());
    let refused = memory.connect("elsewhere", 9092).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    drop(broker);
    assert!(memory.connect("memory", 9092).await.is_err());
}

#[tokio::test]
async fn memory_and_tcp_lead_to_the_same_broker_each_by_its_own_address() {
    let broker = Broker::builder().topic("orders", 1).start().await.unwrap();
    let request = MetadataRequest { topics: None, allow_auto_topic_creation: false };
    let by_tcp = Wire::tcp(&broker).await.latest(&request).await;
    let by_memory = Wire::memory(&broker).await.latest(&request).await;
    let port = i32::from(broker.address().unwrap().port());
    assert_eq!((by_tcp.brokers[0].host.as_str(), by_tcp.brokers[0].port), ("127.0.0.1", port));
    assert_eq!((by_memory.brokers[0].host.as_str(), by_memory.brokers[0].port), ("memory", 9092));
    assert_eq!((by_tcp.cluster_id, by_tcp.topics), (by_memory.cluster_id, by_memory.topics));
}

#[tokio::test]
async fn an_address_in_use_is_said_so() {
    let first = Broker::start().await.unwrap();
    let address = first.address().unwrap().to_string();
    let second = Broker::builder().listen(&address).start().await.unwrap_err();
    assert!(matches!(second, BrokerError::AddressInUse { .. }), "{second}");
    assert!(second.to_string().contains(&address), "{second}");
    for wrong in ["nonsense", "999.1.1.1:1", "192.0.2.1:9092"] {
        let error = Broker::builder().listen(wrong).start().await.unwrap_err();
        assert!(matches!(error, BrokerError::Listen { .. }), "{wrong}: {error}");
    }
}

#[tokio::test]
async fn a_dropped_broker_closes_its_port_and_its_connections() {
    let broker = Broker::start().await.unwrap();
    let address = broker.address().unwrap();
    let mut wire = Wire::tcp(&broker).await;
    assert!(is_served(&mut wire).await);
    drop(broker);
    wire.closed().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_topic_asked_for_in_vain_fails_the_start() {
    let refused = Broker::builder().in_memory().topic("not valid", 1).start().await.unwrap_err();
    assert!(matches!(refused, BrokerError::TopicRefused { code: ErrorCode::InvalidTopicException, .. }));
    let broker = in_memory().await;
    let again = broker.create_topic("orders", 1).await.unwrap_err();
    assert!(matches!(again, BrokerError::TopicRefused { code: ErrorCode::TopicAlreadyExists, .. }));
    assert!(matches!(
        broker.produce_to("nowhere", 0, None, None).await,
        Err(BrokerError::NoSuchPartition { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn starting_and_stopping_is_told() {
    let broker = in_memory().await;
    let mut events = broker.events();
    broker.restart().await.unwrap();
    assert_eq!(events.next().await, Some(BrokerEvent::Stopped));
    assert_eq!(events.next().await, Some(BrokerEvent::Started { address: "memory:9092".into() }));
    drop(broker);
    assert_eq!(events.next().await, Some(BrokerEvent::Stopped));
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_member_ids() {
    let mut ids = Vec::new();
    for seed in [1, 1, 2] {
        let broker = Broker::builder().in_memory().seed(seed).start().await.unwrap();
        let mut wire = Wire::memory(&broker).await;
        ids.push(wire.latest(&join("g", "")).await.member_id);
    }
    assert!(ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
}
