//! B-STATIC, B-REB-06 and B-REB-07, B-LEAVE-02 and B-LEAVE-03 (KIP-345).

use std::collections::BTreeSet;

use kohort_group::coordinator::GroupState;
use kohort_protocol::ErrorCode as E;
use kohort_protocol::messages::JoinGroupResponse;

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
    let (leader, follower) = roles(&stand);
    let generation = stand.generation();
    let leader_id = id_of(&stand, &leader);
    let returned =
        stand.join(Join::of(&follower, "").with(|request| request.protocols = protocols(&["roundrobin"])));
    assert_eq!(stand.state(), GroupState::PreparingRebalance);
    stand.join(Join::of(&leader, &leader_id));
    let answer = stand.joined(returned).unwrap();
    let chosen = (answer.error, answer.generation, answer.protocol_name.as_deref());
    assert_eq!(chosen, (E::None, generation + 1, Some("roundrobin")));
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

/// A group in which the follower i2 misses a rebalance; both have sessions of so many seconds. What the leader is
/// told when the join phase ends.
fn follower_missing(session: i32) -> (Stand, [String; 2], JoinGroupResponse) {
    let mut stand = Stand::new();
    stand.stable_static(&["i1", "i2"]);
    let (leader, follower) = roles(&stand);
    let ids = [id_of(&stand, &leader), id_of(&stand, &follower)];
    let join = |instance: &str, id: &str| {
        Join::of(instance, id).with(|request| request.session_timeout_ms = session * 1000)
    };
    let calls = [stand.join(join(&leader, &ids[0])), stand.join(join(&follower, &ids[1]))];
    stand.settle(&calls);
    let generation = stand.generation();
    let call = stand.join(join(&leader, &ids[0]));
    // It beats, and does not join: only the rebalance timeout of 20 s ends the join phase.
    for _ in 0..4 {
        assert!(!stand.is_answered(call));
        stand.pass(secs(5));
        let expected = if stand.is_answered(call) { E::IllegalGeneration } else { E::RebalanceInProgress };
        assert_eq!(stand.beat_as(Some(&follower), &ids[1], generation), expected);
    }
    let answer = stand.joined(call).unwrap();
    assert_eq!(answer.generation, generation + 1);
    let call = stand.sync_as(Some(&leader), &ids[0], generation + 1, &[]);
    assert_eq!(stand.synced(call).unwrap().error, E::None);
    assert_eq!(stand.state(), GroupState::Stable);
    (stand, ids, answer)
}

#[test]
fn b_reb_06_a_static_member_that_misses_a_rebalance_is_kept_and_goes_by_the_first_of_two_timeouts() {
    for (session, goes_after) in [(60, 20), (30, 20), (10, 10)] {
        let (mut stand, [leader_id, follower_id], answer) = follower_missing(session);
        let (leader, _) = roles(&stand);
        let listed: BTreeSet<&String> = answer.members.iter().map(|member| &member.member_id).collect();
        assert_eq!(listed, BTreeSet::from([&leader_id, &follower_id]), "kept, and listed to the leader");
        let beat = |stand: &mut Stand| stand.beat_as(Some(&leader), &leader_id, answer.generation);
        // Its session began anew when the join phase ended, as did the time for its SyncGroup.
        let short = std::time::Duration::from_millis(1);
        for wait in [secs(goes_after / 2), secs(goes_after / 2) - short] {
            stand.pass(wait);
            assert_eq!((beat(&mut stand), stand.members()), (E::None, 2), "session {session} s");
        }
        stand.pass(short);
        let left = stand.coordinator.group(G).unwrap().members;
        assert_eq!(left.keys().collect::<Vec<_>>(), [&leader_id], "session {session} s");
        assert_eq!(beat(&mut stand), E::RebalanceInProgress, "the others are told");
        let answer = stand.beat_as(Some("i2"), &follower_id, answer.generation);
        assert_eq!(answer, E::UnknownMemberId, "with its place went its instance id");
    }
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
    let listed: BTreeSet<&String> = answer.members.iter().map(|member| &member.member_id).collect();
    assert_eq!(
        (&answer.leader, listed),
        (&follower_id, BTreeSet::from([&leader_id, &follower_id])),
        "it leads, and is told of the one that is missing"
    );
    assert_eq!(stand.coordinator.group(G).unwrap().leader, Some(follower_id));
}

#[test]
fn b_reb_07_a_leader_that_waits_to_join_keeps_the_role_whoever_is_missing() {
    let mut stand = Stand::new();
    // The last to be listed leads: an election would take another.
    stand.stable_static(&["i3", "i2", "i1"]);
    let (leader, missing) = roles(&stand);
    assert_eq!((leader.as_str(), missing.as_str()), ("i3", "i1"));
    let (leader_id, generation) = (id_of(&stand, &leader), stand.generation());
    let present: Vec<&str> = ["i1", "i2", "i3"].into_iter().filter(|instance| *instance != missing).collect();
    let calls: Vec<u64> = present
        .iter()
        .map(|instance| {
            let join = Join::of(instance, &id_of(&stand, instance));
            stand.join(join.with(|request| request.protocols[0].metadata = "other".into()))
        })
        .collect();
    let missing_id = id_of(&stand, &missing);
    for _ in 0..4 {
        stand.pass(secs(5));
        stand.beat_as(Some(&missing), &missing_id, generation);
    }
    for call in calls {
        assert_eq!(stand.joined(call).unwrap().leader, leader_id);
    }
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
