//! Brokers that are not there, answer late, or say no.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use kohort::{
    CloseOptions, Context, Handler, Health, MemberEvent, MemberState, Record, TerminalClass, TerminalReason,
};
use kohort_broker::Broker;
use kohort_protocol::{ApiKey, ErrorCode};
use tokio::time::{Instant, sleep};

use crate::support::{
    GROUP, Seen, TOPIC, broker, eventually, group, millis, recorder, recording, secs, stable, until,
};

#[tokio::test(start_paused = true)]
async fn d_14_without_a_broker_it_keeps_trying_says_so_once_and_joins_soon_after() {
    let broker = broker(2).await;
    broker.produce(TOPIC, "key", "value").await.unwrap();
    broker.stop().await;
    let (group, seen) = recording(&broker);
    let (mut events, mut all) = (group.events(), group.events());
    let member = group.start().await.unwrap();
    tokio::time::sleep(secs(90)).await;
    let status = member.status();
    assert!(matches!(status.health, Health::Unhealthy { .. }), "{:?}", status.health);
    broker.restart().await.unwrap();
    let up = tokio::time::Instant::now();
    stable(&mut events).await;
    assert!(up.elapsed() <= secs(10), "joined {:?} after the broker came up", up.elapsed());
    eventually("the record is handled", || seen.len() == 1).await;

    let told: Vec<_> = std::iter::from_fn(|| all.try_next()).collect();
    let count = |wanted: fn(&MemberEvent) -> bool| told.iter().filter(|event| wanted(event)).count();
    assert_eq!(count(|event| matches!(event, MemberEvent::Unreachable { .. })), 1, "once per state change");
    assert_eq!(count(|event| matches!(event, MemberEvent::Reachable { .. })), 1);
    assert_eq!(
        count(|event| matches!(event, MemberEvent::HeartbeatCrash { .. })),
        0,
        "no restart budget is used"
    );
    let Some(MemberEvent::Unreachable { reason, .. }) =
        told.iter().find(|event| matches!(event, MemberEvent::Unreachable { .. }))
    else {
        unreachable!()
    };
    assert!(reason.contains("memory:9092"), "says what was tried: {reason}");

    // And again, for a minute, in the middle of its life.
    broker.stop().await;
    tokio::time::sleep(secs(60)).await;
    broker.restart().await.unwrap();
    let up = tokio::time::Instant::now();
    until(&mut all, |event| matches!(event, MemberEvent::Assigned { .. })).await;
    assert!(up.elapsed() <= secs(10), "rejoined {:?} after the broker came back", up.elapsed());
    assert!(matches!(member.status().health, Health::Healthy));
}

#[tokio::test(start_paused = true)]
async fn d_06_a_member_cut_off_from_its_coordinator_fences_itself_at_the_session_timeout() {
    let broker = broker(1).await;
    let (group, seen) = recording(&broker);
    let (mut events, mut all) = (group.events(), group.events());
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    tokio::time::sleep(secs(1)).await;
    let rules = [ApiKey::Heartbeat, ApiKey::FindCoordinator, ApiKey::OffsetCommit]
        .map(|api| broker.faults().on(api).drop());
    let cut = tokio::time::Instant::now();
    until(&mut events, |event| matches!(event, MemberEvent::Lost { .. })).await;
    assert!(cut.elapsed() <= secs(6), "{:?}", cut.elapsed());
    let before = seen.len();
    // Fetches would still be answered; nothing is handled.
    for _ in 0..10 {
        broker.produce(TOPIC, "key", "value").await.unwrap();
    }
    tokio::time::sleep(secs(12)).await;
    assert_eq!(seen.len(), before);
    assert!(matches!(member.status().health, Health::Unhealthy { .. }));
    rules.iter().for_each(kohort_broker::FaultRule::clear);
    stable(&mut events).await;
    eventually("the records are handled after the rejoin", || seen.len() == before + 10).await;
    let lost = std::iter::from_fn(|| all.try_next())
        .filter(|event| matches!(event, MemberEvent::Lost { .. }))
        .count();
    assert_eq!(lost, 1, "partitions-lost exactly once");
}

#[tokio::test(start_paused = true)]
async fn c_hb_07_and_08_a_lost_generation_keeps_the_id_and_an_unknown_id_drops_it() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let id = member.status().member_id;
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::IllegalGeneration);
    until(&mut events, |event| matches!(event, MemberEvent::Lost { .. })).await;
    stable(&mut events).await;
    assert_eq!(member.status().member_id, id);
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::UnknownMemberId);
    until(&mut events, |event| matches!(event, MemberEvent::Lost { .. })).await;
    stable(&mut events).await;
    assert_ne!(member.status().member_id, id);
}

async fn terminal(broker: &Broker, api: ApiKey, code: ErrorCode) -> TerminalReason {
    let (group, _) = recording(broker);
    broker.faults().on(api).error(code);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    let reason = member.ended().await.unwrap_err();
    tokio::time::sleep(secs(1)).await;
    let told = std::iter::from_fn(|| events.try_next())
        .filter(|event| matches!(event, MemberEvent::Terminated { .. }));
    assert_eq!(told.count(), 1);
    broker.faults().clear();
    reason
}

#[tokio::test(start_paused = true)]
async fn d_34_and_d_38_refusals_are_terminal_and_say_what_was_refused() {
    let broker = broker(2).await;
    for api in [ApiKey::FindCoordinator, ApiKey::JoinGroup, ApiKey::SyncGroup, ApiKey::Heartbeat] {
        let reason = terminal(&broker, api, ErrorCode::GroupAuthorizationFailed).await;
        assert_eq!(reason.class(), TerminalClass::Auth, "{api}");
    }
    let reason = terminal(&broker, ApiKey::JoinGroup, ErrorCode::InconsistentGroupProtocol).await;
    assert!(reason.to_string().contains("range, cooperative-sticky"), "{reason}");
    let reason = terminal(&broker, ApiKey::JoinGroup, ErrorCode::InvalidSessionTimeout).await;
    assert!(reason.to_string().contains("6000 ms"), "{reason}");
    let reason = terminal(&broker, ApiKey::Heartbeat, ErrorCode::FencedInstanceId).await;
    assert_eq!(reason.class(), TerminalClass::Fenced);
}

#[tokio::test(start_paused = true)]
async fn d_05_syncs_that_always_say_rebalance_are_paced() {
    let broker = broker(2).await;
    let group = group(&broker).handler(|_| crate::support::Seen::default().handler()).build().unwrap();
    let mut events = group.events();
    let rule = broker.faults().on(ApiKey::SyncGroup).error(ErrorCode::RebalanceInProgress);
    let _member = group.start().await.unwrap();
    tokio::time::sleep(secs(60)).await;
    // The demand for a member id is no attempt: its answer is followed at once and charged to nothing.
    let joins = broker.requests(ApiKey::JoinGroup);
    let joins = joins.iter().filter(|join| join.member_id.as_deref() != Some("")).count();
    assert!((10..=20).contains(&joins), "{joins} JoinGroups in 60 s");
    let storms = std::iter::from_fn(|| events.try_next());
    assert_eq!(storms.filter(|event| matches!(event, MemberEvent::RebalanceStorm { .. })).count(), 1);
    rule.clear();
    stable(&mut events).await;
}

/// Half a second for each record; when each was begun.
struct Timed {
    seen: Seen,
    begun: Arc<Mutex<Vec<Instant>>>,
}

impl Handler for Timed {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        self.begun.lock().unwrap().push(Instant::now());
        sleep(millis(500)).await;
        self.seen.push(cx, record.offset);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn d_06_what_an_evicted_member_has_in_hand_is_all_that_two_members_handle() {
    let broker = broker(2).await;
    for partition in [0, 1].repeat(100) {
        broker.produce_to(TOPIC, partition, Some(b"key"), Some(b"value")).await.unwrap();
    }
    let with = || {
        let (seen, begun) = (Seen::default(), Arc::<Mutex<Vec<Instant>>>::default());
        let group = {
            let (seen, begun) = (seen.clone(), Arc::clone(&begun));
            let make = move |_: &_| Timed { seen: seen.clone(), begun: Arc::clone(&begun) };
            group(&broker).commit_interval(millis(500)).handler(make).build().unwrap()
        };
        (group, seen, begun)
    };
    let ((cut, cut_seen, cut_begun), (other, other_seen, _)) = (with(), with());
    let mut events = cut.events();
    let (member, second) = (cut.start().await.unwrap(), other.start().await.unwrap());
    eventually("they share", || {
        member.status().assignment.len() == 1 && second.status().assignment.len() == 1
    })
    .await;
    sleep(secs(3)).await;
    let id = member.status().member_id;
    // Its coordinator hears nothing of it any more, and it hears nothing of the coordinator; fetches still work.
    for api in [ApiKey::Heartbeat, ApiKey::OffsetCommit, ApiKey::JoinGroup, ApiKey::SyncGroup] {
        broker.faults().on(api).member(&id).drop();
    }
    broker.faults().on(ApiKey::FindCoordinator).times(1000).error(ErrorCode::CoordinatorNotAvailable);
    let at = Instant::now();
    sleep(secs(12)).await;
    let last = *cut_begun.lock().unwrap().last().unwrap();
    assert!(last - at <= secs(6), "no new handler call after the session timeout: {:?}", last - at);
    assert!(last - at >= secs(4), "it works until then: {:?}", last - at);
    eventually("the other has both", || second.status().assignment.len() == 2).await;
    let evicted = Instant::now();
    broker.faults().clear();
    eventually("it is back", || member.status().state == MemberState::Stable).await;
    let commits = broker.requests(ApiKey::OffsetCommit);
    let late = commits.iter().filter(|commit| commit.member_id.as_ref() == Some(&id) && commit.at > evicted);
    assert_eq!(late.count(), 0, "nothing is committed under the old id");
    let lost = std::iter::from_fn(|| events.try_next());
    assert_eq!(lost.filter(|event| matches!(event, MemberEvent::Lost { .. })).count(), 1);
    eventually("all is handled", || cut_seen.counts().len() + other_seen.counts().len() >= 200).await;
    // What it could not commit is handled again, nothing else.
    let both = cut_seen.counts().keys().filter(|at| other_seen.counts().contains_key(at)).count();
    let uncommitted = 6 * 2 + 1;
    assert!(both <= uncommitted, "{both} records were handled by both");
}

/// The coordinator moves; the new one loads for three seconds.
#[tokio::test(start_paused = true)]
async fn d_26_a_coordinator_that_moves_and_loads_costs_no_rebalance_and_commits_get_through() {
    let broker = broker(1).await;
    let seen = Seen::default();
    let group = recorder(group(&broker).commit_interval(millis(500)), &seen);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    sleep(secs(1)).await;
    let (id, generation) = (member.status().member_id, member.status().generation);
    broker.clear_requests();
    broker.produce(TOPIC, "key", "value").await.unwrap();
    for api in [ApiKey::Heartbeat, ApiKey::OffsetCommit] {
        broker.faults().on(api).times(1).error(ErrorCode::NotCoordinator);
    }
    broker.faults().on(ApiKey::FindCoordinator).times(2).error(ErrorCode::CoordinatorNotAvailable);
    let loading = [ApiKey::Heartbeat, ApiKey::OffsetCommit, ApiKey::OffsetFetch, ApiKey::JoinGroup]
        .map(|api| broker.faults().on(api).error(ErrorCode::CoordinatorLoadInProgress));
    sleep(secs(4)).await;
    let lookups = broker.requests(ApiKey::FindCoordinator).len();
    assert!(
        (3..=5).contains(&lookups),
        "two refusals and one answer for each move, none for the loading: {lookups}"
    );
    loading.iter().for_each(kohort_broker::FaultRule::clear);
    let loaded = Instant::now();
    eventually("the commit gets through", || broker.committed(GROUP, TOPIC, 0) == Some(1)).await;
    assert!(loaded.elapsed() <= secs(5), "{:?}", loaded.elapsed());
    assert_eq!((member.status().member_id, member.status().generation), (id, generation));
    assert_eq!(broker.requests(ApiKey::JoinGroup).len(), 0, "no rebalance");

    // What a LeaveGroup answers at such a time is only logged.
    broker.faults().on(ApiKey::LeaveGroup).error(ErrorCode::UnknownMemberId);
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert!(!report.forced, "{report:?}");
    assert!(member.ended().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn d_26_an_outage_of_two_minutes_does_not_end_the_member() {
    let broker = broker(1).await;
    let (group, seen) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.stop().await;
    sleep(secs(120)).await;
    broker.restart().await.unwrap();
    broker.produce(TOPIC, "key", "value").await.unwrap();
    eventually("it consumes again", || seen.len() == 1).await;
    assert!(matches!(member.status().health, Health::Healthy));
}
