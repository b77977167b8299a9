//! Significant children, dynamic supervisors, and what is refused before anything starts.

use crate::kit::{Journal, cell, exited, restarted, worker};
use kohort_supervisor::{
    AutoShutdown, Backoff, BadSpec, ChildSpec, DynamicSupervisor, ExitReason, Restart, StartError,
    Supervisor, SupervisorBuilder, SupervisorError, SupervisorRef,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn significant(auto: AutoShutdown, journal: &Journal) -> SupervisorBuilder {
    Supervisor::one_for_one().intensity(9, SECOND).auto_shutdown(auto).children([
        worker("a", journal),
        worker("b", journal).restart(Restart::Transient).significant(true),
        worker("c", journal).restart(Restart::Temporary).significant(true),
    ])
}

#[tokio::test(start_paused = true)]
async fn the_first_end_of_a_significant_child_ends_any_significant_in_order() {
    let journal = Journal::default();
    let root = significant(AutoShutdown::AnySignificant, &journal).start().await.unwrap();
    let mut events = root.events(64);
    cell(&root, "b").await.kill();
    assert_eq!(restarted(&mut events, "b").await, 2, "a restart is no end");
    root.terminate_child("c").await.unwrap();
    assert!(root.is_running(), "nor is terminate_child");
    journal.take();
    cell(&root, "b").await.stop(None);
    assert!(matches!(*root.ended().await, ExitReason::Shutdown));
    assert_eq!(journal.take(), ["stop b", "stop a"]);
}

#[tokio::test(start_paused = true)]
async fn the_last_end_of_a_significant_child_ends_all_significant() {
    let journal = Journal::default();
    let root = significant(AutoShutdown::AllSignificant, &journal).start().await.unwrap();
    let mut events = root.events(64);
    cell(&root, "c").await.kill();
    exited(&mut events, "c").await;
    assert_eq!(root.count_children().await.unwrap().active, 2);
    cell(&root, "b").await.stop(None);
    assert!(matches!(*root.ended().await, ExitReason::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn an_automatic_shutdown_is_no_failure_to_a_transient_parent_of_it() {
    let journal = Journal::default();
    let inner = significant(AutoShutdown::AnySignificant, &journal).spec("inner").restart(Restart::Transient);
    let root = Supervisor::one_for_one().intensity(0, SECOND).child(inner).start().await.unwrap();
    let mut events = root.events(64);
    let inner = SupervisorRef::of(&cell(&root, "inner").await).await.unwrap();
    cell(&inner, "b").await.stop(None);
    assert!(matches!(exited(&mut events, "inner").await, ExitReason::Shutdown));
    assert_eq!(root.count_children().await.unwrap().active, 0);
    assert!(root.is_running());
    root.shutdown().await;
}

fn refused(builder: &SupervisorBuilder) -> BadSpec {
    match builder.check().unwrap_err() {
        StartError::BadSpec { cause, .. } => cause,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn bad_combinations_are_refused_with_the_reason_and_start_nothing() {
    let journal = Journal::default();
    let any = || Supervisor::one_for_one().auto_shutdown(AutoShutdown::AnySignificant);
    let a = || worker("a", &journal);
    let child = || "a".into();
    let backoff = |initial, max| a().backoff(Backoff::new(initial, max));
    let bad = [
        (any().child(a().significant(true)), BadSpec::SignificantPermanent { child: child() }),
        (
            any().children([a().delegate_to("b", |_, _| {}).significant(true), worker("b", &journal)]),
            BadSpec::SignificantDelegated { child: child() },
        ),
        (
            Supervisor::one_for_one().child(a().restart(Restart::Temporary).significant(true)),
            BadSpec::SignificantNever { child: child() },
        ),
        (
            any().child(a().restart(Restart::Delegated { to: "b".into() })),
            BadSpec::DelegatedInSilence { child: child() },
        ),
        (any().child(a().delegate_to("a", |_, _| {})), BadSpec::DelegatedToItself { child: child() }),
        (any().child(backoff(Duration::ZERO, SECOND)), BadSpec::BadBackoff { child: child() }),
        (any().child(backoff(2 * SECOND, SECOND)), BadSpec::BadBackoff { child: child() }),
        (
            any().child(a().backoff(Backoff::new(SECOND, SECOND).jitter(1.5, 0))),
            BadSpec::BadBackoff { child: child() },
        ),
        (
            any().child(backoff(SECOND, SECOND).restart(Restart::Temporary)),
            BadSpec::BackoffUnused { child: child() },
        ),
        (any().child(a().start_timeout(Duration::ZERO)), BadSpec::NoTimeToStart { child: child() }),
        (any().intensity(3, Duration::ZERO), BadSpec::ZeroPeriod),
    ];
    for (builder, reason) in bad {
        assert_eq!(refused(&builder), reason);
        assert!(matches!(builder.start().await, Err(StartError::BadSpec { cause, .. }) if cause == reason));
    }
    assert!(journal.take().is_empty());

    let root = Supervisor::one_for_one().start().await.unwrap();
    let permanent = root.start_child(a().significant(true)).await;
    assert!(matches!(permanent, Err(SupervisorError::BadSpec(BadSpec::SignificantPermanent { .. }))));
    let never = root.start_child(a().restart(Restart::Transient).significant(true)).await;
    assert!(matches!(never, Err(SupervisorError::BadSpec(BadSpec::SignificantNever { .. }))));
    let nobody = root.start_child(a().delegate_to("b", |_, _| {})).await;
    assert!(matches!(nobody, Err(SupervisorError::BadSpec(BadSpec::UnknownDelegate { .. }))));
    assert_eq!(root.count_children().await.unwrap().specs, 0);
    root.shutdown().await;
}

fn pool(journal: &Journal) -> DynamicSupervisor<&'static str> {
    let journal = journal.clone();
    DynamicSupervisor::new(move |name| worker(name, &journal).restart(Restart::Transient))
        .id("pool")
        .intensity(9, SECOND)
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_supervisor_starts_children_by_argument_up_to_its_maximum() {
    let journal = Journal::default();
    let pool = pool(&journal).max_children(2).start().await.unwrap();
    let mut events = pool.events(64);
    let a = pool.start_child("a").await.unwrap();
    pool.start_child("b").await.unwrap();
    assert!(matches!(pool.start_child("c").await, Err(SupervisorError::MaxChildren(2))));
    assert!(matches!(pool.start_child("a").await, Err(SupervisorError::AlreadyStarted(_))));
    assert!(matches!(pool.restart_child("a").await, Err(SupervisorError::Dynamic)));
    assert!(matches!(pool.delete_child("a").await, Err(SupervisorError::Dynamic)));
    a.kill();
    assert_eq!(restarted(&mut events, "a").await, 2, "from the spec of its argument");
    assert!(matches!(pool.terminate_child(&a).await, Err(SupervisorError::NotFound(_))), "that one is gone");
    pool.terminate_child(cell(&pool, "a").await).await.unwrap();
    cell(&pool, "b").await.stop(None);
    exited(&mut events, "b").await;
    let counts = pool.count_children().await.unwrap();
    assert_eq!((counts.specs, counts.active), (0, 0), "nothing that is down is kept");
    pool.start_child("c").await.unwrap();
    pool.shutdown().await;
    let done = ["start a", "start b", "start a", "stop a", "stop b", "start c", "stop c"];
    assert_eq!(journal.take(), done);
}

#[tokio::test(start_paused = true)]
async fn the_children_of_a_dynamic_supervisor_stop_all_at_once() {
    let journal = Journal::default();
    let shared = journal.clone();
    let pool = DynamicSupervisor::new(move |name| {
        let journal = shared.clone();
        crate::kit::scripted(crate::kit::Script {
            name,
            journal,
            stop_takes: 2 * SECOND,
            ..Default::default()
        })
    });
    let root = Supervisor::one_for_one().child(pool.spec("pool")).start().await.unwrap();
    let running = SupervisorRef::of(&cell(&root, "pool").await).await.unwrap();
    let running = pool.bind(running);
    for name in ["a", "b", "c"] {
        running.start_child(name).await.unwrap();
    }
    let began = tokio::time::Instant::now();
    root.shutdown().await;
    assert_eq!(began.elapsed(), 2 * SECOND);
    assert_eq!(journal.take()[3..6], ["stopping a", "stopping b", "stopping c"]);
    assert!(matches!(running.start_child("d").await, Err(SupervisorError::Gone)));
}

#[tokio::test(start_paused = true)]
async fn the_intensity_of_a_dynamic_supervisor_counts_all_children_together() {
    let journal = Journal::default();
    let pool = pool(&journal).intensity(1, SECOND).start().await.unwrap();
    let (a, b) = (pool.start_child("a").await.unwrap(), pool.start_child("b").await.unwrap());
    a.kill();
    b.kill();
    assert!(matches!(&*pool.ended().await, ExitReason::Error(_)));
}

#[tokio::test(start_paused = true)]
async fn which_children_of_a_dynamic_supervisor_are_its_running_ones() {
    let pool = DynamicSupervisor::new(|n: u32| {
        ChildSpec::task(format!("task-{n}"), std::future::pending::<()>).restart(Restart::Temporary)
    });
    let pool = pool.start().await.unwrap();
    for n in 0..100 {
        pool.start_child(n).await.unwrap();
    }
    for n in (0..100).step_by(2) {
        pool.terminate_child(format!("task-{n}")).await.unwrap();
    }
    let children = pool.which_children().await.unwrap();
    assert_eq!(children.len(), 50);
    assert!(children.iter().zip(0..).all(|(child, at)| child.id == *format!("task-{}", 2 * at + 1)));
    pool.shutdown().await;
}
