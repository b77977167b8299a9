//! The leader's duties and static members: C-SYNC-11, C-REB-09, C-STATIC.

use std::collections::BTreeMap;

use bytes::Bytes;
use kohort_group::membership::{Answer, Failure, GroupMembershipOperation, Notice, Question, RejoinReason};
use kohort_group::{Assignor, Input, MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::consumer::Subscription;
use kohort_protocol::messages::{JoinGroupResponse, JoinMember, SyncGroupResponse};

use crate::stand::{Stand, TOPIC, assigned, blob, config, counts, follower, leader, network, offsets, secs};

#[test]
fn c_sync_11_a_leader_told_to_skip_assigns_nothing_and_watches_the_topics_of_all_members() {
    let both = |ours, theirs| {
        Answer::PartitionCounts(BTreeMap::from([(TOPIC.to_string(), ours), ("theirs".to_string(), theirs)]))
    };
    let skipping = || {
        let mut stand = Stand::with(MembershipConfig { group_instance_id: Some("i".into()), ..config() });
        stand.find();
        let (round, _) = stand.join();
        let subscription = Subscription { topics: vec!["theirs".into()], ..Default::default() };
        let metadata = subscription.encode(1).unwrap();
        let other = JoinMember { member_id: "other".into(), group_instance_id: None, metadata };
        let mut response = JoinGroupResponse { skip_assignment: true, ..leader(3) };
        response.members.push(other);
        stand.join_answer(round, response);
        assert!(
            stand
                .notices()
                .any(|notice| matches!(notice, Notice::Joined { leader: true, members: Some(2), .. })),
            "it is the leader all the same"
        );
        // The assignor is not run: nothing is looked up for it, nothing is assigned.
        let (round, request) = stand.sync();
        assert_eq!((request.assignments.len(), stand.asks()), (0, 0));
        stand.answer(round, Ok(Answer::Synced(assigned(&[0, 1]))));
        let (round, question) = stand.question();
        assert!(matches!(question, Question::FetchOffsets(_)));
        stand.answer(round, Ok(Answer::Offsets(offsets(&[(0, 1), (1, 1)]))));
        // It has nothing to compare with yet, so it looks at once: at everybody's topics.
        let (round, question) = stand.question();
        assert_eq!(question, Question::PartitionCounts(vec![TOPIC.into(), "theirs".into()]));
        stand.answer(round, Ok(both(2, 4)));
        assert_eq!(stand.state(), MemberState::Stable);
        stand.effects.clear();
        for _ in 0..60 {
            stand.answered(E::None);
            stand.pass(secs(5));
        }
        let (round, question) = stand.question();
        assert_eq!(question, Question::PartitionCounts(vec![TOPIC.into(), "theirs".into()]));
        (stand, round)
    };
    let (mut stand, round) = skipping();
    stand.answer(round, Ok(both(2, 4)));
    assert_eq!(stand.state(), MemberState::Stable, "nothing grew");
    for grown in [both(2, 5), both(3, 4)] {
        let (mut stand, round) = skipping();
        stand.effects.clear();
        stand.answer(round, Ok(grown));
        assert_eq!(
            stand.notices().next(),
            Some(&Notice::Rebalance { reason: RejoinReason::MetadataChanged, generation: 3 })
        );
        stand.drained();
        stand.released("revoked");
        assert_eq!(stand.join().1.member_id, "m");
    }
}

#[test]
fn a_leader_assigns_and_an_unreadable_subscription_costs_only_its_member() {
    let mut stand = Stand::new();
    stand.find();
    let (round, _) = stand.join();
    let mut response = leader(1);
    let mut broken = response.members[0].clone();
    broken.member_id = "broken".into();
    broken.metadata = Bytes::from_static(&[0, 1, 0x7f, 0xff, 0xff, 0xff]);
    response.members.push(broken);
    stand.join_answer(round, response);
    let (round, question) = stand.question();
    assert_eq!(question, Question::PartitionCounts(vec![TOPIC.into()]));
    stand.answer(round, Ok(counts(3)));
    let (_, request) = stand.sync();
    let shares: std::collections::BTreeMap<_, _> = request
        .assignments
        .iter()
        .map(|share| (share.member_id.as_str(), share.assignment.clone()))
        .collect();
    assert_eq!(shares["m"], blob(&[0, 1, 2]));
    assert_eq!(shares["broken"], blob(&[]));
    assert!(
        stand.notices().any(
            |notice| matches!(notice, Notice::UnreadableBlob { member_id, .. } if member_id == "broken")
        )
    );
}

#[test]
fn c_reb_09_growth_makes_the_leader_alone_rejoin_and_a_passing_error_or_shrinking_does_not() {
    let watch = |first: JoinGroupResponse, seen: Result<Answer, Failure>| {
        let mut stand = Stand::new();
        stand.find();
        let (round, _) = stand.join();
        let leads = first.leader == "m";
        stand.join_answer(round, first);
        if leads {
            let (round, _) = stand.question();
            stand.answer(round, Ok(counts(2)));
        }
        let (round, _) = stand.sync();
        stand.answer(round, Ok(Answer::Synced(assigned(&[0, 1]))));
        let (round, _) = stand.question();
        stand.answer(round, Ok(Answer::Offsets(offsets(&[(0, 1), (1, 1)]))));
        stand.effects.clear();
        for _ in 0..60 {
            stand.answered(E::None);
            stand.pass(secs(5));
        }
        if leads {
            let (round, question) = stand.question();
            assert!(matches!(question, Question::PartitionCounts(_)));
            stand.answer(round, seen);
        }
        stand.state()
    };
    assert_eq!(watch(leader(1), Ok(counts(3))), MemberState::Revoking);
    assert_eq!(watch(follower(1), Ok(counts(3))), MemberState::Stable);
    assert_eq!(watch(leader(1), Ok(counts(2))), MemberState::Stable);
    assert_eq!(watch(leader(1), Ok(counts(1))), MemberState::Stable, "shrinking");
    assert_eq!(watch(leader(1), Ok(Answer::PartitionCounts(Default::default()))), MemberState::Stable);
    assert_eq!(watch(leader(1), Err(network())), MemberState::Stable);
}

#[test]
fn c_static_02_every_request_of_a_static_member_names_its_instance_and_none_of_a_dynamic_one() {
    for instance in [Some("i".to_string()), None] {
        let mut stand = Stand::with(MembershipConfig { group_instance_id: instance.clone(), ..config() });
        stand.find();
        let (round, join) = stand.join();
        stand.join_answer(round, follower(1));
        let (round, sync) = stand.sync();
        let (_, beat) = stand.armed();
        stand.answer(round, Ok(Answer::Synced(assigned(&[0]))));
        let (round, _) = stand.question();
        stand.answer(round, Ok(Answer::Offsets(offsets(&[(0, 10)]))));
        stand.handled(0, 15);
        let (round, commit) = stand.commit();
        stand.commit_answer(round, &commit, E::None);
        let deadline = stand.now + secs(5);
        stand.effects.clear();
        stand.input(Input::Close { operation: GroupMembershipOperation::LeaveGroup, deadline });
        stand.drained();
        stand.released("revoked");
        let (_, question) = stand.question();
        let Question::Leave(leave) = question else { panic!("{question:?}") };
        let named = [
            join.group_instance_id,
            sync.group_instance_id,
            beat.group_instance_id,
            commit.group_instance_id,
            leave.members[0].group_instance_id.clone(),
        ];
        assert_eq!(named, [const { None::<String> }; 5].map(|_| instance.clone()));
    }
}

/// Of the two ways that clients take (fatal, or dynamic with a warning) this is the second.
#[test]
fn c_static_10_an_old_broker_makes_a_static_member_dynamic_everywhere_with_one_warning() {
    let warnings = |stand: &Stand| {
        let told = |notice: &&Notice| matches!(notice, Notice::StaticMembershipUnsupported { version: 4 });
        stand.notices().filter(told).count()
    };
    let mut stand = Stand::with(MembershipConfig { group_instance_id: Some("i".into()), ..config() });
    stand.find();
    let (round, request) = stand.join();
    assert_eq!(request.group_instance_id.as_deref(), Some("i"), "it cannot know yet");
    stand.answer(round, Ok(Answer::Joined { version: 4, response: follower(1) }));
    assert_eq!((stand.core.instance_id(), warnings(&stand)), (None, 1));
    let (round, request) = stand.sync();
    assert_eq!(request.group_instance_id, None);
    assert_eq!(stand.armed().1.group_instance_id, None);
    stand.answer(round, Ok(Answer::Synced(assigned(&[0]))));
    let (round, _) = stand.question();
    stand.answer(round, Ok(Answer::Offsets(offsets(&[(0, 10)]))));
    stand.handled(0, 15);
    let (round, request) = stand.commit();
    assert_eq!(request.group_instance_id, None);
    stand.commit_answer(round, &request, E::None);
    stand.answered(E::RebalanceInProgress);
    stand.drained();
    stand.released("revoked");
    let (round, request) = stand.join();
    assert_eq!(request.group_instance_id, None);
    stand.answer(round, Ok(Answer::Joined { version: 4, response: follower(2) }));
    assert_eq!(warnings(&stand), 1, "once");
    stand.effects.clear();
    let deadline = stand.now + secs(5);
    stand.input(Input::Close { operation: Default::default(), deadline });
    let (_, question) = stand.question();
    let Question::Leave(request) = question else {
        panic!("it leaves as a dynamic member does: {question:?}")
    };
    assert_eq!((request.members[0].member_id.as_str(), &request.members[0].group_instance_id), ("m", &None));

    // A dynamic member has nothing to be warned of, and a broker that can is no reason either.
    for (instance, version) in [(None, 4), (Some("i".to_string()), 5)] {
        let mut stand = Stand::with(MembershipConfig { group_instance_id: instance.clone(), ..config() });
        stand.find();
        let (round, _) = stand.join();
        stand.answer(round, Ok(Answer::Joined { version, response: follower(1) }));
        let told = |notice: &Notice| matches!(notice, Notice::StaticMembershipUnsupported { .. });
        assert!(!stand.notices().any(told));
        assert_eq!(stand.core.instance_id(), instance);
    }
}

#[test]
fn c_static_11_a_leader_under_its_old_id_takes_itself_for_a_follower() {
    let mut stand = Stand::with(MembershipConfig { group_instance_id: Some("i".into()), ..config() });
    stand.find();
    let (round, _) = stand.join();
    stand.answer(
        round,
        Ok(Answer::Joined {
            version: 8,
            response: JoinGroupResponse { leader: "old".into(), ..follower(3) },
        }),
    );
    let (_, request) = stand.sync();
    assert!(request.assignments.is_empty());
}

/// A change-over: the group shares by the cooperative assignor already, and this member still offers an eager one
/// too. Its predecessor may have left out what moves, and nobody else will ask for it.
#[test]
fn an_eager_successor_of_a_leader_in_a_cooperative_group_rejoins_once_for_what_may_be_missing() {
    let successor = |assignor: &str, version: i16, response: JoinGroupResponse| {
        let assignors = vec![Assignor::Range, Assignor::CooperativeSticky];
        let config = MembershipConfig { group_instance_id: Some("i".into()), assignors, ..config() };
        let mut stand = Stand::with(config);
        stand.find();
        let (round, _) = stand.join();
        let response = JoinGroupResponse { protocol_name: Some(assignor.into()), ..response };
        stand.answer(round, Ok(Answer::Joined { version, response }));
        let (round, _) = stand.sync();
        let response = SyncGroupResponse { protocol_name: Some(assignor.into()), ..assigned(&[]) };
        stand.answer(round, Ok(Answer::Synced(response)));
        // A rebalance timeout passes, with a good beat in between.
        stand.pass(secs(5));
        stand.answered(E::None);
        stand.pass(secs(5));
        stand.notices().any(|notice| {
            matches!(notice, Notice::Rebalance { reason, .. } if reason.name() == "assignment_incomplete")
        })
    };
    let skipping = || JoinGroupResponse { skip_assignment: true, ..leader(3) };
    // Below version 9 the leader is shown under its old id: the instance id and a UUID.
    let old = "i-00000000-0000-4000-8000-000000000000";
    let hidden = || JoinGroupResponse { leader: old.into(), ..follower(3) };
    assert!(successor("cooperative-sticky", 9, skipping()));
    assert!(successor("cooperative-sticky", 8, hidden()));
    assert!(!successor("range", 9, skipping()), "an eager assignor leaves nothing out");
    assert!(!successor("range", 8, hidden()));
}
