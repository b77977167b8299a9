//! The log of one partition: batches in memory, bounded by size, with what is needed to tell a producer's
//! repetition from news. It checks no records (see `api::produce`) and knows no topic. Owned by `topics`.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use kohort_protocol::records::{BatchHeader, RecordBatch, RecordError, place};

use crate::producers::Producers;

#[derive(Debug)]
struct Stored {
    last_offset: i64,
    max_timestamp: i64,
    bytes: Bytes,
}

/// Batches from `start` to `end`.
#[derive(Debug)]
pub(crate) struct Log {
    start: i64,
    end: i64,
    size: usize,
    max_size: usize,
    batches: VecDeque<Stored>,
    pub(crate) producers: Producers,
}

/// Batches chosen for an answer; nothing is copied yet.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    batches: Vec<Bytes>,
    pub(crate) size: usize,
}

impl Chosen {
    /// The batches in one piece; a single one is not copied.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        if self.batches.len() <= 1 {
            return self.batches.pop().unwrap_or_default();
        }
        let mut all = BytesMut::with_capacity(self.size);
        for batch in &self.batches {
            all.extend_from_slice(batch);
        }
        all.freeze()
    }
}

/// An offset with the timestamp found there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
}

impl Log {
    /// An empty log that keeps about `max_size` bytes.
    pub(crate) fn new(max_size: usize) -> Self {
        let producers = Producers::default();
        Self { start: 0, end: 0, size: 0, max_size, batches: VecDeque::new(), producers }
    }

    /// First offset that can be read.
    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    /// The offset the next record will get.
    pub(crate) fn end(&self) -> i64 {
        self.end
    }

    /// Appends one batch and returns the offset of its first record. Drops the oldest batches when the log grew
    /// too large; the newest always stays.
    pub(crate) fn append(&mut self, batch: &[u8], leader_epoch: i32) -> Result<i64, RecordError> {
        let base = self.end;
        let bytes = place(batch, base, leader_epoch, None)?;
        let header = BatchHeader::parse(&bytes)?;
        let bytes = bytes.slice(..header.total_len.min(bytes.len()));
        self.end = header.next_offset();
        self.size = self.size.saturating_add(bytes.len());
        let (last_offset, max_timestamp) = (header.last_offset(), header.max_timestamp);
        self.batches.push_back(Stored { last_offset, max_timestamp, bytes });
        while self.size > self.max_size && self.batches.len() > 1 {
            self.drop_oldest();
        }
        Ok(base)
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.batches.pop_front() {
            self.size = self.size.saturating_sub(oldest.bytes.len());
            self.start = self.start.max(oldest.last_offset.saturating_add(1));
        }
    }

    /// Moves the start to `before`, which lies within the log. A batch that straddles it stays whole.
    pub(crate) fn delete_before(&mut self, before: i64) {
        while self.batches.front().is_some_and(|oldest| oldest.last_offset < before) {
            self.drop_oldest();
        }
        self.start = self.start.max(before);
    }

    /// Whole batches from the one that holds `from`, at most `max_bytes` of them; with `at_least_one` the first
    /// batch is taken however large it is.
    pub(crate) fn read(&self, from: i64, max_bytes: usize, at_least_one: bool) -> Chosen {
        let mut chosen = Chosen::default();
        let first = self.batches.partition_point(|batch| batch.last_offset < from);
        for batch in self.batches.range(first..) {
            let size = chosen.size.saturating_add(batch.bytes.len());
            if size > max_bytes && !(at_least_one && chosen.batches.is_empty()) {
                break;
            }
            chosen.size = size;
            chosen.batches.push(batch.bytes.clone());
        }
        chosen
    }

    /// Every batch that is kept, for onlookers.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Bytes> {
        self.batches.iter().map(|batch| &batch.bytes)
    }

    /// The first record that is not older than `timestamp`.
    pub(crate) fn find(&self, timestamp: i64, max_decompressed: usize) -> Result<Option<Found>, RecordError> {
        for stored in self.batches.iter().filter(|stored| stored.max_timestamp >= timestamp) {
            let found = self.first_record(&stored.bytes, timestamp, max_decompressed)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first record that has the largest timestamp of the log.
    pub(crate) fn find_newest(&self, max_decompressed: usize) -> Result<Option<Found>, RecordError> {
        let Some(newest) = self.batches.iter().map(|stored| stored.max_timestamp).max() else {
            return Ok(None);
        };
        self.find(newest, max_decompressed)
    }

    fn first_record(
        &self,
        bytes: &Bytes,
        timestamp: i64,
        max_decompressed: usize,
    ) -> Result<Option<Found>, RecordError> {
        let batch = RecordBatch::decode(bytes, max_decompressed)?;
        let found = batch.iter().find(|record| record.offset >= self.start && record.timestamp >= timestamp);
        Ok(found.map(|record| Found { offset: record.offset, timestamp: record.timestamp }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kohort_protocol::records::{Compression, RecordBatchBuilder, scan};

    fn batch(records: usize, timestamp: i64) -> Bytes {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for index in 0..records {
            builder.append(timestamp + index as i64, None, Some(b"value"), []).unwrap();
        }
        builder.build().unwrap()
    }

    #[test]
    fn an_offset_inside_a_batch_reads_the_whole_batch() {
        let mut log = Log::new(usize::MAX);
        assert_eq!(log.append(&batch(3, 10), 0), Ok(0));
        assert_eq!(log.append(&batch(2, 20), 0), Ok(3));
        let read = log.read(1, usize::MAX, true).into_bytes();
        assert_eq!(scan(&read).unwrap().records, 5);
        let read = log.read(4, usize::MAX, true).into_bytes();
        assert_eq!((scan(&read).unwrap().records, scan(&read).unwrap().next_offset), (2, Some(5)));
        assert_eq!(log.read(5, usize::MAX, true).size, 0);
    }

    #[test]
    fn the_first_batch_fits_only_where_one_must() {
        let mut log = Log::new(usize::MAX);
        log.append(&batch(3, 10), 0).unwrap();
        log.append(&batch(3, 10), 0).unwrap();
        assert_eq!(log.read(0, 1, true).batches.len(), 1);
        assert_eq!(log.read(0, 1, false).batches.len(), 0);
    }

    #[test]
    fn a_log_that_grew_too_large_loses_its_oldest_batches() {
        let size = batch(1, 0).len();
        let mut log = Log::new(size * 2);
        for _ in 0..5 {
            log.append(&batch(1, 0), 0).unwrap();
        }
        assert_eq!((log.start(), log.end(), log.size), (3, 5, size * 2));
    }

    #[test]
    fn deleting_keeps_the_batch_that_straddles_the_new_start() {
        let mut log = Log::new(usize::MAX);
        log.append(&batch(3, 10), 0).unwrap();
        log.append(&batch(3, 20), 0).unwrap();
        log.delete_before(4);
        assert_eq!((log.start(), log.batches.len()), (4, 1));
        assert_eq!(log.find(0, 1 << 20).unwrap(), Some(Found { offset: 4, timestamp: 21 }));
    }

    #[test]
    fn timestamps_are_found_within_batches() {
        let mut log = Log::new(usize::MAX);
        log.append(&batch(3, 10), 0).unwrap();
        log.append(&batch(3, 5), 0).unwrap();
        assert_eq!(log.find(11, 1 << 20).unwrap(), Some(Found { offset: 1, timestamp: 11 }));
        assert_eq!(log.find(13, 1 << 20).unwrap(), None);
        assert_eq!(log.find_newest(1 << 20).unwrap(), Some(Found { offset: 2, timestamp: 12 }));
    }
}
