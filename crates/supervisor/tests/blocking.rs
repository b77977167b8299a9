//! Children in blocking code, in real time and on real threads. Not part of `cargo test`, since each takes the
//! five seconds that a killed child has: `cargo test -p kohort-supervisor --test blocking`.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

#[path = "otp/kit.rs"]
mod kit;

use kit::{Journal, Order, order, worker};
use kohort_supervisor::{
    ChildSpec, ExitReason, Shutdown, StartError, Supervisor, SupervisorError, SupervisorEvent, SupervisorExit,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

fn runtimes() -> (Runtime, Runtime) {
    let supervisors = Builder::new_current_thread().enable_all().build().unwrap();
    (supervisors, Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

#[test]
fn a_child_that_blocks_its_thread_is_unkillable_and_the_others_are_stopped() {
    let (runtime, workers) = runtimes();
    let (release, blocked) = mpsc::channel();
    let handle = workers.handle().clone();
    runtime.block_on(async {
        let journal = Journal::default();
        let block = worker("b", &journal).shutdown(Shutdown::BrutalKill).on(handle);
        let root = Supervisor::one_for_one().children([worker("a", &journal), block]).start().await.unwrap();
        let (tell, blocking) = tokio::sync::oneshot::channel();
        order(&root, "b", Order::Block(blocked, tell)).await;
        blocking.await.unwrap();
        assert!(matches!(root.terminate_child("b").await, Err(SupervisorError::Unkillable(_))));
        let reason = root.ended().await;
        assert!(matches!(reason.find(), Some(SupervisorExit::Unkillable { child, .. }) if *child == "b"));
        assert_eq!(journal.take(), ["start a", "start b", "stop a"]);
    });
    drop(release);
}

/// The case that loses data in the field: a consumer stuck in blocking code is stopped, and its successor starts
/// while it still writes.
#[test]
fn a_child_in_blocking_code_never_has_two_incarnations_at_once() {
    let (runtime, workers) = runtimes();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (alive, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (counted, peak) = (Arc::clone(&alive), Arc::clone(&most));
    let task = ChildSpec::task("t", move || {
        let (blocked, counted, peak) = (Arc::clone(&blocked), Arc::clone(&counted), Arc::clone(&peak));
        async move {
            peak.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _ = blocked.lock().unwrap().recv();
            counted.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let task = task.shutdown(Shutdown::Timeout(Duration::from_millis(100))).on(workers.handle().clone());
    runtime.block_on(async {
        // Its sibling fails, so that one_for_all wants to stop it and to start another.
        let journal = Journal::default();
        let inner = Supervisor::one_for_all().id("inner").intensity(9, Duration::from_secs(60));
        let inner = inner.children([worker("a", &journal), task]);
        let root = Supervisor::one_for_one().intensity(9, Duration::from_secs(60)).child(inner.spec("inner"));
        let mut events = root.events(64);
        let root = root.start().await.unwrap();
        let inner = kohort_supervisor::SupervisorRef::of(&kit::cell(&root, "inner").await).await.unwrap();
        order(&inner, "a", Order::Fail).await;
        let reason = root.ended().await;
        assert!(matches!(reason.find(), Some(SupervisorExit::Unkillable { child, .. }) if *child == "inner"));
        let told = std::iter::from_fn(|| events.try_next()).collect::<Vec<_>>();
        let restarted = |event: &SupervisorEvent| matches!(event, SupervisorEvent::ChildRestarted { .. });
        assert!(!told.iter().any(restarted), "the root does not restart over it: {told:?}");
    });
    assert_eq!(most.load(Ordering::SeqCst), 1);
    drop(release);
}

#[test]
fn shutdown_within_ends_five_seconds_after_its_deadline_when_a_child_blocks_three_levels_below() {
    let (runtime, workers) = runtimes();
    let (release, blocked) = mpsc::channel();
    let handle = workers.handle().clone();
    runtime.block_on(async {
        let journal = Journal::default();
        let leaf = Supervisor::one_for_one().child(worker("b", &journal).on(handle)).spec("leaf");
        let middle = Supervisor::one_for_one().child(leaf).spec("middle");
        let root = Supervisor::one_for_one().children([middle, worker("z", &journal)]).start().await.unwrap();
        let middle = kohort_supervisor::SupervisorRef::of(&kit::cell(&root, "middle").await).await.unwrap();
        let leaf = kohort_supervisor::SupervisorRef::of(&kit::cell(&middle, "leaf").await).await.unwrap();
        let (tell, blocking) = tokio::sync::oneshot::channel();
        order(&leaf, "b", Order::Block(blocked, tell)).await;
        blocking.await.unwrap();
        let snapshot = root.snapshot().await.unwrap();
        assert_eq!(snapshot.walk().len(), 5, "a blocked child does not keep the tree from answering");
        let began = Instant::now();
        let reason = root.shutdown_within(Duration::from_secs(1)).await;
        let took = began.elapsed();
        assert!((Duration::from_secs(6)..Duration::from_secs(8)).contains(&took), "{took:?}");
        assert!(matches!(reason.find(), Some(SupervisorExit::Unkillable { .. })), "{reason:?}");
        for supervisor in [middle, leaf] {
            assert!(matches!(&*supervisor.ended().await, ExitReason::Error(_)));
        }
    });
    drop(release);
}

#[test]
fn a_child_that_blocks_while_a_start_is_taken_back_is_told() {
    let (runtime, workers) = runtimes();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (tell, blocking) = tokio::sync::watch::channel(false);
    let stuck = ChildSpec::task("stuck", move || {
        let (blocked, tell) = (Arc::clone(&blocked), tell.clone());
        async move {
            tell.send_replace(true);
            let _ = blocked.lock().unwrap().recv();
        }
    });
    let stuck = stuck.shutdown(Shutdown::BrutalKill).on(workers.handle().clone());
    let failing = ChildSpec::new("failing", move |_| {
        let mut blocking = blocking.clone();
        async move {
            blocking.wait_for(|blocking| *blocking).await?;
            Err(ractor::ActorProcessingErr::from("no"))
        }
    });
    let error = runtime.block_on(Supervisor::one_for_one().children([stuck, failing]).start()).unwrap_err();
    assert!(matches!(error, StartError::Unkillable { child, .. } if child == "stuck"));
    drop(release);
}
