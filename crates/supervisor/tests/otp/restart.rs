//! Restarts: which, how many, and what gets in between.

use crate::kit::{Broken, Journal, Order, Script, cell, exited, order, restarted, scripted, worker};
use kohort_supervisor::{
    ChildStatus, ExitReason, Restart, Supervisor, SupervisorError, SupervisorEvent, SupervisorExit,
};
use ractor::Actor;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_killed_transient_child_is_restarted_and_a_stopped_one_is_not() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one()
        .child(worker("a", &journal).restart(Restart::Transient))
        .start()
        .await
        .unwrap();
    let mut events = root.events(16);
    cell(&root, "a").await.kill();
    assert_eq!(restarted(&mut events, "a").await, 2);
    cell(&root, "a").await.stop(None);
    assert!(matches!(exited(&mut events, "a").await, ExitReason::Normal));
    let children = root.which_children().await.unwrap();
    assert_eq!((children[0].status, children[0].incarnation), (ChildStatus::Down, 2));
    assert!(root.restart_child("a").await.is_ok());
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn exits_are_typed() {
    let journal = Journal::default();
    let root =
        Supervisor::one_for_one().intensity(9, SECOND).child(worker("a", &journal)).start().await.unwrap();
    let mut events = root.events(64);
    order(&root, "a", Order::Fail).await;
    let reason = exited(&mut events, "a").await;
    assert_eq!(reason.find::<Broken>().unwrap().0, "a");
    restarted(&mut events, "a").await;
    order(&root, "a", Order::Panic).await;
    assert!(matches!(exited(&mut events, "a").await, ExitReason::Panic(text) if text == "worker panic"));
    restarted(&mut events, "a").await;
    cell(&root, "a").await.stop(Some("shutdown".to_owned()));
    assert!(matches!(exited(&mut events, "a").await, ExitReason::Shutdown));
    restarted(&mut events, "a").await;
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_temporary_child_goes_with_its_spec() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one()
        .children([worker("a", &journal).restart(Restart::Temporary), worker("b", &journal)])
        .start()
        .await
        .unwrap();
    let mut events = root.events(16);
    order(&root, "a", Order::Fail).await;
    exited(&mut events, "a").await;
    assert_eq!(root.count_children().await.unwrap().specs, 1);
    assert!(matches!(root.restart_child("a").await, Err(SupervisorError::NotFound(_))));
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn one_for_all_restarts_all_in_order_and_counts_one() {
    let journal = Journal::default();
    let root = Supervisor::one_for_all()
        .intensity(1, SECOND)
        .children(["a", "b", "c"].map(|name| worker(name, &journal)))
        .start()
        .await
        .unwrap();
    let mut events = root.events(64);
    journal.take();
    order(&root, "b", Order::Fail).await;
    restarted(&mut events, "c").await;
    assert_eq!(journal.take(), ["stop c", "stop a", "start a", "start b", "start c"]);
    order(&root, "b", Order::Fail).await;
    let reason = root.ended().await;
    assert!(matches!(reason.find(), Some(SupervisorExit::ReachedMaxIntensity { max: 1, .. })));
    assert_eq!(journal.take(), ["stop c", "stop a"]);
}

#[tokio::test(start_paused = true)]
async fn two_deaths_at_once_count_one_in_one_for_all_and_two_in_one_for_one() {
    let journal = Journal::default();
    let children = || ["a", "b"].map(|name| worker(name, &journal));
    let all = Supervisor::one_for_all().intensity(1, SECOND).children(children()).start().await.unwrap();
    let mut events = all.events(64);
    let (a, b) = (cell(&all, "a").await, cell(&all, "b").await);
    a.kill();
    b.kill();
    restarted(&mut events, "b").await;
    assert_eq!(all.count_children().await.unwrap().active, 2);
    all.shutdown().await;

    let one = Supervisor::one_for_one().intensity(1, SECOND).children(children()).start().await.unwrap();
    let (a, b) = (cell(&one, "a").await, cell(&one, "b").await);
    a.kill();
    b.kill();
    assert!(one.ended().await.find::<SupervisorExit>().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_intensity_ends_the_supervisor_one_above_its_maximum() {
    for max in [0, 3] {
        let journal = Journal::default();
        let root = Supervisor::one_for_one()
            .id("root")
            .intensity(max, 60 * SECOND)
            .children([worker("a", &journal), worker("b", &journal), worker("c", &journal)])
            .start()
            .await
            .unwrap();
        let mut events = root.events(64);
        for _ in 0..max {
            order(&root, "b", Order::Fail).await;
            restarted(&mut events, "b").await;
        }
        journal.take();
        order(&root, "b", Order::Fail).await;
        let reason = root.ended().await;
        assert_eq!(journal.take(), ["stop c", "stop a"], "the others are stopped first, in reverse");
        let Some(SupervisorExit::ReachedMaxIntensity { supervisor, child, cause, .. }) = reason.find() else {
            panic!("{reason:?}")
        };
        assert_eq!((supervisor.as_str(), child.as_str()), ("root", "b"));
        assert!(cause.find::<Broken>().is_some());
        let told = std::iter::from_fn(|| events.try_next());
        assert!(told.into_iter().any(|event| matches!(event, SupervisorEvent::IntensityReached { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn the_window_slides_and_no_success_resets_it() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one()
        .intensity(2, 10 * SECOND)
        .child(worker("a", &journal))
        .start()
        .await
        .unwrap();
    let mut events = root.events(64);
    // A long healthy time between the failures, but never more than two within ten seconds: 0, 6, 12, 18, …
    for _ in 0..6 {
        order(&root, "a", Order::Fail).await;
        restarted(&mut events, "a").await;
        tokio::time::sleep(6 * SECOND).await;
    }
    // The last one was six seconds ago; two more make three within ten.
    order(&root, "a", Order::Fail).await;
    restarted(&mut events, "a").await;
    tokio::time::sleep(3 * SECOND).await;
    order(&root, "a", Order::Fail).await;
    assert!(root.ended().await.find::<SupervisorExit>().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_failed_restart_is_retried_and_each_try_counts() {
    let journal = Journal::default();
    let script = Script { name: "a", journal: journal.clone(), ..Script::default() };
    let failing = script.failing_starts.clone();
    let root = Supervisor::one_for_one().intensity(3, SECOND).child(scripted(script)).start().await.unwrap();
    let mut events = root.events(64);
    failing.store(2, Ordering::SeqCst);
    order(&root, "a", Order::Fail).await;
    assert_eq!(restarted(&mut events, "a").await, 4);
    assert_eq!(journal.take(), ["start a", "fail a", "fail a", "start a"]);
    order(&root, "a", Order::Fail).await;
    let reason = root.ended().await;
    assert!(reason.find::<SupervisorExit>().is_some(), "three tries and this one are four");
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_keeps_failing_reaches_the_intensity_with_its_cause() {
    let journal = Journal::default();
    let script = Script { name: "a", journal: journal.clone(), ..Script::default() };
    let failing = script.failing_starts.clone();
    let root = Supervisor::one_for_one().intensity(3, SECOND).child(scripted(script)).start().await.unwrap();
    failing.store(u32::MAX, Ordering::SeqCst);
    cell(&root, "a").await.kill();
    let reason = root.ended().await;
    assert!(reason.find::<Broken>().is_some());
    assert_eq!(journal.take(), ["start a", "fail a", "fail a", "fail a"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gets_in_between_the_tries_of_a_restart() {
    let journal = Journal::default();
    let script = Script { name: "a", journal: journal.clone(), ..Script::default() };
    let failing = script.failing_starts.clone();
    let root =
        Supervisor::one_for_one().intensity(u32::MAX, SECOND).child(scripted(script)).start().await.unwrap();
    let mut events = root.events(1024);
    failing.store(u32::MAX, Ordering::SeqCst);
    cell(&root, "a").await.kill();
    while !matches!(events.next().await, Some(SupervisorEvent::ChildStartFailed { .. })) {}
    assert!(matches!(*root.shutdown().await, ExitReason::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn terminate_child_just_after_a_crash_does_not_resurrect() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one().child(worker("a", &journal)).start().await.unwrap();
    cell(&root, "a").await.kill();
    root.terminate_child("a").await.unwrap();
    let children = root.which_children().await.unwrap();
    assert_eq!(children[0].status, ChildStatus::Down);
    assert!(children[0].cell.is_none());
    root.delete_child("a").await.unwrap();
    assert!(root.which_children().await.unwrap().is_empty());
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn requests_do_what_otp_says() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one().start().await.unwrap();
    let started = root.start_child(worker("a", &journal)).await.unwrap();
    assert_eq!(started, cell(&root, "a").await);
    assert!(matches!(root.start_child(worker("a", &journal)).await, Err(SupervisorError::AlreadyStarted(_))));
    assert!(matches!(root.restart_child("a").await, Err(SupervisorError::Running(_))));
    assert!(matches!(root.delete_child("a").await, Err(SupervisorError::Running(_))));
    root.terminate_child("a").await.unwrap();
    root.terminate_child("a").await.unwrap();
    assert!(matches!(root.start_child(worker("a", &journal)).await, Err(SupervisorError::AlreadyPresent(_))));
    assert_ne!(root.restart_child("a").await.unwrap(), started);
    assert!(matches!(root.terminate_child("nobody").await, Err(SupervisorError::NotFound(_))));
    assert_eq!(journal.take(), ["start a", "stop a", "start a"]);
    let failing = Script { name: "b", failing_starts: std::sync::Arc::new(1.into()), ..Script::default() };
    let refused = root.start_child(scripted(failing)).await;
    assert!(matches!(refused, Err(SupervisorError::StartFailed { .. })));
    assert_eq!(root.count_children().await.unwrap().specs, 1);
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn which_children_is_answered_during_a_slow_start() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one().child(worker("a", &journal)).start().await.unwrap();
    let slow = Script { name: "b", journal: journal.clone(), start_takes: 3 * SECOND, ..Script::default() };
    let began = Instant::now();
    let other = root.clone();
    let (started, children) = tokio::join!(root.start_child(scripted(slow)), async move {
        let children = other.which_children().await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        children
    });
    assert_eq!(children[1].status, ChildStatus::Starting);
    assert!(started.is_ok());
    assert_eq!(began.elapsed(), 3 * SECOND);
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_exit_of_an_unknown_linked_actor_is_ignored_and_reported() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one().child(worker("a", &journal)).start().await.unwrap();
    let mut events = root.events(16);
    let script = Script { name: "stranger", ..Script::default() };
    let (stranger, _) =
        crate::kit::Worker::spawn_linked(None, crate::kit::Worker(script), (), root.cell().clone())
            .await
            .unwrap();
    stranger.kill();
    loop {
        if let SupervisorEvent::UnknownExit { actor, reason, .. } = events.next().await.unwrap() {
            assert_eq!(actor, stranger.get_id());
            assert!(matches!(reason, ExitReason::Killed));
            break;
        }
    }
    assert_eq!(root.count_children().await.unwrap().active, 1);
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn two_deaths_at_once_count_one_in_rest_for_one() {
    let journal = Journal::default();
    let children = ["a", "b", "c"].map(|name| worker(name, &journal));
    let root = Supervisor::rest_for_one().intensity(1, SECOND).children(children).start().await.unwrap();
    let mut events = root.events(64);
    let (b, c) = (cell(&root, "b").await, cell(&root, "c").await);
    b.kill();
    c.kill();
    assert_eq!(restarted(&mut events, "c").await, 2);
    assert_eq!(root.count_children().await.unwrap().active, 3);
    root.shutdown().await;
}

/// Windows, timeouts and back-offs are measured on the monotonic clock: the wall clock is not read anywhere.
#[test]
fn wall_clock_jumps_have_no_effect() {
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            assert!(!source.contains("SystemTime") && !source.contains("UNIX_EPOCH"), "{path:?}");
            files += 1;
        }
    }
    assert!(files > 10);
}
