//! Closing a dynamic member (KIP-1092), in every state.

use kohort::{CloseOptions, GroupMembershipOperation, LeaveOutcome, MemberEvent, MemberState};
use kohort_protocol::ApiKey;
use tokio::time::Instant;

use crate::support::{GROUP, broker, eventually, recording, secs, stable, until};

#[tokio::test(start_paused = true)]
async fn c_close_01_a_dynamic_member_leaves_once_and_at_once() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let begun = Instant::now();
    let report = member.close(CloseOptions::default()).await;
    assert_eq!(report.leave, LeaveOutcome::Left);
    assert!(!report.forced);
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 1);
    assert!(broker.group(GROUP).unwrap().members.is_empty());
    // C-CLOSE-13: closing again is no more than asking for the report.
    assert_eq!(member.close(CloseOptions::default()).await, report);
    assert_eq!(member.ended().await.unwrap(), report);
    broker.clear_requests();
    tokio::time::sleep(secs(30)).await;
    assert!(broker.all_requests().is_empty(), "C-CLOSE-14: nothing follows the leave");
}

#[tokio::test(start_paused = true)]
async fn d_21_a_dynamic_member_that_remains_keeps_its_slot_until_the_session_timeout() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let options = CloseOptions::group_membership_operation(GroupMembershipOperation::RemainInGroup);
    let report = member.close(options).await;
    assert_eq!(report.leave, LeaveOutcome::NotSent);
    assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 0);
    assert_eq!(broker.group(GROUP).unwrap().members.len(), 1);
    tokio::time::sleep(secs(7)).await;
    assert!(broker.group(GROUP).unwrap().members.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c_close_17_a_member_that_never_got_an_id_sends_no_leave_group() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    broker.faults().on(ApiKey::FindCoordinator).drop();
    let member = group.start().await.unwrap();
    tokio::time::sleep(secs(1)).await;
    let begun = Instant::now();
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert!(begun.elapsed() < secs(1), "C-CLOSE-09: nothing to commit, nothing to look for");
    assert_eq!(report.leave, LeaveOutcome::NotSent);
    assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn c_close_10_an_unanswered_leave_group_is_bounded_and_not_resent() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.faults().on(ApiKey::LeaveGroup).drop();
    let begun = Instant::now();
    let report = member.close(CloseOptions::timeout(secs(3))).await;
    assert!(begun.elapsed() <= secs(4), "{:?}", begun.elapsed());
    assert!(matches!(report.leave, LeaveOutcome::Unconfirmed(_)), "{report:?}");
    assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c_close_20_a_leave_group_at_the_wrong_coordinator_is_retried_within_the_timeout() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.faults().on(ApiKey::LeaveGroup).times(1).error(kohort::ErrorCode::NotCoordinator);
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert_eq!(report.leave, LeaveOutcome::Left);
    assert!(broker.group(GROUP).unwrap().members.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_zero_returns_at_once_and_still_tries_to_leave() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let begun = Instant::now();
    member.close(CloseOptions::timeout(secs(0))).await;
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    eventually("the group is left", || broker.group(GROUP).unwrap().members.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_member_asks_for_a_default_close() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    drop(member);
    let closed = until(&mut events, |event| matches!(event, MemberEvent::Closed { .. })).await;
    assert!(matches!(closed, MemberEvent::Closed { report, .. } if report.leave == LeaveOutcome::Left));
    assert!(broker.group(GROUP).unwrap().members.is_empty());
}

#[tokio::test(start_paused = true)]
async fn d_23_a_close_between_join_and_sync_leaves_and_waits_for_nothing() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    broker.faults().on(ApiKey::SyncGroup).drop();
    let member = group.start().await.unwrap();
    eventually("the SyncGroup is out", || member.status().state == MemberState::CompletingRebalance).await;
    let begun = Instant::now();
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    assert_eq!(report.leave, LeaveOutcome::Left);
    assert!(broker.group(GROUP).unwrap().members.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c_close_06_a_close_without_a_timeout_has_thirty_seconds_and_fits_into_its_supervisors_patience() {
    let broker = broker(1).await;
    broker.produce(crate::support::TOPIC, "key", "value").await.unwrap();
    let group = crate::support::group(&broker).handler(|_| Forever).build().unwrap();
    let mut events = group.events();
    let app = kohort::supervisor::Supervisor::one_for_one().child(group.child_spec("orders").unwrap());
    let app = app.start().await.unwrap();
    stable(&mut events).await;
    tokio::time::sleep(secs(1)).await;
    let begun = Instant::now();
    app.shutdown().await;
    let took = begun.elapsed();
    assert!(took > secs(15) && took <= secs(31), "{took:?}");
    let closed = until(&mut events, |event| matches!(event, MemberEvent::Closed { .. })).await;
    assert!(
        matches!(closed, MemberEvent::Closed { report, .. } if report.forced && report.leave == LeaveOutcome::Left)
    );
}

struct Forever;

impl kohort::Handler for Forever {
    type Error = std::convert::Infallible;

    async fn handle(&mut self, _: kohort::Record<'_>, _: &mut kohort::Context) -> Result<(), Self::Error> {
        std::future::pending().await
    }
}

struct Slow(crate::support::Seen);

impl kohort::Handler for Slow {
    type Error = std::convert::Infallible;

    async fn handle(
        &mut self,
        record: kohort::Record<'_>,
        cx: &mut kohort::Context,
    ) -> Result<(), Self::Error> {
        tokio::time::sleep(crate::support::millis(300)).await;
        self.0.push(cx, record.offset);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn d_25_and_c_close_14_the_record_in_hand_finishes_nothing_new_begins_and_hearts_beat_until_the_leave()
{
    let broker = broker(1).await;
    for n in 0..20 {
        broker.produce(crate::support::TOPIC, "key", format!("{n}")).await.unwrap();
    }
    let seen = crate::support::Seen::default();
    let handler = seen.clone();
    let group = crate::support::group(&broker).handler(move |_| Slow(handler.clone())).build().unwrap();
    let member = group.start().await.unwrap();
    eventually("some are handled", || seen.len() == 5).await;
    broker.clear_requests();
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert_eq!(seen.len(), 6, "the record in hand, and no other");
    assert_eq!(report.committed.values().copied().collect::<Vec<_>>(), [6]);
    let order: Vec<ApiKey> = broker.all_requests().iter().map(|request| request.api).collect();
    assert!(!order.contains(&ApiKey::JoinGroup));
    let leave = order.iter().position(|api| *api == ApiKey::LeaveGroup).unwrap();
    let commit = order.iter().rposition(|api| *api == ApiKey::OffsetCommit).unwrap();
    assert!(commit < leave);
    assert!(!order[leave..].contains(&ApiKey::Heartbeat), "no beat follows the leave");
    assert_eq!(
        broker.committed(GROUP, crate::support::TOPIC, 0),
        Some(6),
        "what is finished is not redelivered"
    );
}
