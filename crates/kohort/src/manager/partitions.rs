//! The manager's arm into the partitions supervisor: starts, drains and releases workers. Orders are carried
//! out one after the other by a task of their own, because each waits for workers, and the manager never does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kohort_group::Input;
use kohort_group::membership::{Hook, StartPosition};
use kohort_protocol::TopicPartition;
use kohort_supervisor::{ChildSpec, SupervisorRef};
use ractor::{ActorCell, ActorRef};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{ManagerMessage, State};
use crate::error::TerminalReason;
use crate::status::{Run, Slot};
use crate::worker::{WorkerArguments, WorkerMessage};

/// At most a start, a drain and a release are under way at once, with room for a close behind a rebalance.
const ORDERS: usize = 16;

pub(super) enum Order {
    Start {
        workers: Vec<NewWorker>,
    },
    /// The worker's handler is aborted; its supervisor starts it again.
    Abort {
        partition: TopicPartition,
    },
    Drain {
        round: u64,
        partitions: Vec<TopicPartition>,
        within: Duration,
    },
    Release {
        round: u64,
        partitions: Vec<TopicPartition>,
        hook: Hook,
        within: Duration,
    },
}

pub(super) struct NewWorker {
    partition: TopicPartition,
    slot: Arc<Slot>,
    run: Arc<Run>,
    spec: ChildSpec,
}

/// Dropping it ends the task; the workers then end with their supervisor.
///
/// It takes orders from the first moment on, and carries them out once the supervisor is there: that one starts
/// on another runtime, and a quick coordinator may have assigned partitions before.
pub(super) struct Partitions {
    orders: mpsc::Sender<Order>,
    found: Option<oneshot::Sender<ActorCell>>,
    task: JoinHandle<()>,
}

impl Drop for Partitions {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Partitions {
    pub(super) fn new(manager: ActorRef<ManagerMessage>) -> Self {
        let (orders, mut given) = mpsc::channel(ORDERS);
        let (found, supervisor) = oneshot::channel();
        let task = tokio::spawn(async move {
            let Ok(supervisor) = supervisor.await else { return };
            let Some(supervisor) = SupervisorRef::of(&supervisor).await else { return };
            let mut arm = Arm { supervisor, manager, workers: BTreeMap::new() };
            while let Some(order) = given.recv().await {
                arm.carry_out(order).await;
            }
        });
        Self { orders, found: Some(found), task }
    }

    /// The supervisor runs.
    pub(super) fn found(&mut self, supervisor: ActorCell) {
        if let Some(found) = self.found.take() {
            // A task that is gone went with its manager.
            let _ = found.send(supervisor);
        }
    }

    pub(super) fn give(&self, order: Order) -> Result<(), TerminalReason> {
        // A task that ended with its supervisor is reported by that supervisor's exit.
        match self.orders.try_send(order) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(TerminalReason::Crashed { what: "the partitions take no orders any more".into() })
            }
        }
    }
}

impl State {
    pub(super) fn start_workers(
        &mut self,
        myself: &ActorRef<ManagerMessage>,
        generation: i32,
        starts: Vec<StartPosition>,
    ) -> Result<(), TerminalReason> {
        let mut workers = Vec::with_capacity(starts.len());
        for StartPosition { partition, committed } in starts {
            let (slot, run) = (Arc::new(Slot::new(committed)), Arc::new(Run::new(generation)));
            self.runs.insert(partition.clone(), run.clone());
            self.incarnation.slots().insert(partition.clone(), slot.clone());
            let arguments = WorkerArguments {
                partition: partition.clone(),
                run: run.clone(),
                slot: slot.clone(),
                incarnation: self.incarnation.clone(),
                manager: myself.clone(),
                table: self.table.clone(),
            };
            workers.push(NewWorker { partition, slot, run, spec: self.factory.spec(arguments) });
        }
        match &self.partitions {
            Some(partitions) => partitions.give(Order::Start { workers }),
            // The supervisor has not reported yet, which it does before anything is assigned, or is gone.
            None => Err(TerminalReason::Crashed {
                what: "there is no partitions supervisor to start workers".into(),
            }),
        }
    }
}

struct Arm {
    supervisor: SupervisorRef,
    manager: ActorRef<ManagerMessage>,
    workers: BTreeMap<TopicPartition, Arc<Slot>>,
}

impl Arm {
    async fn carry_out(&mut self, order: Order) {
        let over = match order {
            Order::Start { workers } => {
                for NewWorker { partition, slot, run, spec } in workers {
                    if run.is_released() {
                        continue;
                    }
                    self.workers.insert(partition.clone(), slot);
                    if let Err(error) = self.supervisor.start_child(spec).await {
                        let cause = super::chain(&error);
                        self.tell(Input::WorkersGaveUp { partition: Some(partition), cause });
                        break;
                    }
                }
                return;
            }
            Order::Abort { partition } => {
                let id = crate::worker::child_id(&partition);
                let children = self.supervisor.which_children().await.unwrap_or_default();
                if let Some(cell) =
                    children.into_iter().find(|child| child.id == id).and_then(|child| child.cell)
                {
                    cell.kill();
                }
                return;
            }
            Order::Drain { round, partitions, within } => {
                self.ask(&partitions, within, |done| WorkerMessage::Drain { done }).await;
                Input::Drained { round }
            }
            Order::Release { round, partitions, hook, within } => {
                let aborted = self.release(partitions, hook, within).await;
                Input::Released { round, aborted }
            }
        };
        self.tell(over);
    }

    fn tell(&self, input: Input) {
        // A manager that is gone takes the workers with it.
        let _ = self.manager.cast(ManagerMessage::Input(input));
    }

    /// Sends a message to these workers and waits until each has dropped its `done`, by having worked on it or
    /// by having ended. False if time ran out first.
    async fn ask(
        &self,
        partitions: &[TopicPartition],
        within: Duration,
        message: impl Fn(mpsc::Sender<()>) -> WorkerMessage,
    ) -> bool {
        let ids: BTreeSet<_> = partitions.iter().map(crate::worker::child_id).collect();
        let deadline = Instant::now() + within;
        let (done, mut all_done) = mpsc::channel(1);
        let asked = async {
            for child in self.supervisor.which_children().await.unwrap_or_default() {
                if let Some(cell) = child.cell.filter(|_| ids.contains(&child.id)) {
                    let _ = cell.send_message(message(done.clone()));
                }
            }
            drop(done);
            all_done.recv().await;
        };
        tokio::time::timeout_at(deadline, asked).await.is_ok()
    }

    /// Workers run their hook and end; those that do not in time are killed. Nothing of them is alive after.
    async fn release(
        &mut self,
        partitions: Vec<TopicPartition>,
        hook: Hook,
        within: Duration,
    ) -> Vec<TopicPartition> {
        self.ask(&partitions, within, |done| WorkerMessage::Release { hook, done }).await;
        let mut aborted = Vec::new();
        for partition in partitions {
            let slot = self.workers.remove(&partition);
            if slot.is_some_and(|slot| slot.is_handling()) {
                aborted.push(partition.clone());
            }
            let id = crate::worker::child_id(&partition);
            // Refused only for a worker that is gone already, or cannot be killed, which its supervisor reports.
            let _ = self.supervisor.terminate_child(&id).await;
            let _ = self.supervisor.delete_child(&id).await;
        }
        aborted
    }
}
