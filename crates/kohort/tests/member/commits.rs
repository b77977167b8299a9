//! Commits that the coordinator refuses: who is told, what is tried again, and what becomes of the member.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use kohort::{
    CloseOptions, CommitError, ConsumerGroup, Context, ErrorCode, GroupMembershipOperation, Handler,
    MemberEvent, MemberState, Record, TerminalReason, TopicPartition,
};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;
use tokio::time::{Duration, Instant, sleep};

use crate::support::{
    GROUP, Seen, TOPIC, broker, eventually, evict, group, millis, secs, settled, told, until,
};

async fn produce(broker: &Broker, records: usize) {
    for _ in 0..records {
        broker.produce_to(TOPIC, 0, Some(b"key"), Some(b"value")).await.unwrap();
    }
}

/// A static or dynamic group that commits soon.
fn prompt(broker: &Broker, instance: Option<&str>, seen: &Seen) -> ConsumerGroup {
    let builder = group(broker).commit_interval(millis(200));
    let builder = match instance {
        Some(id) => builder.group_instance_id(id),
        None => builder,
    };
    let seen = seen.clone();
    builder.handler(move |_| seen.handler()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn c_commit_01_every_commit_names_the_identity_of_its_time_and_none_comes_outside_of_a_generation() {
    for instance in [None, Some("web-0")] {
        let broker = broker(1).await;
        produce(&broker, 1).await;
        let group = prompt(&broker, instance, &Seen::default());
        let mut events = group.events();
        let member = group.start().await.unwrap();
        let mut identities = Vec::new();
        for round in 1..=2 {
            let joined = until(&mut events, |event| matches!(event, MemberEvent::Join { .. })).await;
            let MemberEvent::Join { member_id, generation, .. } = joined else { unreachable!() };
            identities.push((member_id.clone(), generation));
            eventually("it is committed", || broker.committed(GROUP, TOPIC, 0) == Some(round)).await;
            if round == 1 {
                evict(&broker, &member_id).await;
                produce(&broker, 1).await;
            }
        }
        assert_ne!(identities[0].0, identities[1].0);
        let leave = CloseOptions::group_membership_operation(GroupMembershipOperation::LeaveGroup);
        member.close(leave).await;
        produce(&broker, 1).await;
        sleep(secs(60)).await;
        // A generation begins with its SyncGroup and ends with the leave.
        let (mut present, mut commits) = (None, 0);
        for request in broker.all_requests() {
            let named = (request.member_id.clone().unwrap_or_default(), request.generation.unwrap_or(-1));
            match request.api {
                ApiKey::SyncGroup => present = Some(named),
                ApiKey::LeaveGroup if request.member_id.as_ref() == Some(&identities[1].0) => present = None,
                ApiKey::OffsetCommit => {
                    assert_eq!(
                        (Some(&named), request.group_instance_id.as_deref()),
                        (present.as_ref(), instance)
                    );
                    assert!(identities.contains(&named));
                    commits += 1;
                }
                _ => {}
            }
        }
        assert!(commits >= 2 && present.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn c_commit_04_05_and_12_a_commit_without_its_identity_is_tried_once_told_once_and_rejoins_once() {
    for (code, kind, keeps_id) in [
        (ErrorCode::IllegalGeneration, "illegal_generation", true),
        (ErrorCode::UnknownMemberId, "unknown_member_id", false),
    ] {
        let broker = broker(2).await;
        let seen = Seen::default();
        let (member, mut events) = settled(&broker, &prompt(&broker, None, &seen)).await;
        let (id, generation) = (member.status().member_id, member.status().generation);
        let rule = broker.faults().on(ApiKey::OffsetCommit).times(1).error(code);
        produce(&broker, 1).await;
        eventually("it is refused", || rule.hits() == 1).await;
        eventually("it is committed in the end", || broker.committed(GROUP, TOPIC, 0) == Some(1)).await;
        assert_eq!(seen.counts()[&(0, 0)], 2, "{code}: what was not committed is handled again");
        let joins = broker.requests(ApiKey::JoinGroup);
        let named = joins[0].member_id.as_deref();
        assert_eq!(named, Some(if keeps_id { id.as_str() } else { "" }), "{code}");
        assert_eq!(joins.len(), if keeps_id { 1 } else { 2 }, "{code}");
        let stale: Vec<_> = broker.requests(ApiKey::OffsetCommit).into_iter().collect();
        let stale = stale.iter().filter(|commit| commit.generation == Some(generation)).count();
        assert_eq!(stale, 1, "{code}: one try under the old generation");
        let told = told(&mut events, |event| {
            use MemberEvent::*;
            matches!(
                event,
                CommitFailed { .. } | Rebalance { .. } | Lost { .. } | Revoked { .. } | Terminated { .. }
            )
        });
        assert!(
            matches!(
                &told[..],
                [
                    MemberEvent::CommitFailed { retriable: false, .. },
                    MemberEvent::Rebalance { kind: why, generation: of, .. },
                    MemberEvent::Lost { partitions, .. },
                ] if *why == kind && *of == generation && partitions.len() == 2
            ),
            "{code}: {told:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn c_commit_07_and_12_a_fenced_commit_ends_the_member_without_a_word_to_the_group() {
    let broker = broker(1).await;
    let (member, mut events) = settled(&broker, &prompt(&broker, Some("web-0"), &Seen::default())).await;
    broker.faults().on(ApiKey::OffsetCommit).error(ErrorCode::FencedInstanceId);
    produce(&broker, 1).await;
    let reason = member.ended().await.unwrap_err();
    assert!(matches!(reason, TerminalReason::FencedInstanceId), "{reason}");
    sleep(secs(60)).await;
    let asked = |api| broker.requests(api).len();
    let counts = [ApiKey::OffsetCommit, ApiKey::JoinGroup, ApiKey::LeaveGroup].map(asked);
    assert_eq!(counts, [1, 0, 0]);
    let ends = told(&mut events, |event| {
        matches!(event, MemberEvent::Terminated { .. } | MemberEvent::Rebalance { .. })
    });
    assert!(matches!(&ends[..], [MemberEvent::Terminated { .. }]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn c_commit_12_workers_go_on_while_the_coordinator_is_not_available() {
    let broker = broker(1).await;
    let seen = Seen::default();
    let (member, mut events) = settled(&broker, &prompt(&broker, None, &seen)).await;
    let before = member.status();
    broker.faults().on(ApiKey::OffsetCommit).times(2).error(ErrorCode::CoordinatorNotAvailable);
    produce(&broker, 1).await;
    until(&mut events, |event| matches!(event, MemberEvent::CommitFailed { retriable: true, .. })).await;
    produce(&broker, 1).await;
    eventually("the next is handled meanwhile", || seen.len() == 2).await;
    eventually("both are committed", || broker.committed(GROUP, TOPIC, 0) == Some(2)).await;
    let after = member.status();
    assert_eq!((after.member_id, after.generation), (before.member_id, before.generation));
    assert_eq!((after.state, after.assignment.len(), seen.len()), (MemberState::Stable, 1, 2));
    let moved = told(&mut events, |event| {
        use MemberEvent::*;
        matches!(event, Rebalance { .. } | Lost { .. } | Revoked { .. } | WorkerRestarted { .. })
    });
    assert!(moved.is_empty(), "{moved:?}");
}

#[tokio::test(start_paused = true)]
async fn c_commit_11_a_commit_that_is_never_taken_is_told_once_not_sent_again_and_moves_nobody() {
    for code in [ErrorCode::OffsetMetadataTooLarge, ErrorCode::InvalidCommitOffsetSize] {
        let broker = broker(1).await;
        let (member, mut events) = settled(&broker, &prompt(&broker, None, &Seen::default())).await;
        let rule = broker.faults().on(ApiKey::OffsetCommit).error(code);
        produce(&broker, 1).await;
        sleep(secs(30)).await;
        assert_eq!((rule.hits(), broker.requests(ApiKey::JoinGroup).len()), (1, 0), "{code}");
        let failed = told(&mut events, |event| {
            matches!(event, MemberEvent::CommitFailed { .. } | MemberEvent::Rebalance { .. })
        });
        assert!(
            matches!(&failed[..], [MemberEvent::CommitFailed { retriable: false, reason, .. }]
                if reason.contains(&code.to_string())),
            "{code}: {failed:?}"
        );
        assert_eq!(member.status().state, MemberState::Stable);
        // Work that follows is committed as ever.
        rule.clear();
        produce(&broker, 1).await;
        eventually("it is committed", || broker.committed(GROUP, TOPIC, 0) == Some(2)).await;
    }
}

/// Symptom: the handler waited out the request timeout and was told that the commit is still tried, and asked again it
/// was told that the commit is done.
#[tokio::test(start_paused = true)]
async fn c_commit_11_whoever_waits_for_a_commit_that_is_refused_is_told_so_at_once_and_every_time() {
    let broker = broker(1).await;
    let (seen, said) = (Seen::default(), Said::default());
    let group = {
        let (seen, said) = (seen.clone(), Arc::clone(&said));
        let handler = move |_: &TopicPartition| Insistent { seen: seen.clone(), said: Arc::clone(&said) };
        group(&broker).commit_interval(secs(60)).handler(handler).build().unwrap()
    };
    let (_member, _) = settled(&broker, &group).await;
    broker.faults().on(ApiKey::OffsetCommit).times(1).error(ErrorCode::InvalidCommitOffsetSize);
    produce(&broker, 3).await;
    eventually("it asked four times", || said.lock().unwrap().len() == 4).await;
    let said: Vec<_> = said.lock().unwrap().drain(..).collect();
    let refused = |said: &(Result<(), CommitError>, Duration)| {
        let code = ErrorCode::InvalidCommitOffsetSize;
        matches!(&said.0, Err(CommitError::Refused { code: told, .. }) if *told == code)
            && said.1 <= millis(5)
    };
    assert!(said[..2].iter().all(refused), "{said:?}");
    assert!(said[2..].iter().all(|(said, _)| said.is_ok()), "what follows is committed: {said:?}");
    assert_eq!(
        (broker.committed(GROUP, TOPIC, 0), broker.requests(ApiKey::OffsetCommit).len()),
        (Some(2), 2)
    );
}

/// How commits went, and how long each took.
type Said = Arc<Mutex<Vec<(Result<(), CommitError>, Duration)>>>;

/// Commits twice after every record but the first, and writes down how that went and how long it took.
struct Insistent {
    seen: Seen,
    said: Said,
}

impl Handler for Insistent {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        self.seen.push(cx, record.offset);
        for _ in 0..if record.offset > 0 { 2 } else { 0 } {
            let asked = Instant::now();
            let said = cx.commit().await;
            self.said.lock().unwrap().push((said, asked.elapsed()));
        }
        Ok(())
    }
}

/// Commits after every record and writes down how that went.
struct Diligent {
    seen: Seen,
    said: Arc<Mutex<Vec<Result<(), CommitError>>>>,
}

impl Handler for Diligent {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        self.seen.push(cx, record.offset);
        if record.offset > 0 {
            let said = cx.commit().await;
            self.said.lock().unwrap().push(said);
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn c_commit_13_six_workers_that_find_out_make_one_rebalance_and_the_next_generation_is_heard() {
    let broker = broker(6).await;
    let (seen, said) = (Seen::default(), Arc::<Mutex<Vec<_>>>::default());
    let group = {
        let (seen, said) = (seen.clone(), Arc::clone(&said));
        let handler = move |_: &TopicPartition| Diligent { seen: seen.clone(), said: Arc::clone(&said) };
        group(&broker).commit_interval(secs(60)).handler(handler).build().unwrap()
    };
    let (member, mut events) = settled(&broker, &group).await;
    let (id, generation) = (member.status().member_id, member.status().generation);
    for partition in 0..6 {
        broker.produce_to(TOPIC, partition, None, Some(b"value")).await.unwrap();
    }
    eventually("each has one", || seen.len() == 6).await;
    evict(&broker, &id).await;
    let rebalances = |events: &mut kohort::MemberEvents| {
        let of = told(events, |event| matches!(event, MemberEvent::Rebalance { .. }));
        of.iter()
            .map(|event| match event {
                MemberEvent::Rebalance { generation, .. } => *generation,
                _ => unreachable!(),
            })
            .collect::<Vec<_>>()
    };
    for partition in 0..6 {
        broker.produce_to(TOPIC, partition, None, Some(b"value")).await.unwrap();
    }
    eventually("six are told of it, and six succeed", || said.lock().unwrap().len() == 12).await;
    sleep(secs(5)).await;
    let went: Vec<_> = said.lock().unwrap().iter().map(Result::is_ok).collect();
    assert_eq!(went, [[false; 6], [true; 6]].concat());
    assert_eq!(rebalances(&mut events), [generation]);
    let joins = broker.requests(ApiKey::JoinGroup);
    assert_eq!(joins.len(), 2, "one handshake: {joins:?}");
    let now = member.status();

    broker.faults().on(ApiKey::OffsetCommit).times(1).error(ErrorCode::IllegalGeneration);
    broker.produce_to(TOPIC, 0, None, Some(b"value")).await.unwrap();
    eventually("it is committed in the end", || broker.committed(GROUP, TOPIC, 0) == Some(3)).await;
    assert_eq!(rebalances(&mut events), [now.generation], "a report of the present one acts");
    assert_eq!(member.status().member_id, now.member_id);
}
