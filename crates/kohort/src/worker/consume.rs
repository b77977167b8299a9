//! From a checked batch to the handler: record by record, or as a whole.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kohort_protocol::messages::AbortedTransaction;
use kohort_protocol::records::{BatchHeader, ControlType, RecordBatch};

use crate::handler::{BatchHandler, Context, Handler};
use crate::status::{Run, Slot};

type BoxError = Box<dyn Error + Send + Sync>;

/// Progress within what was fetched is told this often, so that commits follow slow handlers too.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// Whether a batch was gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// To its end.
    Done,
    /// The run is over: no handler may be called any more.
    Stopped,
}

/// What a worker needs of a user's handler, whichever kind it is.
pub(crate) trait Consume: Send + 'static {
    fn consume(
        &mut self,
        batch: &RecordBatch,
        context: &mut Context,
        run: &Run,
        slot: &Slot,
    ) -> impl Future<Output = Result<Flow, BoxError>> + Send;
    fn assigned(&mut self, context: &mut Context) -> impl Future<Output = Result<(), BoxError>> + Send;
    fn revoked(&mut self, context: &mut Context) -> impl Future<Output = Result<(), BoxError>> + Send;
    fn lost(&mut self, context: &mut Context) -> impl Future<Output = Result<(), BoxError>> + Send;
}

fn handled(position: i64, records: u64, context: &mut Context, slot: &Slot) {
    context.position = position;
    context.unreported += records;
    let at = slot.set_position(position);
    if at.saturating_sub(context.reported_at) >= REPORT_EVERY {
        context.reported_at = at;
        context.report();
    }
    // The next failure is the first again.
    slot.starts.store(1, Ordering::Relaxed);
}

pub(crate) struct PerRecord<H>(pub(crate) H);

impl<H: Handler> Consume for PerRecord<H> {
    async fn consume(
        &mut self,
        batch: &RecordBatch,
        context: &mut Context,
        run: &Run,
        slot: &Slot,
    ) -> Result<Flow, BoxError> {
        for record in batch {
            if record.offset < context.position {
                continue;
            }
            if !run.may_handle() {
                return Ok(Flow::Stopped);
            }
            let offset = record.offset;
            self.0.handle(record, context).await.map_err(Into::into)?;
            handled(offset + 1, 1, context, slot);
        }
        Ok(Flow::Done)
    }

    async fn assigned(&mut self, context: &mut Context) -> Result<(), BoxError> {
        self.0.assigned(context).await.map_err(Into::into)
    }

    async fn revoked(&mut self, context: &mut Context) -> Result<(), BoxError> {
        self.0.revoked(context).await.map_err(Into::into)
    }

    async fn lost(&mut self, context: &mut Context) -> Result<(), BoxError> {
        self.0.lost(context).await.map_err(Into::into)
    }
}

pub(crate) struct PerBatch<H>(pub(crate) H);

impl<H: BatchHandler> Consume for PerBatch<H> {
    async fn consume(
        &mut self,
        batch: &RecordBatch,
        context: &mut Context,
        run: &Run,
        slot: &Slot,
    ) -> Result<Flow, BoxError> {
        if !run.may_handle() {
            return Ok(Flow::Stopped);
        }
        let before = context.position;
        let next = match self.0.handle(batch, context).await {
            Ok(()) => Ok(batch.next_offset()),
            Err(failed) => Err((failed.offset.clamp(before, batch.next_offset()), failed.error)),
        };
        let position = match &next {
            Ok(position) | Err((position, _)) => *position,
        };
        let records =
            u64::try_from(position.saturating_sub(before.max(batch.header().base_offset))).unwrap_or(0);
        handled(position, records, context, slot);
        match next {
            Ok(_) => Ok(Flow::Done),
            Err((_, error)) => {
                if position == before {
                    // Nothing of it was handled: this failure follows the last one.
                    slot.starts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error.into())
            }
        }
    }

    async fn assigned(&mut self, context: &mut Context) -> Result<(), BoxError> {
        self.0.assigned(context).await.map_err(Into::into)
    }

    async fn revoked(&mut self, context: &mut Context) -> Result<(), BoxError> {
        self.0.revoked(context).await.map_err(Into::into)
    }

    async fn lost(&mut self, context: &mut Context) -> Result<(), BoxError> {
        self.0.lost(context).await.map_err(Into::into)
    }
}

/// The aborted transactions whose records read_committed must not see.
#[derive(Debug, Default)]
pub(crate) struct Aborted {
    /// First offset by producer; several if a producer aborted several times within what was fetched.
    first_offsets: BTreeMap<i64, Vec<i64>>,
}

impl Aborted {
    /// What a fetch said; it says it again with every fetch that touches the transaction.
    pub(crate) fn take(&mut self, aborted: &[AbortedTransaction]) {
        self.first_offsets.clear();
        for transaction in aborted {
            self.first_offsets.entry(transaction.producer_id).or_default().push(transaction.first_offset);
        }
    }

    /// Does the batch belong to one of them?
    pub(crate) fn hides(&self, header: &BatchHeader) -> bool {
        header.attributes.is_transactional()
            && self
                .first_offsets
                .get(&header.producer_id)
                .is_some_and(|firsts| firsts.iter().any(|first| *first <= header.last_offset()))
    }

    /// An abort marker ends the producer's oldest aborted transaction.
    pub(crate) fn end(&mut self, marker: &RecordBatch) {
        if marker.control_type() != Some(ControlType::Abort) {
            return;
        }
        let producer_id = marker.header().producer_id;
        if let Some(firsts) = self.first_offsets.get_mut(&producer_id) {
            if let Some(oldest) =
                firsts.iter().enumerate().min_by_key(|(_, first)| **first).map(|(index, _)| index)
            {
                firsts.swap_remove(oldest);
            }
            if firsts.is_empty() {
                self.first_offsets.remove(&producer_id);
            }
        }
    }
}
