//! C-COMMIT, C-REB-01, C-REB-03, D-27, D-30.

use kohort_group::membership::{Answer, Effect, Notice, TerminalCause};
use kohort_group::{Input, MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;

use crate::stand::{Stand, config, network, partition, secs};

#[test]
fn c_commit_01_a_commit_names_who_commits() {
    let mut stand = Stand::with(MembershipConfig { group_instance_id: Some("i".into()), ..config() });
    stand.stable(7);
    stand.handled(0, 15);
    let (_, request) = stand.commit();
    assert_eq!((request.generation, request.member_id.as_str()), (7, "m"));
    assert_eq!(request.group_instance_id.as_deref(), Some("i"));
    let committed = &request.topics[0].partitions[0];
    assert_eq!((committed.partition, committed.offset), (0, 15));
}

#[test]
fn commits_go_by_interval_by_threshold_and_by_demand_one_at_a_time() {
    let mut stand = Stand::with(MembershipConfig { commit_threshold: 100, ..config() });
    stand.stable(1);
    let before = stand.now;
    stand.handled(0, 15);
    let (round, request) = stand.commit();
    assert_eq!(stand.now - before, secs(1), "the interval");
    stand.handled(0, 20);
    stand.input(Input::Commit);
    assert_eq!(stand.asks(), 0, "one is in flight");
    stand.commit_answer(round, &request, E::None);
    let (round, request) = stand.commit();
    assert_eq!(request.topics[0].partitions[0].offset, 20);
    stand.commit_answer(round, &request, E::None);
    let before = stand.now;
    let generation = stand.core.generation();
    stand.input(Input::Handled { generation, partition: partition(1), position: 200, records: 100 });
    assert_eq!((stand.asks(), stand.now), (1, before), "the threshold");
}

#[test]
fn c_commit_04_05_and_d_30_a_commit_that_shows_the_identity_gone_is_tried_once_and_rejoins() {
    for (code, id) in [(E::IllegalGeneration, "m"), (E::UnknownMemberId, "")] {
        let mut stand = Stand::new();
        stand.stable(7);
        stand.handled(0, 15);
        let (round, request) = stand.commit();
        stand.commit_answer(round, &request, code);
        let failed =
            stand.notices().filter(|notice| matches!(notice, Notice::CommitFailed { retriable: false, .. }));
        assert_eq!(failed.count(), 1);
        stand.released("lost");
        assert_eq!(stand.join().1.member_id, id, "{code}");
    }
}

#[test]
fn c_commit_07_and_08_fenced_is_terminal_unless_it_is_late() {
    let mut stand = Stand::with(MembershipConfig { group_instance_id: Some("i".into()), ..config() });
    stand.stable(7);
    stand.handled(0, 15);
    let (round, request) = stand.commit();
    stand.commit_answer(round, &request, E::FencedInstanceId);
    stand.released("lost");
    assert_eq!(stand.terminated(), Some(&TerminalCause::FencedInstanceId));

    let mut stand = Stand::with(MembershipConfig { group_instance_id: Some("i".into()), ..config() });
    stand.stable(7);
    stand.handled(0, 15);
    let (late, request) = stand.commit();
    stand.answered(E::IllegalGeneration);
    stand.released("lost");
    stand.stable(8);
    let before = stand.core.clone();
    stand.commit_answer(late, &request, E::FencedInstanceId);
    assert!(stand.effects.is_empty() && stand.core == before);
}

#[test]
fn c_commit_10_passing_troubles_are_retried_with_or_without_a_lookup() {
    for (code, lookup) in [
        (Some(E::CoordinatorNotAvailable), true),
        (Some(E::NotCoordinator), true),
        (Some(E::RequestTimedOut), true),
        (None, true),
        (Some(E::UnknownTopicOrPartition), false),
        (Some(E::CoordinatorLoadInProgress), false),
        (Some(E::RebalanceInProgress), false),
    ] {
        let mut stand = Stand::new();
        stand.stable(7);
        stand.handled(0, 15);
        let (round, request) = stand.commit();
        match code {
            Some(code) => stand.commit_answer(round, &request, code),
            None => stand.answer(round, Err(network())),
        }
        assert_eq!(stand.core.coordinator().is_none(), lookup, "{code:?}");
        assert_eq!(stand.asks(), 0, "paced");
        if lookup {
            stand.find();
        }
        let (round, request) = stand.commit();
        assert_eq!(request.topics[0].partitions[0].offset, 15);
        stand.commit_answer(round, &request, E::None);
        assert_eq!(stand.core.committed(&partition(0)), Some(15));
        assert_eq!(stand.state(), MemberState::Stable);
    }
}

#[test]
fn c_commit_11_a_commit_the_coordinator_will_never_take_is_surfaced_and_not_retried() {
    for code in [E::OffsetMetadataTooLarge, E::InvalidCommitOffsetSize, E::TopicAuthorizationFailed] {
        let mut stand = Stand::new();
        stand.stable(7);
        stand.handled(0, 15);
        let (round, request) = stand.commit();
        stand.commit_answer(round, &request, code);
        assert!(
            stand.notices().any(|notice| matches!(notice, Notice::CommitFailed { retriable: false, .. }))
        );
        for _ in 0..5 {
            stand.answered(E::None);
            stand.pass(secs(2));
        }
        assert_eq!((stand.asks(), stand.state()), (0, MemberState::Stable), "{code}");
    }
}

#[test]
fn c_commit_13_and_d_27_what_workers_of_an_older_generation_report_is_dropped() {
    let mut stand = Stand::new();
    stand.stable(7);
    stand.answered(E::IllegalGeneration);
    stand.released("lost");
    stand.stable(8);
    let before = stand.core.clone();
    stand.input(Input::Handled { generation: 7, partition: partition(0), position: 99, records: 5 });
    stand.input(Input::PositionReset { generation: 7, partition: partition(0), offset: 0 });
    assert!(stand.effects.is_empty() && stand.core == before);
}

#[test]
fn an_answer_that_leaves_a_partition_out_does_not_commit_it() {
    let mut stand = Stand::new();
    stand.stable(7);
    stand.handled(0, 15);
    let (round, _) = stand.commit();
    stand.answer(round, Ok(Answer::Committed(Default::default())));
    assert_eq!(stand.core.committed(&partition(0)), Some(10));
    let (_, request) = stand.commit();
    assert_eq!(request.topics[0].partitions[0].offset, 15);
}

#[test]
fn c_reb_01_stop_then_commit_then_revoked_then_join() {
    let mut stand = Stand::new();
    stand.stable(7);
    stand.handled(0, 15);
    stand.answered(E::RebalanceInProgress);
    assert_eq!(stand.asks(), 0, "first the drain");
    stand.handled(0, 16);
    stand.drained();
    let (round, request) = stand.commit();
    assert_eq!(
        (request.generation, request.topics[0].partitions[0].offset),
        (7, 16),
        "under the old generation"
    );
    assert!(
        !stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })),
        "not before the commit is answered"
    );
    stand.commit_answer(round, &request, E::None);
    stand.released("revoked");
    assert!(stand.notices().any(|notice| matches!(notice, Notice::Revoked(list) if list.len() == 2)));
    stand.join();
}

#[test]
fn c_reb_03_a_commit_that_fails_for_good_or_never_answers_does_not_hold_the_join_up() {
    let mut stand = Stand::new();
    stand.stable(7);
    stand.handled(0, 15);
    stand.answered(E::RebalanceInProgress);
    stand.drained();
    let (round, request) = stand.commit();
    stand.commit_answer(round, &request, E::UnknownMemberId);
    stand.released("lost");
    assert_eq!(stand.join().1.member_id, "");

    let mut stand = Stand::new();
    stand.stable(7);
    stand.handled(0, 15);
    let begun = stand.now;
    stand.answered(E::RebalanceInProgress);
    stand.drained();
    stand.commit();
    while !stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })) {
        stand.answered(E::RebalanceInProgress);
        stand.pass(secs(1));
    }
    assert!(stand.now - begun <= secs(9), "before the rebalance timeout of 10 s");
}

#[test]
fn d_04_a_drain_that_takes_too_long_is_cut_before_the_rebalance_timeout() {
    let mut stand = Stand::new();
    stand.stable(7);
    let begun = stand.now;
    stand.answered(E::RebalanceInProgress);
    while stand.asks() == 0 {
        stand.answered(E::RebalanceInProgress);
        stand.pass(std::time::Duration::from_millis(500));
        if stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })) {
            stand.effects.retain(|effect| !matches!(effect, Effect::DrainWorkers { .. }));
            stand.released("revoked");
        }
    }
    stand.join();
    assert!(stand.now - begun < secs(10), "{:?}", stand.now - begun);
}
