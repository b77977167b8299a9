//! Closing a dynamic member (KIP-1092), in every state.

use kohort::{
    Assignor, CloseOptions, ErrorCode, GroupMembershipOperation, LeaveOutcome, MemberEvent, MemberState,
};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;
use tokio::time::{Instant, sleep};

use crate::support::{
    GROUP, Seen, Slow, TOPIC, broker, eventually, group, millis, recorder, recording, secs, stable, until,
};

#[tokio::test(start_paused = true)]
async fn c_close_01_a_dynamic_member_leaves_once_and_at_once() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let id = member.status().member_id;
    let begun = Instant::now();
    let report = member.close(CloseOptions::default()).await;
    assert_eq!(report.leave, LeaveOutcome::Left);
    assert!(!report.forced);
    assert!(begun.elapsed() < secs(1), "{:?}", begun.elapsed());
    let leaves = broker.requests(ApiKey::LeaveGroup);
    assert_eq!(leaves.len(), 1);
    // Only a LeaveGroup with a single entry is shown with its ids.
    assert_eq!(leaves[0].member_id.as_ref(), Some(&id));
    assert_eq!(leaves[0].group_instance_id, None);
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
    use GroupMembershipOperation::*;
    for operation in [Default, LeaveGroup, RemainInGroup] {
        // Neither one that looks for a coordinator nor one that waits for its id was ever given one.
        for never in [ApiKey::FindCoordinator, ApiKey::JoinGroup] {
            let broker = broker(2).await;
            let (group, _) = recording(&broker);
            broker.faults().on(never).drop();
            let member = group.start().await.unwrap();
            tokio::time::sleep(secs(1)).await;
            let begun = Instant::now();
            let options = CloseOptions::timeout(secs(5)).with_group_membership_operation(operation);
            let report = member.close(options).await;
            assert!(begun.elapsed() < millis(5), "nothing to commit, nothing to look for");
            assert_eq!(report.leave, LeaveOutcome::NotSent, "{operation:?} {never}");
            assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 0, "{operation:?} {never}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c_close_10_an_unanswered_leave_group_is_bounded_and_not_resent() {
    // The request timeout is 5 s: the smaller of the two bounds it.
    for (timeout, bound) in [(3, 3), (20, 5)] {
        let broker = broker(2).await;
        let (group, _) = recording(&broker);
        let mut events = group.events();
        let member = group.start().await.unwrap();
        stable(&mut events).await;
        broker.faults().on(ApiKey::LeaveGroup).drop();
        let begun = Instant::now();
        let report = member.close(CloseOptions::timeout(secs(timeout))).await;
        let took = begun.elapsed();
        assert!(took >= secs(bound) - millis(50) && took <= secs(bound) + millis(50), "{took:?}");
        assert!(matches!(report.leave, LeaveOutcome::Unconfirmed(_)), "{report:?}");
        assert_eq!(member.ended().await.unwrap(), report, "no error");
        sleep(secs(30)).await;
        assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c_close_20_a_leave_group_at_the_wrong_coordinator_is_retried_within_the_timeout() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.clear_requests();
    broker.faults().on(ApiKey::LeaveGroup).times(1).error(kohort::ErrorCode::NotCoordinator);
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert_eq!(report.leave, LeaveOutcome::Left);
    let mut asked: Vec<_> = broker.all_requests().iter().map(|request| request.api).collect();
    asked.retain(|api| [ApiKey::LeaveGroup, ApiKey::FindCoordinator].contains(api));
    assert_eq!(asked, [ApiKey::LeaveGroup, ApiKey::FindCoordinator, ApiKey::LeaveGroup]);
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

#[tokio::test(start_paused = true)]
async fn d_25_and_c_close_14_the_record_in_hand_finishes_nothing_new_begins_and_hearts_beat_until_the_leave()
{
    let broker = broker(1).await;
    for n in 0..20 {
        broker.produce(crate::support::TOPIC, "key", format!("{n}")).await.unwrap();
    }
    let seen = crate::support::Seen::default();
    let handler = seen.clone();
    let group = crate::support::group(&broker)
        .handler(move |_| Slow { seen: handler.clone(), each: millis(300) })
        .build()
        .unwrap();
    let member = group.start().await.unwrap();
    eventually("some are handled", || seen.len() == 5).await;
    broker.clear_requests();
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert!(member.which_children().await.is_err(), "the heart has ended, and all the tree with it");
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

/// The other member of the group is stable with everything, soon after the close.
async fn others_go_on(broker: &Broker, other: &kohort::Member, closed: Instant, what: &str) {
    eventually("the other has everything", || {
        let status = other.status();
        status.state == MemberState::Stable && status.assignment.len() == 2
    })
    .await;
    assert!(closed.elapsed() <= secs(2), "{what}: {:?}", closed.elapsed());
    assert_eq!(broker.group(GROUP).unwrap().members.len(), 1, "{what}");
}

#[tokio::test(start_paused = true)]
async fn d_23_a_close_ends_in_every_state_of_a_rebalance_and_the_others_go_on_at_once() {
    for (what, stopped_by) in [
        ("a JoinGroup is out", Some((ApiKey::JoinGroup, MemberState::PreparingRebalance))),
        ("between the answers to join and sync", Some((ApiKey::SyncGroup, MemberState::CompletingRebalance))),
        ("without partitions", None),
        ("just after the beat that said so", None),
    ] {
        let broker = broker(2).await;
        let (others, _) = recording(&broker);
        let other = others.start().await.unwrap();
        eventually("the other is in", || other.status().state == MemberState::Stable).await;
        let (group, _) = recording(&broker);
        let mut events = group.events();
        let (member, third) = if what == "without partitions" {
            // Three members, two partitions: the last by id has none.
            let (more, _) = recording(&broker);
            let (one, two) = (group.start().await.unwrap(), more.start().await.unwrap());
            eventually("all are in", || {
                [&one, &two, &other].iter().all(|member| member.status().state == MemberState::Stable)
                    && broker.group(GROUP).unwrap().members.len() == 3
            })
            .await;
            sleep(secs(2)).await;
            let spare = [&one, &two].iter().position(|member| member.status().assignment.is_empty());
            // The one without partitions closes; should the other's place be the spare one, both do.
            match spare {
                Some(1) => (two, Some(one)),
                _ => (one, Some(two)),
            }
        } else {
            (group.start().await.unwrap(), None)
        };
        stable(&mut events).await;
        eventually("the group is settled", || other.status().state == MemberState::Stable).await;
        sleep(secs(1)).await;
        let id = member.status().member_id;
        if let Some((api, state)) = stopped_by {
            broker.faults().on(api).member(&id).drop();
            broker.faults().on(ApiKey::Heartbeat).member(&id).times(1).error(ErrorCode::RebalanceInProgress);
            eventually("it is there", || member.status().state == state).await;
        } else if what == "just after the beat that said so" {
            broker.faults().on(ApiKey::Heartbeat).member(&id).times(1).error(ErrorCode::RebalanceInProgress);
            until(&mut events, |event| matches!(event, MemberEvent::Rebalance { .. })).await;
        }
        broker.clear_requests();
        let begun = Instant::now();
        let report = member.close(CloseOptions::timeout(secs(5))).await;
        assert!(begun.elapsed() <= secs(1), "{what}: {:?}", begun.elapsed());
        assert_eq!((report.leave, report.forced), (LeaveOutcome::Left, false), "{what}");
        let leaves = broker.requests(ApiKey::LeaveGroup);
        assert_eq!(leaves.len(), 1, "{what}");
        assert_eq!(leaves[0].member_id.as_ref(), Some(&id), "{what}: the newest id");
        let closed = Instant::now();
        if let Some(third) = third {
            third.close(CloseOptions::timeout(secs(5))).await;
        }
        others_go_on(&broker, &other, closed, what).await;
    }
}

#[tokio::test(start_paused = true)]
async fn d_23_a_close_right_after_the_demand_for_a_member_id_leaves_with_the_pending_id() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    // The handshake's second JoinGroup never gets an answer.
    broker.faults().on(ApiKey::JoinGroup).when(|request| request.member_id.as_deref() != Some("")).drop();
    let member = group.start().await.unwrap();
    eventually("the second is out", || broker.requests(ApiKey::JoinGroup).len() == 2).await;
    let pending = broker.requests(ApiKey::JoinGroup)[1].member_id.clone();
    let begun = Instant::now();
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert_eq!((report.leave, begun.elapsed() < secs(1)), (LeaveOutcome::Left, true));
    assert_eq!(broker.requests(ApiKey::LeaveGroup)[0].member_id, pending);
    assert!(broker.group(GROUP).unwrap().pending.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c_close_08_and_d_24_a_close_without_a_broker_tries_until_its_deadline_and_says_what_was_dropped() {
    let broker = broker(1).await;
    let seen = Seen::default();
    let group = recorder(group(&broker).commit_interval(secs(60)), &seen);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    for _ in 0..3 {
        broker.produce(TOPIC, "key", "value").await.unwrap();
    }
    eventually("they are handled", || seen.len() == 3).await;
    broker.stop().await;
    let begun = Instant::now();
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    let took = begun.elapsed();
    assert!(took >= secs(4) && took <= secs(6), "the whole time, and no more: {took:?}");
    assert!(report.forced && report.committed.is_empty(), "{report:?}");
    assert_eq!(report.dropped.iter().map(ToString::to_string).collect::<Vec<_>>(), ["orders-0"]);
    assert!(!matches!(report.leave, LeaveOutcome::Left), "{report:?}");
    let closed = std::iter::from_fn(|| events.try_next())
        .filter(|event| matches!(event, MemberEvent::Closed { report, .. } if report.forced));
    assert_eq!(closed.count(), 1, "one forced close is told");
}

#[tokio::test(start_paused = true)]
async fn d_25_a_rebalance_during_the_last_drain_changes_nothing_and_the_peers_take_over_at_once() {
    let broker = broker(2).await;
    let (seen, other_seen) = (Seen::default(), Seen::default());
    let with = |seen: &Seen, each| {
        let seen = seen.clone();
        group(&broker).handler(move |_| Slow { seen: seen.clone(), each }).build().unwrap()
    };
    let (busy, peers) = (with(&seen, millis(900)), with(&other_seen, millis(1)));
    let mut events = busy.events();
    let member = busy.start().await.unwrap();
    stable(&mut events).await;
    for partition in [0, 1].repeat(10) {
        broker.produce_to(TOPIC, partition, Some(b"key"), Some(b"value")).await.unwrap();
    }
    eventually("two are handled, and two in hand", || seen.len() == 2).await;
    sleep(millis(100)).await;
    broker.clear_requests();
    let id = member.status().member_id;
    let closing = tokio::spawn(async move { member.close(CloseOptions::timeout(secs(5))).await });
    // A peer joins while the records in hand are finished.
    let peer = peers.start().await.unwrap();
    let report = closing.await.unwrap();
    let left = Instant::now();
    assert_eq!((report.leave, report.forced), (LeaveOutcome::Left, false));
    assert_eq!(seen.len(), 4, "the records in hand, and no other");
    eventually("the peer owns both", || peer.status().assignment.len() == 2).await;
    assert!(left.elapsed() <= secs(1), "{:?}", left.elapsed());
    let mut asked = broker.all_requests();
    asked.retain(|request| request.member_id.as_ref() == Some(&id));
    assert!(
        asked.iter().all(|request| request.api != ApiKey::JoinGroup),
        "no JoinGroup after the close began"
    );
    assert!(asked.iter().any(|request| request.api == ApiKey::Heartbeat), "hearts beat in the drain");
    assert_eq!(asked.last().unwrap().api, ApiKey::LeaveGroup);
    eventually("the peer handles the rest", || other_seen.counts().len() == 16).await;
    assert!(other_seen.counts().keys().all(|at| !seen.counts().contains_key(at)), "nothing is handled twice");
}

#[tokio::test(start_paused = true)]
async fn c_close_15_a_cooperative_member_closed_while_it_joins_commits_and_leaves_at_once_and_calls_it_lost()
{
    let broker = broker(2).await;
    let seen = Seen::default();
    let builder = group(&broker).assignors([Assignor::CooperativeSticky]).commit_interval(secs(60));
    let group = recorder(builder, &seen);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.produce_to(TOPIC, 0, Some(b"key"), Some(b"value")).await.unwrap();
    eventually("it is handled", || seen.len() == 1).await;
    broker.faults().on(ApiKey::JoinGroup).drop();
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
    eventually("it joins", || member.status().state == MemberState::PreparingRebalance).await;
    let begun = Instant::now();
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert!(begun.elapsed() < millis(100), "{:?}", begun.elapsed());
    assert_eq!((report.leave, report.forced), (LeaveOutcome::Left, false));
    assert_eq!(broker.committed(GROUP, TOPIC, 0), Some(1), "what was handled is committed");
    let given_up = std::iter::from_fn(|| events.try_next())
        .find(|event| matches!(event, MemberEvent::Lost { .. } | MemberEvent::Revoked { .. }));
    assert!(matches!(given_up, Some(MemberEvent::Lost { partitions, .. }) if partitions.len() == 2));
}

#[tokio::test(start_paused = true)]
async fn c_close_13_whoever_closes_again_or_at_the_same_time_or_too_late_gets_one_answer_and_does_nothing() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let (mut events, mut all) = (group.events(), group.events());
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let closes = (0..5u64).map(|n| {
        let member = member.reference();
        tokio::spawn(async move { member.close(CloseOptions::timeout(secs(n))).await })
    });
    let mut reports = Vec::new();
    for close in closes.collect::<Vec<_>>() {
        reports.push(close.await.unwrap());
    }
    reports.push(member.close(CloseOptions::default()).await);
    assert!(reports.windows(2).all(|pair| pair[0] == pair[1]), "{reports:?}");
    assert_eq!(member.ended().await.unwrap(), reports[0]);
    assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 1);
    let told = std::iter::from_fn(|| all.try_next());
    assert_eq!(told.filter(|event| matches!(event, MemberEvent::Closed { .. })).count(), 1);
    assert!(member.which_children().await.is_err(), "there is nothing to ask any more");

    // One that ended for a reason keeps that reason; closing it is no more than a question.
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.faults().on(ApiKey::Heartbeat).error(ErrorCode::GroupAuthorizationFailed);
    let reason = member.ended().await.unwrap_err();
    broker.clear_requests();
    let begun = Instant::now();
    member.close(CloseOptions::timeout(secs(5))).await;
    assert_eq!(begun.elapsed(), secs(0));
    assert_eq!(member.ended().await.unwrap_err().to_string(), reason.to_string());
    assert!(broker.all_requests().is_empty());
}
