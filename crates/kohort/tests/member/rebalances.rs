//! What people ran into when groups rebalance, each report as its case.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kohort::{
    Assignor, CloseOptions, ConsumerGroup, Context, ErrorCode, Handler, MemberEvent, MemberState, Record,
    TerminalReason,
};
use kohort_broker::{Broker, CoordinatorConfig};
use kohort_protocol::ApiKey;
use tokio::time::{Duration, Instant, sleep};

use crate::support::{
    GROUP, Seen, Slow, TOPIC, broker, eventually, group, millis, recorder, recording, secs, stable, until,
};

fn generation(broker: &Broker) -> i32 {
    broker.group(GROUP).unwrap().generation
}

/// How often each kind of event came.
fn count(events: &mut kohort::MemberEvents, wanted: impl Fn(&MemberEvent) -> bool) -> usize {
    std::iter::from_fn(|| events.try_next()).filter(wanted).count()
}

#[tokio::test(start_paused = true)]
async fn d_01_a_sync_that_is_lost_and_then_refused_is_mended_in_place_and_costs_the_others_nothing() {
    let broker = broker(6).await;
    let with = || {
        let builder = group(&broker).request_timeout(secs(2)).session_timeout_padding(secs(0));
        recorder(builder, &Seen::default())
    };
    let (a, b, c) = (with(), with(), with());
    let mut a_events = a.events();
    let leader = a.start().await.unwrap();
    stable(&mut a_events).await;
    let (member, third) = (b.start().await.unwrap(), c.start().await.unwrap());
    let shared = || [&leader, &member, &third].iter().all(|member| member.status().assignment.len() == 2);
    eventually("they share", shared).await;
    sleep(secs(1)).await;
    let id = member.status().member_id;
    let cells = |children: Vec<kohort::supervisor::ChildInfo>| {
        children
            .into_iter()
            .map(|child| (child.incarnation, child.cell.map(|cell| cell.get_id())))
            .collect::<Vec<_>>()
    };
    let actors = cells(member.which_children().await.unwrap());
    let before = generation(&broker);
    let mut events = b.events();
    broker.clear_requests();
    broker.faults().on(ApiKey::SyncGroup).member(&id).times(1).drop_answer();
    broker.faults().on(ApiKey::SyncGroup).member(&id).times(1).error(ErrorCode::UnknownServerError);
    broker.faults().on(ApiKey::Heartbeat).member(&id).times(1).error(ErrorCode::RebalanceInProgress);
    let told = until(&mut events, |event| matches!(event, MemberEvent::Rebalance { .. })).await;
    let begun = Instant::now();
    assert!(matches!(told, MemberEvent::Rebalance { kind: "rebalance_in_progress", .. }), "{told:?}");
    stable(&mut events).await;
    assert!(begun.elapsed() <= secs(12), "rebalance timeout + 2 s, not {:?}", begun.elapsed());
    let joins = broker.requests(ApiKey::JoinGroup);
    assert!(joins.iter().all(|join| join.member_id.as_ref() == Some(&id)), "the same member id on the wire");
    assert_eq!(joins.len(), 3, "one for the 27, one for each failed sync");
    assert_eq!(cells(member.which_children().await.unwrap()), actors, "the same actors");
    assert!(generation(&broker) <= before + 1);
    assert_eq!(member.status().crashes_in_window, 0);

    // Later a 27 leads to exactly one JoinGroup.
    sleep(secs(5)).await;
    broker.clear_requests();
    broker.faults().on(ApiKey::Heartbeat).member(&id).times(1).error(ErrorCode::RebalanceInProgress);
    stable(&mut events).await;
    sleep(secs(5)).await;
    let joins = broker.requests(ApiKey::JoinGroup);
    assert_eq!(joins.iter().filter(|join| join.member_id.as_ref() == Some(&id)).count(), 1);
    assert_eq!(member.status().member_id, id);
}

#[tokio::test(start_paused = true)]
async fn d_02_the_demand_for_a_member_id_is_answered_within_the_pending_time_of_a_slow_cluster() {
    let limits = CoordinatorConfig { min_session_timeout: secs(1), ..CoordinatorConfig::default() };
    let broker = Broker::builder().in_memory().topic(TOPIC, 2).coordinator(limits).start().await.unwrap();
    broker.faults().on_any().delay_answer(millis(300));
    // A pending id is kept for the session timeout.
    let builder = group(&broker).session_timeout(secs(1)).heartbeat_interval(millis(200));
    let group = recorder(builder.crash_rejoin_max_jitter(millis(100)), &Seen::default());
    let (mut events, mut all) = (group.events(), group.events());
    let _member = group.start().await.unwrap();
    eventually("the first JoinGroup is in", || !broker.requests(ApiKey::JoinGroup).is_empty()).await;
    let mut pending = 0;
    while broker.group(GROUP).is_none_or(|group| group.members.is_empty()) {
        pending = pending.max(broker.group(GROUP).map_or(0, |group| group.pending.len()));
        sleep(millis(1)).await;
    }
    stable(&mut events).await;
    let joins = broker.requests(ApiKey::JoinGroup);
    let named: Vec<bool> = joins.iter().map(|join| join.member_id.as_deref() != Some("")).collect();
    assert_eq!(named, [false, true], "exactly two: without an id, then with the given one");
    let wait = joins[1].at - joins[0].at;
    assert!(wait >= millis(300) && wait <= millis(350), "{wait:?}");
    assert_eq!((pending, broker.group(GROUP).unwrap().pending.len()), (1, 0));
    assert_eq!(count(&mut all, |event| matches!(event, MemberEvent::Retrying { .. })), 0, "it is no failure");
}

#[tokio::test(start_paused = true)]
async fn d_03_and_c_join_11_a_join_and_a_sync_wait_as_long_as_the_group_may_need() {
    let broker = broker(2).await;
    broker.produce_to(TOPIC, 0, Some(b"key"), Some(b"value")).await.unwrap();
    let with = || group(&broker).rebalance_timeout(secs(20)).session_timeout_padding(secs(5));
    let (seen, each) = (Seen::default(), secs(15));
    let slow = {
        let seen = seen.clone();
        with().handler(move |_| Slow { seen: seen.clone(), each }).build().unwrap()
    };
    let quick = recorder(with(), &Seen::default());
    let mut events = slow.events();
    let first = slow.start().await.unwrap();
    stable(&mut events).await;
    sleep(secs(1)).await;
    let before = generation(&broker);
    broker.clear_requests();
    // The first drains for some 14 s; the other waits for it.
    let mut quick_events = quick.events();
    let second = quick.start().await.unwrap();
    let begun = Instant::now();
    stable(&mut quick_events).await;
    assert!(begun.elapsed() > secs(10), "{:?}", begun.elapsed());
    let of = |api| {
        let mut asked = broker.requests(api);
        let id = second.status().member_id;
        asked.retain(|request| request.member_id.as_ref() == Some(&id));
        asked
    };
    assert_eq!(of(ApiKey::JoinGroup).len(), 1, "one JoinGroup, and patience");
    let connections = [ApiKey::JoinGroup, ApiKey::SyncGroup].map(|api| of(api)[0].connection);
    assert_eq!(connections[0], connections[1], "it did not connect anew");
    assert_eq!(generation(&broker), before + 1);
    assert_eq!(broker.group(GROUP).unwrap().members.len(), 2);
    assert_eq!(seen.len(), 1, "the record in hand is finished");

    // The leader's SyncGroup takes its time: the follower's waits too.
    sleep(secs(5)).await;
    broker.clear_requests();
    let leader = first.status().member_id;
    broker.faults().on(ApiKey::SyncGroup).member(leader).times(1).delay(secs(15));
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
    let before = generation(&broker);
    sleep(secs(30)).await;
    assert_eq!((of(ApiKey::JoinGroup).len(), of(ApiKey::SyncGroup).len()), (1, 1));
    assert_eq!(generation(&broker), before + 1);
    assert_eq!([first.status().state, second.status().state], [MemberState::Stable; 2]);
}

/// Takes 200 ms for a record, commits after it, and writes down how long the commit took.
struct Diligent {
    seen: Seen,
    took: Arc<Mutex<Vec<Duration>>>,
}

impl Handler for Diligent {
    type Error = kohort::CommitError;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), kohort::CommitError> {
        sleep(millis(200)).await;
        let asked = Instant::now();
        cx.commit().await?;
        self.took.lock().unwrap().push(asked.elapsed());
        self.seen.push(cx, record.offset);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn d_04_a_drain_in_which_every_record_commits_ends_in_one_quick_rebalance() {
    let broker = broker(4).await;
    for n in 0..80 {
        broker.produce_to(TOPIC, n % 4, Some(b"key"), Some(b"value")).await.unwrap();
    }
    let (seen, took) = (Seen::default(), Arc::<Mutex<Vec<Duration>>>::default());
    let busy = {
        let (seen, took) = (seen.clone(), Arc::clone(&took));
        let make = move |_: &_| Diligent { seen: seen.clone(), took: Arc::clone(&took) };
        group(&broker).handler(make).build().unwrap()
    };
    let (mut events, other_seen) = (busy.events(), Seen::default());
    let first = busy.start().await.unwrap();
    stable(&mut events).await;
    eventually("it is at work", || seen.len() >= 8).await;
    let before = generation(&broker);
    let other = recorder(group(&broker), &other_seen);
    let begun = Instant::now();
    let second = other.start().await.unwrap();
    eventually("they share", || {
        first.status().assignment.len() == 2 && second.status().assignment.len() == 2
    })
    .await;
    assert!(begun.elapsed() < secs(2), "a beat, a record and a commit: {:?}", begun.elapsed());
    assert_eq!(generation(&broker), before + 1, "exactly one rebalance");
    eventually("all are handled", || seen.counts().len() + other_seen.counts().len() == 80).await;
    let slowest = *took.lock().unwrap().iter().max().unwrap();
    assert!(slowest <= millis(100), "the manager answers a commit in a drain: {slowest:?}");
    let mut counts = seen.counts();
    for (at, times) in other_seen.counts() {
        *counts.entry(at).or_default() += times;
    }
    assert!(counts.values().all(|times| *times == 1), "what was handled was committed before the join");
    first.close(CloseOptions::default()).await;
    second.close(CloseOptions::default()).await;
}

#[tokio::test(start_paused = true)]
async fn d_05_a_group_that_rebalances_without_a_change_is_told_of_once_and_counts_against_nothing() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let (mut events, mut all) = (group.events(), group.events());
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.clear_requests();
    for _ in 0..30 {
        broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
        sleep(secs(2)).await;
    }
    let joins = broker.requests(ApiKey::JoinGroup).len();
    assert!(joins <= 30, "one for each, and no more: {joins}");
    let told: Vec<_> = std::iter::from_fn(|| all.try_next()).collect();
    let of = |wanted: fn(&MemberEvent) -> bool| told.iter().filter(|event| wanted(event)).count();
    assert_eq!(of(|event| matches!(event, MemberEvent::RebalanceStorm { .. })), 1);
    assert_eq!(of(|event| matches!(event, MemberEvent::Rebalance { .. })), joins, "each with its cause");
    assert_eq!(member.status().crashes_in_window, 0);
    sleep(secs(70)).await;
    assert_eq!(member.status().state, MemberState::Stable, "it recovers alone");
    assert_eq!(broker.requests(ApiKey::JoinGroup).len(), joins);
}

/// The commits of one member and what the broker has committed since, looked at all the time.
async fn never_back(broker: &Broker, partitions: i32, until: impl Fn() -> bool) {
    let mut highest: BTreeMap<i32, i64> = BTreeMap::new();
    for _ in 0..60_000 {
        for partition in 0..partitions {
            let Some(now) = broker.committed(GROUP, TOPIC, partition) else { continue };
            let before = highest.insert(partition, now).unwrap_or(0);
            assert!(now >= before, "partition {partition} went back from {before} to {now}");
        }
        if until() {
            return;
        }
        sleep(millis(5)).await;
    }
    panic!("never");
}

#[tokio::test(start_paused = true)]
async fn d_27_while_a_group_grows_from_two_to_ten_nothing_is_handled_twice_and_no_offset_goes_back() {
    let broker = broker(10).await;
    let seen = Seen::default();
    let with = || {
        let seen = seen.clone();
        let slow = move |_: &_| Slow { seen: seen.clone(), each: millis(20) };
        group(&broker).commit_interval(millis(200)).handler(slow).build().unwrap()
    };
    let groups: Vec<ConsumerGroup> = (0..10).map(|_| with()).collect();
    for n in 0..1000 {
        broker.produce_to(TOPIC, n % 10, Some(b"key"), Some(b"value")).await.unwrap();
    }
    let mut members = Vec::new();
    for (n, group) in groups.iter().enumerate() {
        members.push(group.start().await.unwrap());
        if n > 0 {
            never_back(&broker, 10, || members.iter().all(|member| !member.status().assignment.is_empty()))
                .await;
        }
    }
    never_back(&broker, 10, || seen.counts().len() == 1000).await;
    assert!(seen.counts().values().all(|times| *times == 1), "an orderly rebalance repeats nothing");
    for member in &members {
        member.close(CloseOptions::default()).await;
    }
    let ends: Vec<_> = (0..10).map(|partition| broker.committed(GROUP, TOPIC, partition)).collect();
    assert_eq!(ends, [Some(100); 10]);
}

#[tokio::test(start_paused = true)]
async fn d_27_a_commit_that_arrives_when_its_partition_has_moved_on_is_refused_and_not_sent_again() {
    let broker = broker(2).await;
    let (one_seen, two_seen) = (Seen::default(), Seen::default());
    let with = |seen: &Seen| recorder(group(&broker).commit_interval(millis(500)), seen);
    let (one, two) = (with(&one_seen), with(&two_seen));
    let mut events = one.events();
    let first = one.start().await.unwrap();
    stable(&mut events).await;
    let id = first.status().member_id;
    sleep(secs(1)).await;
    // The first commit of what comes now is held for longer than a hand-over may take.
    let held = broker.faults().on(ApiKey::OffsetCommit).member(&id).times(1).delay(secs(12));
    for partition in [0, 1].repeat(5) {
        broker.produce_to(TOPIC, partition, Some(b"key"), Some(b"value")).await.unwrap();
    }
    eventually("its commit is held", || held.hits() == 1).await;
    let held_at = Instant::now();
    broker.clear_requests();
    let second = two.start().await.unwrap();
    eventually("they share", || {
        first.status().assignment.len() == 1 && second.status().assignment.len() == 1
    })
    .await;
    for partition in [0, 1].repeat(20) {
        broker.produce_to(TOPIC, partition, Some(b"key"), Some(b"value")).await.unwrap();
    }
    let begun = Instant::now();
    never_back(&broker, 2, || begun.elapsed() > secs(20)).await;
    let ends: Vec<_> = (0..2).map(|partition| broker.committed(GROUP, TOPIC, partition)).collect();
    assert_eq!(ends, [Some(25); 2]);
    // Under the old generation it commits before its join, and under the new one after it.
    let new = first.status().generation;
    let of = |api| {
        let mut asked = broker.requests(api);
        asked.retain(|request| request.member_id.as_ref() == Some(&id));
        asked
    };
    let joined = of(ApiKey::JoinGroup)[0].at;
    let commits = of(ApiKey::OffsetCommit);
    assert!(
        commits.iter().all(|commit| (commit.generation == Some(new)) == (commit.at > joined)),
        "{commits:?}"
    );
    assert!(joined < held_at + secs(12), "the held one arrives behind the join");
    assert_eq!((first.status().state, second.status().state), (MemberState::Stable, MemberState::Stable));
}

#[tokio::test(start_paused = true)]
async fn d_38_a_member_without_a_common_assignor_is_refused_once_and_a_roll_to_another_never_is() {
    let broker = broker(4).await;
    let with =
        |assignors: &[Assignor]| recorder(group(&broker).assignors(assignors.to_vec()), &Seen::default());
    let (mut a, mut b) = (with(&[Assignor::Range]), with(&[Assignor::Range]));
    let (mut first, mut second) = (a.start().await.unwrap(), b.start().await.unwrap());
    eventually("they share", || {
        first.status().assignment.len() == 2 && second.status().assignment.len() == 2
    })
    .await;
    let before = generation(&broker);
    broker.clear_requests();
    let c = with(&[Assignor::CooperativeSticky]);
    let third = c.start().await.unwrap();
    let refused = third.ended().await.unwrap_err();
    assert!(
        matches!(&refused, TerminalReason::Protocol { .. })
            && refused.to_string().contains("cooperative-sticky"),
        "it says what was offered: {refused}"
    );
    let joins = broker.requests(ApiKey::JoinGroup);
    assert_eq!(joins.len(), 1, "terminal after the first: {joins:?}");
    sleep(secs(30)).await;
    assert_eq!(generation(&broker), before, "the others see no rebalance");

    // One after the other is replaced by one that offers both; then by one that offers the new one alone.
    for assignors in [vec![Assignor::CooperativeSticky, Assignor::Range], vec![Assignor::CooperativeSticky]] {
        for (group, member) in [(&mut a, &mut first), (&mut b, &mut second)] {
            member.close(CloseOptions::default()).await;
            *group = with(&assignors);
            *member = group.start().await.unwrap();
            eventually("it is in", || member.status().state == MemberState::Stable).await;
        }
        eventually("they share", || {
            first.status().assignment.len() == 2 && second.status().assignment.len() == 2
        })
        .await;
    }
    let chosen = broker.group(GROUP).unwrap().protocol_name;
    assert_eq!(chosen.as_deref(), Some("cooperative-sticky"));
}
