//! Every kind of scripted fault, as a client meets it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/wire.rs"]
mod wire;

use std::time::Duration;

use kohort_broker::{ApiKey, Broker, BrokerEvent, ErrorCode};
use kohort_protocol::messages::*;
use kohort_protocol::{Request, Response};
use tokio::time::Instant;
use wire::*;

async fn member() -> (Broker, Wire, HeartbeatRequest) {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    let beat = heartbeat("g", &joined);
    (broker, wire, beat)
}

#[tokio::test(start_paused = true)]
async fn errors_come_for_the_next_n_requests() {
    let (broker, mut wire, beat) = member().await;
    let rule = broker.faults().on(ApiKey::Heartbeat).times(3).error(ErrorCode::NotCoordinator);
    for _ in 0..3 {
        assert_eq!(wire.latest(&beat).await.error, ErrorCode::NotCoordinator);
    }
    assert_eq!(wire.latest(&beat).await.error, ErrorCode::None);
    assert_eq!(rule.hits(), 3);
}

#[tokio::test(start_paused = true)]
async fn rules_are_a_script() {
    let (broker, mut wire, beat) = member().await;
    broker.faults().on(ApiKey::Heartbeat).times(2).pass();
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::IllegalGeneration);
    let rest = broker.faults().on(ApiKey::Heartbeat).error(ErrorCode::CoordinatorNotAvailable);
    let mut codes = Vec::new();
    for _ in 0..5 {
        codes.push(wire.latest(&beat).await.error.code());
    }
    assert_eq!(codes, [0, 0, 22, 15, 15]);
    rest.clear();
    assert_eq!(wire.latest(&beat).await.error, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn rules_can_be_for_some_only() {
    let (broker, mut wire, beat) = member().await;
    let faults = broker.faults();
    faults.on(ApiKey::Heartbeat).group("other").error(ErrorCode::NotCoordinator);
    faults.on(ApiKey::Heartbeat).member("other").error(ErrorCode::NotCoordinator);
    faults.on(ApiKey::Heartbeat).client_id("other").error(ErrorCode::NotCoordinator);
    faults.on(ApiKey::JoinGroup).error(ErrorCode::NotCoordinator);
    faults.on(ApiKey::Heartbeat).when(|seen| seen.version < 4).error(ErrorCode::NotCoordinator);
    assert_eq!(wire.latest(&beat).await.error, ErrorCode::None);
    assert_eq!(wire.call(&beat, 3).await.error, ErrorCode::NotCoordinator);
    let member_id = beat.member_id.clone();
    let ours =
        faults.on_any().client_id("wire").group("g").member(member_id).error(ErrorCode::RebalanceInProgress);
    assert_eq!(wire.latest(&beat).await.error, ErrorCode::RebalanceInProgress);
    assert_eq!(ours.hits(), 1);
    faults.clear();
    assert_eq!(wire.latest(&beat).await.error, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_is_served_late() {
    let (broker, mut wire, beat) = member().await;
    // The session, 10 s, is over before the request is served.
    broker.faults().on(ApiKey::Heartbeat).times(1).delay(Duration::from_secs(11));
    let begun = Instant::now();
    assert_eq!(wire.latest(&beat).await.error, ErrorCode::UnknownMemberId);
    assert!(begun.elapsed() >= Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_answer_is_to_a_request_served_at_once() {
    let (broker, mut wire, beat) = member().await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    broker.faults().on(ApiKey::Heartbeat).times(1).delay_answer(Duration::from_secs(9));
    let begun = Instant::now();
    assert_eq!(wire.latest(&beat).await.error, ErrorCode::None);
    assert!(begun.elapsed() >= Duration::from_secs(9));
    assert_eq!(broker.group("g").unwrap().members.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_is_neither_served_nor_answered() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    broker.faults().on(ApiKey::Produce).times(1).drop();
    wire.send(&produce("orders", 0, -1, batch(&["lost"])), 9).await;
    assert!(wire.is_quiet_for(Duration::from_secs(60)).await);
    assert_eq!(broker.log_end_offset("orders", 0), Some(0));
    let mut other = Wire::memory(&broker).await;
    assert!(is_served(&mut other).await);
    // The connection is served on; its next answer belongs to the next request.
    wire.send(&produce("orders", 0, -1, batch(&["kept"])), 9).await;
    let frame = wire.receive_raw().await;
    let (correlation, answer) = kohort_protocol::frame::decode_response::<ProduceResponse>(frame, 9).unwrap();
    assert_eq!((correlation, produced(&answer)), (2, (ErrorCode::None, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_answer_is_to_a_request_that_was_served() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    broker.faults().on(ApiKey::Produce).times(1).drop_answer();
    wire.send(&produce("orders", 0, -1, batch(&["there"])), 9).await;
    assert!(wire.is_quiet_for(Duration::from_secs(60)).await);
    assert_eq!(broker.log_end_offset("orders", 0), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_before_or_after_a_request() {
    for (after, end) in [(false, 0), (true, 1)] {
        let broker = in_memory().await;
        let mut wire = Wire::memory(&broker).await;
        let rule = broker.faults().on(ApiKey::Produce).times(1);
        if after {
            rule.disconnect_after()
        } else {
            rule.disconnect()
        };
        wire.send(&produce("orders", 0, -1, batch(&["a"])), 9).await;
        wire.closed().await;
        assert_eq!(broker.log_end_offset("orders", 0), Some(end));
        let mut again = Wire::memory(&broker).await;
        assert!(is_served(&mut again).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_stays_silent() {
    let (broker, mut wire, beat) = member().await;
    broker.faults().on(ApiKey::Heartbeat).times(1).silence();
    wire.send(&beat, 4).await;
    assert!(wire.is_quiet_for(Duration::from_secs(1)).await);
    broker.faults().clear();
    wire.send(&beat, 4).await;
    assert!(wire.is_quiet_for(Duration::from_secs(60)).await);
    let mut other = Wire::memory(&broker).await;
    assert!(is_served(&mut other).await);
}

#[tokio::test(start_paused = true)]
async fn faults_are_told() {
    let (broker, mut wire, beat) = member().await;
    let mut events = broker.events();
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::NotCoordinator);
    wire.latest(&beat).await;
    let mut kinds = Vec::new();
    while let Some(event) = events.try_next() {
        if let BrokerEvent::FaultInjected { api, kind, .. } = event {
            kinds.push((api, kind));
        }
    }
    assert_eq!(kinds, [(ApiKey::Heartbeat, "error")]);
}

#[tokio::test(start_paused = true)]
async fn a_predicate_that_panics_ends_its_connection_alone() {
    let (broker, mut wire, beat) = member().await;
    broker.faults().on(ApiKey::Heartbeat).when(|_| panic!("a predicate of a test")).pass();
    wire.send(&beat, 4).await;
    wire.closed().await;
    broker.faults().clear();
    let mut other = Wire::memory(&broker).await;
    assert!(is_served(&mut other).await);
}

/// Every request can be refused in each of its versions, and the answer says so.
#[tokio::test(start_paused = true)]
async fn every_request_can_be_refused() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    broker.faults().on_any().error(ErrorCode::GroupAuthorizationFailed);
    async fn refuse<R: Request>(wire: &mut Wire, request: R, code: impl Fn(R::Response) -> ErrorCode) {
        for version in versions(<R::Response as Response>::API) {
            let answer = wire.call(&request, version).await;
            assert_eq!(code(answer), ErrorCode::GroupAuthorizationFailed, "{} v{version}", R::API);
        }
    }
    let nobody = JoinGroupResponse::default();
    refuse(&mut wire, produce("orders", 0, 1, batch(&["a"])), |answer| produced(&answer).0).await;
    refuse(&mut wire, fetch("orders", 0, 0, 9000), |answer| fetched(&answer).error).await;
    refuse(&mut wire, join("g", ""), |answer| answer.error).await;
    refuse(&mut wire, sync("g", &nobody, &[]), |answer| answer.error).await;
    refuse(&mut wire, heartbeat("g", &nobody), |answer| answer.error).await;
    let members = vec![LeaveMember::default()];
    refuse(&mut wire, LeaveGroupRequest { group_id: "g".into(), members }, |answer| answer.error).await;
    refuse(&mut wire, ApiVersionsRequest::default(), |answer| answer.error).await;
    refuse(&mut wire, InitProducerIdRequest::default(), |answer| answer.error).await;
    let find = FindCoordinatorRequest { key_type: 0, keys: vec!["g".into()] };
    refuse(&mut wire, find, |answer| answer.coordinators[0].error).await;
    let metadata = MetadataRequest { topics: Some(vec!["orders".into()]), allow_auto_topic_creation: true };
    refuse(&mut wire, metadata, |answer| answer.topics[0].error).await;
    let topic = NewTopic { name: "x".into(), num_partitions: 1, replication_factor: 1, ..Default::default() };
    let create = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    refuse(&mut wire, create, |answer| answer.topics[0].error).await;
    let list = ListOffsetsRequest {
        isolation_level: 0,
        topics: vec![ListOffsetsTopic {
            name: "orders".into(),
            partitions: vec![ListOffsetsPartition { partition: 0, leader_epoch: -1, timestamp: -1 }],
        }],
    };
    refuse(&mut wire, list, |answer| answer.topics[0].partitions[0].error).await;
    let place = OffsetCommitPartition { partition: 0, offset: 1, leader_epoch: -1, metadata: None };
    let topics = vec![OffsetCommitTopic { name: "orders".into(), partitions: vec![place] }];
    let commit = OffsetCommitRequest { group_id: "g".into(), topics, ..Default::default() };
    refuse(&mut wire, commit, |answer| answer.topics[0].partitions[0].error).await;
    assert_eq!(broker.topics(), ["orders"]);
    assert!(broker.groups().is_empty());
    assert_eq!(broker.log_end_offset("orders", 0), Some(0));
}

#[tokio::test(start_paused = true)]
async fn an_offset_fetch_can_be_refused() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    broker.faults().on(ApiKey::OffsetFetch).error(ErrorCode::CoordinatorLoadInProgress);
    for version in versions(ApiKey::OffsetFetch) {
        let topics = Some(vec![OffsetFetchTopic { name: "orders".into(), partitions: vec![0] }]);
        let groups = vec![OffsetFetchGroup { group_id: "g".into(), topics }];
        let answer = wire.call(&OffsetFetchRequest { groups, require_stable: false }, version).await;
        let group = &answer.groups[0];
        let of_partition = group.topics.first().map(|topic| topic.partitions[0].error);
        // Before version 2 there is no place for an error but at each partition.
        let error = if version < 2 { of_partition.unwrap() } else { group.error };
        assert_eq!(error, ErrorCode::CoordinatorLoadInProgress, "version {version}");
    }
}
