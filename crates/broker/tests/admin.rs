//! What operators ask, over the wire: groups described, listed and deleted, offsets deleted, topics grown and deleted.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/wire.rs"]
mod wire;

use std::time::Duration;

use bytes::Bytes;
use kohort_broker::{Broker, ErrorCode};
use kohort_protocol::Subscription;
use kohort_protocol::messages::*;
use wire::*;

fn describe(groups: &[&str]) -> DescribeGroupsRequest {
    DescribeGroupsRequest { groups: groups.iter().map(ToString::to_string).collect() }
}

fn list(states: &[&str]) -> ListGroupsRequest {
    ListGroupsRequest { states: states.iter().map(ToString::to_string).collect(), types: Vec::new() }
}

fn listed(answer: &ListGroupsResponse) -> Vec<(&str, &str)> {
    answer.groups.iter().map(|group| (group.group_id.as_str(), group.state.as_str())).collect()
}

fn delete(groups: &[&str]) -> DeleteGroupsRequest {
    DeleteGroupsRequest { groups: groups.iter().map(ToString::to_string).collect() }
}

fn commit(group: &str, topic: &str, offset: i64) -> OffsetCommitRequest {
    let place = OffsetCommitPartition { partition: 0, offset, leader_epoch: -1, metadata: None };
    let topics = vec![OffsetCommitTopic { name: topic.into(), partitions: vec![place] }];
    OffsetCommitRequest { group_id: group.into(), generation: -1, topics, ..Default::default() }
}

/// A member that subscribes to `topic`, alone in its group.
async fn subscriber(wire: &mut Wire, group: &str, topic: &str) -> JoinGroupResponse {
    let metadata = Subscription { topics: vec![topic.into()], ..Default::default() }.encode(1).unwrap();
    let protocols = vec![JoinProtocol { name: "range".into(), metadata }];
    let ask = |member: &str| JoinGroupRequest { protocols: protocols.clone(), ..join(group, member) };
    let given = wire.latest(&ask("")).await;
    let joined = wire.latest(&ask(&given.member_id)).await;
    wire.latest(&sync(group, &joined, &[(&joined.member_id, b"share")])).await;
    joined
}

#[tokio::test(start_paused = true)]
async fn b_desc_01_an_unknown_group_is_dead_and_from_version_6_an_error() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    for version in 0..=6 {
        let group = wire.call(&describe(&["nobody"]), version).await.groups.remove(0);
        assert_eq!((group.group_id.as_str(), group.state.as_str()), ("nobody", "Dead"), "v{version}");
        assert!(group.members.is_empty());
        let (error, message) = match version {
            6 => (ErrorCode::GroupIdNotFound, Some("Group nobody not found.".to_owned())),
            _ => (ErrorCode::None, None),
        };
        assert_eq!((group.error, group.error_message), (error, message), "v{version}");
    }
    assert!(broker.groups().is_empty(), "asking makes no group");
}

#[tokio::test(start_paused = true)]
async fn members_are_described_with_metadata_only_while_stable() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = subscriber(&mut wire, "g", "orders").await;
    for version in 0..=6 {
        let group = wire.call(&describe(&["g"]), version).await.groups.remove(0);
        assert_eq!((group.error, group.state.as_str()), (ErrorCode::None, "Stable"));
        assert_eq!((group.protocol_type.as_str(), group.protocol_name.as_str()), ("consumer", "range"));
        let [member] = group.members.as_slice() else { panic!("{group:?}") };
        assert_eq!((&member.member_id, member.client_id.as_str()), (&joined.member_id, "wire"));
        assert_eq!((member.client_host.as_str(), &member.assignment[..]), ("/memory", &b"share"[..]));
        assert_eq!(Subscription::decode(&member.metadata).unwrap().topics, ["orders"]);
    }
    let mut other = Wire::memory(&broker).await;
    let given = other.latest(&join("g", "")).await;
    other.send(&join("g", &given.member_id), 9).await;
    assert!(other.is_quiet_for(Duration::from_secs(1)).await);
    let group = wire.latest(&describe(&["g"])).await.groups.remove(0);
    assert_eq!((group.state.as_str(), group.protocol_name.as_str()), ("PreparingRebalance", ""));
    assert_eq!(group.members.len(), 2);
    assert!(group.members.iter().all(|member| member.metadata.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn b_desc_03_groups_are_listed_by_state_whatever_its_case_and_by_type() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    alone(&mut wire, "stable").await;
    wire.latest(&commit("empty", "orders", 1)).await;
    let given = wire.latest(&join("joining", "")).await;
    wire.latest(&join("joining", &given.member_id)).await;
    let all = [("empty", "Empty"), ("joining", "CompletingRebalance"), ("stable", "Stable")];
    assert_eq!(listed(&wire.latest(&list(&[])).await), all);
    assert_eq!(listed(&wire.latest(&list(&["sTABLE", "dead"])).await), [("stable", "Stable")]);
    assert_eq!(listed(&wire.call(&list(&["empty"]), 4).await), [("empty", "Empty")]);
    assert_eq!(listed(&wire.latest(&list(&["nonsense"])).await), []);
    for version in 0..=5 {
        let groups = wire.call(&list(&[]), version).await.groups;
        assert_eq!(groups.len(), 3, "v{version}");
        let types: Vec<&str> = groups.iter().map(|group| group.protocol_type.as_str()).collect();
        assert_eq!(types, ["", "consumer", "consumer"], "v{version}");
    }
    let of = |types: &str| ListGroupsRequest { states: Vec::new(), types: vec![types.into()] };
    let classic = wire.latest(&of("CLASSIC")).await;
    assert_eq!(classic.groups.len(), 3);
    assert!(classic.groups.iter().all(|group| group.group_type == "classic"));
    assert!(wire.latest(&of("consumer")).await.groups.is_empty());
}

#[tokio::test(start_paused = true)]
async fn b_desc_04_only_an_empty_group_is_deleted_and_its_offsets_with_it() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    alone(&mut wire, "busy").await;
    wire.latest(&commit("empty", "orders", 5)).await;
    let answer = wire.latest(&delete(&["busy", "empty", "nobody", ""])).await;
    let codes: Vec<i16> = answer.groups.iter().map(|group| group.error.code()).collect();
    assert_eq!(codes, [68, 0, 69, 69]);
    assert_eq!(broker.committed("empty", "orders", 0), None);
    assert_eq!(broker.groups(), ["busy"]);
    for version in 0..=2 {
        assert_eq!(wire.call(&delete(&["x"]), version).await.groups[0].error, ErrorCode::GroupIdNotFound);
    }
}

#[tokio::test(start_paused = true)]
async fn b_hb_04_a_deleted_group_is_simply_unknown() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    let members = vec![LeaveMember { member_id: joined.member_id.clone(), ..Default::default() }];
    let leave = LeaveGroupRequest { group_id: "g".into(), members };
    wire.latest(&leave).await;
    assert_eq!(wire.latest(&delete(&["g"])).await.groups[0].error, ErrorCode::None);
    assert_eq!(wire.latest(&join("g", &joined.member_id)).await.error, ErrorCode::UnknownMemberId);
    assert_eq!(wire.latest(&sync("g", &joined, &[])).await.error, ErrorCode::UnknownMemberId);
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::UnknownMemberId);
    let left = wire.latest(&leave).await;
    assert_eq!((left.error, left.members[0].error), (ErrorCode::None, ErrorCode::UnknownMemberId));
    let stale = OffsetCommitRequest { generation: 1, ..commit("g", "orders", 1) };
    for (version, code) in [(8, 22), (9, 69)] {
        let answer = wire.call(&stale, version).await;
        assert_eq!(answer.topics[0].partitions[0].error.code(), code, "v{version}");
    }
    assert!(broker.groups().is_empty());
}

#[tokio::test(start_paused = true)]
async fn x_07_the_empty_group_id() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let offsets = OffsetDeleteRequest::default();
    assert_eq!(wire.latest(&offsets).await.error, ErrorCode::InvalidGroupId);
    assert_eq!(wire.latest(&commit("", "orders", 1)).await.topics[0].partitions[0].error, ErrorCode::None);
    let group = wire.latest(&describe(&[""])).await.groups.remove(0);
    assert_eq!((group.error, group.state.as_str()), (ErrorCode::None, "Empty"));
    assert_eq!(wire.latest(&delete(&[""])).await.groups[0].error, ErrorCode::None);
    let find = FindCoordinatorRequest { key_type: 0, keys: vec![String::new()] };
    assert_eq!(wire.latest(&find).await.coordinators[0].error, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn offsets_of_a_subscribed_topic_are_kept_others_are_deleted() {
    let broker = Broker::builder().in_memory().topic("orders", 1).topic("other", 1).start().await.unwrap();
    let mut wire = Wire::memory(&broker).await;
    wire.latest(&commit("g", "orders", 5)).await;
    wire.latest(&commit("g", "other", 6)).await;
    subscriber(&mut wire, "g", "orders").await;
    let topic = |name: &str, partitions: &[i32]| OffsetDeleteTopic {
        name: name.into(),
        partitions: partitions.to_vec(),
    };
    let topics = vec![topic("orders", &[0]), topic("other", &[0, 9]), topic("nowhere", &[0])];
    let answer = wire.latest(&OffsetDeleteRequest { group_id: "g".into(), topics: topics.clone() }).await;
    assert_eq!(answer.error, ErrorCode::None);
    let codes: Vec<Vec<i16>> =
        answer.topics.iter().map(|topic| topic.partitions.iter().map(|(_, e)| e.code()).collect()).collect();
    assert_eq!(codes, [vec![86], vec![0, 3], vec![3]]);
    assert_eq!((broker.committed("g", "orders", 0), broker.committed("g", "other", 0)), (Some(5), None));
    let nobody = OffsetDeleteRequest { group_id: "nobody".into(), topics };
    let answer = wire.latest(&nobody).await;
    assert_eq!((answer.error, answer.topics.len()), (ErrorCode::GroupIdNotFound, 0));

    // A group of another kind says nothing of what it uses.
    let connect = |member: &str| JoinGroupRequest { protocol_type: "connect".into(), ..join("c", member) };
    let given = wire.latest(&connect("")).await;
    wire.latest(&connect(&given.member_id)).await;
    let answer = wire.latest(&OffsetDeleteRequest { group_id: "c".into(), topics: Vec::new() }).await;
    assert_eq!(answer.error, ErrorCode::NonEmptyGroup);
    // What cannot be read may be anything.
    alone(&mut wire, "unreadable").await;
    let request = OffsetDeleteRequest { group_id: "unreadable".into(), topics: vec![topic("other", &[0])] };
    assert_eq!(wire.latest(&request).await.topics[0].partitions, [(0, ErrorCode::GroupSubscribedToTopic)]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_takes_its_offsets_along_and_wakes_who_waits_for_it() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    wire.latest(&commit("g", "orders", 5)).await;
    let mut waiting = Wire::memory(&broker).await;
    waiting.send(&fetch("orders", 0, 0, 600_000), 12).await;
    assert!(waiting.is_quiet_for(Duration::from_secs(1)).await);
    let request = DeleteTopicsRequest { topics: vec!["orders".into(), "nowhere".into()], timeout_ms: 1000 };
    for (version, first) in [(1, 0), (5, 3)] {
        let answer = wire.call(&request, version).await;
        let codes: Vec<i16> = answer.topics.iter().map(|topic| topic.error.code()).collect();
        assert_eq!(codes, [first, 3], "v{version}");
    }
    let answer: FetchResponse = waiting.receive(12).await;
    assert_eq!(fetched(&answer).error, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(broker.topics(), Vec::<String>::new());
    broker.create_topic("orders", 1).await.unwrap();
    assert_eq!(broker.log_end_offset("orders", 0), Some(0));
    assert_eq!(broker.committed("g", "orders", 0), None);
    assert!(broker.delete_topic("orders").await);
    assert!(!broker.delete_topic("orders").await);
}

#[tokio::test(start_paused = true)]
async fn a_topic_gets_more_partitions_never_fewer() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let grow = |name: &str, count, assignments, validate_only| {
        let topics = vec![MorePartitions { name: name.into(), count, assignments }];
        CreatePartitionsRequest { topics, timeout_ms: 1000, validate_only }
    };
    let cases = [
        (grow("orders", 2, None, false), 37),
        (grow("orders", 1, None, false), 37),
        (grow("orders", i32::MAX, None, false), 37),
        (grow("nowhere", 3, None, false), 3),
        (grow("orders", 3, Some(vec![vec![0], vec![0]]), false), 39),
        (grow("orders", 3, Some(vec![vec![7]]), false), 39),
        (grow("orders", 3, None, true), 0),
        (CreatePartitionsRequest { topics: vec![MorePartitions::default(); 2], ..Default::default() }, 42),
    ];
    for version in 0..=3 {
        for (request, code) in &cases {
            let answer = wire.call(request, version).await;
            assert_eq!(answer.topics[0].error.code(), *code, "{request:?}");
        }
    }
    assert_eq!(broker.partitions("orders"), Some(2));
    assert_eq!(
        wire.latest(&grow("orders", 3, Some(vec![vec![0]]), false)).await.topics[0].error,
        ErrorCode::None
    );
    broker.create_partitions("orders", 5).await.unwrap();
    assert_eq!(broker.partitions("orders"), Some(5));
    assert!(broker.create_partitions("orders", 5).await.is_err());
    let answer = wire.latest(&produce("orders", 4, -1, batch(&["x"]))).await;
    assert_eq!(produced(&answer), (ErrorCode::None, 0));
}

#[tokio::test(start_paused = true)]
async fn b_load_03_ids_that_were_given_out_are_lost_without_a_rebalance() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    let given = wire.latest(&join("g", "")).await;
    assert_eq!(broker.group("g").unwrap().pending.len(), 1);
    broker.restart().await.unwrap();
    let mut wire = Wire::memory(&broker).await;
    assert_eq!(wire.latest(&join("g", &given.member_id)).await.error, ErrorCode::UnknownMemberId);
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None, "no rebalance");
    let group = wire.latest(&describe(&["g"])).await.groups.remove(0);
    assert_eq!((group.state.as_str(), &group.members[0].assignment), ("Stable", &Bytes::from_static(b"all")));
}
