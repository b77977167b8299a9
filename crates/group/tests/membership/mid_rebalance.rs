//! What comes while a JoinGroup or SyncGroup is out: closes, and answers to joins that were overtaken.

use kohort_group::assignor::Assignor;
use kohort_group::membership::{
    Answer, Effect, GroupMembershipOperation, LeaveOutcome, Notice, Question, TerminalCause,
};
use kohort_group::{Input, MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::messages::{JoinGroupResponse, LeaveGroupResponse};

use crate::stand::{Stand, config, follower, network, partition, secs};

fn cooperative() -> MembershipConfig {
    MembershipConfig { assignors: vec![Assignor::CooperativeSticky], ..config() }
}

/// A cooperative member with work to commit, whose JoinGroup is out; the round of it.
fn joining(config: MembershipConfig) -> (Stand, u64) {
    let mut stand = Stand::with(config);
    stand.stable(3);
    stand.handled(0, 15);
    stand.answered(E::RebalanceInProgress);
    let (round, _) = stand.join();
    assert_eq!(stand.state(), MemberState::PreparingRebalance);
    stand.effects.clear();
    (stand, round)
}

fn close(stand: &mut Stand, seconds: u64) {
    let deadline = stand.now + secs(seconds);
    stand.input(Input::Close { operation: GroupMembershipOperation::Default, deadline });
}

#[test]
fn c_close_15_a_cooperative_member_closed_while_it_joins_commits_loses_and_leaves_without_waiting() {
    let (mut stand, late) = joining(cooperative());
    let begun = stand.now;
    close(&mut stand, 5);
    let arms = |effect: &Effect| matches!(effect, Effect::ArmHeartbeat { .. });
    assert!(!stand.has(arms), "C-HB-04: no beat beside the JoinGroup");
    stand.drained();
    let (round, request) = stand.commit();
    assert_eq!(request.generation, 3, "the generation that the work was done in");
    stand.commit_answer(round, &request, E::None);
    stand.released("lost");
    assert!(stand.notices().any(|notice| matches!(notice, Notice::Lost(lost) if lost.len() == 2)));
    let (round, question) = stand.question();
    assert!(matches!(question, Question::Leave(request) if request.members[0].member_id == "m"));
    assert_eq!(stand.now, begun, "nothing of the rebalance is waited for");
    stand.join_answer(late, follower(4));
    stand.answer(round, Ok(Answer::Left(LeaveGroupResponse::default())));
    let [Effect::Closed(report)] = &stand.effects[stand.effects.len() - 1..] else { panic!() };
    assert_eq!((report.leave.clone(), report.forced, report.dropped.len()), (LeaveOutcome::Left, false, 0));
    assert_eq!(stand.state(), MemberState::Left);
}

#[test]
fn d_23_a_commit_that_the_rebalance_holds_up_does_not_hold_the_close_up() {
    let (mut stand, late) = joining(cooperative());
    stand.join_answer(
        late,
        JoinGroupResponse { protocol_name: Some("cooperative-sticky".into()), ..follower(4) },
    );
    assert_eq!(stand.state(), MemberState::CompletingRebalance);
    stand.effects.clear();
    let begun = stand.now;
    close(&mut stand, 5);
    stand.drained();
    let (round, request) = stand.commit();
    stand.commit_answer(round, &request, E::RebalanceInProgress);
    stand.released("lost");
    stand.left(LeaveGroupResponse::default());
    let [Effect::Closed(report)] = &stand.effects[stand.effects.len() - 1..] else { panic!() };
    assert_eq!(
        (report.forced, report.dropped.as_slice()),
        (true, &[partition(0)][..]),
        "it says what is dropped"
    );
    assert_eq!(stand.now, begun);
}

#[test]
fn c_close_08_a_forced_close_looks_for_the_coordinator_until_its_time_is_over() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.handled(0, 15);
    stand.answered(E::NotCoordinator);
    stand.effects.clear();
    let begun = stand.now;
    let deadline = begun + secs(5);
    close(&mut stand, 5);
    stand.drained();
    let mut lookups = Vec::new();
    while stand.state() != MemberState::Left {
        stand.now = stand.core.deadline().expect("something is due").max(stand.now);
        assert!(stand.now <= deadline);
        stand.input(Input::Deadline);
        if stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })) {
            stand.released("revoked");
        }
        if stand.asks() > 0 {
            let (round, question) = stand.question();
            assert!(matches!(question, Question::FindCoordinator(_)), "{question:?}");
            lookups.push(stand.now - begun);
            stand.answer(round, Err(network()));
        }
    }
    assert_eq!(stand.now, deadline, "the whole time");
    let last = *lookups.last().unwrap();
    assert!(lookups.len() <= 10 && last > secs(4), "paced, to the end: {lookups:?}");
    let [Effect::Closed(report)] = &stand.effects[stand.effects.len() - 1..] else { panic!() };
    assert!(report.forced && matches!(report.leave, LeaveOutcome::Unconfirmed(_)), "{report:?}");
}

#[test]
fn c_close_08_a_coordinator_found_late_in_a_forced_close_is_still_told() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.handled(0, 15);
    stand.answered(E::NotCoordinator);
    stand.effects.clear();
    close(&mut stand, 5);
    stand.drained();
    while stand.state() != MemberState::Leaving {
        stand.now = stand.core.deadline().expect("something is due").max(stand.now);
        stand.input(Input::Deadline);
        if stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })) {
            stand.released("revoked");
        }
        if stand.asks() > 0 {
            let (round, _) = stand.question();
            stand.answer(round, Err(network()));
        }
    }
    stand.find();
    stand.left(LeaveGroupResponse::default());
    let [Effect::Closed(report)] = &stand.effects[stand.effects.len() - 1..] else { panic!() };
    assert_eq!((report.leave.clone(), report.forced), (LeaveOutcome::Left, true));
}

/// A static cooperative member whose commit shows its generation gone while its JoinGroup is out; the round of that
/// JoinGroup, after which another one went out.
fn overtaken() -> (Stand, u64) {
    let mut stand = Stand::with(MembershipConfig { group_instance_id: Some("i".into()), ..cooperative() });
    stand.stable(3);
    stand.handled(0, 15);
    stand.input(Input::Commit);
    let (commit, request) = stand.commit();
    stand.answered(E::RebalanceInProgress);
    let (late, join) = stand.join();
    assert_eq!(join.member_id, "m");
    stand.effects.clear();
    stand.commit_answer(commit, &request, E::IllegalGeneration);
    stand.released("lost");
    (stand, late)
}

#[test]
fn c_join_05_fenced_is_fatal_even_when_it_answers_a_join_of_an_older_generation() {
    let (mut stand, late) = overtaken();
    let (_, join) = stand.join();
    assert_eq!(join.member_id, "m", "the id is kept");
    stand.join_error(late, E::FencedInstanceId);
    assert_eq!(stand.terminated(), Some(&TerminalCause::FencedInstanceId));
    assert_eq!((stand.state(), stand.asks()), (MemberState::Fatal, 0));
}

#[test]
fn c_join_05_no_other_late_answer_of_an_older_join_changes_anything() {
    for late_answer in [
        JoinGroupResponse { error: E::UnknownMemberId, ..Default::default() },
        JoinGroupResponse { error: E::GroupAuthorizationFailed, ..Default::default() },
        follower(9),
    ] {
        let (mut stand, late) = overtaken();
        let (round, _) = stand.join();
        stand.effects.clear();
        stand.join_answer(late, late_answer);
        assert!(stand.effects.is_empty(), "{:?}", stand.effects);
        stand.join_error(round, E::UnknownMemberId);
        assert_eq!(stand.join().1.member_id, "", "the join that stands is heard");
    }
}

#[test]
fn c_join_05_a_member_whose_own_next_join_fenced_its_older_one_goes_on() {
    let (mut stand, late) = overtaken();
    let (round, _) = stand.join();
    stand.join_error(round, E::UnknownMemberId);
    assert_eq!(stand.join().1.member_id, "", "joins as a newcomer, which takes its own older place");
    stand.join_error(late, E::FencedInstanceId);
    assert_eq!((stand.terminated(), stand.state()), (None, MemberState::PreparingRebalance));
}

/// Symptom: a member whose handlers block was thrown out of the group by every rebalance.
#[test]
fn d_07_workers_that_never_answer_do_not_keep_the_join_beyond_the_rebalance_timeout() {
    for late in [0, 1, 3, 5] {
        let mut stand = Stand::new();
        stand.stable(3);
        stand.answered(E::None);
        // The rebalance may begin now; the next beat tells of it.
        let begun = stand.now;
        stand.pass(secs(late));
        stand.answered(E::RebalanceInProgress);
        stand.effects.retain(|effect| !matches!(effect, Effect::Ask { .. }));
        stand.join();
        let took = stand.now - begun;
        assert!(took <= secs(9), "heard of it {late} s late, joined after {took:?} of 10 s");
    }
}
