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
