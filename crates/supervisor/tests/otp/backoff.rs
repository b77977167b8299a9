//! Delayed restart, ours: the delays, what gets in between, and that it is off by default.

use crate::kit::{Journal, Order, Script, cell, exited, order, restarted, scripted, worker};
use kohort_supervisor::{
    Backoff, ChildStatus, ExitReason, Supervisor, SupervisorError, SupervisorEvent, SupervisorExit,
    SupervisorRef,
};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

async fn delayed(backoff: Backoff, max: u32) -> (SupervisorRef, Script) {
    let script = Script { name: "a", ..Script::default() };
    let child = scripted(script.clone()).backoff(backoff);
    let root = Supervisor::one_for_one().intensity(max, 3600 * SECOND).child(child).start().await.unwrap();
    (root, script)
}

#[tokio::test(start_paused = true)]
async fn restarts_are_delayed_ever_longer_and_from_the_start_again_after_a_healthy_period() {
    let (root, script) = delayed(Backoff::new(SECOND, 4 * SECOND).reset_after(60 * SECOND), 99).await;
    let mut events = root.events(64);
    for (fails, healthy, expected) in [
        (0, Duration::ZERO, SECOND),
        (0, 59 * SECOND, 2 * SECOND),
        (0, Duration::ZERO, 4 * SECOND),
        (0, Duration::ZERO, 4 * SECOND),
        (0, 60 * SECOND, SECOND),
        // Two starts fail as well: 2 and 4 and 4 seconds.
        (2, Duration::ZERO, 10 * SECOND),
    ] {
        tokio::time::sleep(healthy).await;
        script.failing_starts.store(fails, Ordering::SeqCst);
        let began = Instant::now();
        cell(&root, "a").await.kill();
        restarted(&mut events, "a").await;
        assert_eq!(began.elapsed(), expected);
    }
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_delay_is_told_and_jittered_within_its_share() {
    let (root, _) = delayed(Backoff::new(10 * SECOND, 10 * SECOND).jitter(0.5, 42), 99).await;
    let mut events = root.events(64);
    let mut delays = Vec::new();
    for _ in 0..5 {
        cell(&root, "a").await.kill();
        loop {
            if let SupervisorEvent::RestartDelayed { delay, .. } = events.next().await.unwrap() {
                delays.push(delay);
                break;
            }
        }
        restarted(&mut events, "a").await;
    }
    assert!(delays.iter().all(|delay| (5 * SECOND..=10 * SECOND).contains(delay)), "{delays:?}");
    delays.dedup();
    assert_eq!(delays.len(), 5);
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_delay() {
    let (root, _) = delayed(Backoff::new(600 * SECOND, 600 * SECOND), 99).await;
    let mut events = root.events(64);
    cell(&root, "a").await.kill();
    exited(&mut events, "a").await;
    let children = root.which_children().await.unwrap();
    assert_eq!(children[0].status, ChildStatus::Restarting);
    let began = Instant::now();
    assert!(matches!(*root.shutdown().await, ExitReason::Shutdown));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn terminate_child_during_a_backoff_does_not_resurrect() {
    let (root, _) = delayed(Backoff::new(5 * SECOND, 5 * SECOND), 99).await;
    let mut events = root.events(64);
    cell(&root, "a").await.kill();
    exited(&mut events, "a").await;
    assert!(matches!(root.restart_child("a").await, Err(SupervisorError::Restarting(_))));
    assert!(matches!(root.delete_child("a").await, Err(SupervisorError::Restarting(_))));
    root.terminate_child("a").await.unwrap();
    tokio::time::sleep(60 * SECOND).await;
    let children = root.which_children().await.unwrap();
    assert_eq!((children[0].status, children[0].incarnation), (ChildStatus::Down, 1));
    root.restart_child("a").await.unwrap();
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn each_delayed_try_is_counted() {
    let (root, script) = delayed(Backoff::new(SECOND, SECOND), 3).await;
    script.failing_starts.store(u32::MAX, Ordering::SeqCst);
    let began = Instant::now();
    cell(&root, "a").await.kill();
    let reason = root.ended().await;
    assert!(matches!(reason.find(), Some(SupervisorExit::ReachedMaxIntensity { max: 3, .. })));
    assert_eq!(
        began.elapsed(),
        3 * SECOND,
        "the exit and two failed tries are allowed, the third is too many"
    );
}

#[tokio::test(start_paused = true)]
async fn in_one_for_all_the_others_stop_at_once_and_all_start_after_the_delay() {
    let journal = Journal::default();
    let root = Supervisor::one_for_all()
        .child(worker("a", &journal))
        .child(worker("b", &journal).backoff(Backoff::new(SECOND, SECOND)))
        .start()
        .await
        .unwrap();
    let mut events = root.events(64);
    journal.take();
    let began = Instant::now();
    order(&root, "b", Order::Fail).await;
    exited(&mut events, "a").await;
    assert_eq!((journal.take(), began.elapsed()), (vec!["stop a".to_owned()], Duration::ZERO));
    restarted(&mut events, "b").await;
    assert_eq!((journal.take().len(), began.elapsed()), (2, SECOND));
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_backoff_a_restart_takes_no_time() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one().child(worker("a", &journal)).start().await.unwrap();
    let mut events = root.events(64);
    let began = Instant::now();
    order(&root, "a", Order::Panic).await;
    restarted(&mut events, "a").await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    root.shutdown().await;
}
