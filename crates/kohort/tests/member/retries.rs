//! Answers that pass, and answers that never come: who is asked again, when, and under which name.

use std::sync::{Arc, Mutex};

use kohort::{CloseOptions, CommitError, Context, ErrorCode, Handler, MemberEvent, Record};
use kohort_broker::{Broker, Fault, RequestSeen};
use kohort_protocol::ApiKey;
use tokio::time::sleep;

use crate::support::{
    GROUP, Seen, TOPIC, broker, eventually, group, millis, recorder, recording, secs, stable, until,
};

/// The group's own requests, in order: what brings a member in.
pub(crate) fn membership(broker: &Broker) -> Vec<RequestSeen> {
    let mut requests = broker.all_requests();
    requests.retain(|request| {
        matches!(request.api, ApiKey::FindCoordinator | ApiKey::JoinGroup | ApiKey::SyncGroup)
    });
    requests
}

pub(crate) fn apis(requests: &[RequestSeen]) -> Vec<ApiKey> {
    requests.iter().map(|request| request.api).collect()
}

/// A member that is stable and about to join again because its group rebalances; the log of requests is empty.
pub(crate) async fn rejoining(
    broker: &Broker,
    fault: Fault,
    times: u64,
    api: ApiKey,
) -> (kohort::Member, String) {
    let (group, _) = recording(broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    sleep(secs(1)).await;
    let id = member.status().member_id;
    broker.clear_requests();
    broker.faults().on(api).times(times).inject(fault);
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
    stable(&mut events).await;
    (member, id)
}

#[tokio::test(start_paused = true)]
async fn c_join_09_a_coordinator_that_loads_is_asked_again_after_a_back_off_and_not_looked_up() {
    let broker = broker(2).await;
    let fault = Fault::Error(ErrorCode::CoordinatorLoadInProgress);
    let (member, id) = rejoining(&broker, fault, 3, ApiKey::JoinGroup).await;
    let asked = membership(&broker);
    let joins: Vec<_> = asked.iter().filter(|request| request.api == ApiKey::JoinGroup).collect();
    assert_eq!(apis(&asked), [[ApiKey::JoinGroup; 4].as_slice(), &[ApiKey::SyncGroup]].concat());
    assert!(joins.iter().all(|join| join.member_id.as_ref() == Some(&id)), "with the same id");
    for (pair, expected) in joins.windows(2).zip([100, 200, 400]) {
        let wait = pair[1].at - pair[0].at;
        assert!(wait >= millis(expected * 4 / 5) && wait <= millis(expected * 6 / 5 + 2), "{wait:?}");
    }
    assert_eq!(member.status().member_id, id);
}

#[tokio::test(start_paused = true)]
async fn c_join_10_a_coordinator_that_moved_or_hangs_up_is_looked_up_and_joined_under_the_same_id() {
    for (fault, paced) in [
        (Fault::Error(ErrorCode::NotCoordinator), true),
        (Fault::Error(ErrorCode::CoordinatorNotAvailable), true),
        (Fault::Disconnect, false),
        (Fault::DisconnectAfter, false),
    ] {
        let broker = broker(2).await;
        let (member, id) = rejoining(&broker, fault, 1, ApiKey::JoinGroup).await;
        let asked = membership(&broker);
        let expected = [ApiKey::JoinGroup, ApiKey::FindCoordinator, ApiKey::JoinGroup, ApiKey::SyncGroup];
        assert_eq!(apis(&asked), expected, "{fault:?}");
        let wait = asked[1].at - asked[0].at;
        assert!(!paced || wait >= millis(80), "{fault:?}: after a back-off, not {wait:?}");
        let joins = asked.iter().filter(|request| request.api == ApiKey::JoinGroup);
        assert!(joins.into_iter().all(|join| join.member_id.as_ref() == Some(&id)), "{fault:?}");
        assert_eq!((member.status().member_id, broker.group(GROUP).unwrap().members.len()), (id, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn c_sync_09_a_sync_that_was_lost_starts_again_from_the_join_and_is_never_resent() {
    for fault in [Fault::Disconnect, Fault::DisconnectAfter] {
        let broker = broker(2).await;
        let (member, id) = rejoining(&broker, fault, 1, ApiKey::SyncGroup).await;
        let asked = membership(&broker);
        let order: Vec<_> = apis(&asked).into_iter().filter(|api| *api != ApiKey::FindCoordinator).collect();
        let expected = [ApiKey::JoinGroup, ApiKey::SyncGroup, ApiKey::JoinGroup, ApiKey::SyncGroup];
        assert_eq!(order, expected, "{fault:?}");
        assert!(asked.iter().filter_map(|request| request.member_id.as_ref()).all(|named| *named == id));
        assert_eq!(member.status().member_id, id, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c_coord_01_and_x_14_a_fresh_broker_that_knows_no_coordinator_yet_is_asked_at_a_doubling_pace() {
    let broker = broker(2).await;
    broker.faults().on(ApiKey::FindCoordinator).times(5).error(ErrorCode::CoordinatorNotAvailable);
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let _member = group.start().await.unwrap();
    stable(&mut events).await;
    let lookups = broker.requests(ApiKey::FindCoordinator);
    assert_eq!(lookups.len(), 6);
    for (pair, expected) in lookups.windows(2).zip([100, 200, 400, 800, 1600]) {
        let wait = pair[1].at - pair[0].at;
        assert!(wait >= millis(expected * 4 / 5) && wait <= millis(expected * 6 / 5 + 2), "{wait:?}");
    }
}

/// Commits after every record and writes down how that went.
struct CommitsEach {
    seen: Seen,
    said: Arc<Mutex<Vec<Result<(), CommitError>>>>,
}

impl Handler for CommitsEach {
    type Error = std::convert::Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Self::Error> {
        self.seen.push(cx, record.offset);
        if record.offset == 5 {
            let said = cx.commit().await;
            self.said.lock().unwrap().push(said);
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn c_commit_10_and_c_coord_04_a_sync_commit_outlives_what_passes_with_a_lookup_only_where_the_coordinator_is_in_doubt()
 {
    for (fault, lookups) in [
        (Fault::Error(ErrorCode::NotCoordinator), 1),
        (Fault::Error(ErrorCode::CoordinatorNotAvailable), 1),
        (Fault::Error(ErrorCode::RequestTimedOut), 1),
        (Fault::Disconnect, 1),
        (Fault::Error(ErrorCode::CoordinatorLoadInProgress), 0),
        (Fault::Error(ErrorCode::UnknownTopicOrPartition), 0),
    ] {
        let broker = broker(1).await;
        let (seen, said) = (Seen::default(), Arc::default());
        let group = {
            let (seen, said) = (seen.clone(), Arc::clone(&said));
            group(&broker)
                .commit_interval(secs(60))
                .handler(move |_| CommitsEach { seen: seen.clone(), said: Arc::clone(&said) })
                .build()
                .unwrap()
        };
        let mut events = group.events();
        let member = group.start().await.unwrap();
        stable(&mut events).await;
        broker.clear_requests();
        broker.faults().on(ApiKey::OffsetCommit).times(1).inject(fault);
        for _ in 0..6 {
            broker.produce(TOPIC, "key", "value").await.unwrap();
        }
        eventually("the handler had its word", || said.lock().unwrap().len() == 1).await;
        assert!(said.lock().unwrap()[0].is_ok(), "{fault:?}: {:?}", said.lock().unwrap()[0]);
        assert_eq!(broker.committed(GROUP, TOPIC, 0), Some(5), "{fault:?}");
        assert_eq!(broker.requests(ApiKey::FindCoordinator).len(), lookups, "{fault:?}");
        assert_eq!(broker.requests(ApiKey::JoinGroup).len(), 0, "{fault:?}: membership is untouched");
        let failed = until(&mut events, |event| matches!(event, MemberEvent::CommitFailed { .. })).await;
        assert!(matches!(failed, MemberEvent::CommitFailed { retriable: true, .. }), "{failed:?}");
        member.close(CloseOptions::default()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c_reb_03_a_commit_that_fails_for_good_does_not_keep_a_member_from_joining() {
    let broker = broker(2).await;
    broker.produce(TOPIC, "key", "value").await.unwrap();
    let seen = Seen::default();
    let group = recorder(group(&broker).commit_interval(secs(60)), &seen);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    eventually("it is handled", || seen.len() == 1).await;
    broker.clear_requests();
    broker.faults().on(ApiKey::OffsetCommit).times(1).error(ErrorCode::UnknownMemberId);
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
    let given_up =
        until(&mut events, |event| matches!(event, MemberEvent::Lost { .. } | MemberEvent::Revoked { .. }))
            .await;
    assert!(matches!(given_up, MemberEvent::Lost { partitions, .. } if partitions.len() == 2));
    stable(&mut events).await;
    assert_eq!(broker.requests(ApiKey::OffsetCommit).len(), 1, "not tried again");
    assert_eq!(member.status().assignment.len(), 2);
}

/// An operator's old cluster: JoinGroup up to version 4 knows no instance ids.
#[tokio::test(start_paused = true)]
async fn c_static_10_on_an_old_broker_a_static_member_is_dynamic_everywhere_and_says_so_once() {
    let old = Broker::builder().in_memory().topic(TOPIC, 2).max_version(ApiKey::JoinGroup, 4);
    let broker = old.start().await.unwrap();
    let with = |instance: Option<&str>| {
        let builder = match instance {
            Some(id) => group(&broker).group_instance_id(id),
            None => group(&broker),
        };
        builder.handler(|_| Seen::default().handler()).build().unwrap()
    };
    for (instance, warnings) in [(Some("web-0"), 1), (None, 0)] {
        broker.clear_requests();
        let group = with(instance);
        let (mut events, mut all) = (group.events(), group.events());
        let member = group.start().await.unwrap();
        stable(&mut events).await;
        broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
        stable(&mut events).await;
        sleep(secs(2)).await;
        let report = member.close(CloseOptions::default()).await;
        assert_eq!(report.leave, kohort::LeaveOutcome::Left, "as a dynamic member leaves");
        let told = std::iter::from_fn(|| all.try_next());
        let told = told.filter(|event| matches!(event, MemberEvent::StaticMembershipUnsupported { .. }));
        assert_eq!(told.count(), warnings, "{instance:?}");
        let named = broker.all_requests();
        assert!(named.iter().all(|request| request.group_instance_id.is_none()), "{instance:?}");
        assert!(named.iter().all(|request| request.api != ApiKey::JoinGroup || request.version == 4));
    }
}
