//! The crash-rejoin bound, exactly (design, section 5).

use kohort::supervisor::Supervisor;
use kohort::{MemberEvent, MemberRef, TerminalClass, TerminalReason};
use kohort_protocol::ApiKey;

use crate::support::{broker, group, kill_child, millis, recording, secs, stable, until};

/// Kills the heartbeat and waits for the rejoin; the count in the window that the event tells.
async fn kill_and_rejoin(member: &MemberRef, events: &mut kohort::MemberEvents) -> u32 {
    kill_child(member, "heartbeat").await;
    let crash = until(events, |event| matches!(event, MemberEvent::HeartbeatCrash { .. })).await;
    stable(events).await;
    match crash {
        MemberEvent::HeartbeatCrash { crashes_in_window, .. } => crashes_in_window,
        _ => unreachable!(),
    }
}

/// What of the events so far is a crash or a termination.
fn drain(events: &mut kohort::MemberEvents) -> (usize, Vec<TerminalClass>) {
    let (mut crashes, mut terminated) = (0, Vec::new());
    while let Some(event) = events.try_next() {
        match event {
            MemberEvent::HeartbeatCrash { .. } => crashes += 1,
            MemberEvent::Terminated { class, .. } => terminated.push(class),
            _ => {}
        }
    }
    (crashes, terminated)
}

#[tokio::test(start_paused = true)]
async fn c_crash_01_02_and_11_kills_1_to_3_rejoin_in_place_and_number_4_terminates_once() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let (mut events, mut all) = (group.events(), group.events());
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let member_id = member.status().member_id;
    assert!(!member_id.is_empty());

    for expected in 1..=3 {
        let generation = member.status().generation;
        assert_eq!(kill_and_rejoin(&member, &mut events).await, expected);
        let status = member.status();
        assert_eq!(status.member_id, member_id, "C-CRASH-11: in place, with the same member id");
        assert!(status.generation > generation);
        assert_eq!(status.crashes_in_window, expected);
    }
    broker.clear_requests();
    kill_child(&member, "heartbeat").await;
    let reason = member.ended().await.unwrap_err();
    assert!(
        matches!(&reason, TerminalReason::CrashLoop { crashes: 4, cause } if cause == "killed"),
        "{reason}"
    );
    assert_eq!(
        drain(&mut all),
        (3, vec![TerminalClass::CrashLoop]),
        "no fourth heartbeat_crash, one member_terminated"
    );
    assert_eq!(broker.requests(ApiKey::JoinGroup).len(), 0, "no JoinGroup after the trip");
    assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 1, "a dynamic member leaves at once");

    // Without a supervisor above it stays down.
    tokio::time::sleep(secs(120)).await;
    assert!(group.running().is_empty());
    assert_eq!(drain(&mut all), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn c_crash_12_under_a_supervisor_it_is_started_fresh_with_an_empty_window() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let app = Supervisor::one_for_one()
        .intensity(5, secs(600))
        .child(group.child_spec("orders").unwrap())
        .start()
        .await
        .unwrap();
    stable(&mut events).await;
    let first = group.running()[0].clone();
    let first_id = first.status().member_id;
    for _ in 0..3 {
        kill_and_rejoin(&first, &mut events).await;
    }
    kill_child(&first, "heartbeat").await;
    let ended = until(&mut events, |event| matches!(event, MemberEvent::Terminated { .. })).await;
    assert!(matches!(ended, MemberEvent::Terminated { class: TerminalClass::CrashLoop, .. }));
    stable(&mut events).await;

    let second = group.running()[0].clone();
    assert_ne!(second.status().member_id, first_id);
    assert_eq!(second.status().crashes_in_window, 0);
    for expected in 1..=3 {
        assert_eq!(kill_and_rejoin(&second, &mut events).await, expected, "the window began empty");
    }
    app.shutdown().await;
    assert!(second.ended().await.is_ok(), "a shutdown is a clean close");
}

#[tokio::test(start_paused = true)]
async fn c_crash_03_a_slow_series_ages_out_and_never_trips() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    for _ in 0..28 {
        // D-11, run 4: one every 11 s, for five minutes.
        tokio::time::sleep(secs(11)).await;
        assert!(kill_and_rejoin(&member, &mut events).await <= 3);
    }
    assert_eq!(drain(&mut events).1, vec![]);
}

#[tokio::test(start_paused = true)]
async fn c_crash_01_max_0_trips_at_the_first() {
    let broker = broker(1).await;
    let group = group(&broker)
        .crash_rejoin_max_restarts(0)
        .handler(|_| crate::support::Seen::default().handler())
        .build()
        .unwrap();
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    kill_child(&member, "heartbeat").await;
    assert!(matches!(member.ended().await, Err(TerminalReason::CrashLoop { crashes: 1, .. })));
    assert_eq!(drain(&mut events), (0, vec![TerminalClass::CrashLoop]));
}

#[tokio::test(start_paused = true)]
async fn d_08_a_second_crash_before_the_rejoin_of_the_first_counts_too() {
    let broker = broker(1).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let heartbeat = |member: MemberRef| async move {
        let children = member.which_children().await.unwrap();
        let child = children.into_iter().find(|child| child.id == "heartbeat").unwrap();
        child.cell.unwrap()
    };
    heartbeat(member.reference()).await.stop(None);
    let crash = until(&mut events, |event| matches!(event, MemberEvent::HeartbeatCrash { .. })).await;
    assert!(
        matches!(crash, MemberEvent::HeartbeatCrash { exit, crashes_in_window: 1, .. } if exit == "stopped")
    );
    // The next one dies before the rejoin that the first asked for.
    kill_child(&member, "heartbeat").await;
    until(&mut events, |event| matches!(event, MemberEvent::HeartbeatCrash { crashes_in_window: 2, .. }))
        .await;
    stable(&mut events).await;
    tokio::time::sleep(secs(20)).await;
    assert_eq!(drain(&mut events).1, vec![]);
    assert_eq!(member.status().crashes_in_window, 2);
}

#[tokio::test(start_paused = true)]
async fn c_crash_10_rebalances_and_lost_connections_are_not_counted() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    for _ in 0..10 {
        let rule =
            broker.faults().on(ApiKey::Heartbeat).times(1).error(kohort::ErrorCode::RebalanceInProgress);
        stable(&mut events).await;
        assert_eq!(rule.hits(), 1);
    }
    for _ in 0..5 {
        broker.faults().on(ApiKey::Heartbeat).times(1).disconnect();
        tokio::time::sleep(secs(2)).await;
    }
    assert_eq!(drain(&mut events), (0, vec![]));
    assert_eq!(member.status().crashes_in_window, 0);
}

#[tokio::test(start_paused = true)]
async fn a_killed_manager_yields_exactly_one_member_terminated() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let (mut events, mut all) = (group.events(), group.events());
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    kill_child(&member, "manager").await;
    let reason = member.ended().await.unwrap_err();
    assert!(matches!(&reason, TerminalReason::Crashed { what } if what.contains("manager")), "{reason}");
    tokio::time::sleep(secs(1)).await;
    assert_eq!(drain(&mut all), (0, vec![TerminalClass::Crashed]));
    broker.clear_requests();
    tokio::time::sleep(secs(30)).await;
    assert!(broker.all_requests().is_empty(), "a terminal member is silent on the wire");
}

#[tokio::test(start_paused = true)]
async fn a_killed_root_yields_exactly_one_member_terminated() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let (mut events, mut all) = (group.events(), group.events());
    let app = Supervisor::one_for_one().intensity(0, secs(1)).child(group.child_spec("orders").unwrap());
    let app = app.start().await.unwrap();
    stable(&mut events).await;
    let member = group.running()[0].clone();
    let root = app.which_children().await.unwrap()[0].cell.clone().unwrap();
    root.kill();
    assert!(matches!(member.ended().await, Err(TerminalReason::Crashed { .. })));
    tokio::time::sleep(millis(100)).await;
    assert_eq!(drain(&mut all), (0, vec![TerminalClass::Crashed]));
    assert!(app.ended().await.is_abnormal(), "and the application's supervisor sees it");
}

#[tokio::test(start_paused = true)]
async fn the_typed_reason_is_found_from_the_top() {
    let broker = broker(1).await;
    let group = group(&broker)
        .crash_rejoin_max_restarts(0)
        .handler(|_| crate::support::Seen::default().handler())
        .build()
        .unwrap();
    let mut events = group.events();
    let app = Supervisor::one_for_one().intensity(0, secs(1)).child(group.child_spec("orders").unwrap());
    let app = app.start().await.unwrap();
    stable(&mut events).await;
    kill_child(&group.running()[0], "heartbeat").await;
    let exit = app.ended().await;
    assert!(matches!(exit.find::<TerminalReason>(), Some(TerminalReason::CrashLoop { .. })), "{exit}");
}

/// D-11: outages of any length and rebalances of any number never end a member.
#[tokio::test(start_paused = true)]
async fn d_11_only_crashes_count() {
    let broker = broker(1).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.stop().await;
    tokio::time::sleep(secs(120)).await;
    broker.restart().await.unwrap();
    stable(&mut events).await;
    for _ in 0..10 {
        broker.faults().on(ApiKey::Heartbeat).times(1).error(kohort::ErrorCode::RebalanceInProgress);
        stable(&mut events).await;
    }
    assert_eq!((drain(&mut events), member.status().crashes_in_window), ((0, vec![]), 0));
}

#[tokio::test(start_paused = true)]
async fn c_hb_02_beats_are_an_interval_apart_however_late_their_answers_come() {
    let broker = broker(1).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    let _member = group.start().await.unwrap();
    stable(&mut events).await;
    let gaps = |broker: &kohort_broker::Broker| {
        let beats = broker.requests(ApiKey::Heartbeat);
        beats.windows(2).map(|pair| pair[1].at - pair[0].at).collect::<Vec<_>>()
    };
    broker.faults().on(ApiKey::Heartbeat).delay_answer(millis(300));
    tokio::time::sleep(secs(10)).await;
    let gaps_now = gaps(&broker);
    assert!(
        gaps_now.len() >= 15 && gaps_now.iter().all(|gap| *gap >= millis(500) && *gap <= millis(510)),
        "{gaps_now:?}"
    );
    // One in flight at the most, and due at once when its answer took longer than the interval.
    broker.faults().clear();
    broker.faults().on(ApiKey::Heartbeat).delay_answer(millis(800));
    broker.clear_requests();
    tokio::time::sleep(secs(10)).await;
    let gaps_now = gaps(&broker);
    assert!(gaps_now.iter().skip(1).all(|gap| *gap >= millis(800) && *gap <= millis(810)), "{gaps_now:?}");
}
