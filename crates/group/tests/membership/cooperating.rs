//! C-REB-06: what a cooperative member gives back, keeps and gets.

use kohort_group::membership::{Answer, Effect, Hook, Notice, Question};
use kohort_group::{Assignor, MemberState, MembershipConfig};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::consumer::Subscription;
use kohort_protocol::messages::{JoinGroupResponse, SyncGroupResponse};

use crate::stand::{Stand, assigned, config, follower, offsets, partition};

impl Stand {
    pub(crate) fn cooperative(instance: Option<&str>) -> Self {
        Stand::with(MembershipConfig {
            group_instance_id: instance.map(Into::into),
            assignors: vec![Assignor::CooperativeSticky],
            ..config()
        })
    }

    /// Into this generation, with partitions 0 and 1.
    pub(crate) fn joined_cooperatively(&mut self, generation: i32) {
        self.given(generation, &[0, 1]);
    }

    /// Into this generation, with these partitions; what the JoinGroup said is owned.
    fn given(&mut self, generation: i32, partitions: &[i32]) -> Vec<i32> {
        if self.core.coordinator().is_none() {
            self.find();
        }
        let name = Some("cooperative-sticky".to_string());
        let (round, request) = self.join();
        let subscription = Subscription::decode(&request.protocols[0].metadata).unwrap();
        self.join_answer(round, JoinGroupResponse { protocol_name: name.clone(), ..follower(generation) });
        let (round, _) = self.sync();
        let response = SyncGroupResponse { protocol_name: name, ..assigned(partitions) };
        self.answer(round, Ok(Answer::Synced(response)));
        subscription.owned_partitions.iter().map(|one| one.partition).collect()
    }
}

#[test]
fn c_reb_06_what_is_gone_is_revoked_before_one_more_join_what_is_new_starts_and_the_rest_is_let_be() {
    let mut stand = Stand::cooperative(None);
    assert!(stand.given(1, &[0, 1, 2]).is_empty());
    let (round, _) = stand.question();
    stand.answer(round, Ok(Answer::Offsets(offsets(&[(0, 10), (1, 10), (2, 10)]))));
    stand.handled(0, 15);
    stand.handled(1, 15);
    stand.effects.clear();

    // A rebalance takes nothing away before it is known what moves.
    stand.answered(E::RebalanceInProgress);
    let given_back =
        |effect: &Effect| matches!(effect, Effect::DrainWorkers { .. } | Effect::ReleaseWorkers { .. });
    assert!(!stand.has(given_back));
    assert_eq!(stand.given(2, &[0, 3]), [0, 1, 2]);
    let drained = stand.effects.iter().find_map(|effect| match effect {
        Effect::DrainWorkers { partitions, .. } => Some(partitions.clone()),
        _ => None,
    });
    assert_eq!(drained, Some(vec![partition(1), partition(2)]), "what moves, and nothing else");
    assert_eq!(stand.state(), MemberState::Revoking);
    stand.drained();
    // The work is committed in the generation that stands.
    let (round, request) = stand.commit();
    assert_eq!(request.generation, 2);
    stand.commit_answer(round, &request, E::None);
    let released = stand.effects.iter().find_map(|effect| match effect {
        Effect::ReleaseWorkers { partitions, hook, .. } => Some((partitions.clone(), *hook)),
        _ => None,
    });
    assert_eq!(released, Some((vec![partition(1), partition(2)], Hook::Revoked)));
    stand.released("revoked");
    let revoked: Vec<_> = stand
        .notices()
        .filter_map(|notice| match notice {
            Notice::Revoked(list) => Some(list.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(revoked, [vec![partition(1), partition(2)]], "told once");
    assert!(!stand.notices().any(|notice| matches!(notice, Notice::Lost(_))));
    stand.effects.retain(|effect| matches!(effect, Effect::Ask { .. }));

    // The join behind it frees what was given back, without a pause. Then the new one starts, and there is no third.
    let before = stand.now;
    assert_eq!(stand.given(3, &[0, 3]), [0, 3]);
    assert_eq!(stand.now, before);
    let (round, question) = stand.question();
    assert!(
        matches!(&question, Question::FetchOffsets(request)
            if request.groups[0].topics.as_ref().unwrap()[0].partitions == [3]),
        "{question:?}"
    );
    stand.answer(round, Ok(Answer::Offsets(offsets(&[(3, 7)]))));
    let started: Vec<_> = stand
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::StartWorkers { partitions, .. } => Some(partitions),
            _ => None,
        })
        .flatten()
        .map(|start| (start.partition.partition, start.committed))
        .collect();
    assert_eq!(started, [(3, Some(7))], "the new one alone");
    assert!(!stand.has(given_back), "what is kept is let be");
    assert_eq!((stand.state(), stand.asks()), (MemberState::Stable, 0));
}
