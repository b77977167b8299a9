//! Children of every kind: plain futures, closures, and a supervisor below a foreign actor.

use crate::kit::{Broken, Journal, cell, exited, restarted, worker};
use kohort_supervisor::{ChildSpec, ExitReason, Restart, Supervisor, SupervisorExit, SupervisorRef};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorStatus, SupervisionEvent};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

const SECOND: Duration = Duration::from_secs(1);

async fn sole(
    child: ChildSpec,
) -> (SupervisorRef, kohort_telemetry::EventStream<kohort_supervisor::SupervisorEvent>) {
    let builder = Supervisor::one_for_one().intensity(9, SECOND).child(child);
    let events = builder.events(64);
    (builder.start().await.unwrap(), events)
}

#[tokio::test(start_paused = true)]
async fn how_a_task_ends_is_its_exit_reason() {
    let never = Restart::Temporary;
    let unit = ChildSpec::task("t", || async {}).restart(never.clone());
    let (_, mut events) = sole(unit).await;
    assert!(matches!(exited(&mut events, "t").await, ExitReason::Normal));
    let ok = ChildSpec::task("t", || async { Ok::<(), Broken>(()) }).restart(never.clone());
    let (_, mut events) = sole(ok).await;
    assert!(matches!(exited(&mut events, "t").await, ExitReason::Normal));
    let failing = ChildSpec::task("t", || async {
        tokio::time::sleep(SECOND).await;
        Err(Broken("t"))
    });
    let (_, mut events) = sole(failing.restart(never.clone())).await;
    assert_eq!(exited(&mut events, "t").await.find::<Broken>().unwrap().0, "t");
    let text = ChildSpec::task("t", || async { Err("no luck") }).restart(never.clone());
    let (_, mut events) = sole(text).await;
    let reason = exited(&mut events, "t").await;
    assert_eq!((reason.class(), reason.to_string().as_str()), ("error", "error: no luck"));
    let panicking = ChildSpec::task("t", || async { std::panic::panic_any("task panic".to_owned()) });
    let (_, mut events) = sole(panicking.restart(never)).await;
    assert!(matches!(exited(&mut events, "t").await, ExitReason::Panic(text) if text == "task panic"));
}

struct Gone(Arc<Notify>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_polled_when_it_is_woken_and_dropped_by_a_stop_and_by_a_kill() {
    let (gone, (asked, mut answers)) = (Arc::new(Notify::new()), mpsc::unbounded_channel());
    let (questions, starts) = (Arc::new(std::sync::Mutex::new(None)), Arc::new(AtomicU32::new(0)));
    let (guard, out, counted) = (Arc::clone(&gone), Arc::clone(&questions), Arc::clone(&starts));
    let (root, mut events) = sole(ChildSpec::task("echo", move || {
        let (ask, mut asks) = mpsc::unbounded_channel::<u32>();
        *out.lock().unwrap() = Some(ask);
        counted.fetch_add(1, Ordering::SeqCst);
        let (guard, asked) = (Gone(Arc::clone(&guard)), asked.clone());
        async move {
            let _guard = guard;
            while let Some(question) = asks.recv().await {
                tokio::time::sleep(SECOND).await;
                asked.send(question)?;
            }
            Ok::<(), mpsc::error::SendError<u32>>(())
        }
    }))
    .await;
    let ask = |question| questions.lock().unwrap().as_ref().unwrap().send(question).unwrap();
    for question in 0..100 {
        ask(question);
        assert_eq!(answers.recv().await, Some(question));
    }
    cell(&root, "echo").await.kill();
    gone.notified().await;
    assert_eq!(restarted(&mut events, "echo").await, 2);
    ask(7);
    assert_eq!(answers.recv().await, Some(7));
    root.terminate_child("echo").await.unwrap();
    assert!(matches!(exited(&mut events, "echo").await, ExitReason::Shutdown));
    gone.notified().await;
    assert_eq!(starts.load(Ordering::SeqCst), 2);
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_may_know_its_supervisor_and_incarnation() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let spec = ChildSpec::task_with("t", move |context| {
        let tell = tell.clone();
        async move { tell.send((context.id, context.incarnation)).map_err(|_| Broken("nobody listens")) }
    });
    let (root, _events) = sole(spec).await;
    for incarnation in 1..=3 {
        assert_eq!(told.recv().await.unwrap(), ("t".into(), incarnation));
    }
    root.shutdown().await;
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        std::panic::panic_any("dropped".to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_state_panics_when_dropped_does_not_take_its_supervisor_along() {
    let (root, mut events) = sole(ChildSpec::task("t", || async {
        let _bomb = PanicsWhenDropped;
        std::future::pending::<()>().await;
    }))
    .await;
    // Its first poll, so that the future holds the guard.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    cell(&root, "t").await.kill();
    assert_eq!(restarted(&mut events, "t").await, 2);
    assert!(root.is_running());
    root.cell().kill();
    root.ended().await;
}

/// A foreign actor that has a supervisor of ours as its child, and tells how it ended.
struct Foreign;

impl Actor for Foreign {
    type Msg = ();
    type State = mpsc::UnboundedSender<(ActorCell, String)>;
    type Arguments = Self::State;

    async fn pre_start(&self, _: ActorRef<()>, out: Self::State) -> Result<Self::State, ActorProcessingErr> {
        Ok(out)
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        out: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let told = match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                let reached = matches!(
                    error.downcast_ref(),
                    Some(SupervisorExit::ReachedMaxIntensity { cause, .. }) if cause.find::<Broken>().is_some()
                );
                (cell, format!("failed, typed: {reached}"))
            }
            SupervisionEvent::ActorTerminated(cell, _, reason) => (cell, reason.unwrap_or_default()),
            _ => return Ok(()),
        };
        out.send(told)?;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_is_a_child_of_a_foreign_actor() {
    let journal = Journal::default();
    let (tell, mut told) = mpsc::unbounded_channel();
    let (parent, handle) = Actor::spawn(None, Foreign, tell).await.unwrap();
    let builder = Supervisor::one_for_one()
        .intensity(0, SECOND)
        .children([worker("a", &journal), worker("b", &journal)]);

    let failing = builder.start_linked(parent.get_cell()).await.unwrap();
    crate::kit::order(&failing, "b", crate::kit::Order::Fail).await;
    assert_eq!(told.recv().await.unwrap(), (failing.cell().clone(), "failed, typed: true".to_owned()));

    let closed = builder.start_linked(parent.get_cell()).await.unwrap();
    closed.shutdown().await;
    assert_eq!(told.recv().await.unwrap(), (closed.cell().clone(), "shutdown".to_owned()));
    let expected = ["start a", "start b", "stop a", "start a", "start b", "stop b", "stop a"];
    assert_eq!(journal.take(), expected);

    let orphaned = builder.start_linked(parent.get_cell()).await.unwrap();
    let child = cell(&orphaned, "a").await;
    parent.stop(None);
    handle.await.unwrap();
    orphaned.ended().await;
    child.wait(None).await.unwrap();
    assert_eq!(child.get_status(), ActorStatus::Stopped, "nothing outlives its parent");
}
