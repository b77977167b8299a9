//! C-JOIN, C-SYNC, C-COORD, C-OFETCH.

use std::time::Duration;

use bytes::Bytes;
use kohort_group::membership::{Answer, Effect, Failure, Notice, Question, TerminalCause};
use kohort_group::verdict::GroupApi;
use kohort_group::{MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::messages::{CoordinatorAddress, JoinGroupResponse, SyncGroupResponse};

use crate::stand::{
    Stand, assigned, config, follower, network, node, offsets, offsets_with, partition, secs,
};

#[test]
fn c_join_01_a_demand_for_a_member_id_is_answered_at_once_with_the_given_one() {
    let mut stand = Stand::new();
    stand.find();
    let (round, request) = stand.join();
    assert_eq!(request.member_id, "");
    let given = JoinGroupResponse {
        error: E::MemberIdRequired,
        generation: -1,
        member_id: "m".into(),
        ..Default::default()
    };
    stand.join_answer(round, given.clone());
    assert_eq!(stand.core.generation(), -1);
    assert_eq!(stand.asks(), 1, "without a pause");
    let (round, request) = stand.join();
    assert_eq!(request.member_id, "m");
    assert!(
        !stand.notices().any(|notice| matches!(notice, Notice::Retrying { .. })),
        "D-02: no failure, no back-off"
    );
    stand.join_error(round, E::UnknownMemberId);
    let (_, request) = stand.join();
    assert_eq!(request.member_id, "", "forgotten");

    // A broker that demands it over and over is not followed in a tight loop.
    let mut stand = Stand::new();
    stand.find();
    for _ in 0..3 {
        let (round, _) = stand.join();
        stand.join_answer(round, given.clone());
    }
    assert_eq!(stand.asks(), 0);
}

#[test]
fn c_join_03_an_unknown_id_is_dropped_and_joined_without_at_once() {
    let mut stand = Stand::new();
    stand.stable(5);
    stand.answered(E::RebalanceInProgress);
    stand.drained();
    stand.released("revoked");
    let (round, request) = stand.join();
    assert_eq!(request.member_id, "m");
    stand.join_error(round, E::UnknownMemberId);
    assert_eq!(stand.asks(), 1, "immediately");
    assert_eq!(stand.join().1.member_id, "");
}

#[test]
fn c_join_05_06_07_refusals_are_terminal_and_not_retried() {
    for (code, expected) in [
        (E::FencedInstanceId, TerminalCause::FencedInstanceId),
        (E::GroupAuthorizationFailed, TerminalCause::GroupAuthorizationFailed),
    ] {
        let mut stand = Stand::new();
        stand.find();
        let (round, _) = stand.join();
        stand.join_error(round, code);
        assert_eq!(stand.terminated(), Some(&expected));
        assert_eq!((stand.asks(), stand.state()), (0, MemberState::Fatal));
    }
    for code in [
        E::GroupMaxSizeReached,
        E::InvalidSessionTimeout,
        E::InvalidGroupId,
        E::InconsistentGroupProtocol,
        E::UnsupportedVersion,
    ] {
        let mut stand = Stand::new();
        stand.find();
        let (round, _) = stand.join();
        stand.join_error(round, code);
        let cause = stand.terminated().unwrap();
        assert!(
            matches!(cause, TerminalCause::Refused { api: GroupApi::JoinGroup, code: told, .. } if *told == code)
        );
        assert_eq!(stand.asks(), 0);
    }
}

/// A refusal is for good for the incarnation that got it. The next one has no id to bring along: who is refused for
/// the group's size was given none, or is removed. What a static member keeps is its instance id.
#[test]
fn c_join_06_a_full_group_refuses_for_good_and_a_fresh_incarnation_may_try_again() {
    let refused = TerminalCause::Refused {
        api: GroupApi::JoinGroup,
        code: E::GroupMaxSizeReached,
        detail: String::new(),
    };
    for instance in [None, Some("i".to_string())] {
        let config = MembershipConfig { group_instance_id: instance.clone(), ..config() };
        // A newcomer.
        let mut stand = Stand::with(config.clone());
        stand.find();
        let (round, _) = stand.join();
        stand.effects.clear();
        stand.join_error(round, E::GroupMaxSizeReached);
        assert_eq!(
            stand.effects,
            [
                Effect::Notice(Notice::State {
                    from: MemberState::PreparingRebalance,
                    to: MemberState::Fatal
                }),
                Effect::Terminate(refused.clone()),
            ],
            "it is in no group that it could leave"
        );
        assert_eq!(stand.core.deadline(), None);
        // A member of long standing, when the limit was lowered.
        let mut stand = Stand::with(config.clone());
        stand.stable(5);
        stand.answered(E::RebalanceInProgress);
        stand.drained();
        stand.released("revoked");
        let (round, request) = stand.join();
        assert_eq!(request.member_id, "m");
        stand.join_error(round, E::GroupMaxSizeReached);
        assert_eq!((stand.terminated(), stand.asks()), (Some(&refused), 0));
        // The one after it.
        let mut stand = Stand::with(config);
        stand.find();
        let (round, request) = stand.join();
        assert_eq!((request.member_id.as_str(), request.group_instance_id), ("", instance));
        stand.join_answer(round, follower(6));
        let (round, _) = stand.sync();
        stand.answer(round, Ok(Answer::Synced(assigned(&[0]))));
        assert_eq!((stand.state(), stand.core.generation()), (MemberState::Stable, 6));
    }
}

#[test]
fn c_join_09_a_loading_coordinator_is_asked_again_after_a_back_off() {
    let mut stand = Stand::new();
    stand.find();
    let (round, _) = stand.join();
    stand.join_error(round, E::CoordinatorLoadInProgress);
    assert_eq!(stand.asks(), 0);
    assert_eq!(stand.core.coordinator(), Some(&node()), "the same one, no lookup");
    let before = stand.now;
    stand.join();
    let wait = stand.now - before;
    assert!((80..=120).contains(&wait.as_millis()), "{wait:?}");
}

#[test]
fn c_join_10_a_coordinator_that_moved_or_is_gone_is_looked_up_and_joined_with_the_same_id() {
    for failure in [Ok(E::NotCoordinator), Ok(E::CoordinatorNotAvailable), Err(network())] {
        let mut stand = Stand::new();
        stand.stable(5);
        stand.answered(E::RebalanceInProgress);
        stand.drained();
        stand.released("revoked");
        let (round, _) = stand.join();
        match failure {
            Ok(code) => stand.join_error(round, code),
            Err(failure) => stand.answer(round, Err(failure)),
        }
        assert_eq!((stand.core.coordinator(), stand.asks()), (None, 0), "after a back-off");
        stand.find();
        assert_eq!(stand.join().1.member_id, "m");
    }
}

#[test]
fn c_join_11_the_join_deadline_outlives_the_rebalance() {
    let within = |config: MembershipConfig| {
        let mut stand = Stand::with(config);
        stand.find();
        stand.effects.iter().find_map(|effect| match effect {
            Effect::Ask { within, question: Question::Join(_), .. } => Some(*within),
            _ => None,
        })
    };
    assert_eq!(within(config()), Some(secs(15)), "rebalance 10 s + padding 5 s");
    assert_eq!(within(MembershipConfig { request_timeout: secs(60), ..config() }), Some(secs(60)));
    let huge = Duration::from_millis(i32::MAX as u64);
    assert_eq!(within(MembershipConfig { rebalance_timeout: huge, ..config() }), Some(huge + secs(5)));
    let longest = MembershipConfig { rebalance_timeout: Duration::MAX, ..config() };
    assert_eq!(longest.join_timeout(), Duration::MAX, "no overflow");
}

#[test]
fn c_sync_01_a_rebalance_during_sync_is_joined_at_once_with_the_same_id() {
    let mut stand = Stand::new();
    let round = stand.syncing(1);
    stand.sync_error(round, E::RebalanceInProgress);
    assert_eq!(stand.asks(), 1, "no back-off");
    assert_eq!(stand.join().1.member_id, "m");
}

#[test]
fn c_sync_02_what_is_forgotten_before_the_next_join() {
    for (code, id) in [(E::IllegalGeneration, "m"), (E::UnknownMemberId, "")] {
        let mut stand = Stand::new();
        let round = stand.syncing(1);
        stand.sync_error(round, code);
        assert_eq!(stand.core.generation(), -1);
        assert_eq!(stand.join().1.member_id, id, "{code}");
    }
}

#[test]
fn c_sync_03_fenced_or_unauthorized_is_terminal() {
    for code in [E::FencedInstanceId, E::GroupAuthorizationFailed] {
        let mut stand = Stand::new();
        let round = stand.syncing(1);
        stand.sync_error(round, code);
        assert!(stand.terminated().is_some());
        assert_eq!(stand.asks(), 0);
    }
}

#[test]
fn c_sync_06_a_late_answer_of_an_older_round_changes_nothing() {
    for code in [E::UnknownMemberId, E::IllegalGeneration] {
        let mut stand = Stand::new();
        let late = stand.syncing(1);
        // A beat brings the rejoin before the sync is answered.
        stand.answered(E::RebalanceInProgress);
        stand.stable(2);
        let before = stand.core.clone();
        stand.sync_error(late, code);
        assert!(stand.effects.is_empty() && stand.core == before, "{code}");
    }
}

#[test]
fn c_sync_08_another_protocol_type_or_name_is_refused_and_none_is_accepted() {
    let mut stand = Stand::new();
    stand.find();
    let (round, _) = stand.join();
    stand.join_answer(round, JoinGroupResponse { protocol_type: Some("connect".into()), ..follower(1) });
    assert!(matches!(
        stand.terminated(),
        Some(TerminalCause::Refused { code: E::InconsistentGroupProtocol, .. })
    ));
    for (kind, name) in [(Some("connect"), None), (None, Some("roundrobin"))] {
        let mut stand = Stand::new();
        let round = stand.syncing(1);
        let response = SyncGroupResponse {
            protocol_type: kind.map(Into::into),
            protocol_name: name.map(Into::into),
            ..assigned(&[0])
        };
        stand.answer(round, Ok(Answer::Synced(response)));
        assert!(matches!(
            stand.terminated(),
            Some(TerminalCause::Refused { code: E::InconsistentGroupProtocol, .. })
        ));
    }
    let mut stand = Stand::new();
    stand.find();
    let (round, _) = stand.join();
    stand.join_answer(round, JoinGroupResponse { protocol_type: None, ..follower(1) });
    let (round, _) = stand.sync();
    let silent = SyncGroupResponse { protocol_type: None, protocol_name: None, ..assigned(&[0]) };
    stand.answer(round, Ok(Answer::Synced(silent)));
    assert_eq!(stand.state(), MemberState::Stable);
}

#[test]
fn c_sync_09_a_sync_that_was_lost_starts_again_from_the_join() {
    let mut stand = Stand::new();
    let round = stand.syncing(1);
    stand.answer(round, Err(network()));
    stand.find();
    let (_, request) = stand.join();
    assert_eq!(request.member_id, "m");
}

#[test]
fn c_sync_12_an_assignment_of_a_topic_not_subscribed_to_is_not_applied() {
    let mut stand = Stand::new();
    let round = stand.syncing(1);
    let alien = kohort_protocol::TopicPartition::new("other", 0);
    let assignment =
        kohort_protocol::Assignment { partitions: vec![alien], user_data: None }.encode(1).unwrap();
    stand.answer(round, Ok(Answer::Synced(SyncGroupResponse { assignment, ..assigned(&[]) })));
    assert!(!stand.notices().any(|notice| matches!(notice, Notice::Assigned { .. })));
    assert_eq!(stand.state(), MemberState::Unjoined);
    stand.join();
}

#[test]
fn an_assignment_that_cannot_be_read_is_told_and_joined_again_at_a_pace() {
    let mut stand = Stand::new();
    let round = stand.syncing(1);
    let assignment = Bytes::from_static(&[0, 1, 0x7f, 0xff, 0xff, 0xff]);
    stand.answer(round, Ok(Answer::Synced(SyncGroupResponse { assignment, ..assigned(&[]) })));
    assert!(stand.notices().any(|notice| matches!(notice, Notice::UnreadableBlob { .. })));
    assert_eq!(stand.asks(), 0);
    stand.join();
}

#[test]
fn c_coord_01_lookups_are_paced_by_a_doubling_back_off() {
    let mut stand = Stand::new();
    let mut waits = Vec::new();
    for _ in 0..9 {
        let (round, question) = stand.question();
        assert!(matches!(question, Question::FindCoordinator(_)));
        stand.answer(round, Err(network()));
        let at = stand.core.deadline().unwrap();
        waits.push((at - stand.now).as_millis());
        stand.now = at;
        stand.input(kohort_group::Input::Deadline);
    }
    for (wait, expected) in waits.iter().zip([100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]) {
        assert!((expected * 8 / 10..=expected * 12 / 10).contains(wait), "{waits:?}");
    }
}

#[test]
fn c_coord_02_a_lookup_that_no_other_would_mend_is_terminal_and_not_repeated() {
    let unauthorized = || {
        Ok(Answer::Coordinator(CoordinatorAddress {
            error: E::GroupAuthorizationFailed,
            node_id: -1,
            port: -1,
            ..Default::default()
        }))
    };
    let unsupported = || Failure::Unsupported("the broker does not speak FindCoordinator".into());
    for (answer, expected) in [
        (unauthorized(), TerminalCause::GroupAuthorizationFailed),
        (
            Err(unsupported()),
            TerminalCause::Unsupported { detail: "the broker does not speak FindCoordinator".into() },
        ),
        (Err(Failure::ClientDied("gone".into())), TerminalCause::ClientDied { detail: "gone".into() }),
    ] {
        // At the first lookup there is nothing to give back.
        let mut stand = Stand::new();
        let (round, _) = stand.question();
        stand.effects.clear();
        stand.answer(round, answer.clone());
        assert_eq!(
            stand.effects,
            [
                Effect::Notice(Notice::State { from: MemberState::Unjoined, to: MemberState::Fatal }),
                Effect::Terminate(expected.clone()),
            ]
        );
        assert_eq!(stand.core.deadline(), None, "never again");
        // In the group its partitions are lost first, with the work that is not committed: nothing more is looked up
        // for that, however long the hook takes.
        let mut stand = Stand::new();
        stand.stable(5);
        stand.handled(0, 15);
        stand.answered(E::NotCoordinator);
        while stand.asks() == 0 {
            stand.now = stand.core.deadline().unwrap();
            stand.input(kohort_group::Input::Deadline);
        }
        let (round, _) = stand.question();
        stand.answer(round, answer);
        stand.pass(secs(1));
        assert_eq!(stand.asks(), 0);
        stand.released("lost");
        assert_eq!((stand.terminated(), stand.asks()), (Some(&expected), 0));
        assert_eq!(stand.core.deadline(), None);
    }
}

#[test]
fn c_coord_05_only_a_moved_coordinator_is_looked_up_for_offsets() {
    for (code, lookups) in
        [(E::CoordinatorLoadInProgress, 0), (E::NotCoordinator, 1), (E::CoordinatorNotAvailable, 1)]
    {
        let mut stand = Stand::new();
        let round = stand.syncing(1);
        stand.answer(round, Ok(Answer::Synced(assigned(&[0]))));
        let (round, _) = stand.question();
        stand.answer(round, Ok(Answer::Offsets(offsets_with(&[(0, -1, code)]))));
        if lookups == 1 {
            stand.find();
        } else {
            assert_eq!(stand.core.coordinator(), Some(&node()));
        }
        while stand.asks() == 0 {
            stand.now = stand.core.deadline().unwrap();
            stand.input(kohort_group::Input::Deadline);
        }
        assert!(matches!(stand.question().1, Question::FetchOffsets(_)), "{code}");
    }
}

#[test]
fn c_ofetch_01_02_04_only_a_clear_no_starts_by_the_reset_policy() {
    let mut stand = Stand::new();
    let round = stand.syncing(1);
    stand.answer(round, Ok(Answer::Synced(assigned(&[0, 1, 2]))));
    let (round, _) = stand.question();
    let answer = offsets_with(&[(0, 42, E::None), (1, -1, E::None), (2, -1, E::UnstableOffsetCommit)]);
    stand.answer(round, Ok(Answer::Offsets(answer)));
    let starts = |stand: &Stand| {
        stand
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::StartWorkers { partitions, .. } => Some(partitions.clone()),
                _ => None,
            })
            .flatten()
            .map(|start| (start.partition, start.committed))
            .collect::<Vec<_>>()
    };
    assert_eq!(starts(&stand), [(partition(0), Some(42)), (partition(1), None)]);
    // The third one is asked for again and again, never given up, never started elsewhere.
    for _ in 0..20 {
        while stand.asks() == 0 {
            stand.now = stand.core.deadline().unwrap();
            stand.answered(E::None);
            stand.input(kohort_group::Input::Deadline);
        }
        let (round, question) = stand.question();
        assert!(
            matches!(&question, Question::FetchOffsets(request)
            if request.groups[0].topics.as_ref().unwrap()[0].partitions == [2]),
            "{question:?}"
        );
        stand.answer(round, Ok(Answer::Offsets(offsets_with(&[(2, -1, E::UnstableOffsetCommit)]))));
    }
    while stand.asks() == 0 {
        stand.now = stand.core.deadline().unwrap();
        stand.answered(E::None);
        stand.input(kohort_group::Input::Deadline);
    }
    let (round, _) = stand.question();
    stand.answer(round, Ok(Answer::Offsets(offsets(&[(2, 7)]))));
    assert_eq!(starts(&stand).last(), Some(&(partition(2), Some(7))));
}
