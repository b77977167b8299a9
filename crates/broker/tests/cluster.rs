//! Several nodes, over the wire: who answers for what, and what a move looks like from outside.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/wire.rs"]
mod wire;

use std::collections::BTreeSet;
use std::time::Duration;

use kohort_broker::{Broker, BrokerError, BrokerEvent, ErrorCode, GroupState};
use kohort_protocol::messages::*;
use tokio::time::Instant;
use wire::*;

async fn three() -> Broker {
    Broker::builder().in_memory().nodes(3).topic("orders", 6).seed(7).start().await.unwrap()
}

/// The node that coordinates the group, and another.
fn nodes(broker: &Broker, group: &str) -> (i32, i32) {
    let at = broker.coordinator_of(group);
    (at, (at + 1) % 3)
}

fn commit(group: &str) -> OffsetCommitRequest {
    let place = OffsetCommitPartition { partition: 0, offset: 3, leader_epoch: -1, metadata: None };
    let topic = |name: &str| OffsetCommitTopic { name: name.into(), partitions: vec![place.clone()] };
    let topics = vec![topic("orders"), topic("nowhere")];
    OffsetCommitRequest { group_id: group.into(), generation: -1, topics, ..Default::default() }
}

fn offsets(group: &str) -> OffsetFetchGroup {
    let topics = Some(vec![OffsetFetchTopic { name: "orders".into(), partitions: vec![0] }]);
    OffsetFetchGroup { group_id: group.into(), topics }
}

#[tokio::test(start_paused = true)]
async fn metadata_shows_every_node_and_leaders_are_spread() {
    let broker = three().await;
    assert_eq!(broker.bootstrap_servers(), ["memory:9092", "memory:9093", "memory:9094"]);
    for node in 0..3 {
        let mut wire = Wire::node(&broker, node).await;
        let answer = wire.latest(&MetadataRequest::default()).await;
        let brokers: Vec<(i32, i32)> = answer.brokers.iter().map(|b| (b.node_id, b.port)).collect();
        assert_eq!(brokers, [(0, 9092), (1, 9093), (2, 9094)]);
        assert_eq!(answer.controller_id, 0);
        let leaders: Vec<i32> = answer.topics[0].partitions.iter().map(|p| p.leader).collect();
        assert_eq!(leaders, [0, 1, 2, 0, 1, 2]);
        assert!(answer.topics[0].partitions.iter().all(|p| p.replicas == [0, 1, 2] && p.isr == [0, 1, 2]));
    }
    let coordinators: BTreeSet<i32> =
        (0..50).map(|number| broker.coordinator_of(&format!("group-{number}"))).collect();
    assert_eq!(coordinators.len(), 3, "groups are spread too");
}

#[tokio::test]
async fn nodes_listen_on_ports_of_their_own() {
    let broker = Broker::builder().nodes(3).topic("orders", 3).start().await.unwrap();
    let servers = broker.bootstrap_servers();
    assert_eq!(servers.iter().collect::<BTreeSet<_>>().len(), 3);
    let stream = tokio::net::TcpStream::connect(&servers[2]).await.unwrap();
    let mut wire = Wire::over(stream);
    let answer = wire.latest(&MetadataRequest::default()).await;
    let told: Vec<String> = answer.brokers.iter().map(|b| format!("{}:{}", b.host, b.port)).collect();
    assert_eq!(told, servers);
    let find = FindCoordinatorRequest { key_type: 0, keys: vec!["g".into()] };
    let found = wire.latest(&find).await.coordinators.remove(0);
    assert_eq!(servers[found.node_id as usize], format!("{}:{}", found.host, found.port));

    broker.stop_node(2).await.unwrap();
    wire.closed().await;
    assert!(tokio::net::TcpStream::connect(&servers[2]).await.is_err());
    broker.start_node(2).await.unwrap();
    assert_eq!(broker.bootstrap_servers(), servers);
    let mut wire = Wire::over(tokio::net::TcpStream::connect(&servers[2]).await.unwrap());
    assert_eq!(wire.latest(&MetadataRequest::default()).await.brokers.len(), 3);
    broker.stop().await;
    broker.restart().await.unwrap();
    assert_eq!(broker.bootstrap_servers(), servers);
}

#[tokio::test(start_paused = true)]
async fn a_port_and_those_after_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // The next ports may be in use; that is told by name then.
    match Broker::builder().listen(format!("127.0.0.1:{taken}")).nodes(2).start().await {
        Ok(broker) => {
            let servers = [format!("127.0.0.1:{taken}"), format!("127.0.0.1:{}", taken + 1)];
            assert_eq!(broker.bootstrap_servers(), servers);
        }
        Err(BrokerError::AddressInUse { address }) => assert!(address.starts_with("127.0.0.1:")),
        Err(other) => panic!("{other}"),
    }
    for count in [0, 101] {
        let refused = Broker::builder().in_memory().nodes(count).start().await.unwrap_err();
        assert!(matches!(refused, BrokerError::NoSuchNode { .. }), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn b_load_04_and_b_leave_08_what_is_not_the_coordinator_says_so_to_every_group_request() {
    let broker = three().await;
    let (at, other) = nodes(&broker, "g");
    let mut right = Wire::node(&broker, at).await;
    let joined = alone(&mut right, "g").await;
    let mut wrong = Wire::node(&broker, other).await;
    let not = ErrorCode::NotCoordinator;
    assert_eq!(wrong.latest(&join("g", "")).await.error, not);
    assert_eq!(wrong.latest(&sync("g", &joined, &[])).await.error, not);
    assert_eq!(wrong.latest(&heartbeat("g", &joined)).await.error, not);
    let members = vec![LeaveMember { member_id: joined.member_id.clone(), ..Default::default() }];
    let left = wrong.latest(&LeaveGroupRequest { group_id: "g".into(), members }).await;
    assert_eq!((left.error, left.members.len()), (not, 0));
    // Each partition says it; what does not exist says that.
    let answer = wrong.latest(&commit("g")).await;
    let codes: Vec<i16> = answer.topics.iter().map(|topic| topic.partitions[0].error.code()).collect();
    assert_eq!(codes, [16, 3]);
    let fetch = OffsetFetchRequest { groups: vec![offsets("g")], require_stable: false };
    for version in 2..=9 {
        let group = wrong.call(&fetch, version).await.groups.remove(0);
        assert_eq!((group.error, group.topics.len()), (not, 0), "v{version}");
    }
    let group = wrong.call(&fetch, 1).await.groups.remove(0);
    assert_eq!(group.topics[0].partitions[0].error, not, "version 1 has no other place");
    let describe = DescribeGroupsRequest { groups: vec!["g".into()] };
    assert_eq!(wrong.latest(&describe).await.groups[0].error, not);
    let delete = DeleteGroupsRequest { groups: vec!["g".into()] };
    assert_eq!(wrong.latest(&delete).await.groups[0].error, not);
    let delete = OffsetDeleteRequest { group_id: "g".into(), topics: Vec::new() };
    assert_eq!(wrong.latest(&delete).await.error, not);
    assert_eq!(wrong.latest(&ListGroupsRequest::default()).await.groups, []);
    assert_eq!(right.latest(&ListGroupsRequest::default()).await.groups.len(), 1);
    assert_eq!(right.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None, "nothing happened");
}

#[tokio::test(start_paused = true)]
async fn offsets_of_several_groups_come_from_those_that_are_led_here() {
    let broker = three().await;
    let at = |node: i32| (0..).map(|n| format!("g{n}")).find(|g| broker.coordinator_of(g) == node).unwrap();
    let (here, there) = (at(0), at(1));
    let mut wire = Wire::node(&broker, 0).await;
    wire.latest(&commit(&here)).await;
    let groups = vec![offsets(&there), offsets(&here)];
    let answer = wire.latest(&OffsetFetchRequest { groups, require_stable: false }).await;
    assert_eq!((&answer.groups[0].group_id, answer.groups[0].error), (&there, ErrorCode::NotCoordinator));
    assert_eq!((&answer.groups[1].group_id, answer.groups[1].error), (&here, ErrorCode::None));
    assert_eq!(answer.groups[1].topics[0].partitions[0].offset, 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_leader_says_so() {
    let broker = three().await;
    broker.produce_to("orders", 1, None, Some(b"kept")).await.unwrap();
    let (mut leader, mut wrong) = (Wire::node(&broker, 1).await, Wire::node(&broker, 0).await);
    let not = ErrorCode::NotLeaderOrFollower;
    assert_eq!(produced(&wrong.latest(&produce("orders", 1, -1, batch(&["x"]))).await).0, not);
    assert_eq!(fetched(&wrong.latest(&fetch("orders", 1, 0, 0)).await).error, not);
    let partition = ListOffsetsPartition { partition: 1, leader_epoch: -1, timestamp: -1 };
    let topics = vec![ListOffsetsTopic { name: "orders".into(), partitions: vec![partition] }];
    let list = ListOffsetsRequest { isolation_level: 0, topics };
    assert_eq!(wrong.latest(&list).await.topics[0].partitions[0].error, not);
    assert_eq!(leader.latest(&list).await.topics[0].partitions[0].offset, 1);
    assert_eq!(values(&fetched(&leader.latest(&fetch("orders", 1, 0, 0)).await).records), ["kept"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_moves_tells_who_waits_and_loses_nothing() {
    let broker = three().await;
    let mut events = broker.events();
    broker.produce_to("orders", 1, None, Some(b"kept")).await.unwrap();
    let mut old = Wire::node(&broker, 1).await;
    old.send(&fetch("orders", 1, 1, 600_000), 12).await;
    assert!(old.is_quiet_for(Duration::from_secs(1)).await);
    let mut old = Wire::node(&broker, 1).await;
    old.send(&fetch("orders", 1, 1, 600_000), 12).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    broker.move_leader("orders", 1, 2).unwrap();
    let answer: FetchResponse = old.receive(12).await;
    assert_eq!(fetched(&answer).error, ErrorCode::NotLeaderOrFollower);
    assert_eq!(broker.leader_of("orders", 1), Some(2));
    let mut new = Wire::node(&broker, 2).await;
    assert_eq!(values(&fetched(&new.latest(&fetch("orders", 1, 0, 0)).await).records), ["kept"]);
    let mut stale = fetch("orders", 1, 0, 0);
    stale.topics[0].partitions[0].current_leader_epoch = 0;
    assert_eq!(fetched(&new.latest(&stale).await).error, ErrorCode::FencedLeaderEpoch);
    let moved = loop {
        match events.next().await.unwrap() {
            BrokerEvent::LeaderMoved { topic, partition, node, leader_epoch } => {
                break (topic, partition, node, leader_epoch);
            }
            _ => continue,
        }
    };
    assert_eq!(moved, ("orders".to_owned(), 1, 2, 1));
    assert!(matches!(broker.move_leader("orders", 1, 3), Err(BrokerError::NoSuchNode { node: 3, .. })));
    assert!(matches!(broker.move_leader("orders", 9, 0), Err(BrokerError::NoSuchPartition { .. })));
}

#[tokio::test(start_paused = true)]
async fn b_load_02_a_coordinator_that_moves_tells_who_waits() {
    let broker = three().await;
    let (at, to) = nodes(&broker, "g");
    let mut one = Wire::node(&broker, at).await;
    let leader = alone(&mut one, "g").await;
    let mut other = Wire::node(&broker, at).await;
    let given = other.latest(&join("g", "")).await;
    other.send(&join("g", &given.member_id), 9).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    broker.move_coordinator("g", to).unwrap();
    let told: JoinGroupResponse = other.receive(9).await;
    assert_eq!((told.error, told.generation), (ErrorCode::NotCoordinator, -1));
    assert_eq!(one.latest(&heartbeat("g", &leader)).await.error, ErrorCode::NotCoordinator);
    // It was rebalancing, so its members are gone.
    assert_eq!(broker.group("g").unwrap().state, GroupState::Empty);
    let mut there = Wire::node(&broker, to).await;
    assert_eq!(there.latest(&heartbeat("g", &leader)).await.error, ErrorCode::UnknownMemberId);
    assert!(matches!(broker.move_coordinator("g", 3), Err(BrokerError::NoSuchNode { node: 3, .. })));
}

#[tokio::test(start_paused = true)]
async fn b_load_03_a_stable_group_moves_without_a_rebalance() {
    let broker = three().await;
    let (at, to) = nodes(&broker, "g");
    let mut wire = Wire::node(&broker, at).await;
    let joined = alone(&mut wire, "g").await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    broker.move_coordinator("g", to).unwrap();
    // A full session from the move on.
    tokio::time::sleep(Duration::from_millis(9_900)).await;
    let mut there = Wire::node(&broker, to).await;
    assert_eq!(there.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
    let find = FindCoordinatorRequest { key_type: 0, keys: vec!["g".into()] };
    let found = wire.latest(&find).await.coordinators.remove(0);
    assert_eq!((found.node_id, found.port), (to, 9092 + to));
    tokio::time::sleep(Duration::from_millis(10_100)).await;
    assert_eq!(there.latest(&heartbeat("g", &joined)).await.error, ErrorCode::UnknownMemberId);
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_loads_says_so_and_sessions_begin_after_it() {
    let broker = three().await;
    let (at, _) = nodes(&broker, "g");
    let mut wire = Wire::node(&broker, at).await;
    let joined = alone(&mut wire, "g").await;
    let begun = Instant::now();
    broker.load_coordinator_for("g", Duration::from_secs(60));
    let loading = ErrorCode::CoordinatorLoadInProgress;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, loading);
    assert_eq!(wire.latest(&ListGroupsRequest::default()).await.error, loading);
    tokio::time::sleep_until(begun + Duration::from_millis(59_990)).await;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, loading);
    tokio::time::sleep_until(begun + Duration::from_millis(69_900)).await;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn what_a_stopped_node_led_is_led_by_the_others_at_once() {
    let broker = three().await;
    let (at, other) = nodes(&broker, "g");
    let mut wire = Wire::node(&broker, at).await;
    let joined = alone(&mut wire, "g").await;
    let led = (0..6).find(|partition| broker.leader_of("orders", *partition) == Some(at)).unwrap();
    broker.produce_to("orders", led, None, Some(b"kept")).await.unwrap();
    broker.stop_node(at).await.unwrap();
    broker.stop_node(at).await.unwrap();
    wire.closed().await;
    assert!(broker.memory().connect("memory", 9092 + at as u16).await.is_err());
    assert!(!broker.is_node_running(at) && broker.is_running());
    let mut there = Wire::node(&broker, broker.coordinator_of("g")).await;
    assert_eq!(there.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
    let answer = there.latest(&MetadataRequest::default()).await;
    assert_eq!(answer.brokers.len(), 2);
    assert!(answer.topics[0].partitions.iter().all(|p| p.leader != at && p.isr.len() == 2));
    let mut heir = Wire::node(&broker, broker.leader_of("orders", led).unwrap()).await;
    assert_eq!(values(&fetched(&heir.latest(&fetch("orders", led, 0, 0)).await).records), ["kept"]);

    // One after the other, until the last keeps what it has and a newcomer inherits it.
    let third = 3 - at - other;
    broker.stop_node(other).await.unwrap();
    assert_eq!(broker.coordinator_of("g"), third);
    broker.stop_node(third).await.unwrap();
    assert!(!broker.is_running());
    assert_eq!(broker.coordinator_of("g"), third, "there is nobody to take over");
    assert!(matches!(broker.move_coordinator("g", third), Err(BrokerError::NoSuchNode { .. })));
    broker.start_node(at).await.unwrap();
    assert_eq!((broker.coordinator_of("g"), broker.leader_of("orders", led)), (at, Some(at)));
    let mut wire = Wire::node(&broker, at).await;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
    assert!(matches!(broker.start_node(5).await, Err(BrokerError::NoSuchNode { node: 5, .. })));
}

#[tokio::test(start_paused = true)]
async fn the_last_node_that_stops_and_comes_back_gives_every_member_a_full_session() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    broker.stop_node(0).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    broker.start_node(0).await.unwrap();
    tokio::time::sleep(Duration::from_millis(9_900)).await;
    let mut wire = Wire::memory(&broker).await;
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn sessions_expire_whichever_node_keeps_the_time() {
    let broker = three().await;
    let (at, other) = nodes(&broker, "g");
    let mut wire = Wire::node(&broker, at).await;
    let joined = alone(&mut wire, "g").await;
    // Each node's task may be the one that sleeps until the session's end.
    broker.stop_node(other).await.unwrap();
    broker.stop_node(3 - at - other).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10_010)).await;
    assert!(broker.group("g").unwrap().members.is_empty());
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::UnknownMemberId);
}

#[tokio::test(start_paused = true)]
async fn faults_can_be_scripted_for_one_node() {
    let broker = three().await;
    broker.faults().on_any().node(1).disconnect();
    let (mut zero, mut one) = (Wire::node(&broker, 0).await, Wire::node(&broker, 1).await);
    assert_eq!(zero.latest(&MetadataRequest::default()).await.brokers.len(), 3);
    one.send(&MetadataRequest::default(), 9).await;
    one.closed().await;
    assert_eq!(broker.all_requests().iter().map(|seen| seen.node).collect::<Vec<_>>(), [0, 1]);
}
