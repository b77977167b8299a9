//! What one partition remembers of idempotent producers (KIP-98): their epoch and their last batches. Transactions
//! are not kept here. Owned by `log`, asked by `api::produce`.

use std::collections::{BTreeMap, HashMap, VecDeque};

use kohort_protocol::ErrorCode;
use kohort_protocol::records::BatchHeader;

/// Batches remembered of a producer, as many as it may have in flight.
const REMEMBERED_BATCHES: usize = 5;

/// Producers remembered in a partition; the one that was silent for longest is forgotten first.
const REMEMBERED_PRODUCERS: usize = 1000;

#[derive(Debug, Clone, Copy)]
struct Appended {
    first: i32,
    last: i32,
    base_offset: i64,
}

#[derive(Debug)]
struct Producer {
    epoch: i16,
    /// Never empty.
    batches: VecDeque<Appended>,
    /// Place in the order of use.
    used: u64,
}

/// The producers of one partition.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    known: HashMap<i64, Producer>,
    order: BTreeMap<u64, i64>,
    clock: u64,
}

/// What to do with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sequence {
    /// Append it.
    New,
    /// It was appended before, at this offset.
    Duplicate(i64),
}

impl Producers {
    /// Is the batch next in its producer's sequence, a repetition, or out of order?
    pub(crate) fn check(&self, batch: &BatchHeader) -> Result<Sequence, ErrorCode> {
        if batch.producer_id < 0 {
            return Ok(Sequence::New);
        }
        if batch.base_sequence < 0 || batch.producer_epoch < 0 {
            return Err(ErrorCode::InvalidRecord);
        }
        // Of a producer nobody remembers any sequence is taken, as on Kafka: its state may have been dropped.
        let Some(producer) = self.known.get(&batch.producer_id) else { return Ok(Sequence::New) };
        if batch.producer_epoch < producer.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if batch.producer_epoch > producer.epoch {
            return match batch.base_sequence {
                0 => Ok(Sequence::New),
                _ => Err(ErrorCode::OutOfOrderSequenceNumber),
            };
        }
        let last = last_sequence(batch);
        let same = |known: &&Appended| known.first == batch.base_sequence && known.last == last;
        if let Some(known) = producer.batches.iter().find(same) {
            return Ok(Sequence::Duplicate(known.base_offset));
        }
        match producer.batches.back() {
            Some(newest) if following(newest.last, 1) != batch.base_sequence => {
                Err(ErrorCode::OutOfOrderSequenceNumber)
            }
            _ => Ok(Sequence::New),
        }
    }

    /// Remembers an appended batch.
    pub(crate) fn appended(&mut self, batch: &BatchHeader, base_offset: i64) {
        if batch.producer_id < 0 {
            return;
        }
        self.clock = self.clock.saturating_add(1);
        let used = self.clock;
        let producer = self.known.entry(batch.producer_id).or_insert_with(|| Producer {
            epoch: batch.producer_epoch,
            batches: VecDeque::new(),
            used,
        });
        if producer.epoch != batch.producer_epoch {
            producer.epoch = batch.producer_epoch;
            producer.batches.clear();
        }
        producer.batches.push_back(Appended {
            first: batch.base_sequence,
            last: last_sequence(batch),
            base_offset,
        });
        if producer.batches.len() > REMEMBERED_BATCHES {
            producer.batches.pop_front();
        }
        self.order.remove(&std::mem::replace(&mut producer.used, used));
        self.order.insert(used, batch.producer_id);
        if self.known.len() > REMEMBERED_PRODUCERS
            && let Some((_, silent)) = self.order.pop_first()
        {
            self.known.remove(&silent);
        }
    }
}

fn last_sequence(batch: &BatchHeader) -> i32 {
    following(batch.base_sequence, batch.last_offset_delta)
}

/// Sequence numbers wrap from 2 147 483 647 to 0.
fn following(sequence: i32, by: i32) -> i32 {
    (i64::from(sequence).saturating_add(i64::from(by)) & i64::from(i32::MAX)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kohort_protocol::records::{Compression, RecordBatchBuilder};

    fn header(id: i64, epoch: i16, sequence: i32, records: usize) -> BatchHeader {
        let mut builder = RecordBatchBuilder::new(Compression::None).producer(id, epoch, sequence);
        for _ in 0..records {
            builder.append(0, None, Some(b"v"), []).unwrap();
        }
        let bytes: Bytes = builder.build().unwrap();
        BatchHeader::parse(&bytes).unwrap()
    }

    #[test]
    fn sequence_numbers_wrap_to_zero() {
        assert_eq!(following(i32::MAX, 1), 0);
        assert_eq!(following(i32::MAX - 1, 3), 1);
        let mut producers = Producers::default();
        producers.appended(&header(1, 0, i32::MAX - 1, 2), 0);
        assert_eq!(producers.check(&header(1, 0, 0, 1)), Ok(Sequence::New));
        assert_eq!(producers.check(&header(1, 0, 1, 1)), Err(ErrorCode::OutOfOrderSequenceNumber));
    }

    #[test]
    fn the_number_of_producers_is_bounded() {
        let mut producers = Producers::default();
        for id in 0..3000 {
            producers.appended(&header(id, 0, 0, 1), id);
            producers.appended(&header(0, 0, i32::try_from(id).unwrap(), 1), id);
        }
        assert_eq!((producers.known.len(), producers.order.len()), (1000, 1000));
        assert!(producers.known.contains_key(&0), "the one that is used stays");
    }

    #[test]
    fn a_new_epoch_begins_at_zero() {
        let mut producers = Producers::default();
        producers.appended(&header(1, 0, 0, 3), 0);
        assert_eq!(producers.check(&header(1, 1, 3, 1)), Err(ErrorCode::OutOfOrderSequenceNumber));
        assert_eq!(producers.check(&header(1, 1, 0, 1)), Ok(Sequence::New));
        producers.appended(&header(1, 1, 0, 1), 3);
        assert_eq!(producers.check(&header(1, 0, 3, 1)), Err(ErrorCode::InvalidProducerEpoch));
    }
}
