//! Ordered shutdown: reverse order, timeouts, kill, the prepare step, the shared deadline.

use crate::kit::{Journal, Order, Script, cell, exited, hang, order, scripted, worker};
use kohort_supervisor::{
    ChildStatus, ExitReason, PrepareDone, Shutdown, Supervisor, SupervisorError, SupervisorRef,
};
use ractor::{ActorCell, ActorStatus};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn slow(name: &'static str, journal: &Journal, stop_takes: Duration) -> Script {
    Script { name, journal: journal.clone(), stop_takes, ..Script::default() }
}

#[tokio::test(start_paused = true)]
async fn children_stop_in_reverse_each_after_the_post_stop_of_the_next() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one()
        .children(["a", "b", "c"].map(|name| scripted(slow(name, &journal, 2 * SECOND))))
        .start()
        .await
        .unwrap();
    journal.take();
    let began = Instant::now();
    assert!(matches!(*root.shutdown().await, ExitReason::Shutdown));
    assert_eq!(began.elapsed(), 6 * SECOND);
    assert_eq!(journal.take(), ["stopping c", "stop c", "stopping b", "stop b", "stopping a", "stop a"]);
    assert!(matches!(*root.ended().await, ExitReason::Shutdown), "also after the end");
    assert!(matches!(root.which_children().await, Err(SupervisorError::Gone)));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_ignores_its_stop_is_killed_at_its_timeout() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one()
        .children([worker("a", &journal), worker("b", &journal).shutdown(Shutdown::Timeout(3 * SECOND))])
        .start()
        .await
        .unwrap();
    let mut events = root.events(16);
    hang(&root, "b").await;
    let began = Instant::now();
    root.shutdown().await;
    assert_eq!(began.elapsed(), 3 * SECOND);
    assert!(matches!(exited(&mut events, "b").await, ExitReason::Killed));
    assert!(matches!(exited(&mut events, "a").await, ExitReason::Shutdown));
    assert_eq!(journal.take(), ["start a", "start b", "stop a"]);
}

#[tokio::test(start_paused = true)]
async fn brutal_kill_runs_no_post_stop() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one()
        .child(worker("a", &journal).shutdown(Shutdown::BrutalKill))
        .start()
        .await
        .unwrap();
    root.shutdown().await;
    assert_eq!(journal.take(), ["start a"]);
}

#[tokio::test(start_paused = true)]
async fn which_children_is_answered_during_a_long_drain() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one()
        .children([worker("a", &journal), scripted(slow("b", &journal, 4 * SECOND))])
        .start()
        .await
        .unwrap();
    root.request_shutdown(None);
    let began = Instant::now();
    let children = root.which_children().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    let status: Vec<_> = children.iter().map(|child| child.status).collect();
    assert_eq!(status, [ChildStatus::Running, ChildStatus::Stopping]);
    assert!(matches!(root.restart_child("b").await, Err(SupervisorError::ShuttingDown)));
    root.ended().await;
    assert_eq!(began.elapsed(), 4 * SECOND);
}

async fn with_prepare(journal: &Journal) -> (SupervisorRef, mpsc::UnboundedReceiver<(Instant, PrepareDone)>) {
    let (tell, asked) = mpsc::unbounded_channel();
    let root = Supervisor::one_for_all()
        .children([worker("a", journal), worker("b", journal), worker("c", journal)])
        .prepare("b", 10 * SECOND, move |_, request| {
            let _ = tell.send((request.deadline, request.done));
        })
        .start()
        .await
        .unwrap();
    journal.take();
    (root, asked)
}

#[tokio::test(start_paused = true)]
async fn a_prepare_step_opens_the_shutdown_while_everything_runs() {
    let journal = Journal::default();
    let (root, mut asked) = with_prepare(&journal).await;
    root.request_shutdown(None);
    let (deadline, done) = asked.recv().await.unwrap();
    assert_eq!(deadline, Instant::now() + 10 * SECOND);
    let began = Instant::now();
    let children = root.which_children().await.unwrap();
    assert!(children.iter().all(|child| child.status == ChildStatus::Running));
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(journal.take().is_empty(), "nothing is stopped yet");
    tokio::time::sleep(SECOND).await;
    done.done();
    root.ended().await;
    assert_eq!(began.elapsed(), SECOND);
    assert_eq!(journal.take(), ["stop c", "stop b", "stop a"]);
}

#[tokio::test(start_paused = true)]
async fn a_prepare_step_is_bounded_by_its_limit_and_by_the_shared_deadline() {
    for (limit, takes) in [(None, 10), (Some(4), 4), (Some(60), 10)] {
        let journal = Journal::default();
        let (root, mut asked) = with_prepare(&journal).await;
        let began = Instant::now();
        root.request_shutdown(limit.map(Duration::from_secs));
        let (deadline, never_done) = asked.recv().await.unwrap();
        assert_eq!(deadline, began + Duration::from_secs(takes));
        root.ended().await;
        assert_eq!(began.elapsed(), Duration::from_secs(takes));
        drop(never_done);
    }
}

#[tokio::test(start_paused = true)]
async fn a_prepare_step_ends_with_its_child_and_nothing_is_restarted_meanwhile() {
    let journal = Journal::default();
    let (root, mut asked) = with_prepare(&journal).await;
    root.request_shutdown(None);
    let (_, done) = asked.recv().await.unwrap();
    let mut events = root.events(16);
    order(&root, "a", Order::Fail).await;
    exited(&mut events, "a").await;
    let began = Instant::now();
    order(&root, "b", Order::Fail).await;
    root.ended().await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(journal.take(), ["stop c"]);
    drop(done);
}

#[tokio::test(start_paused = true)]
async fn shutdown_within_ends_three_levels_with_a_stuck_worker_at_the_deadline() {
    let journal = Journal::default();
    let leaf = Supervisor::one_for_one()
        .id("leaf")
        .children([worker("x", &journal), worker("stuck", &journal).shutdown(Shutdown::Infinity)]);
    let middle = Supervisor::one_for_one().id("middle").children([worker("y", &journal), leaf.spec("leaf")]);
    let root = Supervisor::one_for_one()
        .children([worker("z", &journal), middle.spec("middle")])
        .start()
        .await
        .unwrap();
    let middle = SupervisorRef::of(&cell(&root, "middle").await).await.unwrap();
    let leaf = SupervisorRef::of(&cell(&middle, "leaf").await).await.unwrap();
    let stuck = cell(&leaf, "stuck").await;
    let mut all: Vec<ActorCell> =
        vec![root.cell().clone(), middle.cell().clone(), leaf.cell().clone(), stuck.clone()];
    all.extend([cell(&root, "z").await, cell(&middle, "y").await, cell(&leaf, "x").await]);
    hang(&leaf, "stuck").await;
    let began = Instant::now();
    let mut events = leaf.events(16);
    assert!(matches!(*root.shutdown_within(7 * SECOND).await, ExitReason::Shutdown));
    assert_eq!(began.elapsed(), 7 * SECOND);
    assert!(all.iter().all(|cell| cell.get_status() == ActorStatus::Stopped));
    assert!(matches!(exited(&mut events, "stuck").await, ExitReason::Killed));
    assert!(
        matches!(*leaf.ended().await, ExitReason::Shutdown),
        "it ended in order, not by a kill from above"
    );
    assert!(matches!(*middle.ended().await, ExitReason::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_stop_still_stops_the_children_in_order() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one()
        .children(["a", "b"].map(|name| worker(name, &journal)))
        .start()
        .await
        .unwrap();
    root.cell().stop(None);
    assert!(matches!(*root.ended().await, ExitReason::Shutdown));
    assert_eq!(journal.take(), ["start a", "start b", "stop b", "stop a"]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_killed_root_is_reported() {
    let journal = Journal::default();
    let root = Supervisor::one_for_one().child(worker("a", &journal)).start().await.unwrap();
    let child = cell(&root, "a").await;
    let (one, other) = (root.clone(), root.clone());
    root.cell().kill();
    let (one, other) = tokio::join!(one.ended(), other.ended());
    assert!(matches!((&*one, &*other), (ExitReason::Killed, ExitReason::Killed)));
    child.wait(None).await.unwrap();
    assert_eq!(journal.take(), ["start a"]);
}
