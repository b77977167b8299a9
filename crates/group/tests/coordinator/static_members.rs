//! B-STATIC, B-REB-06 and B-REB-07, B-LEAVE-02 and B-LEAVE-03 (KIP-345).

use kohort_group::coordinator::GroupState;
use kohort_protocol::ErrorCode as E;

use crate::stand::{G, Join, Stand, protocols, secs};

/// The leader's instance and the other's.
fn roles(stand: &Stand) -> (String, String) {
    let view = stand.coordinator.group(G).unwrap();
    let leader = view.leader.unwrap();
    let instance = |id: &String| view.members[id].group_instance_id.clone().unwrap();
    let follower = view.members.keys().find(|id| **id != leader).unwrap();
    (instance(&leader), instance(follower))
}

fn id_of(stand: &Stand, instance: &str) -> String {
    let view = stand.coordinator.group(G).unwrap();
    let owner = view.members.iter().find(|(_, member)| member.group_instance_id.as_deref() == Some(instance));
    owner.unwrap().0.clone()
}

#[test]
fn b_static_01_in_preparing_rebalance_the_newcomer_takes_the_place_and_the_waiting_join_is_fenced() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (leader, _) = roles(&stand);
    let old = id_of(&stand, &leader);
    let waiting = stand.join(Join::of(&leader, &old));
    assert_eq!(stand.state(), GroupState::PreparingRebalance);
    let newcomer = stand.join(Join::of(&leader, ""));
    let fenced = stand.joined(waiting).unwrap();
    assert_eq!((fenced.error, fenced.generation), (E::FencedInstanceId, -1));
    assert_eq!(stand.members(), 2);
    assert!(!stand.is_answered(newcomer), "it waits for the others");
}

#[test]
fn b_static_02_a_stable_follower_comes_back_without_a_rebalance() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (_, follower) = roles(&stand);
    let (old, generation) = (id_of(&stand, &follower), stand.generation());
    let answer = stand.join_now(Join::of(&follower, ""));
    assert_eq!((answer.error, answer.generation, answer.members.len()), (E::None, generation, 0));
    assert_ne!(answer.member_id, old, "a new id");
    assert_eq!(stand.state(), GroupState::Stable);
    let call = stand.sync_as(Some(&follower), &answer.member_id, generation, &[]);
    assert_eq!(stand.synced(call).unwrap().assignment, format!("for {old}"), "the cached assignment");
}

#[test]
fn b_static_04_a_change_of_the_selected_assignor_rebalances() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (_, follower) = roles(&stand);
    stand.join(Join::of(&follower, "").with(|request| request.protocols = protocols(&["roundrobin"])));
    assert_eq!(stand.state(), GroupState::PreparingRebalance);
}

#[test]
fn b_static_05_a_stable_leader_at_v9_is_told_to_skip_the_assignment() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (leader, _) = roles(&stand);
    let generation = stand.generation();
    let answer = stand.join_now(Join::of(&leader, "").v(9));
    assert_eq!((answer.generation, &answer.leader), (generation, &answer.member_id));
    assert!(answer.skip_assignment);
    assert_eq!(answer.members.len(), 2);
    assert_eq!(stand.state(), GroupState::Stable);
}

#[test]
fn b_static_06_a_stable_leader_at_v8_is_shown_its_old_id_as_leader() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (leader, _) = roles(&stand);
    let old = id_of(&stand, &leader);
    let answer = stand.join_now(Join::of(&leader, "").v(8));
    assert_eq!(
        (answer.leader.as_str(), answer.members.len(), answer.skip_assignment),
        (old.as_str(), 0, false)
    );
    assert_eq!(
        stand.coordinator.group(G).unwrap().leader,
        Some(answer.member_id),
        "inside, the new id leads"
    );
}

#[test]
fn b_static_07_with_its_own_id_a_static_member_is_like_any_other() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (leader, follower) = roles(&stand);
    let (leader_id, follower_id) = (id_of(&stand, &leader), id_of(&stand, &follower));
    let generation = stand.generation();
    assert_eq!(stand.join_now(Join::of(&follower, &follower_id)).generation, generation);
    let changed =
        Join::of(&follower, &follower_id).with(|request| request.protocols[0].metadata = "other".into());
    stand.join(changed);
    assert_eq!(stand.state(), GroupState::PreparingRebalance);

    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (again, _) = roles(&stand);
    let again_id = id_of(&stand, &again);
    stand.join(Join::of(&again, &again_id));
    assert_eq!(stand.state(), GroupState::PreparingRebalance, "the leader");
    assert_ne!(leader_id, follower_id);
}

#[test]
fn b_static_09_and_10_who_is_not_the_owner_of_an_instance_is_fenced_everywhere() {
    let mut stand = Stand::new();
    let ids = stand.stable_static(&["i1", "i2"]);
    let generation = stand.generation();
    let old = id_of(&stand, "i1");
    stand.join(Join::of("i1", ""));
    let other = id_of(&stand, "i2");
    let generation_now = stand.generation();
    assert_eq!(generation, generation_now);
    for wrong in [old.as_str(), other.as_str(), "who"] {
        assert_eq!(stand.join_now(Join::of("i1", wrong)).error, E::FencedInstanceId, "join");
        let call = stand.sync_as(Some("i1"), wrong, generation, &[]);
        assert_eq!(stand.synced(call).unwrap().error, E::FencedInstanceId, "sync");
        assert_eq!(stand.beat_as(Some("i1"), wrong, generation), E::FencedInstanceId, "heartbeat");
        assert_eq!(stand.commit_as(8, Some("i1"), wrong, generation, 5, ""), E::FencedInstanceId, "commit");
    }
    assert_eq!(ids.len(), 2);
}

#[test]
fn b_static_13_a_silent_static_member_goes_with_its_mapping() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1"]);
    stand.pass(secs(10));
    assert_eq!((stand.members(), stand.state()), (0, GroupState::Empty));
    let generation = stand.generation();
    let answer = stand.join_now(Join::of("i1", ""));
    assert_eq!(answer.generation, generation + 1, "a new member, and a rebalance");
}

#[test]
fn b_static_14_the_coordinator_admits_any_instance_id() {
    for instance in ["", ".", "..", "white space", &"x".repeat(300)] {
        let mut stand = Stand::new();
        assert_eq!(stand.join_now(Join::of(instance, "")).error, E::None, "{instance:?}");
    }
}

#[test]
fn b_reb_06_a_static_member_that_misses_a_rebalance_is_kept_and_goes_one_rebalance_timeout_later() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (leader, follower) = roles(&stand);
    let (leader_id, follower_id) = (id_of(&stand, &leader), id_of(&stand, &follower));
    let session =
        |request: &mut kohort_protocol::messages::JoinGroupRequest| request.session_timeout_ms = 60_000;
    // Both get long sessions, so that only the rebalance timeouts act.
    let calls = [
        stand.join(Join::of(&leader, &leader_id).with(session)),
        stand.join(Join::of(&follower, &follower_id).with(session)),
    ];
    stand.settle(&calls);
    let generation = stand.generation();
    let call = stand.join(Join::of(&leader, &leader_id).with(session));
    stand.pass(secs(20));
    let answer = stand.joined(call).unwrap();
    assert_eq!(
        (answer.generation, answer.members.len()),
        (generation + 1, 2),
        "kept, and listed to the leader"
    );
    let call = stand.sync_as(Some(&leader), &leader_id, generation + 1, &[]);
    assert_eq!(stand.synced(call).unwrap().error, E::None);
    stand.pass(secs(19));
    assert_eq!(stand.members(), 2);
    assert_eq!(stand.beat_as(Some(&leader), &leader_id, generation + 1), E::None);
    stand.pass(secs(1));
    assert_eq!(stand.members(), 1);
    assert_eq!(stand.beat_as(Some(&leader), &leader_id, generation + 1), E::RebalanceInProgress);

    // Or at its session timeout, which restarts when the join phase completes, if that is earlier.
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (leader, follower) = roles(&stand);
    let (leader_id, follower_id) = (id_of(&stand, &leader), id_of(&stand, &follower));
    let generation = stand.generation();
    let call = stand.join(Join::of(&leader, &leader_id));
    for _ in 0..4 {
        stand.pass(secs(5));
        stand.beat_as(Some(&follower), &follower_id, generation);
    }
    assert!(stand.is_answered(call));
    stand.pass(secs(9));
    assert_eq!(stand.members(), 2);
    stand.pass(secs(1));
    assert!(!stand.coordinator.group(G).unwrap().members.contains_key(&follower_id));
}

#[test]
fn b_reb_07_a_rejoined_member_leads_when_a_static_leader_is_missing() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (leader, follower) = roles(&stand);
    let (leader_id, follower_id) = (id_of(&stand, &leader), id_of(&stand, &follower));
    let generation = stand.generation();
    let changed =
        Join::of(&follower, &follower_id).with(|request| request.protocols[0].metadata = "other".into());
    let call = stand.join(changed);
    for _ in 0..4 {
        stand.pass(secs(5));
        stand.beat_as(Some(&leader), &leader_id, generation);
    }
    let answer = stand.joined(call).unwrap();
    assert_eq!((&answer.leader, answer.members.len()), (&follower_id, 2));
}

#[test]
fn only_missing_static_members_hold_the_join_phase_until_their_sessions_end() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let dynamic = stand.pending();
    let call = stand.join(Join::new(&dynamic));
    // The one that started the rebalance leaves again; nobody who is left has joined.
    stand.leave(3, &[(&dynamic, None)]);
    assert_eq!(stand.joined(call).unwrap().error, E::UnknownMemberId);
    assert_eq!(stand.state(), GroupState::PreparingRebalance);
    stand.pass(secs(60));
    assert_eq!((stand.state(), stand.members()), (GroupState::Empty, 0));
}

#[test]
fn b_leave_02_and_03_leaving_by_instance_by_id_by_both() {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2", "i3"]);
    let (one, two) = (id_of(&stand, "i1"), id_of(&stand, "i2"));
    let answer = stand.leave(
        3,
        &[
            ("", Some("i3")),
            ("wrong", Some("i1")),
            ("", Some("none")),
            ("who", None),
            ("", None),
            (&one, Some("i1")),
        ],
    );
    let codes: Vec<_> = answer.members.iter().map(|member| member.error).collect();
    assert_eq!(
        codes,
        [E::None, E::FencedInstanceId, E::UnknownMemberId, E::UnknownMemberId, E::UnknownMemberId, E::None]
    );
    // By its member id alone a static member goes with its mapping.
    assert_eq!(stand.leave(3, &[(&two, None)]).members[0].error, E::None);
    assert_eq!(stand.leave(3, &[("", Some("i2"))]).members[0].error, E::UnknownMemberId);
    let answer = stand.leave(3, &[("", None), ("", None)]);
    assert_eq!(answer.error, E::None);
    assert!(answer.members.iter().all(|member| member.error == E::UnknownMemberId));
}
