//! A partition's worker: takes fetched chunks, decodes them, calls the handler, reports how far it is.
//!
//! | message | effect |
//! |---|---|
//! | `Begin` | `assigned` hook, then the partition is given to the fetchers |
//! | `Reset` | the chunks behind it start at this offset, by the reset policy |
//! | `Deliver` | the chunk's records are handled; between any two of them it may stop |
//! | `Drain` | reports what is handled; nothing more is |
//! | `Release` | runs the hook and ends |
//!
//! The mailbox is bounded by the credit each chunk carries. While a handler runs, only a kill gets in; whether
//! the next may be called is read from the shared [`Run`], so that a fence works at once.

pub(crate) mod consume;

use std::error::Error;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use kohort_group::Input;
use kohort_group::membership::Hook;
use kohort_protocol::TopicPartition;
use kohort_protocol::records::batches;
use kohort_supervisor::{ChildId, ChildSpec, Restart, Shutdown};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

pub(crate) use self::consume::{Consume, Flow, PerBatch, PerRecord};

use crate::config::IsolationLevel;
use crate::error::WorkerFailed;
use crate::event::MemberEvent;
use crate::fetch::{Chunk, FetchTable, Start};
use crate::handler::Context;
use crate::manager::{ManagerMessage, panic_message};
use crate::member::Incarnation;
use crate::status::{Run, Slot};

pub(crate) fn child_id(partition: &TopicPartition) -> ChildId {
    format!("{}/{}", partition.topic, partition.partition).into()
}

/// Makes workers of a user's handler; its type is known only inside.
pub(crate) trait WorkerFactory: Send + Sync {
    fn spec(&self, arguments: WorkerArguments) -> ChildSpec;
}

pub(crate) struct Factory<F, C> {
    make: Arc<F>,
    consumes: PhantomData<fn() -> C>,
}

impl<F, C> Factory<F, C> {
    pub(crate) fn new(make: F) -> Self {
        Self { make: Arc::new(make), consumes: PhantomData }
    }
}

impl<F, C> WorkerFactory for Factory<F, C>
where
    F: Fn(&TopicPartition) -> C + Send + Sync + 'static,
    C: Consume,
{
    fn spec(&self, arguments: WorkerArguments) -> ChildSpec {
        let make = self.make.clone();
        ChildSpec::actor(child_id(&arguments.partition), move || {
            (Worker { make: make.clone(), consumes: PhantomData }, arguments.clone())
        })
        .restart(Restart::Transient)
        // Whoever stops a worker has released it before, or has no time to.
        .shutdown(Shutdown::BrutalKill)
    }
}

#[derive(Clone)]
pub(crate) struct WorkerArguments {
    pub(crate) partition: TopicPartition,
    pub(crate) run: Arc<Run>,
    pub(crate) slot: Arc<Slot>,
    pub(crate) incarnation: Arc<Incarnation>,
    pub(crate) manager: ActorRef<ManagerMessage>,
    pub(crate) table: FetchTable,
}

pub(crate) enum WorkerMessage {
    Begin,
    Reset {
        offset: i64,
    },
    Deliver(Chunk),
    /// `done` is dropped when it is.
    Drain {
        done: mpsc::Sender<()>,
    },
    /// As `Drain`.
    Release {
        hook: Hook,
        done: mpsc::Sender<()>,
    },
}

struct Worker<F, C> {
    make: Arc<F>,
    consumes: PhantomData<fn() -> C>,
}

struct State<C> {
    arguments: WorkerArguments,
    handler: C,
    context: Context,
    aborted: consume::Aborted,
}

/// The first pause before a worker that failed goes on; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl<F, C> Actor for Worker<F, C>
where
    F: Fn(&TopicPartition) -> C + Send + Sync + 'static,
    C: Consume,
{
    type Msg = WorkerMessage;
    type State = State<C>;
    type Arguments = WorkerArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        arguments: Self::Arguments,
    ) -> Result<State<C>, ActorProcessingErr> {
        arguments.slot.set_handling(false);
        arguments.table.suspend(&arguments.partition);
        let failures = arguments.slot.starts.fetch_add(1, Ordering::Relaxed);
        let handler = (self.make)(&arguments.partition);
        if failures == 0 {
            myself.cast(WorkerMessage::Begin)?;
        } else {
            let wait = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(8)).min(LONGEST_PAUSE);
            myself.send_after(wait, || WorkerMessage::Begin);
            arguments.incarnation.emit(MemberEvent::WorkerRestarted {
                member: arguments.incarnation.name.clone(),
                partition: arguments.partition.clone(),
                failures,
                wait,
            });
        }
        let context = Context {
            partition: arguments.partition.clone(),
            generation: arguments.run.generation,
            position: arguments.slot.position().unwrap_or(-1),
            unreported: 0,
            reported_at: arguments.slot.age(),
            manager: arguments.manager.clone(),
            request_timeout: arguments.incarnation.config.membership.request_timeout,
        };
        Ok(State { arguments, handler, context, aborted: consume::Aborted::default() })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut State<C>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WorkerMessage::Begin => state.begin(myself).await?,
            WorkerMessage::Reset { offset } => state.reset(offset),
            WorkerMessage::Deliver(chunk) => {
                state.arguments.slot.set_handling(true);
                let delivered = state.deliver(chunk).await;
                state.arguments.slot.set_handling(false);
                delivered?;
            }
            WorkerMessage::Drain { done } => {
                state.report_if_known();
                drop(done);
            }
            WorkerMessage::Release { hook, done } => {
                state.arguments.table.remove(&state.arguments.partition);
                state.release(hook).await;
                myself.stop(None);
                drop(done);
            }
        }
        Ok(())
    }
}

impl<C: Consume> State<C> {
    async fn begin(&mut self, myself: ActorRef<WorkerMessage>) -> Result<(), WorkerFailed> {
        if !self.arguments.run.may_handle() {
            return Ok(());
        }
        self.handler.assigned(&mut self.context).await.map_err(|error| self.failed(error))?;
        let start = match self.arguments.slot.position() {
            Some(offset) => Start::At(offset),
            None => Start::Reset { from: None },
        };
        self.arguments.table.insert(&self.arguments, start, myself);
        Ok(())
    }

    /// The reset policy gave the partition its start, which may lie before what was handled.
    fn reset(&mut self, offset: i64) {
        self.context.position = offset;
        self.arguments.slot.set_position(offset);
        let input = Input::PositionReset {
            generation: self.arguments.run.generation,
            partition: self.arguments.partition.clone(),
            offset,
        };
        // A manager that is gone takes the workers with it.
        let _ = self.arguments.manager.cast(ManagerMessage::Input(input));
    }

    async fn deliver(&mut self, chunk: Chunk) -> Result<(), WorkerFailed> {
        let config = &self.arguments.incarnation.config;
        let committed_only = config.isolation_level == IsolationLevel::ReadCommitted;
        let limit = config.max_decompressed_bytes;
        if committed_only {
            self.aborted.take(&chunk.aborted);
        }
        for raw in batches(&chunk.bytes) {
            if !self.arguments.run.may_handle() {
                break;
            }
            let raw = raw.map_err(|error| self.failed(error.into()))?;
            let next = raw.header.next_offset();
            if next <= self.context.position {
                continue;
            }
            let hidden = committed_only && self.aborted.hides(&raw.header);
            if raw.header.is_control() {
                if committed_only {
                    let batch = raw.decode(limit).map_err(|error| self.failed(error.into()))?;
                    self.aborted.end(&batch);
                }
                self.advance(next);
            } else if hidden {
                self.advance(next);
            } else {
                let batch = raw.decode(limit).map_err(|error| self.failed(error.into()))?;
                let flow = self
                    .handler
                    .consume(&batch, &mut self.context, &self.arguments.run, &self.arguments.slot)
                    .await
                    .map_err(|error| self.failed(error))?;
                if flow == Flow::Stopped {
                    break;
                }
                self.advance(next);
            }
            // A chunk of many batches must not keep the runtime to itself.
            tokio::task::consume_budget().await;
        }
        self.context.report();
        Ok(())
    }

    /// Past a batch, whatever it held: gaps and markers are passed over too.
    fn advance(&mut self, next: i64) {
        if next > self.context.position {
            self.context.position = next;
            self.arguments.slot.set_position(next);
        }
    }

    async fn release(&mut self, hook: Hook) {
        self.report_if_known();
        let (handler, context) = (&mut self.handler, &mut self.context);
        // A panic here must not start the worker again: it would be given up a second time, or take the member
        // with it.
        let ran = match hook {
            Hook::Revoked => caught(handler.revoked(context)).await,
            Hook::Lost => caught(handler.lost(context)).await,
        };
        if let Err(error) = ran {
            // The partition goes all the same: nobody could do anything about it any more.
            self.arguments.incarnation.emit(MemberEvent::PartitionFailed {
                member: self.arguments.incarnation.name.clone(),
                partition: self.arguments.partition.clone(),
                reason: format!("a hook failed while the partition was given up: {error}"),
            });
        }
    }

    fn report_if_known(&mut self) {
        if self.context.position >= 0 {
            self.context.report();
        }
    }

    /// What was handled before is reported; the rest is this failure's.
    fn failed(&mut self, error: Box<dyn Error + Send + Sync>) -> WorkerFailed {
        self.report_if_known();
        WorkerFailed {
            partition: self.arguments.partition.clone(),
            offset: self.context.position,
            source: error.into(),
        }
    }
}

/// A panic of the future as its error.
async fn caught(
    hook: impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut hook = std::pin::pin!(hook);
    std::future::poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| hook.as_mut().poll(cx)))
            .unwrap_or_else(|panic| Poll::Ready(Err(panic_message(panic).into())))
    })
    .await
}
