//! What a user writes: a handler for records or for batches.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kohort_protocol::TopicPartition;
use kohort_protocol::records::{OwnedRecord, Record, RecordBatch};
use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::error::CommitError;
use crate::manager::{CommitWaiter, ManagerMessage};

/// Handles the records of one partition, one after the other. There is one value per assigned partition, made
/// by the closure given to [`handler`](crate::ConsumerGroupBuilder::handler).
///
/// Write the methods as `async fn`. They run on the runtime that the member was started from, never on the
/// heartbeat's. A record counts as handled, and may be committed, once `handle` returned `Ok`.
///
/// An error or a panic fails the partition's worker. Its supervisor starts it again, with a new handler value,
/// from the first record that is not handled, after a pause that doubles from 200 ms to 5 s; when that happens
/// too often the member ends with [`TerminalReason::WorkersGaveUp`](crate::TerminalReason::WorkersGaveUp).
pub trait Handler: Send + 'static {
    /// What a handler may fail with.
    type Error: Into<Box<dyn Error + Send + Sync>>;

    /// Handles one record.
    ///
    /// # Cancel safety
    /// The future is dropped in the middle when the partition must be given back and the handler does not
    /// return in time, and when the member is killed. The record is then handled again, here or elsewhere.
    fn handle(
        &mut self,
        record: Record<'_>,
        cx: &mut Context,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The partition was assigned; comes before its first record.
    fn assigned(&mut self, cx: &mut Context) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = cx;
        async { Ok(()) }
    }

    /// The partition is given back. What was handled is committed already; the handler may still commit.
    fn revoked(&mut self, cx: &mut Context) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = cx;
        async { Ok(()) }
    }

    /// The partition is lost: another member may have it already, and commits are refused.
    fn lost(&mut self, cx: &mut Context) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = cx;
        async { Ok(()) }
    }
}

/// Handles whole batches, as they lie in the log. As [`Handler`] in all else.
pub trait BatchHandler: Send + 'static {
    /// What a handler may fail with.
    type Error: Into<Box<dyn Error + Send + Sync>>;

    /// Handles a batch. Records before `cx.position()` were handled before and are to be passed over: a batch
    /// may be given again after a failure in its middle.
    fn handle(
        &mut self,
        batch: &RecordBatch,
        cx: &mut Context,
    ) -> impl Future<Output = Result<(), BatchError<Self::Error>>> + Send;

    /// As [`Handler::assigned`].
    fn assigned(&mut self, cx: &mut Context) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = cx;
        async { Ok(()) }
    }

    /// As [`Handler::revoked`].
    fn revoked(&mut self, cx: &mut Context) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = cx;
        async { Ok(()) }
    }

    /// As [`Handler::lost`].
    fn lost(&mut self, cx: &mut Context) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = cx;
        async { Ok(()) }
    }
}

/// A batch failed at one of its records; those before it count as handled.
#[derive(Debug)]
pub struct BatchError<E> {
    /// Offset of the record that failed.
    pub offset: i64,
    /// Why.
    pub error: E,
}

/// What a handler knows besides the record.
pub struct Context {
    pub(crate) partition: TopicPartition,
    pub(crate) generation: i32,
    pub(crate) position: i64,
    pub(crate) unreported: u64,
    /// On the slot's clock, when the worker last told of its progress because it was time.
    pub(crate) reported_at: Duration,
    pub(crate) manager: ActorRef<ManagerMessage>,
    pub(crate) request_timeout: Duration,
}

impl Context {
    /// The partition.
    pub fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// The generation in which it was assigned.
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// The offset after the last record handled: where a restart would go on.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// Commits everything handled before the record in hand, and waits for the coordinator's word. Where
    /// nothing was handled and nothing committed before, there is nothing to commit.
    ///
    /// # Errors
    /// [`CommitError`]: the partition is lost, the commit was refused for good, or no word came within the request timeout.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the commit.
    pub async fn commit(&mut self) -> Result<(), CommitError> {
        if self.position < 0 {
            return Ok(());
        }
        let (confirm, confirmed) = oneshot::channel();
        self.report();
        let lost = || CommitError::Lost { partition: self.partition.clone(), generation: self.generation };
        let waiter = CommitWaiter {
            partition: self.partition.clone(),
            generation: self.generation,
            offset: self.position,
            confirm,
        };
        self.manager.cast(ManagerMessage::Commit(waiter)).map_err(|_| lost())?;
        match tokio::time::timeout(self.request_timeout, confirmed).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(code))) => Err(CommitError::Refused { partition: self.partition.clone(), code }),
            Ok(Err(_)) => Err(lost()),
            Err(_) => {
                let (partition, after) = (self.partition.clone(), self.request_timeout);
                Err(CommitError::Timeout { partition, after })
            }
        }
    }

    /// Tells the manager how far the work is.
    pub(crate) fn report(&mut self) {
        let records = std::mem::take(&mut self.unreported);
        // A manager that is gone takes the whole member with it.
        let _ = self.manager.cast(ManagerMessage::handled(
            self.generation,
            self.partition.clone(),
            self.position,
            records,
        ));
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("partition", &self.partition)
            .field("generation", &self.generation)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// A handler from an async closure that takes owned records; give it to
/// [`handler`](crate::ConsumerGroupBuilder::handler).
///
/// Every record is copied; implement [`Handler`] where that matters.
pub fn handler_fn<F, Fut, E>(handle: F) -> impl Fn(&TopicPartition) -> FnHandler<F> + Send + Sync + 'static
where
    F: Fn(OwnedRecord) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    let handle = Arc::new(handle);
    move |_| FnHandler(handle.clone())
}

/// What [`handler_fn`] makes for each partition.
#[derive(Debug)]
pub struct FnHandler<F>(Arc<F>);

impl<F, Fut, E> Handler for FnHandler<F>
where
    F: Fn(OwnedRecord) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    type Error = E;

    async fn handle(&mut self, record: Record<'_>, _: &mut Context) -> Result<(), E> {
        (self.0)(record.to_owned()).await
    }
}
