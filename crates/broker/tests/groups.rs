//! Groups over the wire. The coordinator itself is tested in `kohort-group`; here it is how requests reach it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/wire.rs"]
mod wire;

use std::time::Duration;

use kohort_broker::{ApiKey, Broker, BrokerEvent, CoordinatorConfig, ErrorCode, GroupState, RemovalReason};
use kohort_protocol::messages::*;
use tokio::time::Instant;
use wire::*;

/// Joins as a second member of a group that `first` leads, and brings both to the next generation.
async fn two(one: &mut Wire, two: &mut Wire, group: &str) -> (JoinGroupResponse, JoinGroupResponse) {
    let leader = alone(one, group).await;
    let given = two.latest(&join(group, "")).await;
    two.send(&join(group, &given.member_id), 9).await;
    assert!(two.is_quiet_for(Duration::from_secs(1)).await, "the second member waits for the first");
    assert_eq!(one.latest(&heartbeat(group, &leader)).await.error, ErrorCode::RebalanceInProgress);
    let led = one.latest(&join(group, &leader.member_id)).await;
    let followed: JoinGroupResponse = two.receive(9).await;
    (led, followed)
}

#[tokio::test(start_paused = true)]
async fn a_held_join_is_answered_when_the_other_member_comes() {
    let broker = in_memory().await;
    let (mut one, mut other) = (Wire::memory(&broker).await, Wire::memory(&broker).await);
    let (led, followed) = two(&mut one, &mut other, "g").await;
    assert_eq!((led.error, followed.error), (ErrorCode::None, ErrorCode::None));
    assert_eq!((led.generation, followed.generation), (2, 2));
    assert_eq!((led.leader.as_str(), followed.leader.as_str()), (&*led.member_id, &*led.member_id));
    assert_eq!((led.members.len(), followed.members.len()), (2, 0));

    other.send(&sync("g", &followed, &[]), 5).await;
    assert!(other.is_quiet_for(Duration::from_secs(1)).await, "a follower waits for the leader");
    let shares = [(led.member_id.as_str(), &b"half"[..]), (&followed.member_id, &b"rest"[..])];
    let synced = one.latest(&sync("g", &led, &shares)).await;
    assert_eq!(&synced.assignment[..], b"half");
    let synced: SyncGroupResponse = other.receive(5).await;
    assert_eq!(&synced.assignment[..], b"rest");
    let group = broker.group("g").unwrap();
    assert_eq!((group.state, group.generation, group.members.len()), (GroupState::Stable, 2, 2));
    assert_eq!(broker.groups(), ["g"]);
}

#[tokio::test]
async fn a_group_of_two_over_tcp() {
    let broker = Broker::builder().topic("orders", 2).start().await.unwrap();
    let (mut one, mut other) = (Wire::tcp(&broker).await, Wire::tcp(&broker).await);
    let (led, followed) = two(&mut one, &mut other, "g").await;
    assert_eq!((led.generation, followed.generation), (2, 2));
    let member = &broker.group("g").unwrap().members[&led.member_id];
    assert_eq!((member.client_id.as_str(), member.client_host.as_str()), ("wire", "/127.0.0.1"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_member_is_removed_at_its_session_timeout() {
    let broker = in_memory().await;
    let mut events = broker.events();
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    tokio::time::sleep(Duration::from_millis(9_990)).await;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
    let begun = Instant::now();
    let removed = loop {
        match events.next().await.unwrap() {
            BrokerEvent::MemberRemoved { member_id, reason, .. } => break (member_id, reason),
            _ => continue,
        }
    };
    assert_eq!(removed, (joined.member_id.clone(), RemovalReason::SessionExpired));
    assert!((begun.elapsed().as_secs_f64() - 10.0).abs() < 0.01, "{:?}", begun.elapsed());
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::UnknownMemberId);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_does_not_end_a_membership() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    drop(wire);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut wire = Wire::memory(&broker).await;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn the_initial_rebalance_delay_is_kept() {
    let coordinator =
        CoordinatorConfig { initial_rebalance_delay: Duration::from_secs(3), ..Default::default() };
    let broker = Broker::builder().in_memory().coordinator(coordinator).start().await.unwrap();
    let mut wire = Wire::memory(&broker).await;
    let begun = Instant::now();
    let given = wire.latest(&join("g", "")).await;
    wire.latest(&join("g", &given.member_id)).await;
    assert!((begun.elapsed().as_secs_f64() - 3.0).abs() < 0.01, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn x_05_a_held_join_holds_the_requests_behind_it() {
    let broker = in_memory().await;
    let (mut one, mut other) = (Wire::memory(&broker).await, Wire::memory(&broker).await);
    let leader = alone(&mut one, "g").await;
    let given = other.latest(&join("g", "")).await;
    other.send(&join("g", &given.member_id), 9).await;
    other.send(&MetadataRequest { topics: Some(vec![]), ..Default::default() }, 9).await;
    assert!(other.is_quiet_for(Duration::from_secs(3)).await, "metadata waits behind the join");
    one.latest(&join("g", &leader.member_id)).await;
    // `receive` checks that they come in this order.
    let joined: JoinGroupResponse = other.receive(9).await;
    let metadata: MetadataResponse = other.receive(9).await;
    assert_eq!((joined.generation, metadata.brokers.len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn x_04_a_member_that_repeats_its_join_gets_one_answer() {
    let broker = in_memory().await;
    let (mut one, mut other) = (Wire::memory(&broker).await, Wire::memory(&broker).await);
    let leader = alone(&mut one, "g").await;
    let given = other.latest(&join("g", "")).await;
    other.send(&join("g", &given.member_id), 9).await;
    assert!(other.is_quiet_for(Duration::from_secs(1)).await);
    let mut again = Wire::memory(&broker).await;
    again.send(&join("g", &given.member_id), 9).await;
    assert!(again.is_quiet_for(Duration::from_secs(1)).await);
    one.latest(&join("g", &leader.member_id)).await;
    let joined: JoinGroupResponse = again.receive(9).await;
    assert_eq!((joined.error, joined.generation), (ErrorCode::None, 2));
    assert!(other.is_quiet_for(Duration::from_secs(60)).await, "the earlier join stays unanswered");
}

#[tokio::test(start_paused = true)]
async fn x_07_and_b_leave_08_an_empty_group_id() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let nobody = JoinGroupResponse::default();
    assert_eq!(wire.latest(&join("", "")).await.error, ErrorCode::InvalidGroupId);
    assert_eq!(wire.latest(&sync("", &nobody, &[])).await.error, ErrorCode::InvalidGroupId);
    assert_eq!(wire.latest(&heartbeat("", &nobody)).await.error, ErrorCode::InvalidGroupId);
    let leave = LeaveGroupRequest { members: vec![LeaveMember::default()], ..Default::default() };
    let left = wire.latest(&leave).await;
    assert_eq!((left.error, left.members.len()), (ErrorCode::InvalidGroupId, 0));
    let answer = wire.latest(&commit("", -1, "", &[("orders", 0)])).await;
    assert_eq!(answer.topics[0].partitions[0].error, ErrorCode::None);
    let find = FindCoordinatorRequest { key_type: 0, keys: vec![String::new()] };
    assert_eq!(wire.latest(&find).await.coordinators[0].error, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn x_08_coordinators_of_an_unknown_type() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    for (key_type, error) in [
        (0, ErrorCode::None),
        (1, ErrorCode::None),
        (2, ErrorCode::InvalidRequest),
        (3, ErrorCode::InvalidRequest),
        (-1, ErrorCode::InvalidRequest),
    ] {
        let find = FindCoordinatorRequest { key_type, keys: vec!["a".into(), "b".into()] };
        let answer = wire.latest(&find).await;
        let got: Vec<ErrorCode> = answer.coordinators.iter().map(|found| found.error).collect();
        assert_eq!(got, [error, error], "key type {key_type}");
        let got = wire.call(&find, 4).await.coordinators.iter().map(|found| found.error).collect::<Vec<_>>();
        assert_eq!(got, [error, error], "key type {key_type} in version 4");
    }
    for version in versions(ApiKey::FindCoordinator) {
        let find = FindCoordinatorRequest { key_type: 0, keys: vec!["a".into()] };
        let answer = wire.call(&find, version).await;
        let found = &answer.coordinators[0];
        assert_eq!((found.node_id, found.host.as_str(), found.port), (0, "memory", 9092), "{version}");
    }
}

fn commit(group: &str, generation: i32, member_id: &str, places: &[(&str, i32)]) -> OffsetCommitRequest {
    let topic = |(name, partition): &(&str, i32)| OffsetCommitTopic {
        name: (*name).into(),
        partitions: vec![OffsetCommitPartition {
            partition: *partition,
            offset: 5,
            leader_epoch: -1,
            metadata: None,
        }],
    };
    OffsetCommitRequest {
        group_id: group.into(),
        generation,
        member_id: member_id.into(),
        group_instance_id: None,
        topics: places.iter().map(topic).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn b_oc_09_only_unknown_partitions_are_refused() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    let places = [("nowhere", 0), ("orders", 0), ("orders", 9), ("orders", 1)];
    for (generation, known) in [(joined.generation, ErrorCode::None), (77, ErrorCode::IllegalGeneration)] {
        let answer = wire.latest(&commit("g", generation, &joined.member_id, &places)).await;
        let got: Vec<(&str, i32, ErrorCode)> = answer
            .topics
            .iter()
            .flat_map(|topic| {
                topic.partitions.iter().map(|place| (&*topic.name, place.partition, place.error))
            })
            .collect();
        let unknown = ErrorCode::UnknownTopicOrPartition;
        let expected =
            [("nowhere", 0, unknown), ("orders", 0, known), ("orders", 9, unknown), ("orders", 1, known)];
        assert_eq!(got, expected);
    }
    assert_eq!((broker.committed("g", "orders", 0), broker.committed("g", "orders", 1)), (Some(5), Some(5)));
    assert_eq!((broker.committed("g", "orders", 9), broker.committed("g", "nowhere", 0)), (None, None));
    let answer = wire.latest(&commit("g", 1, "", &[("nowhere", 3)])).await;
    assert_eq!(answer.topics[0].partitions[0].error, ErrorCode::UnknownTopicOrPartition);
}

#[tokio::test(start_paused = true)]
async fn requests_are_written_down_with_who_sent_them() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    wire.latest(&heartbeat("g", &joined)).await;
    let joins = broker.requests(ApiKey::JoinGroup);
    assert_eq!(joins.len(), 2);
    assert_eq!(joins[0].member_id.as_deref(), Some(""));
    let beats = broker.requests(ApiKey::Heartbeat);
    assert_eq!(beats.len(), 1);
    assert_eq!((&*beats[0].client_id, beats[0].version, beats[0].correlation_id), ("wire", 4, 4));
    assert_eq!(beats[0].group_id.as_deref(), Some("g"));
    assert_eq!((beats[0].member_id.as_ref(), beats[0].generation), (Some(&joined.member_id), Some(1)));
    assert_eq!(beats[0].at - joins[0].at, Duration::from_secs(1));
    broker.clear_requests();
    assert!(broker.all_requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_a_group_is_told() {
    let broker = in_memory().await;
    let mut events = broker.events();
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    let leaver = LeaveMember { member_id: joined.member_id.clone(), ..Default::default() };
    wire.latest(&LeaveGroupRequest { group_id: "g".into(), members: vec![leaver] }).await;
    broker.create_topic("more", 1).await.unwrap();
    let mut told = Vec::new();
    while let Some(event) = events.try_next() {
        told.push(match event {
            BrokerEvent::ConnectionOpened { .. } => "opened".to_owned(),
            BrokerEvent::RequestReceived { api, .. } => api.name().to_owned(),
            BrokerEvent::RebalanceStarted { generation, .. } => format!("rebalance {generation}"),
            BrokerEvent::GenerationStarted { generation, members, .. } => {
                format!("generation {generation} of {members}")
            }
            BrokerEvent::MemberRemoved { reason, .. } => format!("{reason:?}"),
            BrokerEvent::TopicCreated { topic, .. } => topic,
            other => format!("{other:?}"),
        });
    }
    let expected = [
        "opened",
        "JoinGroup",
        "JoinGroup",
        "rebalance 0",
        "generation 1 of 1",
        "SyncGroup",
        "LeaveGroup",
        "Left",
    ];
    assert_eq!(told[..expected.len()], expected);
    assert_eq!(told.last().unwrap(), "more");
}
