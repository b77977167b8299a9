//! B-REB, B-SYNC, B-HB-03 and B-HB-04, B-LEAVE, B-DESC, B-LOAD.

use kohort_group::coordinator::{CoordinatorConfig, CoordinatorNotice, GroupState};
use kohort_protocol::ErrorCode as E;

use crate::stand::{G, Join, Stand, secs};

#[test]
fn b_reb_01_and_03_the_first_join_of_an_empty_group_waits_for_the_initial_delay() {
    let delayed =
        || Stand::with(CoordinatorConfig { initial_rebalance_delay: secs(3), ..Default::default() });
    let mut stand = delayed();
    let id = stand.pending();
    let call = stand.join(Join::new(&id));
    stand.pass(secs(2));
    assert!(!stand.is_answered(call), "though all known members joined");
    stand.pass(secs(1));
    assert_eq!(stand.joined(call).unwrap().error, E::None);

    // Newcomers stretch it, up to the rebalance timeout in all.
    let mut stand = delayed();
    let short = std::time::Duration::from_millis(1);
    let begun = stand.now;
    let mut calls = Vec::new();
    while stand.now < begun + secs(5) {
        let id = stand.pending();
        calls.push(stand.join(Join::new(&id).with(|request| request.rebalance_timeout_ms = 6_000)));
        stand.pass(secs(1));
    }
    let id = stand.pending();
    calls.push(stand.join(Join::new(&id).with(|request| request.rebalance_timeout_ms = 6_000)));
    stand.pass(secs(1) - short);
    assert!(calls.iter().all(|call| !stand.is_answered(*call)));
    stand.pass(short);
    let generations: Vec<_> = calls.iter().map(|call| stand.joined(*call).unwrap().generation).collect();
    assert_eq!(generations, [1; 6], "after two delays of 3 s");

    // Who comes and nobody after: one more delay from the last newcomer's coming on is enough.
    let mut stand = delayed();
    let first = stand.pending();
    let first = stand.join(Join::new(&first));
    stand.pass(secs(2));
    let second = stand.pending();
    let second = stand.join(Join::new(&second));
    stand.pass(secs(4) - short);
    assert!(!stand.is_answered(first) && !stand.is_answered(second));
    stand.pass(short);
    assert!(stand.is_answered(first) && stand.is_answered(second));

    let mut stand = Stand::new();
    let id = stand.pending();
    let call = stand.join(Join::new(&id));
    assert!(stand.is_answered(call), "at once without a delay");
}

#[test]
fn b_reb_04_generations_count_up_and_so_does_becoming_empty() {
    let mut stand = Stand::new();
    let members = stand.stable(1);
    assert_eq!(stand.generation(), 1);
    let call = stand.join(Join::new(&members[0]));
    assert_eq!(stand.joined(call).unwrap().generation, 2);
    stand.leave(3, &[(&members[0], None)]);
    assert_eq!((stand.state(), stand.generation()), (GroupState::Empty, 3));
}

#[test]
fn b_reb_05_the_join_phase_waits_for_the_largest_rebalance_timeout() {
    let mut stand = Stand::new();
    let ids = [stand.pending(), stand.pending()];
    stand.join(Join::new(&ids[0]).with(|request| request.session_timeout_ms = 60_000));
    let call = stand.join(Join::new(&ids[1]).with(|request| {
        request.rebalance_timeout_ms = 40_000;
        request.session_timeout_ms = 60_000;
    }));
    stand.joined(call).unwrap();
    let rejoin = stand.join(Join::new(&ids[0]).with(|request| {
        request.session_timeout_ms = 60_000;
        request.protocols[0].metadata = "other".into();
    }));
    stand.pass(secs(39));
    assert!(!stand.is_answered(rejoin));
    stand.pass(secs(1));
    assert_eq!(stand.joined(rejoin).unwrap().generation, 2);
    assert_eq!(stand.members(), 1, "who did not rejoin is out");
}

#[test]
fn b_reb_09_a_group_that_lost_its_last_member_is_empty_listed_and_keeps_its_offsets() {
    for leaves in [true, false] {
        let mut stand = Stand::new();
        let members = stand.stable(1);
        assert_eq!(stand.commit(&members[0], 1, 5), E::None);
        if leaves {
            stand.leave(3, &[(&members[0], None)]);
        } else {
            stand.pass(secs(10));
        }
        assert_eq!(stand.state(), GroupState::Empty);
        assert_eq!(stand.coordinator.list(&[]), [(G.to_string(), GroupState::Empty)]);
        assert_eq!(stand.fetch(Some(&[0])).groups[0].topics[0].partitions[0].offset, 5);
    }
}

#[test]
fn b_sync_01_followers_wait_for_the_leader_and_syncs_are_repeatable() {
    let mut stand = Stand::new();
    let ids = [stand.pending(), stand.pending()];
    let calls = ids.each_ref().map(|id| stand.join(Join::new(id)));
    let answers = calls.map(|call| stand.joined(call).unwrap());
    let leader = answers[0].leader.clone();
    let follower = ids.iter().find(|id| **id != leader).unwrap().clone();
    let parked = stand.sync(&follower, 1, &[]);
    assert!(!stand.is_answered(parked));
    let call = stand.sync(&leader, 1, &[(&leader, "a"), (&follower, "b")]);
    assert_eq!(stand.synced(call).unwrap().assignment, "a");
    assert_eq!(stand.synced(parked).unwrap().assignment, "b");
    for _ in 0..2 {
        for (member, share) in [(&follower, "b"), (&leader, "a")] {
            let call = stand.sync(member, 1, &[]);
            assert_eq!(stand.synced(call).unwrap().assignment, share);
        }
    }
}

#[test]
fn b_sync_02_a_member_the_leader_omits_gets_nothing() {
    let mut stand = Stand::new();
    let ids = [stand.pending(), stand.pending()];
    let calls = ids.each_ref().map(|id| stand.join(Join::new(id)));
    let leader = stand.joined(calls[0]).unwrap().leader;
    let follower = ids.iter().find(|id| **id != leader).unwrap();
    stand.sync(&leader, 1, &[(&leader, "a")]);
    let call = stand.sync(follower, 1, &[]);
    let answer = stand.synced(call).unwrap();
    assert_eq!((answer.error, answer.assignment.len()), (E::None, 0));
}

#[test]
fn b_sync_03_and_05_who_may_not_sync() {
    let mut stand = Stand::new();
    let code = |stand: &mut Stand, member: &str, generation| {
        let call = stand.sync(member, generation, &[]);
        stand.synced(call).unwrap().error
    };
    assert_eq!(code(&mut stand, "who", 1), E::UnknownMemberId, "unknown group");
    let members = stand.stable(2);
    assert_eq!(code(&mut stand, "who", -1), E::UnknownMemberId, "the id is checked first");
    assert_eq!(code(&mut stand, &members[0], 2), E::IllegalGeneration);
    stand.join(Join::new(&members[0]));
    assert_eq!(code(&mut stand, &members[1], 1), E::RebalanceInProgress);
    stand.leave(3, &[(&members[0], None), (&members[1], None)]);
    assert_eq!(code(&mut stand, &members[1], 1), E::UnknownMemberId, "Empty");
    assert_eq!(stand.coordinator.delete(G), E::None);
    assert_eq!(code(&mut stand, &members[1], 1), E::UnknownMemberId, "deleted");
}

#[test]
fn b_sync_04_from_version_5_type_and_name_must_fit() {
    let mut stand = Stand::new();
    let members = stand.stable(1);
    let mut sync = |version, kind: Option<&str>, name: Option<&str>| {
        let call = stand.send(
            version,
            kohort_protocol::messages::SyncGroupRequest {
                group_id: G.into(),
                generation: 1,
                member_id: members[0].clone(),
                protocol_type: kind.map(Into::into),
                protocol_name: name.map(Into::into),
                ..Default::default()
            },
        );
        stand.synced(call).unwrap().error
    };
    assert_eq!(sync(5, Some("consumer"), Some("range")), E::None);
    assert_eq!(sync(5, Some("connect"), Some("range")), E::InconsistentGroupProtocol);
    assert_eq!(sync(5, Some("consumer"), Some("roundrobin")), E::InconsistentGroupProtocol);
    assert_eq!(sync(5, None, Some("range")), E::InconsistentGroupProtocol);
    assert_eq!(sync(5, Some("consumer"), None), E::InconsistentGroupProtocol);
    assert_eq!(sync(4, None, None), E::None);
}

#[test]
fn b_sync_06_a_leader_that_dies_between_join_and_sync_is_removed() {
    let mut stand = Stand::new();
    let ids = [stand.pending(), stand.pending()];
    let calls = ids.each_ref().map(|id| stand.join(Join::new(id)));
    let leader = stand.joined(calls[0]).unwrap().leader;
    let follower = ids.iter().find(|id| **id != leader).unwrap().clone();
    let parked = stand.sync(&follower, 1, &[]);
    stand.pass(secs(10));
    assert_eq!(stand.synced(parked).unwrap().error, E::RebalanceInProgress);
    assert_eq!(stand.members(), 1);
    assert_eq!(stand.beat(&follower, 1), E::RebalanceInProgress);

    // One that beats and never syncs goes at the rebalance timeout.
    let mut stand = Stand::new();
    let ids = [stand.pending(), stand.pending()];
    let calls = ids.each_ref().map(|id| stand.join(Join::new(id)));
    let leader = stand.joined(calls[0]).unwrap().leader;
    let follower = ids.iter().find(|id| **id != leader).unwrap().clone();
    let parked = stand.sync(&follower, 1, &[]);
    for _ in 0..4 {
        stand.pass(secs(5));
        stand.beat(&leader, 1);
    }
    assert_eq!(stand.synced(parked).unwrap().error, E::RebalanceInProgress);
    assert_eq!(stand.beat(&leader, 1), E::UnknownMemberId);
}

#[test]
fn b_hb_03_and_04_unknown_groups_and_members() {
    let mut stand = Stand::new();
    assert_eq!(stand.beat("who", 1), E::UnknownMemberId);
    let members = stand.stable(1);
    assert_eq!(stand.beat("who", 99), E::UnknownMemberId, "the id is checked before the generation");
    assert_eq!(stand.beat(&members[0], 99), E::IllegalGeneration);
    stand.leave(3, &[(&members[0], None)]);
    assert_eq!(stand.beat(&members[0], 1), E::UnknownMemberId, "Empty");
    // A deleted group is simply unknown.
    assert_eq!(stand.coordinator.delete(G), E::None);
    assert_eq!(stand.beat(&members[0], 1), E::UnknownMemberId);
    assert_eq!(stand.join_now(Join::new(&members[0])).error, E::UnknownMemberId);
    assert_eq!(stand.leave(3, &[(&members[0], None)]).members[0].error, E::UnknownMemberId);
    assert_eq!(stand.commit(&members[0], 1, 5), E::IllegalGeneration);
    assert_eq!(stand.commit_as(9, None, &members[0], 1, 5, ""), E::GroupIdNotFound);
}

#[test]
fn b_leave_01_a_batch_answers_entry_by_entry() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    let answer = stand.leave(3, &[("who", None), (&members[1], None), (&members[0], Some("none"))]);
    assert_eq!(answer.error, E::None);
    let told: Vec<_> = answer
        .members
        .iter()
        .map(|member| (member.member_id.as_str(), member.group_instance_id.as_deref(), member.error))
        .collect();
    assert_eq!(
        told,
        [
            ("who", None, E::UnknownMemberId),
            (members[1].as_str(), None, E::None),
            (members[0].as_str(), Some("none"), E::UnknownMemberId),
        ],
        "in the order of the request"
    );
    let left = stand.coordinator.group(G).unwrap().members;
    assert_eq!(left.keys().collect::<Vec<_>>(), [&members[0]]);
}

#[test]
fn b_leave_03_an_entry_with_neither_id_removes_nobody_and_is_told() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    stand.notices.clear();
    let answer = stand.leave(3, &[("", None), ("", Some("")), (&members[0], None)]);
    let codes: Vec<_> = answer.members.iter().map(|member| member.error).collect();
    assert_eq!((answer.error, codes), (E::None, vec![E::UnknownMemberId, E::UnknownMemberId, E::None]));
    let nameless = CoordinatorNotice::NamelessLeave { group_id: G.into() };
    assert_eq!(stand.notices.iter().filter(|notice| **notice == nameless).count(), 2);
    assert_eq!(stand.members(), 1);
    // An instance id is a name, and so is a member id.
    stand.notices.clear();
    stand.leave(3, &[("", Some("i")), ("who", None)]);
    assert!(!stand.notices.contains(&nameless));
}

#[test]
fn b_leave_05_a_pending_id_that_leaves_frees_its_slot_and_starts_a_rebalance_of_a_running_group() {
    let leave = |stand: &mut Stand, pending: &str| {
        assert_eq!(stand.leave(3, &[(pending, None)]).members[0].error, E::None);
        assert!(stand.coordinator.group(G).unwrap().pending.is_empty(), "the slot is free");
    };
    // Stable.
    let mut stand = Stand::new();
    let members = stand.stable(1);
    let pending = stand.pending();
    leave(&mut stand, &pending);
    assert_eq!((stand.state(), stand.generation()), (GroupState::PreparingRebalance, 1));
    assert_eq!(stand.beat(&members[0], 1), E::RebalanceInProgress);
    let call = stand.join(Join::new(&members[0]));
    assert_eq!(stand.joined(call).unwrap().generation, 2);

    // CompletingRebalance: who waits for the assignment hears of it.
    let mut stand = Stand::new();
    let ids = [stand.pending(), stand.pending()];
    let calls = ids.each_ref().map(|id| stand.join(Join::new(id)));
    let leader = stand.joined(calls[0]).unwrap().leader;
    let follower = ids.iter().find(|id| **id != leader).unwrap().clone();
    let pending = stand.pending();
    assert_eq!((stand.state(), stand.generation()), (GroupState::CompletingRebalance, 1));
    let syncing = stand.sync(&follower, 1, &[]);
    leave(&mut stand, &pending);
    assert_eq!(stand.synced(syncing).unwrap().error, E::RebalanceInProgress);
    assert_eq!(stand.beat(&leader, 1), E::RebalanceInProgress);
    let calls = ids.each_ref().map(|id| stand.join(Join::new(id)));
    assert_eq!(calls.map(|call| stand.joined(call).unwrap().generation), [2, 2]);

    // PreparingRebalance: it may have been the last one that was waited for.
    let mut stand = Stand::new();
    let members = stand.stable(1);
    let (first, last) = (stand.pending(), stand.pending());
    let call = stand.join(Join::new(&members[0]));
    assert_eq!(stand.leave(3, &[(&first, None)]).members[0].error, E::None);
    assert!(!stand.is_answered(call), "another is waited for");
    leave(&mut stand, &last);
    assert_eq!(stand.joined(call).unwrap().generation, 2);

    // Empty: there is nobody to rebalance.
    let mut stand = Stand::new();
    let pending = stand.pending();
    leave(&mut stand, &pending);
    assert_eq!((stand.state(), stand.generation()), (GroupState::Empty, 0));
}

#[test]
fn b_leave_06_and_08_unknown_groups_old_versions_and_the_empty_id() {
    let mut stand = Stand::new();
    let answer = stand.leave(3, &[("a", None), ("b", Some("i"))]);
    assert_eq!(answer.error, E::None);
    assert!(answer.members.iter().all(|member| member.error == E::UnknownMemberId));
    let answer = stand.leave(2, &[("a", None)]);
    assert_eq!((answer.error, answer.members.len()), (E::UnknownMemberId, 0));
    let answer = stand.leave_from("", 3, &[("a", None)]);
    assert_eq!((answer.error, answer.members.len()), (E::InvalidGroupId, 0));
}

#[test]
fn x_07_under_an_empty_group_id_nobody_is_a_member_and_offsets_are_kept_all_the_same() {
    let mut stand = Stand::new();
    let join = Join::new("").with(|request| request.group_id.clear());
    assert_eq!(stand.join_now(join).error, E::InvalidGroupId);
    let call = stand.send(5, kohort_protocol::messages::SyncGroupRequest::default());
    assert_eq!(stand.synced(call).unwrap().error, E::InvalidGroupId);
    assert_eq!(stand.beat_from("", "who", 1), E::InvalidGroupId);
    assert_eq!(stand.leave_from("", 3, &[("who", None)]).error, E::InvalidGroupId);
    assert!(stand.coordinator.group("").is_none());
    assert_eq!(stand.commit_from("", 5), E::None);
    assert_eq!(stand.coordinator.describe("").unwrap().state, GroupState::Empty);
    assert_eq!(stand.coordinator.delete(""), E::None);
    assert_eq!(stand.coordinator.delete(""), E::GroupIdNotFound);
}

#[test]
fn b_leave_09_a_leaver_with_a_join_waiting_gets_it_answered() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    let call = stand.join(Join::new(&members[0]));
    stand.leave(3, &[(&members[0], None)]);
    let answer = stand.joined(call).unwrap();
    assert_eq!((answer.error, answer.generation), (E::UnknownMemberId, -1));
    let left = stand.coordinator.group(G).unwrap().members;
    assert_eq!(left.keys().collect::<Vec<_>>(), [&members[1]]);
}

#[test]
fn b_desc_01_03_04_describe_list_delete() {
    let mut stand = Stand::new();
    assert_eq!(stand.coordinator.describe(G).unwrap_err(), E::GroupIdNotFound);
    assert_eq!(stand.coordinator.delete(G), E::GroupIdNotFound);
    let members = stand.stable(2);
    stand.commit(&members[0], 1, 5);
    let view = stand.coordinator.describe(G).unwrap();
    assert_eq!(
        (view.state.name(), view.members.len(), view.protocol_name.as_deref()),
        ("Stable", 2, Some("range"))
    );
    let listed = |state| vec![(G.to_string(), state)];
    assert_eq!(stand.coordinator.list(&["sTABLE", "Dead"]), listed(GroupState::Stable));
    assert_eq!(stand.coordinator.list(&[]), listed(GroupState::Stable));
    assert_eq!(stand.coordinator.list(&["Empty"]), []);
    assert_eq!(stand.coordinator.delete(G), E::NonEmptyGroup);
    assert_eq!(stand.fetch(Some(&[0])).groups[0].topics[0].partitions[0].offset, 5, "nothing is deleted");
    assert_eq!(stand.coordinator.delete_offset(G, "t", 0, true), E::GroupSubscribedToTopic);
    stand.leave(3, &[(&members[0], None), (&members[1], None)]);
    assert_eq!(stand.coordinator.list(&["empty"]), listed(GroupState::Empty), "Empty groups are listed");
    assert_eq!(stand.coordinator.delete(G), E::None);
    assert_eq!(stand.fetch(Some(&[0])).groups[0].topics[0].partitions[0].offset, -1, "offsets gone");
}

#[test]
fn b_load_02_what_is_parked_is_told_that_the_coordinator_moved() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    let joining = stand.join(Join::new(&members[0]));
    let effects = stand.coordinator.unload();
    stand.take(effects);
    let told = stand.joined(joining).unwrap();
    assert_eq!((told.error, told.generation), (E::NotCoordinator, -1));
    assert!(stand.coordinator.group(G).is_none() && stand.coordinator.deadline().is_none());

    let mut stand = Stand::new();
    let ids = [stand.pending(), stand.pending()];
    let calls = ids.each_ref().map(|id| stand.join(Join::new(id)));
    let leader = stand.joined(calls[0]).unwrap().leader;
    let follower = ids.iter().find(|id| **id != leader).unwrap().clone();
    let syncing = stand.sync(&follower, 1, &[]);
    let effects = stand.coordinator.unload();
    stand.take(effects);
    assert_eq!(stand.synced(syncing).unwrap().error, E::NotCoordinator);
}

#[test]
fn b_load_03_a_reloaded_group_goes_on_with_fresh_sessions() {
    let mut stand = Stand::new();
    let members = stand.stable_static(&["i1", "i2"]);
    let pending = stand.pending();
    stand.pass(secs(9));
    let mut reloaded = Stand::new();
    reloaded.now = stand.now;
    reloaded.coordinator.load(&stand.coordinator, stand.now);
    let before = stand.coordinator.group(G).unwrap();
    let after = reloaded.coordinator.group(G).unwrap();
    assert_eq!(
        (before.generation, &before.members, &before.leader),
        (after.generation, &after.members, &after.leader)
    );
    assert_eq!(reloaded.join_now(Join::new(&pending)).error, E::UnknownMemberId, "pending ids are lost");
    let other = Join::of("i1", "not the owner");
    assert_eq!(reloaded.join_now(other).error, E::FencedInstanceId, "the instance map is kept");
    for (member, view) in &before.members {
        let instance = view.group_instance_id.as_deref();
        let call = reloaded.sync_as(instance, member, after.generation, &[]);
        assert_eq!(reloaded.synced(call).unwrap().assignment, format!("for {member}"), "so are the shares");
    }
    // Whatever was left of it before, each has a whole session from the load on, and no more.
    reloaded.pass(secs(10) - std::time::Duration::from_millis(1));
    assert_eq!(reloaded.coordinator.group(G).unwrap().members, before.members);
    assert_eq!(reloaded.beat(&members[0], after.generation), E::None);
    reloaded.pass(std::time::Duration::from_millis(1));
    let left = reloaded.coordinator.group(G).unwrap().members;
    assert_eq!(left.keys().collect::<Vec<_>>(), [&members[0]]);

    let mut stand = Stand::new();
    let id = stand.pending();
    stand.join(Join::new(&id));
    let mut reloaded = Stand::new();
    reloaded.coordinator.load(&stand.coordinator, stand.now);
    assert_eq!(reloaded.state(), GroupState::Empty, "it had not synced");
}
