//! C-COMMIT, C-REB-01, C-REB-03, D-27, D-30.

use kohort_group::membership::{
    Answer, Beat, Effect, GroupMembershipOperation, Notice, Question, RejoinReason, TerminalCause,
};
use kohort_group::{Input, MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::messages::{
    JoinGroupResponse, LeaveGroupResponse, OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic,
};

use crate::stand::{Stand, TOPIC, assigned, config, follower, network, offsets, partition, secs};

/// A member commits within a generation only: there is no commit under no identity, nor under one that was left.
#[test]
fn c_commit_01_a_commit_names_who_commits_and_outside_of_a_generation_there_is_none() {
    for instance in [None, Some("i".to_string())] {
        let mut stand = Stand::with(MembershipConfig { group_instance_id: instance.clone(), ..config() });
        // Before the first generation.
        stand.input(Input::Commit);
        stand.input(Input::Handled { generation: -1, partition: partition(0), position: 5, records: 1 });
        stand.stable(7);
        stand.handled(0, 15);
        let (_, request) = stand.commit();
        let committed = OffsetCommitPartition { partition: 0, offset: 15, leader_epoch: -1, metadata: None };
        assert_eq!(
            request,
            OffsetCommitRequest {
                group_id: "g".into(),
                generation: 7,
                member_id: "m".into(),
                group_instance_id: instance.clone(),
                topics: vec![OffsetCommitTopic { name: TOPIC.into(), partitions: vec![committed] }],
            }
        );
        // Between two generations, when the identity is gone: what is asked and reported then commits nothing.
        stand.answered(E::UnknownMemberId);
        stand.handled(0, 20);
        stand.input(Input::Commit);
        stand.released("lost");
        stand.input(Input::Handled { generation: 7, partition: partition(0), position: 21, records: 1 });
        stand.input(Input::Commit);
        let (round, request) = stand.join();
        assert_eq!((request.member_id.as_str(), request.group_instance_id), ("", instance.clone()));
        assert_eq!(stand.asks(), 0);
        stand.join_answer(round, JoinGroupResponse { member_id: "n".into(), ..follower(8) });
        let (round, _) = stand.sync();
        stand.answer(round, Ok(Answer::Synced(assigned(&[0]))));
        let (round, _) = stand.question();
        stand.answer(round, Ok(Answer::Offsets(offsets(&[(0, 10)]))));
        stand.handled(0, 16);
        let (round, request) = stand.commit();
        assert_eq!((request.generation, request.member_id.as_str()), (8, "n"), "the old ones are forgotten");
        stand.commit_answer(round, &request, E::None);
        // After it left.
        let deadline = stand.now + secs(5);
        stand.input(Input::Close { operation: GroupMembershipOperation::LeaveGroup, deadline });
        stand.drained();
        stand.released("revoked");
        stand.left(LeaveGroupResponse::default());
        stand.effects.clear();
        stand.input(Input::Handled { generation: 8, partition: partition(0), position: 30, records: 1 });
        stand.input(Input::Commit);
        stand.pass(secs(60));
        assert!(stand.effects.is_empty() && stand.state() == MemberState::Left);
    }
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
        let lost = stand.notices().filter(|notice| matches!(notice, Notice::Lost(list) if list.len() == 2));
        assert_eq!((stand.core.generation(), stand.core.member_id(), lost.count()), (-1, id, 0), "{code}");
        assert_eq!(stand.core.committed(&partition(0)), Some(10), "{code}: not committed");
        stand.released("lost");
        let lost = stand.notices().filter(|notice| matches!(notice, Notice::Lost(list) if list.len() == 2));
        assert_eq!(lost.count(), 1, "{code}");
        assert_eq!(stand.join().1.member_id, id, "{code}");
    }
}

#[test]
fn c_commit_07_fenced_is_terminal() {
    let mut stand = Stand::with(MembershipConfig { group_instance_id: Some("i".into()), ..config() });
    stand.stable(7);
    stand.handled(0, 15);
    let (round, request) = stand.commit();
    stand.commit_answer(round, &request, E::FencedInstanceId);
    stand.released("lost");
    assert_eq!(stand.terminated(), Some(&TerminalCause::FencedInstanceId));
}

/// An eager member forgets a commit with its generation; a cooperative one, whose partitions outlive it, does not.
#[test]
fn c_commit_08_fenced_is_not_terminal_once_the_generation_it_speaks_of_is_over() {
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

    // A cooperative member in its next generation, and while it rejoins from that one again.
    for rejoining in [false, true] {
        let mut stand = Stand::cooperative(Some("i"));
        stand.joined_cooperatively(7);
        let (round, question) = stand.question();
        assert!(matches!(question, Question::FetchOffsets(_)));
        stand.answer(round, Ok(Answer::Offsets(offsets(&[(0, 10), (1, 10)]))));
        stand.handled(0, 15);
        let (late, request) = stand.commit();
        stand.answered(E::RebalanceInProgress);
        stand.joined_cooperatively(8);
        let expected = if rejoining {
            stand.answered(E::RebalanceInProgress);
            stand.join();
            MemberState::PreparingRebalance
        } else {
            MemberState::Stable
        };
        stand.effects.clear();
        stand.commit_answer(late, &request, E::FencedInstanceId);
        let reason = E::FencedInstanceId.to_string();
        assert_eq!(
            stand.effects,
            [Effect::Notice(Notice::CommitFailed { reason, partitions: 1, retriable: true })],
            "a commit failed, and that is all"
        );
        assert_eq!(
            (stand.state(), stand.core.member_id(), stand.core.generation()),
            (expected, "m", 8),
            "the identity is kept"
        );
    }
}

#[test]
fn c_commit_10_and_c_coord_04_passing_troubles_are_retried_with_or_without_a_lookup() {
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
        assert_eq!(stand.core.committed(&partition(0)), Some(10), "{code}: what is refused is not committed");
    }
}

/// Workers report how far they are, tagged with their generation; that a rejoin is needed shows in a beat or in the
/// answer to a commit, tagged with their arming and their round.
#[test]
fn c_commit_13_and_d_27_reports_of_an_older_generation_are_dropped_and_lead_to_one_rebalance() {
    let rebalances =
        |stand: &Stand| stand.notices().filter(|notice| matches!(notice, Notice::Rebalance { .. })).count();
    let mut stand = Stand::new();
    stand.stable(4);
    stand.answered(E::RebalanceInProgress);
    stand.drained();
    stand.released("revoked");
    let syncing = stand.syncing(5);
    let (epoch, _) = stand.armed();
    stand.answer(syncing, Ok(Answer::Synced(assigned(&[0, 1]))));
    let (round, _) = stand.question();
    stand.answer(round, Ok(Answer::Offsets(offsets(&[(0, 10), (1, 10)]))));
    stand.handled(0, 15);
    let (round, request) = stand.commit();
    stand.effects.clear();
    // Everybody of generation 5 finds out.
    stand.commit_answer(round, &request, E::IllegalGeneration);
    stand.input(Input::Beat { epoch, beat: Beat::Answered(E::IllegalGeneration) });
    stand.input(Input::Beat { epoch, beat: Beat::Answered(E::UnknownMemberId) });
    stand.commit_answer(round, &request, E::UnknownMemberId);
    assert_eq!(rebalances(&stand), 1);
    stand.released("lost");
    stand.stable(6);
    // And some of them later still.
    let before = stand.core.clone();
    for generation in [-1, 4, 5] {
        stand.input(Input::Handled { generation, partition: partition(0), position: 99, records: 5 });
        stand.input(Input::PositionReset { generation, partition: partition(0), offset: 0 });
    }
    stand.input(Input::Beat { epoch, beat: Beat::Answered(E::IllegalGeneration) });
    stand.commit_answer(round, &request, E::IllegalGeneration);
    assert!(stand.effects.is_empty() && stand.core == before, "all of it dropped");
    // What is of generation 6 acts.
    stand.input(Input::Handled { generation: 6, partition: partition(0), position: 16, records: 1 });
    let (round, request) = stand.commit();
    assert_eq!((request.generation, request.topics[0].partitions[0].offset), (6, 16));
    stand.commit_answer(round, &request, E::IllegalGeneration);
    assert_eq!(rebalances(&stand), 1);
    stand.released("lost");
    assert_eq!(stand.join().1.member_id, "m");
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

#[test]
fn c_commit_12_workers_end_once_when_the_identity_is_gone_and_not_at_all_when_the_coordinator_moved() {
    let committed = |code| {
        let mut stand = Stand::with(MembershipConfig { group_instance_id: Some("i".into()), ..config() });
        stand.stable(7);
        stand.handled(0, 15);
        let (round, request) = stand.commit();
        stand.effects.clear();
        stand.commit_answer(round, &request, code);
        // A slower worker of the same generation still reports, and more beats say the same.
        for position in [16, 17] {
            stand.input(Input::Handled { generation: 7, partition: partition(1), position, records: 1 });
        }
        let orders =
            |effect: &&Effect| matches!(effect, Effect::ReleaseWorkers { .. } | Effect::DrainWorkers { .. });
        let ordered = stand.effects.iter().filter(orders).count();
        (stand, ordered)
    };
    for (code, reason, id) in [
        (E::IllegalGeneration, RejoinReason::IllegalGeneration, "m"),
        (E::UnknownMemberId, RejoinReason::UnknownMemberId, ""),
    ] {
        let (mut stand, ordered) = committed(code);
        assert_eq!(ordered, 1, "{code}");
        let told: Vec<_> = stand
            .notices()
            .filter_map(|notice| match notice {
                Notice::Rebalance { reason, generation } => Some((reason.clone(), *generation)),
                _ => None,
            })
            .collect();
        assert_eq!(told, [(reason, 7)], "told once, with the generation that is over");
        stand.released("lost");
        assert_eq!((stand.join().1.member_id.as_str(), stand.asks()), (id, 0), "and one rejoin");
    }
    // Fenced: the workers end, and there is no rejoin to tell of.
    let (mut stand, ordered) = committed(E::FencedInstanceId);
    assert_eq!(ordered, 1);
    assert!(!stand.notices().any(|notice| matches!(notice, Notice::Rebalance { .. })));
    stand.released("lost");
    assert_eq!((stand.state(), stand.asks()), (MemberState::Fatal, 0));
    // The coordinator moved: workers go on, nothing of the membership changes.
    let (mut stand, ordered) = committed(E::CoordinatorNotAvailable);
    assert_eq!(ordered, 0);
    assert_eq!(
        (stand.state(), stand.core.member_id(), stand.core.generation(), stand.core.assignment().len()),
        (MemberState::Stable, "m", 7, 2)
    );
    stand.find();
    let (round, request) = stand.commit();
    let positions: Vec<_> =
        request.topics[0].partitions.iter().map(|one| (one.partition, one.offset)).collect();
    assert_eq!(positions, [(0, 15), (1, 17)], "what they did meanwhile is committed then");
    stand.commit_answer(round, &request, E::None);
}
