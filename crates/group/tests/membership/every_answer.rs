//! The error table, walked: every code in answer to every group request, fed to a member that waits for just that
//! answer. What it does must be what the table says.

use kohort_group::membership::{Answer, Beat, Effect, Question, TerminalCause};
use kohort_group::verdict::{Forget, GroupApi, Verdict, verdict};
use kohort_group::{Input, MemberState};
use kohort_protocol::ErrorCode as E;
use kohort_protocol::messages::{
    CoordinatorAddress, FetchedOffsets, JoinGroupResponse, LeaveGroupResponse, OffsetFetchResponse,
};

use crate::stand::{Stand, assigned, secs};

/// The reactions that people who run consumer groups rely on, in their own words, independent of the code's table.
#[test]
fn the_table_says_what_the_field_expects() {
    use GroupApi::*;
    let keep = Verdict::Rejoin(Forget::Nothing);
    let keep_id = Verdict::Rejoin(Forget::Generation);
    let drop_id = Verdict::Rejoin(Forget::Identity);
    let (find, retry) = (Verdict::FindCoordinator, Verdict::Retry);
    let (fenced, unauthorized, refused) = (Verdict::Fenced, Verdict::Unauthorized, Verdict::Refused);
    let expected: &[(E, &[(GroupApi, Verdict)])] = &[
        (
            E::RebalanceInProgress,
            &[(Heartbeat, keep), (SyncGroup, keep), (JoinGroup, retry), (OffsetCommit, retry)],
        ),
        (E::IllegalGeneration, &[(Heartbeat, keep_id), (SyncGroup, keep_id), (OffsetCommit, keep_id)]),
        (
            E::UnknownMemberId,
            &[(Heartbeat, drop_id), (SyncGroup, drop_id), (JoinGroup, drop_id), (OffsetCommit, drop_id)],
        ),
        (E::MemberIdRequired, &[(JoinGroup, Verdict::JoinWithGivenId)]),
        (
            E::CoordinatorLoadInProgress,
            &[
                (Heartbeat, retry),
                (SyncGroup, keep),
                (JoinGroup, retry),
                (OffsetCommit, retry),
                (OffsetFetch, retry),
            ],
        ),
        (
            E::CoordinatorNotAvailable,
            &[
                (Heartbeat, find),
                (SyncGroup, find),
                (JoinGroup, find),
                (OffsetCommit, find),
                (LeaveGroup, find),
            ],
        ),
        (
            E::NotCoordinator,
            &[
                (Heartbeat, find),
                (SyncGroup, find),
                (JoinGroup, find),
                (OffsetCommit, find),
                (LeaveGroup, find),
            ],
        ),
        (
            E::FencedInstanceId,
            &[(Heartbeat, fenced), (SyncGroup, fenced), (JoinGroup, fenced), (OffsetCommit, fenced)],
        ),
        (
            E::GroupAuthorizationFailed,
            &[
                (FindCoordinator, unauthorized),
                (Heartbeat, unauthorized),
                (SyncGroup, unauthorized),
                (JoinGroup, unauthorized),
                (OffsetCommit, unauthorized),
                (OffsetFetch, unauthorized),
            ],
        ),
        (E::InconsistentGroupProtocol, &[(JoinGroup, refused), (SyncGroup, refused)]),
        (E::InvalidSessionTimeout, &[(JoinGroup, refused)]),
        (E::InvalidGroupId, &[(JoinGroup, refused)]),
        (E::GroupMaxSizeReached, &[(JoinGroup, refused)]),
        (E::UnsupportedVersion, &[(JoinGroup, refused)]),
        (E::OffsetMetadataTooLarge, &[(OffsetCommit, Verdict::Surface)]),
        (E::InvalidCommitOffsetSize, &[(OffsetCommit, Verdict::Surface)]),
        (E::UnknownTopicOrPartition, &[(OffsetCommit, retry), (OffsetFetch, retry)]),
        (E::RequestTimedOut, &[(OffsetCommit, find)]),
        (E::UnstableOffsetCommit, &[(OffsetFetch, retry)]),
        (E::TopicAuthorizationFailed, &[(OffsetCommit, Verdict::Surface), (OffsetFetch, Verdict::Surface)]),
        // What a broker answers for a moment never ends a member, and to a SyncGroup it is joined again.
        (
            E::UnknownServerError,
            &[(Heartbeat, retry), (SyncGroup, keep), (JoinGroup, retry), (OffsetCommit, retry)],
        ),
    ];
    for (code, reactions) in expected {
        for (api, reaction) in *reactions {
            assert_eq!(verdict(*api, *code), *reaction, "{code} to {}", api.name());
        }
        // A member that leaves anyway is held up by nothing but a coordinator that moved.
        let moved = matches!(code, E::CoordinatorNotAvailable | E::NotCoordinator);
        assert_eq!(
            verdict(LeaveGroup, *code),
            if moved { find } else { Verdict::Log },
            "{code} to LeaveGroup"
        );
    }
}

/// A member that waits for the answer to this request, and gives the answer.
fn answered(api: GroupApi, code: E) -> Stand {
    let mut stand = Stand::new();
    match api {
        GroupApi::FindCoordinator => {
            let (round, _) = stand.question();
            let address = CoordinatorAddress {
                error: code,
                node_id: 1,
                host: "broker".into(),
                port: 9092,
                ..Default::default()
            };
            stand.effects.clear();
            stand.answer(round, Ok(Answer::Coordinator(address)));
        }
        GroupApi::JoinGroup => {
            stand.stable(3);
            stand.answered(E::RebalanceInProgress);
            stand.drained();
            stand.released("revoked");
            let (round, _) = stand.join();
            stand.effects.clear();
            let response =
                JoinGroupResponse { error: code, member_id: "given".into(), ..crate::stand::follower(4) };
            stand.join_answer(round, response);
        }
        GroupApi::SyncGroup => {
            let round = stand.syncing(3);
            stand.effects.clear();
            let mut response = assigned(&[0, 1]);
            response.error = code;
            stand.answer(round, Ok(Answer::Synced(response)));
        }
        GroupApi::Heartbeat => {
            stand.stable(3);
            stand.beat(Beat::Answered(code));
        }
        GroupApi::LeaveGroup => {
            stand.stable(3);
            let deadline = stand.now + secs(5);
            stand.input(Input::Close { operation: Default::default(), deadline });
            stand.drained();
            stand.released("revoked");
            let (round, _) = stand.question();
            stand.effects.clear();
            stand.answer(round, Ok(Answer::Left(LeaveGroupResponse { error: code, members: Vec::new() })));
        }
        GroupApi::OffsetCommit => {
            stand.stable(3);
            stand.handled(0, 15);
            stand.input(Input::Commit);
            let (round, request) = stand.commit();
            stand.effects.clear();
            stand.commit_answer(round, &request, code);
        }
        GroupApi::OffsetFetch => {
            let round = stand.syncing(3);
            stand.answer(round, Ok(Answer::Synced(assigned(&[0, 1]))));
            let (round, _) = stand.question();
            stand.effects.clear();
            let groups = vec![FetchedOffsets { group_id: "g".into(), error: code, topics: Vec::new() }];
            stand.answer(round, Ok(Answer::Offsets(OffsetFetchResponse { groups })));
        }
    }
    stand
}

/// What the member asks next, within its session; partitions are given up on the way as it wants.
fn next_question(stand: &mut Stand) -> Option<Question> {
    let end = stand.now + secs(5);
    loop {
        while stand
            .has(|effect| matches!(effect, Effect::DrainWorkers { .. } | Effect::ReleaseWorkers { .. }))
        {
            let (round, order) = stand.order();
            let input = match order {
                "drain" => Input::Drained { round },
                _ => Input::Released { round, aborted: Vec::new() },
            };
            stand.input(input);
        }
        if stand.asks() > 0 {
            return Some(stand.question().1);
        }
        match stand.core.deadline().filter(|at| *at <= end) {
            Some(at) => {
                stand.now = stand.now.max(at);
                stand.input(Input::Deadline);
            }
            None => return None,
        }
    }
}

#[test]
fn every_code_in_answer_to_every_request_leads_to_what_the_table_says() {
    let mut walked = 0;
    for api in GroupApi::ALL {
        for code in E::ALL.iter().copied().chain([E::Other(999)]).filter(|code| code.is_error()) {
            let what = format!("{code} to {}", api.name());
            let mut stand = answered(api, code);
            let next = next_question(&mut stand);
            let terminated = stand.terminated().cloned();
            match verdict(api, code) {
                Verdict::Success => unreachable!("{what}"),
                Verdict::Fenced => assert_eq!(terminated, Some(TerminalCause::FencedInstanceId), "{what}"),
                Verdict::Unauthorized => {
                    assert_eq!(terminated, Some(TerminalCause::GroupAuthorizationFailed), "{what}")
                }
                Verdict::Refused => {
                    let refused = matches!(&terminated, Some(TerminalCause::Refused { api: asked, code: got, .. })
                        if (*asked, *got) == (api, code));
                    assert!(refused, "{what}: {terminated:?}");
                }
                Verdict::JoinWithGivenId => {
                    assert!(matches!(next, Some(Question::Join(join)) if join.member_id == "given"), "{what}")
                }
                Verdict::Retry => {
                    let again = match (api, &next) {
                        (GroupApi::FindCoordinator, Some(Question::FindCoordinator(_)))
                        | (GroupApi::OffsetCommit, Some(Question::CommitOffsets(_)))
                        | (GroupApi::OffsetFetch, Some(Question::FetchOffsets(_))) => true,
                        (GroupApi::JoinGroup, Some(Question::Join(join))) => join.member_id == "m",
                        // The next beat is the heart's.
                        (GroupApi::Heartbeat, None) => stand.state() == MemberState::Stable,
                        _ => false,
                    };
                    assert!(again, "{what}: {next:?}");
                }
                Verdict::FindCoordinator => {
                    assert!(matches!(next, Some(Question::FindCoordinator(_))), "{what}: {next:?}");
                    assert_eq!(stand.core.member_id(), "m", "{what}: the id is kept");
                }
                Verdict::Rejoin(forget) => {
                    let id = if forget == Forget::Identity { "" } else { "m" };
                    assert!(
                        matches!(&next, Some(Question::Join(join)) if join.member_id == id),
                        "{what}: {next:?}"
                    );
                }
                Verdict::Surface => {
                    assert_eq!((terminated.is_none(), stand.state()), (true, MemberState::Stable), "{what}")
                }
                Verdict::Log => assert_eq!((stand.state(), next), (MemberState::Left, None), "{what}"),
            }
            if matches!(verdict(api, code), Verdict::Fenced | Verdict::Unauthorized | Verdict::Refused) {
                assert_eq!(stand.state(), MemberState::Fatal, "{what}");
            }
            walked += 1;
        }
    }
    assert_eq!(walked, GroupApi::ALL.len() * E::ALL.len(), "all codes but None, and one unknown");
}
