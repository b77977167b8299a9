//! What depends on the version that a request comes in: the coordinator's answers, as clients of all ages see them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/wire.rs"]
mod wire;

use std::time::Duration;

use kohort_broker::{ApiKey, ErrorCode, GroupState};
use kohort_protocol::messages::*;
use tokio::time::Instant;
use wire::*;

fn of(instance: &str, group: &str, member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest { group_instance_id: Some(instance.into()), ..join(group, member_id) }
}

#[tokio::test(start_paused = true)]
async fn b_join_01_and_02_a_member_id_is_demanded_of_dynamic_newcomers_from_version_4_on() {
    for version in versions(ApiKey::JoinGroup) {
        let broker = in_memory().await;
        let mut wire = Wire::memory(&broker).await;
        let answer = wire.call(&join("g", ""), version).await;
        let group = broker.group("g").unwrap();
        assert!(answer.member_id.starts_with("wire-"), "v{version}: {}", answer.member_id);
        let counts = (group.members.len(), group.pending.len(), group.state);
        if version >= 4 {
            assert_eq!((answer.error, answer.generation), (ErrorCode::MemberIdRequired, -1), "v{version}");
            assert_eq!(counts, (0, 1, GroupState::Empty), "v{version}");
        } else {
            assert_eq!((answer.error, answer.generation), (ErrorCode::None, 1), "v{version}");
            assert_eq!(counts, (1, 0, GroupState::CompletingRebalance), "v{version}");
        }
        if version >= 5 {
            let answer = wire.call(&of("web-0", "static", ""), version).await;
            assert_eq!((answer.error, answer.generation), (ErrorCode::None, 1), "v{version}");
            assert!(answer.member_id.starts_with("web-0-"), "v{version}: {}", answer.member_id);
        }
    }
    // An id that waits to be used changes nothing for who is in.
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    wire.latest(&join("g", "")).await;
    let group = broker.group("g").unwrap();
    assert_eq!((group.state, group.members.len(), group.pending.len()), (GroupState::Stable, 1, 1));
    assert_eq!(wire.latest(&heartbeat("g", &joined)).await.error, ErrorCode::None);
}

#[tokio::test(start_paused = true)]
async fn x_03_in_version_0_the_session_timeout_is_the_rebalance_timeout() {
    for (version, after) in [(0, 10), (1, 30)] {
        let broker = in_memory().await;
        let (mut one, mut other) = (Wire::memory(&broker).await, Wire::memory(&broker).await);
        let first = one.call(&join("g", ""), version).await;
        // It beats and does not come back: only the rebalance timeout ends the wait.
        let begun = Instant::now();
        other.send(&join("g", ""), version).await;
        let mut beats = Wire::memory(&broker).await;
        let joined = loop {
            tokio::select! {
                biased;
                joined = other.receive::<JoinGroupResponse>(version) => break joined,
                () = tokio::time::sleep(Duration::from_secs(4)) => {
                    beats.latest(&heartbeat("g", &first)).await;
                }
            }
        };
        assert_eq!((joined.error, joined.generation), (ErrorCode::None, 2), "v{version}");
        assert_eq!(begun.elapsed().as_secs(), after, "v{version}");
        assert_eq!(broker.group("g").unwrap().members.len(), 1, "v{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn b_static_05_and_06_a_leader_that_returns_skips_the_assignment_from_version_9_and_follows_below() {
    for version in 5..=9 {
        let broker = in_memory().await;
        let mut wire = Wire::memory(&broker).await;
        let first = wire.call(&of("web-0", "g", ""), version).await;
        let synced = SyncGroupRequest {
            group_instance_id: Some("web-0".into()),
            ..sync("g", &first, &[(&first.member_id, b"all")])
        };
        assert_eq!(wire.latest(&synced).await.error, ErrorCode::None);
        let again = wire.call(&of("web-0", "g", ""), version).await;
        assert_eq!((again.error, again.generation), (ErrorCode::None, 1), "v{version}");
        assert_ne!(again.member_id, first.member_id, "v{version}");
        let leader = if version >= 9 { &again.member_id } else { &first.member_id };
        let members = if version >= 9 { 1 } else { 0 };
        assert_eq!(
            (&again.leader, again.members.len(), again.skip_assignment),
            (leader, members, version >= 9),
            "v{version}"
        );
        let group = broker.group("g").unwrap();
        assert_eq!((group.leader.as_ref(), group.state), (Some(&again.member_id), GroupState::Stable));
        let cached = SyncGroupRequest { group_instance_id: Some("web-0".into()), ..sync("g", &again, &[]) };
        assert_eq!(&wire.latest(&cached).await.assignment[..], b"all", "v{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn b_sync_04_type_and_name_of_the_protocol_are_looked_at_from_version_5_on() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let joined = alone(&mut wire, "g").await;
    let ask = |kind: Option<&str>, name: Option<&str>| SyncGroupRequest {
        protocol_type: kind.map(Into::into),
        protocol_name: name.map(Into::into),
        ..sync("g", &joined, &[])
    };
    let wrong = [
        (Some("connect"), Some("range")),
        (Some("consumer"), Some("roundrobin")),
        (None, Some("range")),
        (Some("consumer"), None),
        (None, None),
    ];
    for version in versions(ApiKey::SyncGroup) {
        let right = wire.call(&ask(Some("consumer"), Some("range")), version).await;
        assert_eq!((right.error, &right.assignment[..]), (ErrorCode::None, &b"all"[..]), "v{version}");
        for (kind, name) in wrong {
            let answer = wire.call(&ask(kind, name), version).await;
            let expected = if version >= 5 { ErrorCode::InconsistentGroupProtocol } else { ErrorCode::None };
            assert_eq!(answer.error, expected, "v{version}: {kind:?} {name:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b_sync_05_a_sync_in_a_rebalance_in_an_empty_group_and_in_one_that_is_deleted() {
    let broker = in_memory().await;
    let (mut one, mut other) = (Wire::memory(&broker).await, Wire::memory(&broker).await);
    let joined = alone(&mut one, "g").await;
    let given = other.latest(&join("g", "")).await;
    other.send(&join("g", &given.member_id), 9).await;
    assert!(other.is_quiet_for(Duration::from_secs(1)).await);
    assert_eq!(one.latest(&sync("g", &joined, &[])).await.error, ErrorCode::RebalanceInProgress);
    let members = [&joined.member_id, &given.member_id]
        .map(|id| LeaveMember { member_id: id.clone(), ..Default::default() })
        .to_vec();
    one.latest(&LeaveGroupRequest { group_id: "g".into(), members }).await;
    assert_eq!(broker.group("g").unwrap().state, GroupState::Empty);
    assert_eq!(one.latest(&sync("g", &joined, &[])).await.error, ErrorCode::UnknownMemberId);
    let deleted = one.latest(&DeleteGroupsRequest { groups: vec!["g".into()] }).await;
    assert_eq!(deleted.groups[0].error, ErrorCode::None);
    assert_eq!(one.latest(&sync("g", &joined, &[])).await.error, ErrorCode::UnknownMemberId);
}

#[tokio::test(start_paused = true)]
async fn b_leave_01_and_06_a_batch_is_answered_by_entry_from_version_3_and_on_top_below() {
    for version in versions(ApiKey::LeaveGroup) {
        let broker = in_memory().await;
        let mut wire = Wire::memory(&broker).await;
        let joined = alone(&mut wire, "g").await;
        let entry = |member_id: &str, instance: Option<&str>| LeaveMember {
            member_id: member_id.into(),
            group_instance_id: instance.map(Into::into),
            reason: None,
        };
        let ask = |group: &str, members: &[LeaveMember]| LeaveGroupRequest {
            group_id: group.into(),
            members: members.to_vec(),
        };
        let told = |answer: LeaveGroupResponse| {
            let entries = answer.members.into_iter();
            let entries = entries.map(|one| (one.member_id, one.group_instance_id, one.error));
            (answer.error, entries.collect::<Vec<_>>())
        };
        let unknown = ErrorCode::UnknownMemberId;
        if version < 3 {
            // One member, and one code.
            let of_nobody = told(wire.call(&ask("nobody", &[entry("who", None)]), version).await);
            assert_eq!(of_nobody, (unknown, vec![]), "v{version}");
            let stranger = told(wire.call(&ask("g", &[entry("who", None)]), version).await);
            assert_eq!(stranger, (unknown, vec![]), "v{version}");
            let left = told(wire.call(&ask("g", &[entry(&joined.member_id, None)]), version).await);
            assert_eq!(left, (ErrorCode::None, vec![]), "v{version}");
        } else {
            let batch = [entry("who", None), entry(&joined.member_id, None), entry("", Some("none"))];
            let strangers = |entries: &[LeaveMember]| {
                entries
                    .iter()
                    .map(|one| (one.member_id.clone(), one.group_instance_id.clone(), unknown))
                    .collect::<Vec<_>>()
            };
            let of_nobody = told(wire.call(&ask("nobody", &batch), version).await);
            assert_eq!(of_nobody, (ErrorCode::None, strangers(&batch)), "v{version}");
            let mut expected = strangers(&batch);
            expected[1].2 = ErrorCode::None;
            let left = told(wire.call(&ask("g", &batch), version).await);
            assert_eq!(left, (ErrorCode::None, expected), "v{version}: in the request's order");
        }
        let group = broker.group("g").unwrap();
        assert_eq!((group.members.len(), group.state), (0, GroupState::Empty), "v{version}");
        assert!(broker.group("nobody").is_none(), "v{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn b_of_01_what_is_committed_comes_back_whole_and_what_is_not_is_minus_one_without_an_error() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let place =
        OffsetCommitPartition { partition: 1, offset: 5, leader_epoch: 0, metadata: Some("a note".into()) };
    let topics = vec![OffsetCommitTopic { name: "orders".into(), partitions: vec![place] }];
    let commit = OffsetCommitRequest { group_id: "g".into(), generation: -1, topics, ..Default::default() };
    assert_eq!(wire.latest(&commit).await.topics[0].partitions[0].error, ErrorCode::None);
    let ask = |group: &str, topics: Option<&[i32]>| {
        let topics =
            topics.map(|list| vec![OffsetFetchTopic { name: "orders".into(), partitions: list.to_vec() }]);
        let groups = vec![OffsetFetchGroup { group_id: group.into(), topics }];
        OffsetFetchRequest { groups, require_stable: false }
    };
    let told = |answer: OffsetFetchResponse| {
        assert_eq!(answer.groups[0].error, ErrorCode::None);
        let places = answer.groups[0].topics.iter().flat_map(|topic| topic.partitions.clone());
        places
            .map(|one| (one.partition, one.offset, one.leader_epoch, one.metadata, one.error))
            .collect::<Vec<_>>()
    };
    for version in versions(ApiKey::OffsetFetch) {
        // Leader epochs are spoken of from version 5 on.
        let epoch = if version >= 5 { 0 } else { -1 };
        let kept = (1, 5, epoch, Some("a note".to_string()), ErrorCode::None);
        let none = |partition| (partition, -1, -1, Some(String::new()), ErrorCode::None);
        let some = told(wire.call(&ask("g", Some(&[0, 1, 9])), version).await);
        assert_eq!(some, [none(0), kept.clone(), none(9)], "v{version}");
        let unknown = told(wire.call(&ask("nobody", Some(&[0, 1])), version).await);
        assert_eq!(unknown, [none(0), none(1)], "v{version}");
        if version >= 2 {
            assert_eq!(told(wire.call(&ask("g", None), version).await), [kept], "v{version}: all there is");
            assert_eq!(told(wire.call(&ask("nobody", None), version).await), [], "v{version}");
        }
    }
    assert_eq!(broker.groups(), ["g"], "asking makes no group");
}
