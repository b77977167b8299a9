//! C-HB, C-CRASH, C-REB-04.

use std::time::Duration;

use kohort_group::membership::{Answer, Beat, Effect, ExitKind, Failure, Notice, Question, TerminalCause};
use kohort_group::{Assignor, Input, MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::messages::{JoinGroupResponse, SyncGroupResponse};

use crate::stand::{Stand, network, secs};

#[test]
fn c_hb_03_the_session_ends_by_silence_and_every_good_beat_moves_it() {
    let mut stand = Stand::new();
    stand.stable(1);
    for _ in 0..10 {
        stand.pass(secs(5));
        stand.answered(E::None);
    }
    assert_eq!(stand.state(), MemberState::Stable);
    stand.pass(secs(6));
    assert_eq!(stand.state(), MemberState::Revoking);
    assert!(stand.notices().any(
        |notice| matches!(notice, Notice::Rebalance { reason, .. } if reason.name() == "session_expired")
    ));
    assert_eq!(stand.order().1, "lost", "D-06: fenced, not revoked");
}

/// A member has no poll timer: what it has beside its session is the commit interval, and how long a handler may
/// take is watched where handlers run.
#[test]
fn c_hb_03_session_and_commit_interval_run_on_their_own_and_a_new_generation_arms_both_anew() {
    let short = Duration::from_millis(1);
    let mut stand = Stand::new();
    stand.stable(1);
    let joined = stand.now;
    // Work and its commit do not move the session.
    stand.handled(0, 15);
    let (round, request) = stand.commit();
    assert_eq!(stand.now - joined, secs(1));
    stand.commit_answer(round, &request, E::None);
    assert_eq!(stand.core.deadline(), Some(joined + secs(6)), "the session alone is waited for");
    // A good beat moves the session and not the interval.
    stand.pass(secs(2));
    stand.handled(0, 16);
    let worked = stand.now;
    stand.pass(Duration::from_millis(400));
    stand.answered(E::None);
    let beaten = stand.now;
    assert_eq!(stand.core.deadline(), Some(worked + secs(1)));
    let (round, request) = stand.commit();
    stand.commit_answer(round, &request, E::None);
    assert_eq!(stand.core.deadline(), Some(beaten + secs(6)));
    stand.pass(beaten + secs(6) - short - stand.now);
    assert_eq!(stand.state(), MemberState::Stable);
    // A new generation begins with a whole session and a whole interval.
    stand.answered(E::RebalanceInProgress);
    stand.drained();
    stand.released("revoked");
    stand.pass(secs(4));
    stand.stable(2);
    let joined = stand.now;
    assert_eq!(stand.core.deadline(), Some(joined + secs(6)));
    stand.handled(0, 17);
    assert_eq!(stand.core.deadline(), Some(joined + secs(1)));
    stand.commit();
    stand.pass(joined + secs(6) - short - stand.now);
    assert_eq!(stand.state(), MemberState::Stable);
    stand.pass(short);
    assert_eq!(stand.state(), MemberState::Revoking);
}

#[test]
fn c_hb_04_hearts_beat_between_join_and_sync_and_never_while_a_join_is_out() {
    let mut stand = Stand::new();
    stand.find();
    let (round, _) = stand.join();
    assert!(!stand.has(|effect| matches!(effect, Effect::ArmHeartbeat { .. })));
    stand.join_answer(round, crate::stand::follower(4));
    let (_, request) = stand.armed();
    assert_eq!((request.generation, request.member_id.as_str()), (4, "m"));
    // Before the next JoinGroup goes out the heart is disarmed.
    stand.effects.clear();
    stand.answered(E::RebalanceInProgress);
    let order: Vec<_> = stand
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::DisarmHeartbeat => Some("disarm"),
            Effect::Ask { question: Question::Join(_), .. } => Some("join"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["disarm", "join"]);
}

#[test]
fn c_hb_06_a_rebalance_keeps_id_and_generation_and_hearts_beat_until_the_join() {
    let mut stand = Stand::new();
    stand.stable(5);
    stand.pass(secs(5));
    stand.answered(E::RebalanceInProgress);
    assert_eq!((stand.core.member_id(), stand.core.generation()), ("m", 5));
    assert_eq!(stand.state(), MemberState::Revoking);
    assert!(!stand.has(|effect| matches!(effect, Effect::DisarmHeartbeat)));
    assert_eq!(stand.core.last_good_heartbeat(), Some(stand.now), "it proves life");
    // Further ones change nothing: one rebalance, one join.
    for _ in 0..3 {
        stand.answered(E::RebalanceInProgress);
    }
    stand.drained();
    stand.released("revoked");
    assert_eq!(stand.asks(), 1);
    assert_eq!(stand.join().1.member_id, "m");
}

#[test]
fn c_hb_07_08_and_c_reb_04_lost_identities_lose_partitions_once() {
    for (code, id) in [(E::IllegalGeneration, "m"), (E::UnknownMemberId, "")] {
        let mut stand = Stand::new();
        stand.stable(5);
        stand.handled(0, 20);
        stand.answered(code);
        assert!(stand.has(|effect| matches!(effect, Effect::DisarmHeartbeat)));
        assert_eq!(stand.asks(), 0, "nothing is committed any more");
        stand.released("lost");
        let lost = stand.notices().filter(|notice| matches!(notice, Notice::Lost(list) if list.len() == 2));
        assert_eq!(lost.count(), 1);
        assert!(!stand.notices().any(|notice| matches!(notice, Notice::Revoked(_))));
        assert_eq!(stand.join().1.member_id, id, "{code}");
    }
    // Nothing owned: neither hook.
    let mut stand = Stand::new();
    let round = stand.syncing(1);
    stand.sync_error(round, E::IllegalGeneration);
    assert!(!stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })));
}

#[test]
fn c_hb_09_13_and_c_static_05_fenced_unauthorized_and_other_refusals_are_terminal() {
    for code in [E::FencedInstanceId, E::GroupAuthorizationFailed, E::TopicAuthorizationFailed] {
        let mut stand = Stand::new();
        stand.stable(5);
        stand.answered(code);
        stand.released("lost");
        assert_eq!((stand.state(), stand.asks()), (MemberState::Fatal, 0), "{code}");
        let cause = stand.terminated().unwrap();
        let visible = match code {
            E::FencedInstanceId => matches!(cause, TerminalCause::FencedInstanceId),
            E::GroupAuthorizationFailed => matches!(cause, TerminalCause::GroupAuthorizationFailed),
            _ => matches!(cause, TerminalCause::Refused { code: told, .. } if *told == code),
        };
        assert!(visible, "{cause:?}");
        // For good: whatever time passes, nothing is asked.
        stand.pass(secs(3600));
        assert_eq!((stand.asks(), stand.core.deadline()), (0, None), "{code}");
    }
}

#[test]
fn c_hb_11_and_d_26_a_coordinator_that_moved_costs_no_membership() {
    for failure in [
        Beat::Answered(E::NotCoordinator),
        Beat::Answered(E::CoordinatorNotAvailable),
        Beat::Failed(network()),
    ] {
        let mut stand = Stand::new();
        stand.stable(5);
        stand.beat(failure);
        assert_eq!(stand.core.coordinator(), None);
        assert_eq!(
            (stand.core.member_id(), stand.core.generation(), stand.state()),
            ("m", 5, MemberState::Stable)
        );
        stand.find();
        let (_, request) = stand.armed();
        assert_eq!(
            (request.generation, request.member_id.as_str()),
            (5, "m"),
            "the same identity at the new one"
        );
        stand.answered(E::None);
        assert!(!stand.notices().any(|notice| matches!(notice, Notice::Rebalance { .. })));
    }
    let mut stand = Stand::new();
    stand.stable(5);
    stand.answered(E::CoordinatorLoadInProgress);
    assert_eq!((stand.core.coordinator().is_some(), stand.asks()), (true, 0), "14: the same broker again");
}

#[test]
fn c_hb_15_a_dead_client_is_terminal() {
    let mut stand = Stand::new();
    stand.stable(5);
    stand.beat(Beat::Failed(Failure::ClientDied("gone".into())));
    stand.released("lost");
    assert!(matches!(stand.terminated(), Some(TerminalCause::ClientDied { .. })));
}

#[test]
fn d_09_beats_of_an_older_arming_change_nothing_terminal_ones_included() {
    let mut stand = Stand::new();
    let round = stand.syncing(1);
    let (old, _) = stand.armed();
    stand.sync_error(round, E::RebalanceInProgress);
    stand.stable(2);
    for beat in [
        Beat::Answered(E::IllegalGeneration),
        Beat::Answered(E::UnknownMemberId),
        Beat::Answered(E::FencedInstanceId),
        Beat::Failed(network()),
        Beat::Panicked("late".into()),
    ] {
        let before = stand.core.clone();
        stand.input(Input::Beat { epoch: old, beat });
        assert!(stand.effects.is_empty() && stand.core == before);
    }
}

#[test]
fn c_crash_07_and_d_09_the_exit_of_an_older_heart_is_ignored() {
    let mut stand = Stand::new();
    stand.stable(1);
    stand.kill_heart();
    stand.restart_heart();
    stand.effects.clear();
    for exit in [ExitKind::Killed, ExitKind::Panicked("late".into()), ExitKind::Normal] {
        let before = stand.core.clone();
        stand.input(Input::HeartbeatExited { incarnation: 1, exit });
        assert!(stand.effects.is_empty() && stand.core == before);
    }
}

#[test]
fn c_crash_09_a_heart_that_is_stopped_on_purpose_is_no_crash() {
    let mut stand = Stand::new();
    stand.stable(1);
    stand.input(Input::HeartbeatExited { incarnation: 1, exit: ExitKind::Shutdown });
    assert!(stand.effects.is_empty());
    assert_eq!(stand.core.crashes_in_window(stand.now), 0);
}

#[test]
fn c_crash_10_what_a_heart_can_name_is_not_counted_however_often_it_comes() {
    for beat in [
        Beat::Answered(E::RebalanceInProgress),
        Beat::Answered(E::IllegalGeneration),
        Beat::Answered(E::UnknownMemberId),
        Beat::Answered(E::NotCoordinator),
        Beat::Answered(E::CoordinatorLoadInProgress),
        Beat::Failed(network()),
    ] {
        let mut stand = Stand::new();
        for generation in 1..=5 {
            if stand.state() != MemberState::Stable {
                stand.stable(generation);
            } else if stand.core.coordinator().is_none() {
                stand.find();
            }
            stand.beat(beat.clone());
            if stand.has(|effect| matches!(effect, Effect::DrainWorkers { .. })) {
                stand.drained();
            }
            if stand.has(|effect| matches!(effect, Effect::ReleaseWorkers { .. })) {
                let (round, _) = stand.order();
                stand.input(Input::Released { round, aborted: Vec::new() });
            }
        }
        assert_eq!((stand.core.crashes_in_window(stand.now), stand.terminated()), (0, None), "{beat:?}");
        assert!(!stand.notices().any(|notice| matches!(notice, Notice::HeartbeatCrash { .. })), "{beat:?}");
    }
}

#[test]
fn d_08_every_abnormal_exit_counts_and_rejoins_in_place_after_the_jitter() {
    for exit in [
        ExitKind::Killed,
        ExitKind::Aborted,
        ExitKind::Normal,
        ExitKind::Panicked("outside of the beat".into()),
        ExitKind::Failed("mailbox".into()),
    ] {
        let mut stand = Stand::new();
        stand.stable(1);
        stand.input(Input::HeartbeatExited { incarnation: 1, exit });
        assert!(stand.has(|effect| matches!(effect, Effect::RestartHeartbeat)));
        assert_eq!(stand.state(), MemberState::Stable, "workers go on meanwhile");
        stand.restart_heart();
        let (_, request) = stand.armed();
        assert_eq!(request.member_id, "m", "and hearts beat again at once");
        stand.pass(std::time::Duration::from_millis(200));
        stand.drained();
        stand.released("revoked");
        assert_eq!(stand.join().1.member_id, "m");
    }
}

#[test]
fn a_heart_that_cannot_be_started_counts_as_a_crash() {
    let mut stand = Stand::new();
    stand.stable(1);
    stand.kill_heart();
    for _ in 0..2 {
        stand.input(Input::HeartbeatStartFailed { error: "no memory".into() });
    }
    assert_eq!(stand.core.crashes_in_window(stand.now), 3);
    stand.input(Input::HeartbeatStartFailed { error: "no memory".into() });
    stand.effects.retain(|effect| !matches!(effect, Effect::Notice(_)));
    stand.drained();
    stand.released("revoked");
    stand.left(Default::default());
    assert!(matches!(stand.terminated(), Some(TerminalCause::CrashLoop { crashes: 4, .. })));
}

/// Stable as one of a cooperative group, with partitions 0 and 1.
fn cooperative(response: JoinGroupResponse) -> Stand {
    let mut stand = Stand::with(MembershipConfig {
        assignors: vec![Assignor::CooperativeSticky],
        ..crate::stand::config()
    });
    stand.find();
    let (round, _) = stand.join();
    let response = JoinGroupResponse { protocol_name: Some("cooperative-sticky".into()), ..response };
    stand.join_answer(round, response);
    stand
}

fn hastened(stand: &mut Stand) -> bool {
    let (armed, _) = stand.armed();
    stand.has(|effect| matches!(effect, Effect::HastenHeartbeat { epoch } if *epoch == armed))
}

#[test]
fn whoever_may_wait_for_a_cooperative_follow_up_beats_early() {
    let synced = |stand: &mut Stand, partitions: &[i32]| {
        let (round, _) = stand.sync();
        let response = SyncGroupResponse {
            protocol_name: Some("cooperative-sticky".into()),
            ..crate::stand::assigned(partitions)
        };
        stand.answer(round, Ok(Answer::Synced(response)));
    };
    let mut follower = cooperative(crate::stand::follower(1));
    synced(&mut follower, &[]);
    assert!(hastened(&mut follower), "a newcomer does not know what others give back");

    let mut alone = cooperative(crate::stand::leader(1));
    let (round, _) = alone.question();
    alone.answer(round, Ok(crate::stand::counts(2)));
    synced(&mut alone, &[0, 1]);
    assert!(!hastened(&mut alone), "a leader that left nothing out waits for nobody");

    let mut eager = Stand::new();
    eager.stable(1);
    assert!(!eager.has(|effect| matches!(effect, Effect::HastenHeartbeat { .. })));
}
