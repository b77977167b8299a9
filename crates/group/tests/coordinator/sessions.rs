//! What keeps a member in the group, and for how long, to the instant: B-HB-01, B-SESS, X-02.

use std::time::Duration;

use kohort_group::coordinator::GroupState;
use kohort_protocol::ErrorCode as E;

use crate::stand::{G, Join, Stand, secs};

/// Passes time to the instant at which this member's session of 10 s ends that began now. The others beat.
fn ends_in_ten_seconds(stand: &mut Stand, member: &str, others: &[String], generation: i32) {
    let present = |stand: &Stand| stand.coordinator.group(G).unwrap().members.contains_key(member);
    let short = Duration::from_millis(1);
    for wait in [secs(5), secs(5) - short] {
        stand.pass(wait);
        for other in others {
            stand.beat(other, generation);
        }
        assert!(present(stand), "it has 10 s");
    }
    stand.pass(short);
    assert!(!present(stand), "and no more");
}

/// Two members that joined generation 1, the leader first, before anybody synced.
fn completing(stand: &mut Stand) -> [String; 2] {
    let ids = [stand.pending(), stand.pending()];
    let calls = ids.each_ref().map(|id| stand.join(Join::new(id)));
    let leader = stand.joined(calls[0]).unwrap().leader;
    let follower = ids.iter().find(|id| **id != leader).unwrap().clone();
    [leader, follower]
}

#[test]
fn b_hb_01_a_beat_is_answered_by_state_and_in_each_extends_the_session_from_its_instant() {
    for state in [GroupState::CompletingRebalance, GroupState::Stable, GroupState::PreparingRebalance] {
        let mut stand = Stand::new();
        let [leader, follower] = completing(&mut stand);
        if state != GroupState::CompletingRebalance {
            stand.sync(&follower, 1, &[]);
            stand.sync(&leader, 1, &[]);
        }
        if state == GroupState::PreparingRebalance {
            stand.join(Join::new(&leader));
        }
        assert_eq!(stand.state(), state);
        stand.pass(secs(3));
        let expected = if state == GroupState::PreparingRebalance { E::RebalanceInProgress } else { E::None };
        assert_eq!(stand.beat(&follower, 1), expected, "{state:?}");
        ends_in_ten_seconds(&mut stand, &follower, &[leader], 1);
    }
}

#[test]
fn b_sess_02_a_commit_extends_the_session() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    stand.pass(secs(6));
    assert_eq!(stand.beat(&members[0], 1), E::None);
    assert_eq!(stand.commit(&members[1], 1, 5), E::None);
    ends_in_ten_seconds(&mut stand, &members[1], &members[..1], 1);
}

#[test]
fn x_02_a_sync_a_followers_join_and_a_fetch_do_not_extend_the_session() {
    type Ask = fn(&mut Stand, &str);
    let asks: [(&str, Ask); 3] = [
        ("SyncGroup", |stand, follower| {
            let call = stand.sync(follower, 1, &[]);
            assert_eq!(stand.synced(call).unwrap().error, E::None);
        }),
        ("JoinGroup", |stand, follower| {
            let answer = stand.join_now(Join::new(follower));
            assert_eq!((answer.error, answer.generation), (E::None, 1));
        }),
        ("OffsetFetch", |stand, _| drop(stand.fetch(Some(&[0])))),
    ];
    for (api, ask) in asks {
        let mut stand = Stand::new();
        let members = stand.stable(2);
        // The session that these leave alone begins here.
        assert_eq!(stand.beat(&members[1], 1), E::None);
        for wait in [secs(4), secs(4), secs(2) - Duration::from_millis(1)] {
            stand.pass(wait);
            assert_eq!(stand.beat(&members[0], 1), E::None);
            ask(&mut stand, &members[1]);
            assert_eq!(stand.state(), GroupState::Stable, "{api}");
        }
        stand.pass(Duration::from_millis(1));
        let left = stand.coordinator.group(G).unwrap().members;
        assert_eq!(left.keys().collect::<Vec<_>>(), [&members[0]], "{api}");
    }
}

#[test]
fn b_sess_01_a_session_ends_exactly_when_it_is_over() {
    let mut stand = Stand::new();
    let members = stand.stable(1);
    stand.pass(secs(5));
    assert_eq!(stand.beat(&members[0], 1), E::None);
    stand.pass(secs(10) - Duration::from_millis(1));
    assert_eq!(stand.members(), 1);
    stand.pass(Duration::from_millis(1));
    assert_eq!(stand.members(), 0);
    assert_eq!(stand.beat(&members[0], 1), E::UnknownMemberId);
}

#[test]
fn b_sess_04_a_newcomer_may_wait_five_minutes_and_then_has_its_own_session() {
    let mut stand = Stand::new();
    let long = |request: &mut kohort_protocol::messages::JoinGroupRequest| {
        request.rebalance_timeout_ms = 3_600_000;
    };
    let id = stand.pending();
    let call = stand.join(Join::new(&id).with(long));
    let members = stand.settle(&[call]);
    let newcomer = stand.pending();
    let waiting = stand.join(Join::new(&newcomer).with(long));
    for _ in 0..59 {
        stand.pass(secs(5));
        assert_eq!(stand.beat(&members[0], 1), E::RebalanceInProgress);
    }
    assert!(!stand.is_answered(waiting));
    stand.pass(secs(5));
    let answer = stand.joined(waiting).unwrap();
    assert_eq!((answer.error, answer.generation), (E::UnknownMemberId, -1));
    assert_eq!(stand.members(), 1);

    let mut stand = Stand::new();
    let id = stand.pending();
    let call = stand.join(Join::new(&id));
    stand.settle(&[call]);
    stand.pass(secs(10));
    assert_eq!(stand.members(), 0, "not five minutes");
}

#[test]
fn b_sess_05_who_falls_silent_in_a_rebalance_is_dropped_at_its_session_and_the_rest_go_on() {
    let mut stand = Stand::new();
    let members = stand.stable(2);
    let call = stand.join(Join::new(&members[0]));
    stand.pass(secs(5));
    assert_eq!(stand.beat(&members[1], 1), E::RebalanceInProgress);
    stand.pass(secs(9));
    assert!(!stand.is_answered(call));
    stand.pass(secs(1));
    assert_eq!(stand.joined(call).unwrap().generation, 2, "before the rebalance timeout of 20 s");
}
