//! What this crate relies on in ractor, one fact a test: a ractor release that changes one fails here first.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorStatus, SpawnErr, SupervisionEvent};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

#[derive(Debug, thiserror::Error)]
#[error("typed")]
struct Typed;

enum Order {
    Err,
    Panic,
    Hang(oneshot::Sender<()>),
    Nothing,
}

/// Dropped with the actor's state.
struct Guard(Arc<AtomicBool>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[derive(Clone, Default)]
struct Child {
    stopped: Arc<AtomicBool>,
    dropped: Arc<AtomicBool>,
    stop_takes: Duration,
    fails: bool,
}

impl Actor for Child {
    type Msg = Order;
    type State = Guard;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Order>, _: ()) -> Result<Guard, ActorProcessingErr> {
        if self.fails { Err(Typed.into()) } else { Ok(Guard(Arc::clone(&self.dropped))) }
    }

    async fn handle(
        &self,
        _: ActorRef<Order>,
        order: Order,
        _: &mut Guard,
    ) -> Result<(), ActorProcessingErr> {
        match order {
            Order::Err => Err(Typed.into()),
            Order::Panic => std::panic::panic_any("text".to_owned()),
            Order::Hang(hanging) => {
                let _ = hanging.send(());
                std::future::pending().await
            }
            Order::Nothing => Ok(()),
        }
    }

    async fn post_stop(&self, _: ActorRef<Order>, _: &mut Guard) -> Result<(), ActorProcessingErr> {
        tokio::time::sleep(self.stop_takes).await;
        self.stopped.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// Hands every supervision event out.
struct Parent;

impl Actor for Parent {
    type Msg = ();
    type State = mpsc::UnboundedSender<SupervisionEvent>;
    type Arguments = mpsc::UnboundedSender<SupervisionEvent>;

    async fn pre_start(&self, _: ActorRef<()>, out: Self::State) -> Result<Self::State, ActorProcessingErr> {
        Ok(out)
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        out: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let _ = out.send(event);
        Ok(())
    }
}

struct Family {
    parent: ActorRef<()>,
    events: mpsc::UnboundedReceiver<SupervisionEvent>,
}

impl Family {
    async fn new() -> Family {
        let (out, events) = mpsc::unbounded_channel();
        let (parent, _) = Parent::spawn(None, Parent, out).await.unwrap();
        Family { parent, events }
    }

    async fn child(&self, child: &Child) -> (ActorRef<Order>, tokio::task::JoinHandle<()>) {
        Child::spawn_linked(None, child.clone(), (), self.parent.get_cell()).await.unwrap()
    }

    async fn exit(&mut self) -> SupervisionEvent {
        loop {
            match self.events.recv().await.unwrap() {
                SupervisionEvent::ActorStarted(_) => {}
                other => return other,
            }
        }
    }
}

async fn hang(child: &ActorRef<Order>) {
    let (tell, hanging) = oneshot::channel();
    child.cast(Order::Hang(tell)).unwrap();
    hanging.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kill_arrives_as_terminated_killed_and_skips_post_stop() {
    let mut family = Family::new().await;
    for hanging in [false, true] {
        let script = Child::default();
        let (child, _) = family.child(&script).await;
        if hanging {
            hang(&child).await;
        }
        child.kill();
        assert!(
            matches!(family.exit().await, SupervisionEvent::ActorTerminated(_, _, Some(why)) if why == "killed")
        );
        assert!(!script.stopped.load(Ordering::SeqCst));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_arrives_as_terminated_without_state() {
    let mut family = Family::new().await;
    let (child, task) = family.child(&Child::default()).await;
    hang(&child).await;
    task.abort();
    let event = family.exit().await;
    assert!(
        matches!(event, SupervisionEvent::ActorTerminated(_, None, Some(why)) if why == "actor_task_cancelled")
    );
}

#[tokio::test(start_paused = true)]
async fn an_err_keeps_its_type_a_panic_is_text_and_both_skip_post_stop() {
    let mut family = Family::new().await;
    let script = Child::default();
    let (child, _) = family.child(&script).await;
    child.cast(Order::Err).unwrap();
    let SupervisionEvent::ActorFailed(_, error) = family.exit().await else { panic!("not failed") };
    assert!(error.downcast_ref::<Typed>().is_some());
    let (child, _) = family.child(&script).await;
    child.cast(Order::Panic).unwrap();
    let SupervisionEvent::ActorFailed(_, error) = family.exit().await else { panic!("not failed") };
    assert_eq!(error.to_string(), "text");
    assert_eq!(format!("{error:?}"), "\"text\"", "std's string error, told apart by its Debug");
    assert!(!script.stopped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_stop_runs_post_stop_and_the_state_travels_in_the_event() {
    let mut family = Family::new().await;
    let script = Child::default();
    let (child, _) = family.child(&script).await;
    child.stop(None);
    let event = family.exit().await;
    child.wait(None).await.unwrap();
    assert!(script.stopped.load(Ordering::SeqCst));
    assert!(!script.dropped.load(Ordering::SeqCst), "the guard lives in the event");
    assert!(matches!(&event, SupervisionEvent::ActorTerminated(_, Some(_), None)));
    drop(event);
    assert!(script.dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_dying_parent_kills_its_children_without_post_stop() {
    for kill in [true, false] {
        let family = Family::new().await;
        let script = Child::default();
        let (child, _) = family.child(&script).await;
        if kill {
            family.parent.kill()
        } else {
            family.parent.stop(None)
        }
        child.wait(None).await.unwrap();
        assert!(!script.stopped.load(Ordering::SeqCst));
    }
}

/// Spawns a child in `pre_start` and then fails, or is cancelled.
struct FailingParent(Child, Arc<Mutex<Option<ActorCell>>>, bool);

impl Actor for FailingParent {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<()>, _: ()) -> Result<(), ActorProcessingErr> {
        let (child, _) = Child::spawn_linked(None, self.0.clone(), (), myself.get_cell()).await?;
        *self.1.lock().unwrap() = Some(child.get_cell());
        if self.2 {
            std::future::pending::<()>().await;
        }
        Err(Typed.into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_or_cancelled_start_kills_children_already_started_without_post_stop() {
    for cancelled in [false, true] {
        let script = Child::default();
        let cell = Arc::new(Mutex::new(None));
        let parent = FailingParent(script.clone(), Arc::clone(&cell), cancelled);
        let spawn =
            tokio::time::timeout(Duration::from_secs(1), FailingParent::spawn(None, parent, ())).await;
        match spawn {
            Ok(Err(SpawnErr::StartupFailed(error))) => assert!(error.downcast_ref::<Typed>().is_some()),
            Err(_) => assert!(cancelled),
            Ok(_) => panic!("it started"),
        }
        let child = cell.lock().unwrap().take().unwrap();
        child.wait(None).await.unwrap();
        assert!(!script.stopped.load(Ordering::SeqCst));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_tells_its_spawner_and_not_its_supervisor() {
    let mut family = Family::new().await;
    let failing = Child { fails: true, ..Child::default() };
    let spawn = Child::spawn_linked(None, failing, (), family.parent.get_cell()).await;
    assert!(matches!(spawn, Err(SpawnErr::StartupFailed(_))));
    family.parent.stop(None);
    family.parent.wait(None).await.unwrap();
    assert!(family.events.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_still_starting_actor_is_queued_and_not_answered() {
    struct Slow;
    impl Actor for Slow {
        type Msg = oneshot::Sender<()>;
        type State = ();
        type Arguments = ();
        async fn pre_start(&self, myself: ActorRef<Self::Msg>, _: ()) -> Result<(), ActorProcessingErr> {
            let (tell, answer) = oneshot::channel();
            myself.cast(tell)?;
            let answer = tokio::time::timeout(Duration::from_secs(1), answer).await;
            assert!(answer.is_err(), "nobody answers during pre_start");
            Ok(())
        }
    }
    Slow::spawn(None, Slow, ()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_a_kill_gets_in_while_a_handler_awaits() {
    let mut family = Family::new().await;
    let (child, _) = family.child(&Child::default()).await;
    hang(&child).await;
    child.stop(None);
    assert!(child.wait(Some(Duration::from_secs(1))).await.is_err());
    child.kill();
    assert!(
        matches!(family.exit().await, SupervisionEvent::ActorTerminated(_, _, Some(why)) if why == "killed")
    );
}

#[tokio::test(start_paused = true)]
async fn messages_to_a_stopping_actor_are_refused() {
    let family = Family::new().await;
    let script = Child { stop_takes: Duration::from_secs(1), ..Child::default() };
    let (child, _) = family.child(&script).await;
    child.stop(None);
    while child.get_status() != ActorStatus::Stopping {
        tokio::task::yield_now().await;
    }
    assert!(child.cast(Order::Nothing).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_and_wait_returns_early_and_wait_does_not() {
    let family = Family::new().await;
    let script = Child { stop_takes: Duration::from_secs(1), ..Child::default() };
    let (child, _) = family.child(&script).await;
    child.stop(None);
    assert!(child.stop_and_wait(None, None).await.is_err());
    assert!(!script.stopped.load(Ordering::SeqCst), "it was still stopping");
    child.wait(None).await.unwrap();
    assert!(script.stopped.load(Ordering::SeqCst));
    child.wait(None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn supervision_events_come_before_messages_that_were_sent_earlier() {
    struct Ordered;
    impl Actor for Ordered {
        type Msg = &'static str;
        type State = mpsc::UnboundedSender<&'static str>;
        type Arguments = mpsc::UnboundedSender<&'static str>;
        async fn pre_start(
            &self,
            _: ActorRef<Self::Msg>,
            out: Self::State,
        ) -> Result<Self::State, ActorProcessingErr> {
            Ok(out)
        }
        async fn handle(
            &self,
            _: ActorRef<Self::Msg>,
            text: &'static str,
            out: &mut Self::State,
        ) -> Result<(), ActorProcessingErr> {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = out.send(text);
            Ok(())
        }
        async fn handle_supervisor_evt(
            &self,
            _: ActorRef<Self::Msg>,
            event: SupervisionEvent,
            out: &mut Self::State,
        ) -> Result<(), ActorProcessingErr> {
            if !matches!(event, SupervisionEvent::ActorStarted(_)) {
                let _ = out.send("exit");
            }
            Ok(())
        }
    }
    let (out, mut told) = mpsc::unbounded_channel();
    let (parent, _) = Ordered::spawn(None, Ordered, out).await.unwrap();
    let (child, _) = Child::spawn_linked(None, Child::default(), (), parent.get_cell()).await.unwrap();
    parent.cast("first").unwrap();
    parent.cast("second").unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    child.kill();
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(told.recv().await.unwrap());
    }
    assert_eq!(order, ["first", "exit", "second"]);
}

#[tokio::test(start_paused = true)]
async fn the_default_supervision_handler_stops_the_parent_without_the_cause() {
    struct Untouched;
    impl Actor for Untouched {
        type Msg = ();
        type State = ();
        type Arguments = ();
        async fn pre_start(&self, _: ActorRef<()>, _: ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
    }
    let mut family = Family::new().await;
    let (middle, _) = Untouched::spawn_linked(None, Untouched, (), family.parent.get_cell()).await.unwrap();
    let (child, _) = Child::spawn_linked(None, Child::default(), (), middle.get_cell()).await.unwrap();
    child.cast(Order::Err).unwrap();
    assert!(
        matches!(family.exit().await, SupervisionEvent::ActorTerminated(who, _, None) if who == middle.get_cell())
    );
}

#[test]
fn an_actor_spawned_on_another_runtime_is_supervised_across() {
    let here = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let there = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    here.block_on(async {
        let mut family = Family::new().await;
        let parent = family.parent.get_cell();
        let spawn = there.spawn(async move { Child::spawn_linked(None, Child::default(), (), parent).await });
        let (child, _) = spawn.await.unwrap().unwrap();
        child.cast(Order::Err).unwrap();
        assert!(
            matches!(family.exit().await, SupervisionEvent::ActorFailed(who, _) if who == child.get_cell())
        );
    });
    there.shutdown_timeout(Duration::from_secs(1));
}
