//! A future as an actor: it ends with the actor, and the actor with it.

use std::future::Future;
use std::pin::Pin;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use thiserror::Error;
use tokio::task::AbortHandle;

/// A task that should run for ever ended.
#[derive(Debug, Clone, Error)]
#[error("a task ended: {0}")]
pub(super) struct TaskEnded(String);

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task;

struct State(AbortHandle);

impl Drop for State {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Ended(String);

impl Actor for Task {
    type Msg = Ended;
    type State = State;
    type Arguments = BoxFuture;

    async fn pre_start(
        &self,
        myself: ActorRef<Ended>,
        future: BoxFuture,
    ) -> Result<State, ActorProcessingErr> {
        let task = tokio::spawn(future);
        let abort = task.abort_handle();
        tokio::spawn(async move {
            let end = match task.await {
                Ok(()) => "it returned".into(),
                Err(error) if error.is_panic() => {
                    format!("it panicked: {}", crate::manager::panic_text(error))
                }
                Err(_) => return,
            };
            // An actor that is gone has ended its task itself.
            let _ = myself.cast(Ended(end));
        });
        Ok(State(abort))
    }

    async fn handle(
        &self,
        _: ActorRef<Ended>,
        Ended(end): Ended,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        Err(TaskEnded(end).into())
    }

    async fn post_stop(&self, _: ActorRef<Ended>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.0.abort();
        Ok(())
    }
}

/// Starts the future under `parent`. It is meant to run until it is stopped: its return is a failure, too.
pub(super) async fn start(
    future: impl Future<Output = ()> + Send + 'static,
    parent: ActorCell,
) -> Result<ActorCell, ActorProcessingErr> {
    let (actor, _) = Task::spawn_linked(None, Task, Box::pin(future), parent).await?;
    Ok(actor.get_cell())
}
