//! Commits of a cooperative member that works on while its group rebalances.

use kohort::{Assignor, CommitError, ConsumerGroup, Context, Handler, MemberEvent, Record};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;

use crate::support::{GROUP, Seen, TOPIC, broker, eventually, group, recorder, secs, stable, until};

fn cooperative(broker: &Broker) -> (ConsumerGroup, Seen) {
    let seen = Seen::default();
    let builder = group(broker).assignors([Assignor::CooperativeSticky]).commit_interval(secs(1));
    (recorder(builder, &seen), seen)
}

/// Commits what came before each record.
struct Careful(Seen);

impl Handler for Careful {
    type Error = CommitError;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), CommitError> {
        cx.commit().await?;
        self.0.push(cx, record.offset);
        Ok(())
    }
}

/// Symptom: from REBALANCE_IN_PROGRESS until it is stable again a cooperative member works on and commits nothing.
#[tokio::test(start_paused = true)]
async fn a_cooperative_member_that_works_on_in_a_rebalance_commits_meanwhile() {
    let broker = broker(4).await;
    let (one, seen) = cooperative(&broker);
    let (two, _) = cooperative(&broker);
    let mut events = one.events();
    let first = one.start().await.unwrap();
    stable(&mut events).await;
    let second = two.start().await.unwrap();
    eventually("they share", || [&first, &second].iter().all(|member| member.status().assignment.len() == 2))
        .await;
    tokio::time::sleep(secs(2)).await;
    events = one.events();
    // A third comes, and the second joins too late: the first's JoinGroup is parked meanwhile, as Kafka would.
    broker.faults().on(ApiKey::JoinGroup).member(second.status().member_id).times(1).delay(secs(8));
    let (three, _) = cooperative(&broker);
    let mut all = one.events();
    let _third = three.start().await.unwrap();
    until(&mut events, |event| matches!(event, MemberEvent::Rebalance { .. })).await;
    let mine: Vec<i32> = first.status().assignment.iter().map(|at| at.partition.partition).collect();
    for partition in &mine {
        broker.produce_to(TOPIC, *partition, Some(b"key"), Some(b"value")).await.unwrap();
    }
    eventually("they are handled meanwhile", || seen.len() == 2).await;
    // The commit interval is 1 s, and the coordinator takes commits of the old generation until all have joined.
    tokio::time::sleep(secs(3)).await;
    assert_eq!(first.status().state, kohort::MemberState::PreparingRebalance);
    let committed: Vec<_> = mine.iter().map(|number| broker.committed(GROUP, TOPIC, *number)).collect();
    let commits =
        std::iter::from_fn(|| all.try_next()).filter(|event| matches!(event, MemberEvent::Commit { .. }));
    assert_eq!(committed, [Some(1), Some(1)], "{} commits", commits.count());
}

/// Symptom: a rebalance that takes longer than the request timeout ends a cooperative member whose handlers commit.
#[tokio::test(start_paused = true)]
async fn a_rebalance_longer_than_the_request_timeout_costs_handlers_that_commit_nothing() {
    let broker = broker(8).await;
    let seen = Seen::default();
    let one = {
        let seen = seen.clone();
        group(&broker)
            .assignors([Assignor::CooperativeSticky])
            .handler(move |_| Careful(seen.clone()))
            .build()
            .unwrap()
    };
    let (two, _) = cooperative(&broker);
    let (three, _) = cooperative(&broker);
    let mut events = one.events();
    let first = one.start().await.unwrap();
    stable(&mut events).await;
    let second = two.start().await.unwrap();
    eventually("they share", || [&first, &second].iter().all(|member| member.status().assignment.len() == 4))
        .await;
    tokio::time::sleep(secs(2)).await;
    events = one.events();
    broker.faults().on(ApiKey::JoinGroup).member(second.status().member_id).times(1).delay(secs(9));
    let mut all = one.events();
    let _third = three.start().await.unwrap();
    until(&mut events, |event| matches!(event, MemberEvent::Rebalance { .. })).await;
    for at in first.status().assignment {
        for _ in 0..3 {
            broker.produce_to(TOPIC, at.partition.partition, Some(b"key"), Some(b"value")).await.unwrap();
        }
    }
    tokio::time::sleep(secs(30)).await;
    let told: Vec<_> = std::iter::from_fn(|| all.try_next())
        .filter(|event| matches!(event, MemberEvent::WorkerRestarted { .. } | MemberEvent::Terminated { .. }))
        .collect();
    assert!(told.is_empty(), "{told:#?}, status {:?}", first.status().health);
}

/// Symptom: a cooperative follower that is closed between the answers to its join and its sync gives its work up at the
/// first 27, is a forced close (exit code 6, D-23: exit 0) and has its work done again (D-25), though the leader's
/// SyncGroup, and with it a commit that is taken, is there 100 ms later and the close has 5 s.
#[tokio::test(start_paused = true)]
async fn d_23_a_cooperative_follower_closed_just_before_its_leader_synced_commits_what_it_did() {
    let broker = broker(4).await;
    let (leader, _) = cooperative(&broker);
    let (third, _) = cooperative(&broker);
    let seen = Seen::default();
    let builder = group(&broker).assignors([Assignor::CooperativeSticky]).commit_interval(secs(60));
    let follower = recorder(builder, &seen);
    let leads = leader.start().await.unwrap();
    let mut events = leader.events();
    eventually("it leads", || leads.status().assignment.len() == 4).await;
    let follows = follower.start().await.unwrap();
    eventually("they share", || {
        [&leads, &follows].iter().all(|member| member.status().assignment.len() == 2)
    })
    .await;
    tokio::time::sleep(secs(2)).await;
    for at in follows.status().assignment {
        broker.produce_to(TOPIC, at.partition.partition, Some(b"key"), Some(b"value")).await.unwrap();
    }
    eventually("it is handled", || seen.len() == 2).await;
    while events.try_next().is_some() {}
    let id = leads.status().member_id;
    broker.faults().on(ApiKey::SyncGroup).member(&id).times(1).delay(std::time::Duration::from_millis(100));
    let _third = third.start().await.unwrap();
    eventually("between join and sync", || {
        follows.status().state == kohort::MemberState::CompletingRebalance
    })
    .await;
    let report = follows.close(kohort::CloseOptions::timeout(secs(5))).await;
    assert!(!report.forced && report.dropped.is_empty(), "{report:?}");
}
