//! Ordered start, its rollback, and what refuses to start at all.

use crate::kit::{Broken, Journal, Script, ids, scripted, worker};
use kohort_supervisor::{ChildId, ChildSpec, ChildStartError, ExitReason, StartError, Supervisor};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn children_start_in_order() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one()
        .children(["a", "b", "c"].map(|name| {
            let start_takes = Duration::from_secs(if name == "a" { 3 } else { 0 });
            scripted(Script { name, journal: journal.clone(), start_takes, ..Script::default() })
        }))
        .start()
        .await
        .unwrap();
    assert_eq!(journal.take(), ["start a", "start b", "start c"]);
    let children = root.which_children().await.unwrap();
    assert_eq!(ids(&children), ["a", "b", "c"].map(ChildId::from));
    let counts = root.count_children().await.unwrap();
    assert_eq!((counts.specs, counts.active, counts.workers, counts.supervisors), (3, 3, 3, 0));
    assert!(root.is_running());
    assert!(matches!(*root.shutdown().await, ExitReason::Shutdown));
    assert!(!root.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_stops_the_earlier_children_in_reverse_and_is_typed() {
    let journal = Journal::default();
    let failing = scripted(Script {
        name: "c",
        journal: journal.clone(),
        failing_starts: Arc::new(1.into()),
        ..Script::default()
    });
    let slow = Script {
        name: "b",
        journal: journal.clone(),
        stop_takes: Duration::from_secs(1),
        ..Script::default()
    };
    let error = Supervisor::one_for_one()
        .id("app")
        .children([worker("a", &journal), scripted(slow), failing, worker("d", &journal)])
        .start()
        .await
        .unwrap_err();
    assert_eq!(journal.take(), ["start a", "start b", "fail c", "stopping b", "stop b", "stop a"]);
    let StartError::Child { supervisor, child, cause } = &error else { panic!("{error:?}") };
    assert_eq!((supervisor.as_str(), child.as_str()), ("app", "c"));
    assert!(matches!(cause, ChildStartError::Failed(error) if error.downcast_ref::<Broken>().is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_start_has_a_timeout_and_a_panic_in_it_is_a_typed_error() {
    let journal = Journal::default();
    let began = Instant::now();
    let slow = Script { name: "b", start_takes: Duration::from_secs(60), ..Script::default() };
    let error = Supervisor::one_for_one()
        .children([worker("a", &journal), scripted(slow).start_timeout(Duration::from_secs(2))])
        .start()
        .await
        .unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert!(matches!(error, StartError::Child { cause: ChildStartError::TimedOut(_), .. }));
    assert_eq!(journal.take(), ["start a", "stop a"]);

    let panicking = ChildSpec::new("p", |_| async { panic!("no luck") });
    let error = Supervisor::one_for_one().child(panicking).start().await.unwrap_err();
    assert!(
        matches!(error, StartError::Child { cause: ChildStartError::Panicked(text), .. } if text == "no luck")
    );
}

#[tokio::test(start_paused = true)]
async fn a_description_that_makes_no_sense_starts_nothing() {
    let journal = Journal::default();
    let twice = Supervisor::one_for_one().children([worker("a", &journal), worker("a", &journal)]);
    assert!(matches!(twice.start().await.unwrap_err(), StartError::DuplicateChild { .. }));
    let nobody = Supervisor::one_for_one().child(worker("a", &journal).delegate_to("b", |_, _| {}));
    assert!(matches!(nobody.start().await.unwrap_err(), StartError::UnknownChild { .. }));
    let nobody = Supervisor::one_for_one().prepare("b", Duration::ZERO, |_, _| {});
    assert!(matches!(nobody.start().await.unwrap_err(), StartError::UnknownChild { .. }));
    assert!(journal.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_root_whose_caller_went_away_is_shut_down() {
    let journal = Journal::default();
    let script = Script {
        name: "a",
        journal: journal.clone(),
        start_takes: Duration::from_secs(1),
        ..Script::default()
    };
    let builder = Supervisor::one_for_one().child(scripted(script));
    let mut events = builder.events(8);
    assert!(tokio::time::timeout(Duration::from_millis(10), builder.start()).await.is_err());
    drop(builder);
    while events.next().await.is_some() {}
    assert_eq!(journal.take(), ["start a", "stop a"]);
}

#[tokio::test(start_paused = true)]
async fn two_trees_with_the_same_ids_live_side_by_side() {
    let journal = Journal::default();
    let builder = Supervisor::one_for_one().id("same").child(worker("a", &journal));
    let one = builder.start().await.unwrap();
    let other = builder.start().await.unwrap();
    assert_ne!(one.cell().get_id(), other.cell().get_id());
    one.shutdown().await;
    assert_eq!(other.which_children().await.unwrap().len(), 1);
    other.shutdown().await;
}
