//! A scripted worker, a journal of what it did, and waiting for supervisor events.

use kohort_supervisor::{ChildId, ChildSpec, SupervisorEvent, SupervisorRef};
use kohort_telemetry::EventStream;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    pub(crate) fn write(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// The typed failure of the scripted worker.
#[derive(Debug, thiserror::Error)]
#[error("broken {0}")]
pub(crate) struct Broken(pub &'static str);

pub(crate) enum Order {
    Fail,
    Panic,
    /// Awaits forever: only a kill gets in.
    Hang(tokio::sync::oneshot::Sender<()>),
    /// Blocks the thread until the sender is gone: nothing gets in.
    #[allow(dead_code, reason = "of tests/blocking.rs")]
    Block(std::sync::mpsc::Receiver<()>, tokio::sync::oneshot::Sender<()>),
}

/// How a worker behaves.
#[derive(Clone, Default)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) journal: Journal,
    /// So many starts fail from now on.
    pub(crate) failing_starts: Arc<AtomicU32>,
    pub(crate) start_takes: Duration,
    pub(crate) stop_takes: Duration,
}

pub(crate) struct Worker(pub(crate) Script);

impl Actor for Worker {
    type Msg = Order;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Order>, _: ()) -> Result<(), ActorProcessingErr> {
        if !self.0.start_takes.is_zero() {
            tokio::time::sleep(self.0.start_takes).await;
        }
        let failing = &self.0.failing_starts;
        if failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            self.0.journal.write(format!("fail {}", self.0.name));
            return Err(Broken(self.0.name).into());
        }
        self.0.journal.write(format!("start {}", self.0.name));
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Order>, order: Order, _: &mut ()) -> Result<(), ActorProcessingErr> {
        match order {
            Order::Fail => Err(Broken(self.0.name).into()),
            Order::Panic => std::panic::panic_any("worker panic".to_owned()),
            Order::Hang(hanging) => {
                let _ = hanging.send(());
                std::future::pending().await
            }
            Order::Block(until, blocking) => {
                let _ = blocking.send(());
                let _ = until.recv();
                Ok(())
            }
        }
    }

    async fn post_stop(&self, _: ActorRef<Order>, _: &mut ()) -> Result<(), ActorProcessingErr> {
        if !self.0.stop_takes.is_zero() {
            self.0.journal.write(format!("stopping {}", self.0.name));
            tokio::time::sleep(self.0.stop_takes).await;
        }
        self.0.journal.write(format!("stop {}", self.0.name));
        Ok(())
    }
}

pub(crate) fn worker(name: &'static str, journal: &Journal) -> ChildSpec {
    scripted(Script { name, journal: journal.clone(), ..Script::default() })
}

pub(crate) fn scripted(script: Script) -> ChildSpec {
    ChildSpec::actor(script.name, move || (Worker(script.clone()), ()))
}

pub(crate) async fn cell(supervisor: &SupervisorRef, id: &str) -> ActorCell {
    let children = supervisor.which_children().await.unwrap();
    children.into_iter().find(|child| child.id == *id).and_then(|child| child.cell).expect("it runs")
}

pub(crate) async fn order(supervisor: &SupervisorRef, id: &str, order: Order) {
    cell(supervisor, id).await.send_message(order).map_err(|_| "not sent").unwrap();
}

/// Makes it await forever, and waits until it does.
pub(crate) async fn hang(supervisor: &SupervisorRef, id: &str) {
    let (tell, hanging) = tokio::sync::oneshot::channel();
    order(supervisor, id, Order::Hang(tell)).await;
    hanging.await.unwrap();
}

pub(crate) async fn restarted(events: &mut EventStream<SupervisorEvent>, id: &str) -> u64 {
    loop {
        match events.next().await.expect("the supervisor runs") {
            SupervisorEvent::ChildRestarted { child, incarnation, .. } if child == *id => return incarnation,
            _ => {}
        }
    }
}

pub(crate) async fn exited(
    events: &mut EventStream<SupervisorEvent>,
    id: &str,
) -> kohort_supervisor::ExitReason {
    loop {
        match events.next().await.expect("the supervisor runs") {
            SupervisorEvent::ChildExited { child, reason, .. } if child == *id => return reason,
            _ => {}
        }
    }
}

pub(crate) fn ids(children: &[kohort_supervisor::ChildInfo]) -> Vec<ChildId> {
    children.iter().map(|child| child.id.clone()).collect()
}
