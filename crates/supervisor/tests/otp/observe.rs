//! What a supervisor tells: every event of a life, and metrics whose labels stay few.

use crate::kit::{Journal, Order, cell, order, restarted, worker};
use kohort_supervisor::{Backoff, Restart, Shutdown, Supervisor, SupervisorEvent};
use kohort_telemetry::Event;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

#[derive(Default)]
struct Series(Mutex<BTreeSet<String>>);

impl Recorder for Series {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        self.0.lock().unwrap().insert(format!("{}{{{}}}", key.name(), labels.join(",")));
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// One life with everything in it: restarts, a delay, a failed start, an unknown actor, too many restarts.
async fn life(name: &'static str) -> Vec<SupervisorEvent> {
    let journal = Journal::default();
    let builder = Supervisor::one_for_one()
        .id(format!("supervisor of {name}"))
        .intensity(2, Duration::from_secs(60))
        .child(worker(name, &journal).backoff(Backoff::new(Duration::from_secs(1), Duration::from_secs(1))))
        .child(worker("temporary", &journal).restart(Restart::Temporary).shutdown(Shutdown::BrutalKill));
    let mut events = builder.events(256);
    let mut restarts = builder.events(256);
    let root = builder.start().await.unwrap();
    order(&root, name, Order::Fail).await;
    restarted(&mut restarts, name).await;
    let failing = crate::kit::Script {
        name: "failing",
        failing_starts: std::sync::Arc::new(1.into()),
        ..Default::default()
    };
    let _ = root.start_child(crate::kit::scripted(failing)).await;
    cell(&root, name).await.kill();
    restarted(&mut restarts, name).await;
    order(&root, name, Order::Panic).await;
    root.ended().await;
    std::iter::from_fn(|| events.try_next()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_life_are_typed_and_in_order() {
    let names: Vec<&str> =
        life("a").await.iter().map(|event| event.name().rsplit('.').next().unwrap()).collect();
    let restart = ["child_exited", "restart_delayed", "child_started", "child_restarted"];
    let mut expected = vec!["child_started", "child_started"];
    expected.extend(restart);
    expected.push("child_start_failed");
    expected.extend(restart);
    expected.extend(["child_exited", "intensity_reached", "child_exited", "shutdown"]);
    assert_eq!(names, expected);
}

#[test]
fn metrics_have_few_series_however_many_children_there_are() {
    let recorder = Series::default();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.unwrap();
        for name in ["one", "two", "three", "four"] {
            runtime.block_on(life(name));
        }
    });
    let series = recorder.0.into_inner().unwrap();
    let expected = [
        "kohort_supervisor_child_exited_total{kind=worker,class=error}",
        "kohort_supervisor_child_exited_total{kind=worker,class=killed}",
        "kohort_supervisor_child_exited_total{kind=worker,class=panic}",
        "kohort_supervisor_child_restarted_total{kind=worker}",
        "kohort_supervisor_child_start_failed_total{kind=worker}",
        "kohort_supervisor_child_started_total{kind=worker}",
        "kohort_supervisor_intensity_reached_total{class=panic}",
        "kohort_supervisor_restart_delayed_total{kind=worker}",
        "kohort_supervisor_shutdown_total{class=error}",
    ];
    assert_eq!(series, expected.map(str::to_owned).into());
}

#[test]
fn every_event_is_described() {
    let described: BTreeSet<_> = SupervisorEvent::DESCRIPTIONS.iter().map(|known| known.event).collect();
    assert_eq!(described.len(), SupervisorEvent::DESCRIPTIONS.len());
    for event in [
        "child_started",
        "child_exited",
        "child_restarted",
        "restart_delayed",
        "intensity_reached",
        "unkillable",
        "shutdown",
    ] {
        assert!(described.contains(&*format!("kohort.supervisor.{event}")), "{event}");
    }
}
