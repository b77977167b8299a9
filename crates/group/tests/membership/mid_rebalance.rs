//! What comes while a JoinGroup or SyncGroup is out: answers to joins that were overtaken, work that goes on, and the time
//! that giving back may take.

use kohort_group::assignor::Assignor;
use kohort_group::membership::{
    Answer, Beat, Effect, GroupMembershipOperation, Notice, Question, TerminalCause,
};
use kohort_group::{Input, MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::messages::JoinGroupResponse;

use crate::stand::{Stand, config, follower, partition, secs};

pub(crate) fn cooperative() -> MembershipConfig {
    MembershipConfig { assignors: vec![Assignor::CooperativeSticky], ..config() }
}

/// A cooperative member with work to commit, whose JoinGroup is out; the round of it.
pub(crate) fn joining(config: MembershipConfig) -> (Stand, u64) {
    let mut stand = Stand::with(config);
    stand.stable(3);
    stand.handled(0, 15);
    stand.answered(E::RebalanceInProgress);
    let (round, _) = stand.join();
    assert_eq!(stand.state(), MemberState::PreparingRebalance);
    stand.effects.clear();
    (stand, round)
}

pub(crate) fn close(stand: &mut Stand, seconds: u64) {
    let deadline = stand.now + secs(seconds);
    stand.input(Input::Close { operation: GroupMembershipOperation::Default, deadline });
}

/// A static cooperative member whose session ends while its JoinGroup is out; the round of that JoinGroup, after which
/// another one goes out.
fn overtaken() -> (Stand, u64) {
    let (mut stand, late) =
        joining(MembershipConfig { group_instance_id: Some("i".into()), ..cooperative() });
    while !stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })) {
        stand.pass(std::time::Duration::from_millis(100));
    }
    stand.released("lost");
    stand
        .effects
        .retain(|effect| !matches!(effect, Effect::Ask { question: Question::CommitOffsets(_), .. }));
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

/// Symptom: a cooperative member whose JoinGroup got lost handles its partitions on for the whole join timeout, long
/// after the session is over and they belong to others.
#[test]
fn a_cooperative_member_whose_join_is_never_answered_fences_itself() {
    let mut stand = Stand::with(cooperative());
    stand.stable(3);
    stand.answered(E::RebalanceInProgress);
    stand.join();
    stand.effects.clear();
    // Session 6 s, rebalance 10 s: no coordinator that still counts it in is silent for longer than both.
    stand.pass(secs(17));
    assert!(
        stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. } | Effect::DrainWorkers { .. })),
        "{:?} in {}",
        stand.effects,
        stand.state()
    );
}

/// Symptom: a beat whose answer was late makes the handover late by as much, and the member is thrown out.
#[test]
fn a_beat_that_is_answered_late_does_not_make_the_join_come_too_late() {
    let mut stand = Stand::new();
    stand.stable(3);
    // The beat was sent and answered now; its answer takes 1.9 s (request timeout 2 s), and the rebalance begins right behind it.
    let begun = stand.now;
    stand.pass(std::time::Duration::from_millis(1900));
    stand.beat(Beat::Answered(E::None));
    stand.pass(secs(1));
    stand.answered(E::RebalanceInProgress);
    stand.effects.retain(|effect| !matches!(effect, Effect::Ask { .. }));
    stand.join();
    let took = stand.now - begun;
    assert!(took <= secs(10), "joined after {took:?} of 10 s");
}

/// The next commit of a member that joins; its session is 6 s.
fn proof(stand: &mut Stand) -> (u64, kohort_protocol::messages::OffsetCommitRequest) {
    assert_eq!(stand.state(), MemberState::PreparingRebalance);
    let (round, request) = stand.commit();
    assert_eq!((request.generation, request.member_id.as_str()), (3, "m"));
    (round, request)
}

#[test]
fn c_hb_04_a_member_that_works_while_it_joins_shows_by_commits_that_it_is_counted_in() {
    let mut stand = Stand::with(cooperative());
    stand.stable(3);
    stand.answered(E::RebalanceInProgress);
    stand.join();
    stand.effects.clear();
    let begun = stand.now;
    // Idle: what is committed is committed again, at half of the session, as long as the coordinator takes it.
    for half in 1..=4 {
        let (round, request) = proof(&mut stand);
        assert_eq!(stand.now - begun, secs(3) * half);
        let [topic] = &request.topics[..] else { panic!("{request:?}") };
        assert_eq!((topic.partitions.len(), topic.partitions[0].offset), (2, 10));
        stand.commit_answer(round, &request, E::None);
        assert!(!stand.notices().any(|notice| matches!(notice, Notice::Committed(_))), "nothing new");
    }
    // Then it does not answer any more: the session ends, counted from the last that was taken.
    let (_, request) = proof(&mut stand);
    assert_eq!(request.topics.len(), 1);
    stand.pass(secs(3) - std::time::Duration::from_millis(1));
    assert_eq!(stand.state(), MemberState::PreparingRebalance);
    stand.pass(std::time::Duration::from_millis(1));
    assert_eq!(stand.now - begun, secs(18));
    stand.released("lost");
}

#[test]
fn a_member_that_works_while_it_joins_commits_what_it_does() {
    let (mut stand, late) = joining(cooperative());
    let (round, request) = proof(&mut stand);
    assert_eq!(request.topics[0].partitions[0].offset, 15);
    // The group has gone on, and the answer to the join is on its way: no reason to give anything up.
    stand.commit_answer(round, &request, E::IllegalGeneration);
    assert_eq!(stand.state(), MemberState::PreparingRebalance);
    stand.effects.clear();
    let response = JoinGroupResponse { protocol_name: Some("cooperative-sticky".into()), ..follower(4) };
    stand.join_answer(late, response);
    assert_eq!(stand.state(), MemberState::CompletingRebalance);
    assert!(!stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })));
}

#[test]
fn a_commit_that_shows_the_id_gone_while_the_join_is_out_loses_what_was_kept() {
    let (mut stand, _) = joining(cooperative());
    let (round, request) = proof(&mut stand);
    stand.commit_answer(round, &request, E::UnknownMemberId);
    stand.released("lost");
    assert_eq!(stand.join().1.member_id, "", "as a newcomer");
}

/// Symptom: two members worked on one partition, and its committed offset went back. A static member's join was lost, it
/// was kept in the group without one, and its partitions were given away a generation before it was in again.
#[test]
fn what_was_kept_through_a_generation_that_passed_without_the_member_is_lost() {
    let (mut stand, late) = joining(cooperative());
    stand.join_answer(
        late,
        JoinGroupResponse { protocol_name: Some("cooperative-sticky".into()), ..follower(5) },
    );
    stand.released("lost");
    assert!(!stand.has(|effect| matches!(effect, Effect::Ask { question: Question::CommitOffsets(_), .. })));
    let (_, join) = stand.join();
    assert_eq!(join.member_id, "m", "the id is kept");

    // The next generation, or the same one again, is nobody else's.
    for generation in [3, 4] {
        let (mut stand, late) = joining(cooperative());
        let response =
            JoinGroupResponse { protocol_name: Some("cooperative-sticky".into()), ..follower(generation) };
        stand.join_answer(late, response);
        assert_eq!(stand.state(), MemberState::CompletingRebalance);
    }
}

/// Symptom: "the handler may still commit" in `revoked` (handler.rs), but a commit that is asked for there never goes out
/// when the one before the hook failed: the hook waits for it until it is killed.
#[test]
fn a_commit_that_the_revoked_hook_asks_for_goes_out() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.handled(0, 15);
    stand.answered(E::RebalanceInProgress);
    stand.drained();
    let (round, request) = stand.commit();
    stand.commit_answer(round, &request, E::CoordinatorLoadInProgress);
    // The commit's share of the time is over before it is tried again with success: the hook runs.
    while !stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })) {
        stand.now = stand.core.deadline().expect("something is due").max(stand.now);
        stand.input(Input::Deadline);
        stand.answered(E::RebalanceInProgress);
        while stand.asks() > 0 {
            let (round, request) = stand.commit();
            stand.commit_answer(round, &request, E::CoordinatorLoadInProgress);
        }
    }
    let (_, order) = stand.order();
    assert_eq!(order, "revoked");
    stand.effects.clear();
    stand.input(Input::Commit);
    stand.pass(std::time::Duration::from_millis(800));
    assert_eq!(stand.asks(), 1, "{:?} in {}", stand.effects, stand.state());
}

/// Symptom: while the `revoked` hook of one partition takes its time, the partitions that a cooperative member keeps are
/// worked on and not committed; a handler that waits for its commit fails after the request timeout.
#[test]
fn kept_partitions_are_committed_while_the_revoked_hook_of_another_runs() {
    let mut stand = Stand::with(cooperative());
    stand.stable(3);
    stand.answered(E::RebalanceInProgress);
    let (round, _) = stand.join();
    stand.join_answer(round, follower(4));
    let (round, _) = stand.sync();
    stand.answer(round, Ok(Answer::Synced(crate::stand::assigned(&[0]))));
    assert_eq!(stand.state(), MemberState::Revoking);
    stand.drained();
    let (_, order) = stand.order();
    assert_eq!(order, "revoked", "of partition 1");
    stand.effects.clear();
    stand.input(Input::Handled { generation: 3, partition: partition(0), position: 15, records: 1 });
    stand.input(Input::Commit);
    stand.pass(secs(2));
    assert_eq!(stand.asks(), 1, "a commit of partition 0: {:?} in {}", stand.effects, stand.state());
}

#[test]
fn a_member_that_closes_is_not_ended_by_an_overtaken_join() {
    let (mut stand, late) = overtaken();
    close(&mut stand, 5);
    stand.join_error(late, E::FencedInstanceId);
    assert_eq!((stand.state(), stand.terminated()), (MemberState::Left, None));
}

/// However late it hears of the rebalance, the record in hand has some time.
#[test]
fn a_member_that_hears_very_late_of_a_rebalance_still_drains() {
    let mut stand = Stand::with(MembershipConfig { rebalance_timeout: secs(4), ..config() });
    stand.stable(3);
    stand.answered(E::None);
    stand.answered(E::None);
    stand.pass(secs(5));
    stand.effects.clear();
    stand.answered(E::RebalanceInProgress);
    let drain = stand.effects.iter().find_map(|effect| match effect {
        Effect::DrainWorkers { within, .. } => Some(*within),
        _ => None,
    });
    assert!(drain.is_some_and(|within| within >= std::time::Duration::from_millis(500)), "{drain:?}");
}

/// Symptom: what a cooperative assignment added while it took something away was told of twice.
#[test]
fn a_partition_that_comes_while_another_goes_is_told_of_once() {
    let mut stand = Stand::with(cooperative());
    stand.stable(3);
    let generation = |stand: &mut Stand, number, partitions: &[i32]| {
        stand.answered(E::RebalanceInProgress);
        stand.effects.retain(|effect| matches!(effect, Effect::Ask { .. }));
        let (round, _) = stand.join();
        let response =
            JoinGroupResponse { protocol_name: Some("cooperative-sticky".into()), ..follower(number) };
        stand.join_answer(round, response);
        let (round, _) = stand.sync();
        let mut answer = crate::stand::assigned(partitions);
        answer.protocol_name = Some("cooperative-sticky".into());
        stand.answer(round, Ok(Answer::Synced(answer)));
    };
    generation(&mut stand, 4, &[1, 2]);
    let told = |stand: &Stand| {
        let all = stand.notices().filter_map(|notice| match notice {
            Notice::Assigned { partitions, .. } => Some(partitions.clone()),
            _ => None,
        });
        all.flatten().collect::<Vec<_>>()
    };
    assert_eq!(told(&stand), [], "0 goes first");
    stand.drained();
    stand.released("revoked");
    let (round, _) = stand.join();
    let response = JoinGroupResponse { protocol_name: Some("cooperative-sticky".into()), ..follower(5) };
    stand.join_answer(round, response);
    let (round, _) = stand.sync();
    let mut answer = crate::stand::assigned(&[1, 2]);
    answer.protocol_name = Some("cooperative-sticky".into());
    stand.answer(round, Ok(Answer::Synced(answer)));
    assert_eq!(told(&stand), [partition(2)]);
}
