//! B-JOIN, B-PROTO, B-CAP, X-01 to.

use kohort_group::coordinator::{CoordinatorConfig, GroupState};
use kohort_protocol::ErrorCode as E;

use crate::stand::{G, Join, Stand, protocols, secs};

#[test]
fn b_join_01_a_dynamic_newcomer_is_sent_back_with_an_id() {
    let mut stand = Stand::new();
    let answer = stand.join_now(Join::new("").v(4));
    assert_eq!((answer.error, answer.generation), (E::MemberIdRequired, -1));
    let view = stand.coordinator.group(G).unwrap();
    assert_eq!((view.members.len(), view.pending.len(), view.state), (0, 1, GroupState::Empty));
    let mut stand = Stand::new();
    stand.stable(1);
    stand.pending();
    assert_eq!(stand.state(), GroupState::Stable, "unchanged");
}

#[test]
fn b_join_02_old_versions_and_static_members_are_admitted_at_once() {
    for join in [Join::new("").v(3), Join::new("").v(0), Join::of("i", "").v(5), Join::of("i", "").v(9)] {
        let mut stand = Stand::new();
        let answer = stand.join_now(join);
        assert_eq!((answer.error, answer.generation), (E::None, 1));
    }
}

#[test]
fn b_join_03_ids_are_made_of_client_or_instance_and_never_reused() {
    let mut stand = Stand::new();
    let ids: std::collections::BTreeSet<String> = (0..50).map(|_| stand.pending()).collect();
    assert_eq!(ids.len(), 50);
    assert!(ids.iter().all(|id| id.starts_with("client-") && id.len() == "client-".len() + 36));
    // A static member that comes again gets another one each time.
    let mut stand = Stand::new();
    stand.stable_static(&["web-0"]);
    let ids: std::collections::BTreeSet<String> =
        (0..50).map(|_| stand.join_now(Join::of("web-0", "")).member_id).collect();
    assert_eq!((ids.len(), stand.members()), (50, 1));
    assert!(ids.iter().all(|id| id.starts_with("web-0-") && id.len() == "web-0-".len() + 36));
}

#[test]
fn b_join_04_an_unknown_id_is_refused_and_makes_no_group() {
    for join in [Join::new("who"), Join::of("i", "who")] {
        let mut stand = Stand::new();
        let answer = stand.join_now(join);
        assert_eq!((answer.error, answer.member_id.as_str()), (E::UnknownMemberId, "who"));
        assert!(stand.coordinator.group(G).is_none());
    }
    let mut stand = Stand::new();
    stand.stable(1);
    assert_eq!(stand.join_now(Join::new("who")).error, E::UnknownMemberId);
}

#[test]
fn b_join_06_a_pending_id_that_never_completes_is_forgotten() {
    let mut stand = Stand::new();
    let members = stand.stable(1);
    let pending = stand.pending();
    for _ in 0..3 {
        stand.pass(secs(4));
        assert_eq!(stand.beat(&members[0], 1), E::None);
    }
    assert!(stand.coordinator.group(G).unwrap().pending.is_empty());
    assert_eq!((stand.state(), stand.generation()), (GroupState::Stable, 1));
    assert_eq!(stand.join_now(Join::new(&pending)).error, E::UnknownMemberId);
}

#[test]
fn b_join_08_and_09_a_leader_that_rejoins_rebalances_and_an_unchanged_follower_does_not() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    let answer = stand.join_now(Join::new(&members[1]));
    assert_eq!((answer.error, answer.generation, answer.members.len()), (E::None, 1, 0));
    assert_eq!(stand.state(), GroupState::Stable);
    stand.join(Join::new(&members[0]));
    assert_eq!(stand.state(), GroupState::PreparingRebalance);
    stand.join(Join::new(&members[1]));
    assert_eq!((stand.state(), stand.generation()), (GroupState::CompletingRebalance, 2));
}

#[test]
fn b_join_10_a_follower_with_other_metadata_rebalances() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    stand.join(Join::new(&members[1]).with(|request| request.protocols[0].metadata = "other".into()));
    assert_eq!(stand.state(), GroupState::PreparingRebalance);
}

#[test]
fn b_join_12_the_old_id_of_an_empty_group_is_unknown() {
    let mut stand = Stand::new();
    let members = stand.stable(1);
    stand.leave(3, &[(&members[0], None)]);
    let answer = stand.join_now(Join::new(&members[0]));
    assert_eq!((answer.error, answer.generation), (E::UnknownMemberId, -1));
}

#[test]
fn b_join_13_session_limits_and_the_empty_group_id() {
    let mut stand = Stand::new();
    for (session, expected) in [
        (5_999, E::InvalidSessionTimeout),
        (6_000, E::MemberIdRequired),
        (1_800_000, E::MemberIdRequired),
        (1_800_001, E::InvalidSessionTimeout),
        (-1, E::InvalidSessionTimeout),
    ] {
        let answer = stand.join_now(Join::new("").with(|request| request.session_timeout_ms = session));
        assert_eq!(answer.error, expected, "{session}");
    }
    assert_eq!(
        stand.join_now(Join::new("").with(|request| request.group_id.clear())).error,
        E::InvalidGroupId
    );
}

#[test]
fn b_proto_01_another_type_an_empty_type_and_no_protocols_are_refused() {
    let mut stand = Stand::new();
    let refused = [
        Join::new("").with(|request| request.protocol_type.clear()),
        Join::new("").with(|request| request.protocols.clear()),
    ];
    for join in refused {
        assert_eq!(stand.join_now(join).error, E::InconsistentGroupProtocol);
        assert_eq!(stand.state(), GroupState::Empty, "a refused first join leaves an Empty group behind");
    }
    stand.stable(1);
    let other = Join::new("").with(|request| request.protocol_type = "connect".into());
    assert_eq!(stand.join_now(other).error, E::InconsistentGroupProtocol);
}

#[test]
fn b_proto_02_an_assignor_that_not_all_offer_is_refused() {
    let mut stand = Stand::new();
    let id = stand.pending();
    let call = stand.join(Join::new(&id).with(|request| request.protocols = protocols(&["range"])));
    stand.settle(&[call]);
    let newcomer = Join::new("").with(|request| request.protocols = protocols(&["roundrobin"]));
    assert_eq!(stand.join_now(newcomer).error, E::InconsistentGroupProtocol);
    assert_eq!((stand.state(), stand.members()), (GroupState::Stable, 1));
    stand.leave(3, &[(&id, None)]);
    let newcomer = Join::new("").with(|request| request.protocols = protocols(&["roundrobin"]));
    assert_eq!(stand.join_now(newcomer).error, E::MemberIdRequired, "an Empty group accepts anything");
}

#[test]
fn x_01_votes_decide_and_ties_go_by_a_java_hash_map() {
    for (first, second, expected) in [
        (vec!["roundrobin", "range"], vec!["roundrobin", "range"], "roundrobin"),
        (vec!["range", "roundrobin"], vec!["roundrobin", "range"], "range"),
        (vec!["range", "cooperative-sticky"], vec!["cooperative-sticky", "range"], "range"),
        (vec!["roundrobin", "sticky"], vec!["sticky", "roundrobin"], "sticky"),
        (vec!["only-mine", "range"], vec!["range"], "range"),
    ] {
        let mut stand = Stand::new();
        let ids = [stand.pending(), stand.pending()];
        stand.join(Join::new(&ids[0]).with(|request| request.protocols = protocols(&first)));
        let call = stand.join(Join::new(&ids[1]).with(|request| request.protocols = protocols(&second)));
        assert_eq!(stand.joined(call).unwrap().protocol_name.as_deref(), Some(expected));
    }
}

#[test]
fn b_cap_01_a_full_group_refuses_a_newcomer_and_lets_its_members_rejoin() {
    let mut stand = Stand::with(CoordinatorConfig { max_group_size: Some(2), ..Default::default() });
    let members = stand.stable(2);
    let answer = stand.join_now(Join::new(""));
    assert_eq!((answer.error, answer.member_id.as_str()), (E::GroupMaxSizeReached, ""));
    assert_eq!(stand.join_now(Join::new(&members[1])).error, E::None);
}

#[test]
fn b_cap_03_a_lowered_limit_bites_one_by_one() {
    let mut stand = Stand::new();
    let members = stand.stable(3);
    let mut lowered = Stand::with(CoordinatorConfig { max_group_size: Some(2), ..Default::default() });
    lowered.coordinator.load(&stand.coordinator, stand.now);
    lowered.now = stand.now;
    let first = lowered.join(Join::new(&members[0]));
    let second = lowered.join(Join::new(&members[1]));
    let third = lowered.join_now(Join::new(&members[2]));
    assert_eq!(third.error, E::GroupMaxSizeReached);
    assert_eq!(lowered.members(), 2, "and removed");
    assert!(!lowered.is_answered(first), "a removal does not complete the join phase");
    // Those who wait are kept alive by their joins, and answered at the rebalance timeout.
    lowered.pass(secs(20));
    assert_eq!(lowered.joined(first).unwrap().error, E::None);
    assert_eq!(lowered.joined(second).unwrap().error, E::None);
}

#[test]
fn x_03_version_0_has_no_rebalance_timeout() {
    let mut stand = Stand::new();
    let first = stand.join_now(Join::new("").v(0));
    stand.join(Join::new("").v(0));
    // The first does not come back: out after its session timeout, which serves as rebalance timeout.
    stand.pass(secs(9));
    assert_eq!(stand.state(), GroupState::PreparingRebalance);
    stand.pass(secs(1));
    assert_eq!(stand.state(), GroupState::CompletingRebalance);
    assert!(!stand.coordinator.group(G).unwrap().members.contains_key(&first.member_id));
}

#[test]
fn x_04_a_repeated_join_or_sync_leaves_the_earlier_unanswered_and_so_does_leaving() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    let first = stand.join(Join::new(&members[0]));
    let again = stand.join(Join::new(&members[0]));
    stand.join(Join::new(&members[1]));
    assert!(!stand.is_answered(first) && stand.is_answered(again));
    let leader = stand.coordinator.group(G).unwrap().leader.unwrap();
    let follower = members.iter().find(|id| **id != leader).unwrap().clone();
    let first = stand.sync(&follower, 2, &[]);
    let again = stand.sync(&follower, 2, &[]);
    stand.sync(&leader, 2, &[]);
    assert!(!stand.is_answered(first) && stand.is_answered(again));

    // A leaver's own waiting sync; that of another is told of the rebalance.
    let mut stand = Stand::new();
    let ids = [stand.pending(), stand.pending(), stand.pending()];
    let calls = ids.each_ref().map(|id| stand.join(Join::new(id)));
    let leader = stand.joined(calls[0]).unwrap().leader;
    let followers: Vec<&String> = ids.iter().filter(|id| **id != leader).collect();
    let leavers = stand.sync(followers[0], 1, &[]);
    let others = stand.sync(followers[1], 1, &[]);
    assert_eq!(stand.leave(3, &[(followers[0], None)]).members[0].error, E::None);
    assert!(!stand.is_answered(leavers));
    assert_eq!(stand.synced(others).unwrap().error, E::RebalanceInProgress);
    stand.pass(secs(60));
    assert!(!stand.is_answered(leavers), "ever");
}

#[test]
fn x_09_a_pending_id_that_comes_with_an_instance_id_is_an_unknown_error() {
    let mut stand = Stand::new();
    let id = stand.pending();
    assert_eq!(stand.join_now(Join::of("i", &id)).error, E::UnknownServerError);
}
