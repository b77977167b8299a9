//! B-OC, B-OF, X-10.

use kohort_group::coordinator::{CoordinatorConfig, GroupState};
use kohort_protocol::ErrorCode as E;

use crate::stand::{G, Join, Stand, secs};

#[test]
fn b_oc_01_and_02_who_may_commit() {
    let mut stand = Stand::new();
    let members = stand.stable(1);
    assert_eq!(stand.commit(&members[0], 1, 5), E::None);
    assert_eq!(stand.commit(&members[0], 2, 5), E::IllegalGeneration);
    assert_eq!(stand.commit("who", 2, 5), E::UnknownMemberId, "the id before the generation");
    stand.join(Join::new(&members[0]));
    assert_eq!(stand.commit(&members[0], 2, 5), E::RebalanceInProgress, "CompletingRebalance");
    assert_eq!(stand.commit(&members[0], 1, 5), E::IllegalGeneration);
    assert_eq!(stand.commit("who", 2, 5), E::UnknownMemberId);
}

#[test]
fn a_member_may_still_commit_while_the_group_prepares_to_rebalance() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    stand.join(Join::new(&members[0]));
    assert_eq!(stand.commit(&members[1], 1, 5), E::None);
}

#[test]
fn b_oc_04_a_commit_from_outside_of_any_generation() {
    let mut stand = Stand::new();
    assert_eq!(stand.commit("", -1, 5), E::None, "an absent group is created");
    let group = stand.coordinator.group(G).unwrap();
    assert_eq!(
        (group.state, group.protocol_type, group.members.len()),
        (GroupState::Empty, None, 0),
        "simple"
    );
    assert_eq!(stand.commit_as(8, Some("anything"), "anything", -1, 6, ""), E::None);
    assert_eq!(stand.fetch(Some(&[0])).groups[0].topics[0].partitions[0].offset, 6);
    // One that had members is no different once they are gone.
    let mut stand = Stand::new();
    let members = stand.stable(1);
    stand.leave(3, &[(&members[0], None)]);
    assert_eq!(stand.commit_as(8, Some("anything"), &members[0], -1, 7, ""), E::None);
    assert_eq!(stand.fetch(Some(&[0])).groups[0].topics[0].partitions[0].offset, 7);
}

#[test]
fn b_oc_06_and_07_old_members_and_strangers() {
    let mut stand = Stand::new();
    let members = stand.stable(1);
    assert_eq!(stand.commit("", -1, 5), E::UnknownMemberId, "a group with members");
    stand.leave(3, &[(&members[0], None)]);
    assert_eq!(
        stand.commit(&members[0], 1, 5),
        E::UnknownMemberId,
        "the member check precedes the generation"
    );
}

#[test]
fn b_oc_08_instance_ids_of_a_commit() {
    let mut stand = Stand::new();
    let members = stand.stable_static(&["i"]);
    assert_eq!(stand.commit_as(8, Some("other"), &members[0], 1, 5, ""), E::UnknownMemberId);
    let answer = stand.join_now(Join::of("i", ""));
    assert_eq!(stand.commit_as(8, Some("i"), &members[0], 1, 5, ""), E::FencedInstanceId);
    assert_eq!(stand.commit_as(8, Some("i"), &answer.member_id, 1, 5, ""), E::None);
}

#[test]
fn b_of_01_what_was_never_committed() {
    let mut stand = Stand::new();
    let answer = stand.fetch(Some(&[0, 7]));
    let told = |partitions: &[kohort_protocol::messages::FetchedOffset]| {
        partitions
            .iter()
            .map(|one| (one.partition, one.offset, one.leader_epoch, one.metadata.clone(), one.error))
            .collect::<Vec<_>>()
    };
    let none = |partition| (partition, -1, -1, Some(String::new()), E::None);
    assert_eq!(told(&answer.groups[0].topics[0].partitions), [none(0), none(7)], "of an unknown group");
    assert_eq!((answer.groups[0].error, stand.fetch(None).groups[0].topics.len()), (E::None, 0));
    assert!(stand.coordinator.group(G).is_none(), "asking makes no group");
    stand.commit_as(8, None, "", -1, 5, "note");
    let kept = (0, 5, 3, Some("note".to_string()), E::None);
    assert_eq!(told(&stand.fetch(None).groups[0].topics[0].partitions), std::slice::from_ref(&kept));
    assert_eq!(told(&stand.fetch(Some(&[7, 0])).groups[0].topics[0].partitions), [none(7), kept]);
}

#[test]
fn x_10_long_metadata_is_refused_and_a_negative_offset_is_stored() {
    let mut stand = Stand::new();
    assert_eq!(stand.commit_as(8, None, "", -1, 5, &"é".repeat(4096)), E::None);
    assert_eq!(stand.commit_as(8, None, "", -1, 6, &"x".repeat(4097)), E::OffsetMetadataTooLarge);
    assert_eq!(stand.fetch(Some(&[0])).groups[0].topics[0].partitions[0].offset, 5);
    assert_eq!(stand.commit("", -1, -7), E::None);
    assert_eq!(stand.fetch(Some(&[0])).groups[0].topics[0].partitions[0].offset, -7);
    stand.pass(secs(1));
}

#[test]
fn the_offsets_of_an_empty_group_are_kept_for_the_retention_time() {
    let mut stand = Stand::with(CoordinatorConfig { offsets_retention: secs(3600), ..Default::default() });
    let members = stand.stable(1);
    stand.commit(&members[0], 1, 5);
    for _ in 0..2000 {
        stand.pass(secs(5));
        stand.beat(&members[0], 1);
    }
    stand.leave(3, &[(&members[0], None)]);
    stand.pass(secs(3599));
    assert!(stand.coordinator.group(G).is_some());
    stand.pass(secs(1));
    assert!(stand.coordinator.group(G).is_none());
    assert_eq!(stand.coordinator.deadline(), None, "nothing is left behind");
}
