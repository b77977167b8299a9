//! What a heart's answers mean on real actors, and when a heart beats.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use kohort::{ConsumerGroup, ErrorCode, MemberEvent, MemberState, TerminalReason};
use kohort_broker::{Broker, Fault};
use kohort_protocol::ApiKey;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep};

use crate::between::{beat_answer, between};
use crate::support::{
    GROUP, Seen, Slow, TOPIC, broker, eventually, evict, group, kill_child, millis, recording, secs, settled,
    stable, told, until,
};

/// When this member's requests of a kind came in.
fn times(broker: &Broker, api: ApiKey, member_id: &str) -> Vec<Instant> {
    let mut asked = broker.requests(api);
    asked.retain(|request| request.member_id.as_deref() == Some(member_id));
    asked.iter().map(|request| request.at).collect()
}

fn gaps(times: &[Instant]) -> Vec<Duration> {
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn c_hb_02_a_beat_is_due_an_interval_after_the_last_and_a_throttle_time_does_not_stretch_it() {
    let broker = broker(1).await;
    let throttled = between(&broker, |api, frame| async move {
        Some(if api == ApiKey::Heartbeat { beat_answer(frame, 60_000, 0) } else { frame })
    });
    let group = group(&broker).connector(throttled).handler(|_| Seen::default().handler()).build().unwrap();
    let mut events = group.events();
    let _member = group.start().await.unwrap();
    stable(&mut events).await;
    let joined = broker.requests(ApiKey::JoinGroup)[1].at;
    sleep(millis(250)).await;
    assert!(broker.requests(ApiKey::Heartbeat).is_empty(), "not after half an interval");
    sleep(millis(300)).await;
    assert_eq!(broker.requests(ApiKey::Heartbeat).len(), 1, "after one");
    sleep(secs(5)).await;
    let beats: Vec<_> = broker.requests(ApiKey::Heartbeat).iter().map(|beat| beat.at).collect();
    assert!(beats[0] - joined >= millis(500) && beats[0] - joined <= millis(510));
    let gaps = gaps(&beats);
    assert!(gaps.len() >= 9 && gaps.iter().all(|gap| *gap >= millis(500) && *gap <= millis(510)), "{gaps:?}");
}

/// What beats say does not move the time that a handler has, and what handlers do does not move the session.
#[tokio::test(start_paused = true)]
async fn c_hb_03_session_and_work_end_each_by_itself_and_a_generation_begins_with_a_whole_session() {
    let stuck_at = {
        let broker = broker(1).await;
        broker.produce(TOPIC, "key", "value").await.unwrap();
        let slow = |_: &_| Slow { seen: Seen::default(), each: secs(3600) };
        let group = group(&broker).max_processing_time(secs(9)).handler(slow).build().unwrap();
        let mut events = group.events();
        let member = group.start().await.unwrap();
        stable(&mut events).await;
        let begun = Instant::now();
        let ended = until(&mut events, |event| {
            matches!(event, MemberEvent::WorkerStuck { .. } | MemberEvent::Lost { .. })
        });
        assert!(matches!(ended.await, MemberEvent::WorkerStuck { .. }));
        assert_eq!((member.status().generation, member.status().state), (1, MemberState::Stable));
        begun.elapsed()
    };
    assert!(stuck_at >= secs(9) && stuck_at <= secs(10), "though hearts beat well: {stuck_at:?}");

    let broker = broker(1).await;
    let seen = Seen::default();
    let group = {
        let seen = seen.clone();
        let handler = move |_: &_| Slow { seen: seen.clone(), each: millis(200) };
        group(&broker).max_processing_time(secs(3)).handler(handler).build().unwrap()
    };
    let (_member, mut events) = settled(&broker, &group).await;
    for _ in 0..200 {
        broker.produce(TOPIC, "key", "value").await.unwrap();
    }
    let mut all = group.events();
    for _ in 0..2 {
        // The last good beat was up to an interval ago; the generation that follows begins anew.
        let cut = Instant::now();
        let rules = [ApiKey::Heartbeat, ApiKey::FindCoordinator].map(|api| broker.faults().on(api).drop());
        let told = until(&mut events, |event| matches!(event, MemberEvent::Rebalance { .. })).await;
        assert!(matches!(told, MemberEvent::Rebalance { kind: "session_expired", .. }), "{told:?}");
        let took = cut.elapsed();
        assert!(took >= millis(5_490) && took <= secs(6), "though it works all the time: {took:?}");
        rules.iter().for_each(kohort_broker::FaultRule::clear);
        stable(&mut events).await;
    }
    assert!(seen.len() > 20);
    let stuck = told(&mut all, |event| matches!(event, MemberEvent::WorkerStuck { .. }));
    assert!(stuck.is_empty(), "{stuck:?}");
}

#[tokio::test(start_paused = true)]
async fn c_hb_04_hearts_beat_while_a_sync_is_out_and_rest_while_a_join_is() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let (member, mut events) = settled(&broker, &group).await;
    let id = member.status().member_id;
    broker.faults().on(ApiKey::JoinGroup).times(1).delay_answer(secs(3));
    broker.faults().on(ApiKey::SyncGroup).times(1).delay_answer(secs(3));
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
    stable(&mut events).await;
    let at = |api| times(&broker, api, &id);
    let (join, sync) = (at(ApiKey::JoinGroup), at(ApiKey::SyncGroup));
    assert_eq!((join.len(), sync.len()), (1, 1));
    assert!(sync[0] - join[0] >= secs(3));
    let beats = at(ApiKey::Heartbeat);
    // The beat that told of the rebalance came at the same instant as the JoinGroup, before it.
    let within = |from: Instant, to: Instant| beats.iter().filter(|at| **at > from && **at <= to).count();
    assert_eq!(within(join[0], sync[0]), 0, "none beside the JoinGroup");
    let beside = within(sync[0], sync[0] + secs(3));
    assert!((5..=6).contains(&beside), "one an interval beside the SyncGroup: {beside}");
}

#[tokio::test(start_paused = true)]
async fn c_hb_06_through_a_drain_longer_than_the_session_the_answers_of_a_rebalance_keep_a_member_in() {
    let broker = broker(2).await;
    let seen = Seen::default();
    let slow = {
        let seen = seen.clone();
        let handler = move |_: &_| Slow { seen: seen.clone(), each: secs(12) };
        group(&broker).rebalance_timeout(secs(30)).handler(handler).build().unwrap()
    };
    let (member, mut events) = settled(&broker, &slow).await;
    let (id, generation) = (member.status().member_id, member.status().generation);
    broker.produce_to(TOPIC, 0, None, Some(b"value")).await.unwrap();
    sleep(secs(1)).await;
    let (quick, _) = recording(&broker);
    let _other = quick.start().await.unwrap();
    eventually("it heard of it", || member.status().state == MemberState::Revoking).await;
    let heard = Instant::now();
    while member.status().state == MemberState::Revoking {
        let quiet = member.status().last_good_heartbeat.unwrap();
        assert!(quiet <= millis(510), "each answer proves life: {quiet:?}");
        assert_eq!((member.status().member_id, member.status().generation), (id.clone(), generation));
        sleep(millis(100)).await;
    }
    assert!(heard.elapsed() > secs(8), "longer than the session: {:?}", heard.elapsed());
    stable(&mut events).await;
    let join = times(&broker, ApiKey::JoinGroup, &id);
    assert_eq!(join.len(), 1, "one, under the same id");
    let mut beats = times(&broker, ApiKey::Heartbeat, &id);
    beats.retain(|at| *at <= join[0]);
    assert!(join[0] - *beats.last().unwrap() <= millis(500), "hearts beat until the JoinGroup");
    assert!(gaps(&beats).iter().all(|gap| *gap <= millis(510)));
    assert_eq!(broker.group(GROUP).unwrap().generation, generation + 1);
    let given = told(&mut events, |event| matches!(event, MemberEvent::Lost { .. }));
    assert!(given.is_empty() && seen.len() == 1, "revoked, with its work done: {given:?}");
}

#[tokio::test(start_paused = true)]
async fn c_hb_09_and_13_a_beat_that_is_refused_for_good_ends_the_member_within_an_interval() {
    let fenced = |reason: &TerminalReason| matches!(reason, TerminalReason::FencedInstanceId);
    let unauthorized = |reason: &TerminalReason| matches!(reason, TerminalReason::GroupAuthorizationFailed);
    let refused = |reason: &TerminalReason| {
        let topic = ErrorCode::TopicAuthorizationFailed;
        matches!(reason, TerminalReason::Protocol { api: "Heartbeat", code, .. } if *code == topic)
    };
    type Says = fn(&TerminalReason) -> bool;
    let cases: [(ErrorCode, Says); 3] = [
        (ErrorCode::FencedInstanceId, fenced),
        (ErrorCode::GroupAuthorizationFailed, unauthorized),
        (ErrorCode::TopicAuthorizationFailed, refused),
    ];
    for (code, says) in cases {
        let broker = broker(2).await;
        let handler = |_: &_| Seen::default().handler();
        let group = group(&broker).group_instance_id("web-0").handler(handler).build().unwrap();
        let (member, mut events) = settled(&broker, &group).await;
        let rule = broker.faults().on(ApiKey::Heartbeat).error(code);
        let begun = Instant::now();
        let terminated = until(&mut events, |event| matches!(event, MemberEvent::Terminated { .. }));
        terminated.await;
        assert!(begun.elapsed() <= millis(510), "{code}: {:?}", begun.elapsed());
        let reason = member.ended().await.unwrap_err();
        assert!(says(&reason), "{code}: {reason}");
        sleep(secs(60)).await;
        assert_eq!((rule.hits(), broker.requests(ApiKey::JoinGroup).len()), (1, 0), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn c_hb_11_however_the_coordinator_goes_it_is_looked_up_once_and_nothing_of_the_membership_changes() {
    for fault in [
        Fault::Error(ErrorCode::NotCoordinator),
        Fault::Error(ErrorCode::CoordinatorNotAvailable),
        Fault::Disconnect,
        Fault::DisconnectAfter,
        Fault::Drop,
    ] {
        let broker = broker(2).await;
        let (group, _) = recording(&broker);
        let (member, mut events) = settled(&broker, &group).await;
        let before = member.status();
        broker.faults().on(ApiKey::Heartbeat).times(1).inject(fault);
        sleep(secs(5)).await;
        assert_eq!(broker.requests(ApiKey::FindCoordinator).len(), 1, "{fault:?}");
        assert_eq!(broker.requests(ApiKey::JoinGroup).len(), 0, "{fault:?}");
        let after = member.status();
        let of = |status: &kohort::MemberStatus| {
            let owned = status.assignment.iter().map(|one| one.partition.clone()).collect::<Vec<_>>();
            (status.member_id.clone(), status.generation, status.state, owned)
        };
        assert_eq!(of(&after), of(&before), "{fault:?}");
        assert!(after.last_good_heartbeat.unwrap() <= millis(510), "{fault:?}: and hearts beat again");
        let moved = told(&mut events, |event| {
            matches!(
                event,
                MemberEvent::Rebalance { .. } | MemberEvent::Lost { .. } | MemberEvent::Revoked { .. }
            )
        });
        assert!(moved.is_empty(), "{fault:?}: {moved:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c_crash_09_a_heart_that_rests_in_a_rebalance_or_ends_with_its_member_is_no_crash() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let (member, mut events) = settled(&broker, &group).await;
    let heart = |children: Vec<kohort::supervisor::ChildInfo>| {
        let heart = children.into_iter().find(|child| child.id == "heartbeat").unwrap();
        (heart.incarnation, heart.cell.unwrap().get_id())
    };
    let mut all = group.events();
    let before = heart(member.which_children().await.unwrap());
    for _ in 0..5 {
        broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
        stable(&mut events).await;
    }
    assert_eq!(heart(member.which_children().await.unwrap()), before, "one heart for all generations");
    assert_eq!((member.status().generation, member.status().crashes_in_window), (6, 0));
    member.close(Default::default()).await;
    sleep(secs(5)).await;
    let crashes = told(&mut all, |event| {
        matches!(event, MemberEvent::HeartbeatCrash { .. } | MemberEvent::Terminated { .. })
    });
    assert!(crashes.is_empty(), "{crashes:?}");
}

/// A heart that is killed, and one that is stopped though nobody asked.
#[tokio::test(start_paused = true)]
async fn d_08_a_heart_that_ends_is_noticed_at_once_and_replaced_in_place() {
    for exit in ["killed", "stopped"] {
        let broker = broker(2).await;
        let (group, _) = recording(&broker);
        let (member, mut events) = settled(&broker, &group).await;
        let id = member.status().member_id;
        let others = |children: &[kohort::supervisor::ChildInfo]| {
            let others = children.iter().filter(|child| child.id != "heartbeat");
            others
                .map(|child| (child.incarnation, child.cell.as_ref().map(|cell| cell.get_id())))
                .collect::<Vec<_>>()
        };
        let before = member.which_children().await.unwrap();
        let ended = Instant::now();
        if exit == "killed" {
            kill_child(&member, "heartbeat").await;
        } else {
            let heart = before.iter().find(|child| child.id == "heartbeat").unwrap();
            heart.cell.as_ref().unwrap().stop(None);
        }
        let crash = until(&mut events, |event| matches!(event, MemberEvent::HeartbeatCrash { .. })).await;
        assert!(ended.elapsed() <= millis(100), "{:?}", ended.elapsed());
        assert!(
            matches!(&crash, MemberEvent::HeartbeatCrash { exit: how, crashes_in_window: 1, .. } if how == exit),
            "{crash:?}"
        );
        stable(&mut events).await;
        assert!(ended.elapsed() <= secs(1), "after the jitter of 200 ms: {:?}", ended.elapsed());
        let joins = broker.requests(ApiKey::JoinGroup);
        assert_eq!(joins.iter().map(|join| join.member_id.as_ref()).collect::<Vec<_>>(), [Some(&id)]);
        assert_eq!(others(&member.which_children().await.unwrap()), others(&before), "nothing is restarted");
        sleep(secs(10)).await;
        let more = told(&mut events, |event| matches!(event, MemberEvent::HeartbeatCrash { .. }));
        assert!(more.is_empty(), "{exit}: one event: {more:?}");
    }
}

/// The answer to one beat is held until the member is in its next generation; then it comes with this code, or its
/// connection is lost.
async fn late_answer(late: Option<ErrorCode>) {
    let what = format!("{late:?}");
    let broker = broker(1).await;
    let (hold, (release, released)) = (Arc::new(AtomicBool::new(false)), watch::channel(false));
    let answered = Arc::new(Mutex::new(0));
    let connector = {
        let (hold, answered) = (Arc::clone(&hold), Arc::clone(&answered));
        between(&broker, move |api, frame| {
            let held = api == ApiKey::Heartbeat && hold.swap(false, Ordering::SeqCst);
            let (mut released, answered) = (released.clone(), Arc::clone(&answered));
            async move {
                if !held {
                    return Some(frame);
                }
                released.wait_for(|released| *released).await.unwrap();
                *answered.lock().unwrap() += 1;
                late.map(|code| beat_answer(frame, 0, code.code()))
            }
        })
    };
    let group: ConsumerGroup = group(&broker)
        .connector(connector)
        .commit_interval(millis(200))
        .handler(|_| Seen::default().handler())
        .build()
        .unwrap();
    let (member, mut events) = settled(&broker, &group).await;
    let before = member.status();
    hold.store(true, Ordering::SeqCst);
    eventually("an answer is held", || !hold.load(Ordering::SeqCst)).await;
    // A commit's answer brings it into the next generation before the heart's answer is missed.
    broker.faults().on(ApiKey::OffsetCommit).times(1).error(ErrorCode::IllegalGeneration);
    broker.produce(TOPIC, "key", "value").await.unwrap();
    stable(&mut events).await;
    broker.clear_requests();
    let after = member.status();
    assert_eq!((&after.member_id, after.generation), (&before.member_id, before.generation + 1), "{what}");
    release.send(true).unwrap();
    eventually("it comes late", || *answered.lock().unwrap() == 1).await;
    sleep(secs(10)).await;
    let now = member.status();
    assert_eq!((now.member_id, now.generation), (after.member_id, after.generation), "{what}");
    for api in [ApiKey::JoinGroup, ApiKey::FindCoordinator] {
        assert_eq!(broker.requests(api).len(), 0, "{what}: {api}");
    }
    assert!(now.last_good_heartbeat.unwrap() <= millis(510), "{what}: the heart of now beats");
}

#[tokio::test(start_paused = true)]
async fn d_09_what_comes_late_of_an_older_generation_changes_neither_identity_nor_coordinator() {
    for late in [
        Some(ErrorCode::IllegalGeneration),
        Some(ErrorCode::UnknownMemberId),
        Some(ErrorCode::FencedInstanceId),
        None,
    ] {
        late_answer(late).await;
    }
}

/// The same codes, when they are about the generation that is: one keeps the id, the other drops it.
#[tokio::test(start_paused = true)]
async fn d_09_and_c_hb_08_an_eviction_that_is_current_drops_the_id() {
    let broker = broker(1).await;
    let (group, _) = recording(&broker);
    let (member, mut events) = settled(&broker, &group).await;
    let id = member.status().member_id;
    evict(&broker, &id).await;
    let lost = until(&mut events, |event| matches!(event, MemberEvent::Lost { .. })).await;
    assert!(matches!(lost, MemberEvent::Lost { partitions, .. } if partitions.len() == 1));
    stable(&mut events).await;
    let named: Vec<_> = broker.requests(ApiKey::JoinGroup).into_iter().map(|join| join.member_id).collect();
    assert_eq!(named, [Some(String::new()), Some(member.status().member_id)]);
    assert_ne!(member.status().member_id, id);
}
