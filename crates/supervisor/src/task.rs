//! A future as an actor. It is polled in the actor's own task, one message per wake-up, so that a stop, a kill
//! and supervision find it as they find any actor: between two polls. Nothing of it outlives the actor.
//!
//! | message | effect |
//! |---|---|
//! | `Woken` | the future is polled; when it is over, so is the actor |

use crate::reason::plain_text;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// What the future of a task child may answer: `()`, a `Result` whose error becomes the exit, or nothing ever.
pub trait TaskOutput {
    /// The exit that it stands for.
    fn exit(self) -> Result<(), Box<dyn Error + Send + Sync>>;
}

impl TaskOutput for () {
    fn exit(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> TaskOutput for Result<(), E> {
    fn exit(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.map_err(Into::into)
    }
}

mod never {
    /// Names the type `!`, which has no name of its own on stable.
    pub trait Answer {
        type Type;
    }

    impl<T> Answer for fn() -> T {
        type Type = T;
    }
}

impl TaskOutput for <fn() -> ! as never::Answer>::Type {
    fn exit(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self
    }
}

/// A task answered an error of plain text, which ractor would not tell from a panic.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Answered(String);

struct Task;

struct Woken;

struct Alarm {
    task: ActorRef<Woken>,
    /// Its message is in the mailbox.
    rung: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // A task that is gone needs no waking.
            let _ = self.task.cast(Woken);
        }
    }
}

type Erased = Pin<Box<dyn Future<Output = Result<(), ActorProcessingErr>> + Send>>;

struct State {
    // Taken out when it is over or the actor stops.
    future: Option<Erased>,
    alarm: Arc<Alarm>,
    waker: Waker,
}

impl Actor for Task {
    type Msg = Woken;
    type State = State;
    type Arguments = Erased;

    async fn pre_start(&self, task: ActorRef<Woken>, future: Erased) -> Result<State, ActorProcessingErr> {
        let alarm = Arc::new(Alarm { task, rung: AtomicBool::new(false) });
        alarm.wake_by_ref();
        let waker = Waker::from(Arc::clone(&alarm));
        Ok(State { future: Some(future), alarm, waker })
    }

    async fn handle(
        &self,
        myself: ActorRef<Woken>,
        _: Woken,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.alarm.rung.store(false, Ordering::Release);
        let Some(future) = &mut state.future else { return Ok(()) };
        match future.as_mut().poll(&mut Context::from_waker(&state.waker)) {
            Poll::Pending => Ok(()),
            Poll::Ready(exit) => {
                state.future = None;
                exit.inspect(|()| myself.stop(None))
            }
        }
    }

    async fn post_stop(&self, _: ActorRef<Woken>, state: &mut State) -> Result<(), ActorProcessingErr> {
        // Else it would travel in the supervision event and be dropped by the supervisor.
        state.future = None;
        Ok(())
    }
}

/// Starts the future under `parent`.
pub(crate) async fn start(
    future: impl Future<Output: TaskOutput> + Send + 'static,
    parent: ActorCell,
) -> Result<ActorCell, ActorProcessingErr> {
    let erased: Erased = Box::pin(async move {
        future.await.exit().map_err(|error| match plain_text(&error) {
            Some(text) => Answered(text).into(),
            None => error,
        })
    });
    let (actor, _) = Task::spawn_linked(None, Task, erased, parent).await?;
    Ok(actor.get_cell())
}
