//! C-CLOSE, and the ends for a reason.

use kohort_group::membership::{
    Answer, CloseReport, Effect, ExitKind, GroupMembershipOperation, LeaveOutcome, Notice, Question,
    TerminalCause,
};
use kohort_group::{Input, MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::messages::{LeaveGroupResponse, LeftMember};

use crate::stand::{Stand, config, network, secs};

impl Stand {
    fn close(&mut self, operation: GroupMembershipOperation, timeout: u64) {
        let deadline = self.now + secs(timeout);
        self.input(Input::Close { operation, deadline });
    }

    fn report(&self) -> Option<&CloseReport> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Closed(report) => Some(report),
            _ => None,
        })
    }
}

const DEFAULT: GroupMembershipOperation = GroupMembershipOperation::Default;

/// The 2 × 3 table of KIP-1092.
#[test]
fn c_close_01_02_03_and_c_static_07_who_leaves() {
    use GroupMembershipOperation::*;
    for (instance, operation, leaves) in [
        (None, Default, true),
        (None, LeaveGroup, true),
        (None, RemainInGroup, false),
        (Some("i"), Default, false),
        (Some("i"), LeaveGroup, true),
        (Some("i"), RemainInGroup, false),
    ] {
        let mut stand =
            Stand::with(MembershipConfig { group_instance_id: instance.map(Into::into), ..config() });
        stand.stable(3);
        stand.close(operation, 5);
        stand.drained();
        stand.released("revoked");
        if leaves {
            let (round, question) = stand.question();
            let Question::Leave(request) = question else { panic!("{question:?}") };
            assert_eq!(request.members.len(), 1);
            assert_eq!(request.members[0].member_id, "m");
            assert_eq!(request.members[0].group_instance_id.as_deref(), instance);
            stand.answer(round, Ok(Answer::Left(LeaveGroupResponse::default())));
            assert_eq!(stand.report().unwrap().leave, LeaveOutcome::Left);
        }
        assert_eq!((stand.state(), stand.asks()), (MemberState::Left, 0));
        assert_eq!(
            stand.report().unwrap().leave == LeaveOutcome::NotSent,
            !leaves,
            "{instance:?} {operation:?}"
        );
    }
}

#[test]
fn c_close_12_commit_then_revoked_then_leave_with_the_heart_disarmed_before() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.handled(0, 15);
    stand.close(DEFAULT, 5);
    stand.drained();
    let (round, request) = stand.commit();
    stand.commit_answer(round, &request, E::None);
    stand.released("revoked");
    let order: Vec<_> = stand
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Notice(Notice::Revoked(_)) => Some("revoked"),
            Effect::DisarmHeartbeat => Some("disarm"),
            Effect::Ask { question: Question::Leave(_), .. } => Some("leave"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["revoked", "disarm", "leave"], "C-CLOSE-14: no beat follows the leave");
    stand.left(LeaveGroupResponse::default());
    assert_eq!(stand.report().unwrap().committed.values().copied().collect::<Vec<_>>(), [15]);
}

#[test]
fn c_close_09_with_nothing_to_commit_and_no_coordinator_it_is_over_at_once() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.answered(E::NotCoordinator);
    stand.effects.clear();
    let begun = stand.now;
    stand.close(DEFAULT, 5);
    stand.drained();
    stand.released("revoked");
    assert_eq!((stand.report().unwrap().leave.clone(), stand.now), (LeaveOutcome::NotSent, begun));
    assert_eq!(stand.asks(), 0);
}

#[test]
fn c_close_10_an_unanswered_leave_is_not_resent() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.close(DEFAULT, 5);
    stand.drained();
    stand.released("revoked");
    let within = stand.effects.iter().find_map(|effect| match effect {
        Effect::Ask { within, question: Question::Leave(_), .. } => Some(*within),
        _ => None,
    });
    assert_eq!(within, Some(secs(2)), "the smaller of budget and request timeout");
    let (round, _) = stand.question();
    stand.answer(round, Err(network()));
    assert!(matches!(stand.report().unwrap().leave, LeaveOutcome::Unconfirmed(_)));
    assert!(!stand.report().unwrap().forced);
    assert_eq!(stand.asks(), 0);
}

#[test]
fn c_close_15_and_d_23_every_state_of_a_rebalance_can_be_closed_at_once() {
    // (a) a JoinGroup is out: the newest id is left, whatever it answers later.
    let mut stand = Stand::new();
    stand.stable(3);
    stand.answered(E::RebalanceInProgress);
    stand.drained();
    stand.released("revoked");
    let (late, _) = stand.join();
    stand.close(DEFAULT, 5);
    assert_eq!(stand.state(), MemberState::Leaving);
    stand.join_answer(late, crate::stand::follower(9));
    assert_eq!(stand.state(), MemberState::Leaving, "answers that come after the close began change nothing");
    stand.left(LeaveGroupResponse::default());
    assert_eq!(stand.state(), MemberState::Left);

    // (b) between join and sync.
    let mut stand = Stand::new();
    stand.syncing(1);
    stand.close(DEFAULT, 5);
    stand.left(LeaveGroupResponse::default());
    assert_eq!(stand.state(), MemberState::Left);

    // (d) just after a 27: the drain that runs is shortened, not begun anew.
    let mut stand = Stand::new();
    stand.stable(3);
    stand.answered(E::RebalanceInProgress);
    stand.close(DEFAULT, 5);
    assert_eq!(stand.state(), MemberState::PrepareLeaving);
    stand.drained();
    stand.released("revoked");
    stand.left(LeaveGroupResponse::default());
    assert_eq!(stand.state(), MemberState::Left);

    // (e) right after the demand for a member id: the pending id is left.
    let mut stand = Stand::new();
    stand.find();
    let (round, _) = stand.join();
    let given = kohort_protocol::messages::JoinGroupResponse {
        error: E::MemberIdRequired,
        member_id: "pending".into(),
        ..Default::default()
    };
    stand.join_answer(round, given);
    stand.effects.clear();
    stand.close(DEFAULT, 5);
    let (_, question) = stand.question();
    assert!(matches!(question, Question::Leave(request) if request.members[0].member_id == "pending"));
}

#[test]
fn c_close_17_without_a_member_id_nothing_is_sent_whatever_the_option() {
    use GroupMembershipOperation::*;
    for operation in [Default, LeaveGroup, RemainInGroup] {
        let mut stand = Stand::new();
        stand.find();
        stand.join();
        stand.close(operation, 5);
        assert_eq!((stand.asks(), stand.state()), (0, MemberState::Left));
    }
}

#[test]
fn c_close_19_and_20_what_a_leave_answers_does_not_hold_the_close_up() {
    let member = |error| LeftMember { member_id: "m".into(), group_instance_id: None, error };
    for (response, expected) in [
        (LeaveGroupResponse { error: E::None, members: vec![member(E::UnknownMemberId)] }, false),
        (LeaveGroupResponse { error: E::None, members: vec![] }, true),
        (LeaveGroupResponse { error: E::GroupAuthorizationFailed, members: vec![] }, false),
        (LeaveGroupResponse { error: E::None, members: vec![member(E::None), member(E::None)] }, false),
    ] {
        let mut stand = Stand::new();
        stand.stable(3);
        stand.close(DEFAULT, 5);
        stand.drained();
        stand.released("revoked");
        stand.left(response);
        assert_eq!(stand.state(), MemberState::Left);
        assert_eq!(stand.report().unwrap().leave == LeaveOutcome::Left, expected);
    }
    let mut stand = Stand::new();
    stand.stable(3);
    stand.close(DEFAULT, 5);
    stand.drained();
    stand.released("revoked");
    stand.left(LeaveGroupResponse { error: E::NotCoordinator, members: vec![] });
    stand.find();
    stand.left(LeaveGroupResponse::default());
    assert_eq!(stand.report().unwrap().leave, LeaveOutcome::Left, "retried inside the budget");
}

#[test]
fn c_close_13_a_second_close_releases_nothing_again_and_what_is_over_takes_nothing_more() {
    let closes = |stand: &Stand| {
        let closed = |effect: &&Effect| matches!(effect, Effect::Closed(_));
        let released = |effect: &&Effect| matches!(effect, Effect::ReleaseWorkers { .. });
        (stand.effects.iter().filter(closed).count(), stand.effects.iter().filter(released).count())
    };
    // Closed while it closes: one drain, one release, one leave, one report.
    let mut stand = Stand::new();
    stand.stable(3);
    stand.close(DEFAULT, 5);
    let before = stand.effects.len();
    stand.close(DEFAULT, 5);
    assert_eq!(stand.effects.len(), before, "it closes already");
    stand.drained();
    assert_eq!(closes(&stand), (0, 1));
    stand.close(GroupMembershipOperation::RemainInGroup, 5);
    assert_eq!(closes(&stand), (0, 1));
    stand.released("revoked");
    stand.left(LeaveGroupResponse::default());
    assert_eq!((closes(&stand), stand.asks()), ((1, 0), 0), "the first close's wish to leave stands");
    assert_eq!(stand.state(), MemberState::Left);
    // Closed once it is closed: an answer, and nothing else.
    stand.effects.clear();
    stand.close(DEFAULT, 5);
    assert_eq!(stand.effects, [Effect::Closed(CloseReport::default())]);
    // Whatever else is asked of it finds nobody.
    stand.effects.clear();
    let before = stand.core.clone();
    let partition = crate::stand::partition(0);
    for input in [
        Input::Commit,
        Input::Handled { generation: 3, partition: partition.clone(), position: 99, records: 1 },
        Input::PositionReset { generation: 3, partition, offset: 0 },
        Input::WorkersGaveUp { partition: None, cause: "late".into() },
        Input::Drained { round: 1 },
        Input::Released { round: 1, aborted: Vec::new() },
        Input::HeartbeatExited { incarnation: 1, exit: ExitKind::Killed },
        Input::HeartbeatStartFailed { error: "late".into() },
        Input::Start,
        Input::Deadline,
    ] {
        stand.input(input);
    }
    assert!(stand.effects.is_empty() && stand.core == before && stand.core.deadline().is_none());

    // One that never was in a group is closed at once; one that ended for a reason has told it already.
    let mut stand = Stand::new();
    stand.close(DEFAULT, 5);
    assert_eq!((stand.state(), closes(&stand)), (MemberState::Left, (1, 0)));
    let mut stand = Stand::new();
    stand.stable(3);
    stand.answered(E::FencedInstanceId);
    stand.released("lost");
    stand.effects.clear();
    stand.close(DEFAULT, 5);
    assert!(stand.effects.is_empty());
}

/// Thirty seconds are the builder's default. Here: every step has its part of them, so that the last one is still
/// in time when each step uses all that it has.
#[test]
fn c_close_06_the_steps_of_a_close_fit_into_its_thirty_seconds() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.handled(0, 15);
    let begun = stand.now;
    stand.close(DEFAULT, 30);
    let mut steps = Vec::new();
    while stand.report().is_none() {
        for effect in std::mem::take(&mut stand.effects) {
            match effect {
                Effect::DrainWorkers { within, .. } => steps.push(("drain", stand.now - begun, within)),
                Effect::ReleaseWorkers { within, .. } => steps.push(("release", stand.now - begun, within)),
                Effect::Ask { question: Question::CommitOffsets(_), within, .. } => {
                    steps.push(("commit", stand.now - begun, within));
                }
                Effect::Ask { question: Question::Leave(_), within, .. } => {
                    steps.push(("leave", stand.now - begun, within));
                }
                closed @ Effect::Closed(_) => stand.effects.push(closed),
                _ => {}
            }
        }
        if stand.report().is_none() {
            // The coordinator hears of it all the while, and nobody answers anything else.
            let step = stand.now + secs(3);
            stand.now = stand.core.deadline().expect("a close always waits for something").min(step);
            stand.answered_if_armed();
            stand.input(Input::Deadline);
        }
    }
    let names: Vec<_> = steps.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, ["drain", "commit", "release", "leave"]);
    for (name, at, within) in steps {
        assert!(at + within <= secs(30), "{name} begins after {at:?} and has {within:?}");
    }
    assert!(stand.now - begun <= secs(30));
    assert!(stand.report().unwrap().forced);
}

#[test]
fn a_terminal_reason_while_closing_makes_the_close_poorer_and_nothing_else() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.handled(0, 15);
    stand.close(DEFAULT, 5);
    stand.answered(E::FencedInstanceId);
    stand.effects.retain(|effect| !matches!(effect, Effect::DrainWorkers { .. }));
    stand.released("lost");
    assert_eq!((stand.state(), stand.asks()), (MemberState::Left, 0), "neither commit nor leave");
    assert_eq!(stand.report().unwrap().dropped.len(), 1);
}

#[test]
fn c_crash_01_a_crash_loop_hands_over_commits_and_leaves_before_it_ends() {
    let mut stand = Stand::new();
    stand.stable(3);
    for _ in 0..3 {
        stand.kill_heart();
        stand.restart_heart();
    }
    stand.handled(0, 15);
    stand.effects.clear();
    stand.kill_heart();
    assert!(!stand.has(|effect| matches!(effect, Effect::RestartHeartbeat)));
    assert!(!stand.notices().any(|notice| matches!(notice, Notice::HeartbeatCrash { .. })), "no fourth one");
    stand.drained();
    let (round, request) = stand.commit();
    stand.commit_answer(round, &request, E::None);
    stand.released("revoked");
    assert_eq!(stand.terminated(), None, "not before the group is left");
    stand.left(LeaveGroupResponse::default());
    let expected = TerminalCause::CrashLoop { cause: ExitKind::Killed, crashes: 4 };
    assert_eq!((stand.terminated(), stand.state()), (Some(&expected), MemberState::Fatal));
    // A terminal member is silent, whatever comes.
    stand.effects.clear();
    stand.answered_blindly();
    assert!(stand.effects.is_empty() && stand.core.deadline().is_none());
}

impl Stand {
    fn answered_blindly(&mut self) {
        for epoch in 0..20 {
            let beat = kohort_group::membership::Beat::Answered(E::IllegalGeneration);
            self.input(Input::Beat { epoch, beat });
        }
        for round in 0..20 {
            self.answer(round, Err(network()));
        }
        self.input(Input::Deadline);
        self.input(Input::HeartbeatStarted { incarnation: 99 });
        self.input(Input::Start);
        self.close(DEFAULT, 5);
    }
}

#[test]
fn a_crash_loop_is_bounded_by_the_terminal_timeout_when_nobody_answers() {
    let mut stand = Stand::new();
    stand.stable(3);
    stand.handled(0, 15);
    for _ in 0..4 {
        stand.kill_heart();
        stand.restart_heart();
    }
    let begun = stand.now;
    while stand.terminated().is_none() {
        stand.pass(std::time::Duration::from_millis(100));
        assert!(stand.now - begun <= secs(7), "5 s, and a second for the driver");
    }
}

#[test]
fn a_leave_that_never_went_out_is_sent_to_where_the_coordinator_moved() {
    let leaving = || {
        let mut stand = Stand::new();
        stand.stable(3);
        stand.close(DEFAULT, 5);
        stand.drained();
        stand.released("revoked");
        let (round, question) = stand.question();
        assert!(matches!(question, Question::Leave(_)));
        let refused = kohort_group::membership::Failure::Unconnected("connection refused".into());
        stand.answer(round, Err(refused));
        stand
    };
    let mut stand = leaving();
    stand.find();
    stand.left(LeaveGroupResponse::default());
    assert_eq!(stand.report().unwrap().leave, LeaveOutcome::Left);
    // With no broker left to ask, the close does not use up its time.
    let mut stand = leaving();
    while stand.asks() == 0 {
        stand.now = stand.core.deadline().unwrap();
        stand.input(Input::Deadline);
    }
    let (round, question) = stand.question();
    assert!(matches!(question, Question::FindCoordinator(_)));
    stand.answer(round, Err(network()));
    assert_eq!(stand.report().unwrap().leave, LeaveOutcome::NotSent);
    assert_eq!(stand.state(), MemberState::Left);
}
