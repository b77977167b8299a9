//! Starting children as tasks of their own, and the two places where a supervisor may wait for its children
//! because nothing can reach it anyway: its own start, and a stop that did not come as a message.

use super::Message;
use crate::builder::SupervisorBuilder;
use crate::error::{ChildStartError, StartError};
use crate::event::SupervisorEvent;
use crate::handle::SupervisorRef;
use crate::id::ChildId;
use crate::plan::KILL_GRACE;
use crate::reason::SHUTDOWN;
use crate::spec::{ChildKind, ChildSpec, Shutdown, Start, StartContext};
use ractor::ActorCell;
use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

/// A task that ends with its owner.
pub(super) struct Owned(AbortHandle);

impl Owned {
    pub(super) fn new<T>(task: &JoinHandle<T>) -> Owned {
        Owned(task.abort_handle())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn panicked(payload: Box<dyn Any + Send>) -> ChildStartError {
    let text = match (payload.downcast_ref::<String>(), payload.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) => (*text).to_owned(),
        (None, None) => "a panic without text".to_owned(),
    };
    ChildStartError::Panicked(text)
}

/// Runs a start within its limit; one that takes longer is dropped at its next await. A panic is an answer.
async fn outcome(
    start: Start,
    limit: Option<Duration>,
    context: StartContext,
) -> Result<ActorCell, ChildStartError> {
    let mut start = match catch_unwind(AssertUnwindSafe(|| start(context))) {
        Ok(start) => start,
        Err(payload) => return Err(panicked(payload)),
    };
    let mut caught = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| start.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    });
    // Most starts wait for nothing, and then there is no need for a timer.
    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut caught).poll(cx))).await;
    let ended = match (first, limit) {
        (Poll::Ready(ended), _) => ended,
        (Poll::Pending, None) => caught.await,
        (Poll::Pending, Some(limit)) => match Box::pin(tokio::time::timeout(limit, caught)).await {
            Ok(ended) => ended,
            Err(_) => return Err(ChildStartError::TimedOut(limit)),
        },
    };
    match ended {
        Ok(Ok(cell)) => Ok(cell),
        Ok(Err(error)) => Err(ChildStartError::Failed(Arc::from(error))),
        Err(payload) => Err(panicked(payload)),
    }
}

/// Tells an outcome once; that the start was cancelled, when it is dropped before.
struct Teller<F: FnOnce(Result<ActorCell, ChildStartError>)>(Option<F>);

impl<F: FnOnce(Result<ActorCell, ChildStartError>)> Teller<F> {
    fn tell(&mut self, outcome: Result<ActorCell, ChildStartError>) {
        if let Some(tell) = self.0.take() {
            tell(outcome);
        }
    }
}

impl<F: FnOnce(Result<ActorCell, ChildStartError>)> Drop for Teller<F> {
    fn drop(&mut self) {
        self.tell(Err(ChildStartError::Cancelled));
    }
}

/// A start under way. Dropping it cancels the start.
pub(super) struct Starting(Owned);

impl Starting {
    /// Starts a child in a task of its own; `tell` is called once with the outcome, when the start is really
    /// over, also when it was cancelled.
    pub(super) fn spawn(
        spec: &ChildSpec,
        context: StartContext,
        tell: impl FnOnce(Result<ActorCell, ChildStartError>) + Send + 'static,
    ) -> Starting {
        let (start, limit) = (Arc::clone(&spec.start), spec.effective_start_timeout());
        let mut teller = Teller(Some(tell));
        let task = async move {
            // Declared after the teller, so that the start is gone before its end is told.
            let outcome = outcome(start, limit, context).await;
            teller.tell(outcome);
        };
        Starting(Owned::new(&match &spec.runtime {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        }))
    }

    pub(super) fn abort(&self) {
        self.0.0.abort();
    }
}

/// A start that its caller waits for: a task of its own only where it belongs to another runtime.
async fn awaited(spec: &ChildSpec, context: StartContext) -> Result<ActorCell, ChildStartError> {
    if spec.runtime.is_none() {
        // Thousands of starts that wait for nothing leave room for others.
        tokio::task::consume_budget().await;
        return outcome(Arc::clone(&spec.start), spec.effective_start_timeout(), context).await;
    }
    let (tell, told) = oneshot::channel();
    let _starting = Starting::spawn(spec, context, move |outcome| {
        if let Err(Ok(orphan)) = tell.send(outcome) {
            orphan.kill();
        }
    });
    told.await.unwrap_or(Err(ChildStartError::Cancelled))
}

/// Starts every child of a new supervisor in order; stops those that run again when one does not start.
pub(super) async fn in_order(
    builder: &SupervisorBuilder,
    me: &SupervisorRef,
) -> Result<Vec<ActorCell>, StartError> {
    let mut started: Vec<ActorCell> = Vec::with_capacity(builder.children.len());
    for spec in &builder.children {
        let context = StartContext { supervisor: me.clone(), id: spec.id.clone(), incarnation: 1 };
        let (supervisor, child, kind) = (builder.id.clone(), spec.id.clone(), spec.kind);
        match awaited(spec, context).await {
            Ok(cell) => {
                let event = SupervisorEvent::ChildStarted { supervisor, child, kind, incarnation: 1 };
                builder.hub.emit(event);
                started.push(cell);
            }
            Err(cause) => {
                let error = cause.clone();
                builder.hub.emit(SupervisorEvent::ChildStartFailed {
                    supervisor: supervisor.clone(),
                    child: child.clone(),
                    kind,
                    incarnation: 1,
                    error,
                });
                let earlier = builder.children.iter().cloned().zip(started).collect();
                return Err(match stop_in_reverse(builder, earlier).await {
                    Some(child) => StartError::Unkillable { supervisor, child, cause },
                    None => StartError::Child { supervisor, child, cause },
                });
            }
        }
    }
    Ok(started)
}

/// Asks an actor to stop: a supervisor of this crate by message, so that its plan runs in its loop.
pub(super) fn ask_to_stop(cell: &ActorCell, deadline: Option<Instant>) {
    if cell.is_message_type_of::<Message>() == Some(true) {
        let _ = cell.send_message(Message::Shutdown(deadline));
    } else {
        cell.stop(Some(SHUTDOWN.to_owned()));
    }
}

/// Stops children one at a time, last first, each by its own shutdown. Waits for each; answers one that
/// survived its kill.
pub(super) async fn stop_in_reverse(
    builder: &SupervisorBuilder,
    children: Vec<(ChildSpec, ActorCell)>,
) -> Option<ChildId> {
    let mut survivor = None;
    for (spec, cell) in children.into_iter().rev() {
        let gone = match spec.effective_shutdown() {
            Shutdown::BrutalKill => false,
            Shutdown::Infinity => {
                ask_to_stop(&cell, None);
                cell.wait(None).await.is_ok()
            }
            Shutdown::Timeout(limit) => {
                ask_to_stop(&cell, Instant::now().checked_add(limit));
                // A supervisor kills by that deadline itself, in order.
                let patience = match spec.kind {
                    ChildKind::Worker => limit,
                    ChildKind::Supervisor => limit.saturating_add(2 * KILL_GRACE),
                };
                cell.wait(Some(patience)).await.is_ok()
            }
        };
        if gone {
            continue;
        }
        cell.kill();
        if cell.wait(Some(KILL_GRACE)).await.is_err() {
            let (supervisor, child) = (builder.id.clone(), spec.id.clone());
            survivor = Some(child.clone());
            builder.hub.emit(SupervisorEvent::Unkillable { supervisor, child });
        }
    }
    survivor
}
