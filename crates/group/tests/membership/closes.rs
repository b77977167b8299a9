//! Closes at bad moments: in the middle of a rebalance, and without a coordinator.

use kohort_group::membership::{Answer, CloseReport, Effect, Failure, LeaveOutcome, Notice, Question};
use kohort_group::{Input, MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::messages::{CoordinatorAddress, JoinGroupResponse, LeaveGroupResponse};

use crate::mid_rebalance::{close, cooperative, joining};
use crate::stand::{Stand, config, follower, network, partition, secs};

fn report(stand: &Stand) -> CloseReport {
    stand
        .effects
        .iter()
        .find_map(|effect| match effect {
            Effect::Closed(report) => Some(report.clone()),
            _ => None,
        })
        .expect("closed")
}

fn nobody() -> Result<Answer, Failure> {
    let address = CoordinatorAddress { error: E::CoordinatorNotAvailable, ..Default::default() };
    Ok(Answer::Coordinator(address))
}

/// Lets a member that closes have its time; every question gets this answer, and workers whose record in hand is not cut
/// off end when they are told.
fn until_left(stand: &mut Stand, aborted: &[i32], mut answer: impl FnMut(&mut Stand, u64, Question)) {
    while stand.state() != MemberState::Left {
        stand.now = stand.core.deadline().expect("something is due").max(stand.now);
        stand.input(Input::Deadline);
        if stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })) {
            let (round, _) = stand.order();
            let aborted = aborted.iter().map(|number| partition(*number)).collect();
            stand.input(Input::Released { round, aborted });
        }
        while stand.asks() > 0 {
            let (round, question) = stand.question();
            answer(stand, round, question);
        }
    }
}

/// As long as it closes, nobody can say where the coordinator is.
fn unfound(stand: &mut Stand, answer: &Result<Answer, Failure>) {
    until_left(stand, &[], |stand, round, question| {
        assert!(matches!(question, Question::FindCoordinator(_)), "{question:?}");
        stand.answer(round, answer.clone());
    });
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
    let report = report(&stand);
    assert_eq!((report.leave.clone(), report.forced, report.dropped.len()), (LeaveOutcome::Left, false, 0));
    assert_eq!(stand.state(), MemberState::Left);
}

/// Between the answers to its join and its sync, with a commit that the rebalance puts off.
fn completing(response: JoinGroupResponse) -> (Stand, u64, kohort_protocol::messages::OffsetCommitRequest) {
    let (mut stand, late) = joining(cooperative());
    stand.join_answer(
        late,
        JoinGroupResponse { protocol_name: Some("cooperative-sticky".into()), ..response },
    );
    assert_eq!(stand.state(), MemberState::CompletingRebalance);
    stand.effects.clear();
    close(&mut stand, 5);
    stand.drained();
    let (round, request) = stand.commit();
    (stand, round, request)
}

#[test]
fn d_23_a_close_waits_a_moment_for_others_to_complete_a_rebalance_and_no_longer() {
    // The leader's SyncGroup is there soon, and with it a commit that is taken.
    let (mut stand, mut round, mut request) = completing(follower(4));
    for _ in 0..2 {
        stand.commit_answer(round, &request, E::RebalanceInProgress);
        (round, request) = stand.commit();
    }
    stand.commit_answer(round, &request, E::None);
    stand.released("lost");
    stand.left(LeaveGroupResponse::default());
    assert_eq!((report(&stand).forced, report(&stand).dropped.len()), (false, 0));

    // It never is.
    let (mut stand, mut round, mut request) = completing(follower(4));
    let begun = stand.now;
    loop {
        stand.commit_answer(round, &request, E::RebalanceInProgress);
        if stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })) {
            break;
        }
        (round, request) = stand.commit();
    }
    let took = stand.now - begun;
    assert!(took >= secs(1) && took <= secs(2), "a second, and a back-off: {took:?}");
    stand.released("lost");
    stand.left(LeaveGroupResponse::default());
    let report = report(&stand);
    assert_eq!(
        (report.forced, report.dropped.as_slice()),
        (true, &[partition(0)][..]),
        "it says what is dropped"
    );

    // The leader itself would wait for its own SyncGroup.
    let (mut stand, round, request) = completing(crate::stand::leader(4));
    let begun = stand.now;
    stand.commit_answer(round, &request, E::RebalanceInProgress);
    stand.released("lost");
    assert_eq!(stand.now, begun);
}

/// A coordinator that loads is no rebalance: what it will take in a moment is not given up.
#[test]
fn a_close_while_the_coordinator_loads_waits_for_its_commit() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.handled(0, 15);
    close(&mut stand, 5);
    stand.drained();
    for _ in 0..4 {
        let (round, request) = stand.commit();
        stand.commit_answer(round, &request, E::CoordinatorLoadInProgress);
    }
    let (round, request) = stand.commit();
    stand.commit_answer(round, &request, E::None);
    stand.released("revoked");
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
    until_left(&mut stand, &[], |stand, round, question| {
        assert!(matches!(question, Question::FindCoordinator(_)), "{question:?}");
        lookups.push(stand.now - begun);
        stand.answer(round, Err(network()));
    });
    assert_eq!(stand.now, deadline, "the whole time");
    let last = *lookups.last().unwrap();
    assert!(lookups.len() <= 10 && last > secs(4), "paced, to the end: {lookups:?}");
    let report = report(&stand);
    assert_eq!(
        (report.forced, report.leave.clone()),
        (true, LeaveOutcome::NotSent),
        "nobody was there to be told"
    );
    assert_eq!(report.dropped, [partition(0)], "D-24: it says what was dropped");
}

/// A member with work to commit and without a coordinator is closed, and looks for it until it is there again, which is
/// late in its time; then every question is answered well. What went out behind the search, in order.
fn found_late(config: MembershipConfig, aborted: &[i32]) -> (Stand, Vec<&'static str>) {
    let mut loading = 2;
    let mut stand = Stand::with(config);
    stand.stable(3);
    stand.handled(0, 15);
    stand.answered(E::NotCoordinator);
    stand.effects.clear();
    let back = stand.now + secs(4);
    close(&mut stand, 5);
    stand.drained();
    let mut asked = Vec::new();
    until_left(&mut stand, aborted, |stand, round, question| {
        let answer = match question {
            Question::FindCoordinator(_) if stand.now < back => Err(network()),
            Question::FindCoordinator(_) => Ok(Answer::Coordinator(CoordinatorAddress {
                host: "broker".into(),
                port: 9092,
                ..Default::default()
            })),
            Question::CommitOffsets(request) => {
                // It loads at first.
                loading -= 1;
                let code = if loading > 0 { E::CoordinatorLoadInProgress } else { E::None };
                asked.push("commit");
                return stand.commit_answer(round, &request, code);
            }
            Question::Leave(_) => {
                asked.push("leave");
                Ok(Answer::Left(LeaveGroupResponse::default()))
            }
            other => panic!("{other:?}"),
        };
        stand.answer(round, answer);
    });
    (stand, asked)
}

#[test]
fn c_close_08_a_coordinator_found_late_in_a_close_gets_the_commit_and_the_leave() {
    for (instance, expected, leave) in [
        (None, &["commit", "commit", "leave"][..], LeaveOutcome::Left),
        (Some("i"), &["commit", "commit"][..], LeaveOutcome::NotSent),
    ] {
        let config = MembershipConfig { group_instance_id: instance.map(Into::into), ..config() };
        let (stand, asked) = found_late(config, &[]);
        assert_eq!(asked, expected, "{instance:?}");
        let report = report(&stand);
        assert_eq!((report.leave.clone(), report.forced), (leave, false), "{report:?}");
        assert_eq!(report.committed.values().copied().collect::<Vec<_>>(), [15]);
        assert!(report.dropped.is_empty(), "{report:?}");
    }
    // What was cut off stays so, though what was handled before it is committed.
    let (stand, _) = found_late(config(), &[0]);
    let report = report(&stand);
    assert_eq!((report.forced, report.dropped.as_slice()), (true, &[partition(0)][..]));
    assert_eq!(report.committed.values().copied().collect::<Vec<_>>(), [15]);
}

/// Symptom: the report of a close says that no LeaveGroup was sent, after one was sent and refused.
#[test]
fn a_leave_that_was_refused_until_the_close_was_over_is_reported_as_not_confirmed() {
    let mut stand = Stand::new();
    stand.stable(3);
    close(&mut stand, 5);
    stand.drained();
    stand.released("revoked");
    stand.left(LeaveGroupResponse { error: E::NotCoordinator, ..Default::default() });
    unfound(&mut stand, &nobody());
    assert_ne!(report(&stand).leave, LeaveOutcome::NotSent, "one LeaveGroup went out");
}

/// Symptom: `LeaveOutcome::Unconfirmed` is documented as "sent, and no good answer came", and is reported by a close that
/// never sent a LeaveGroup; with other answers of the search the same close says `NotSent`.
#[test]
fn a_close_that_never_sent_a_leave_group_says_so() {
    let mut outcomes = Vec::new();
    for answer in [Err(network()), nobody()] {
        let mut stand = Stand::new();
        stand.stable(3);
        stand.handled(0, 15);
        stand.answered(E::NotCoordinator);
        stand.effects.clear();
        close(&mut stand, 5);
        stand.drained();
        unfound(&mut stand, &answer);
        outcomes.push(report(&stand).leave);
    }
    assert_eq!(outcomes, [LeaveOutcome::NotSent, LeaveOutcome::NotSent], "no LeaveGroup went out");
}
