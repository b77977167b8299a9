//! Writing batches: the producer's builder and the broker's transaction markers.

use bytes::Bytes;

use super::cursor::{put_varlong, varlong_len};
use super::header::{Attributes, CRC_AT, CRC_FROM, HEADER_LEN, LENGTH_FROM};
use super::{Compression, ControlType, RecordError};

/// Collects records and writes them as one batch. Without [`RecordBatchBuilder::producer`] the batch is not
/// idempotent. Timestamps are milliseconds since the epoch; the caller has the clock.
#[derive(Debug, Clone)]
pub struct RecordBatchBuilder {
    /// The header's place and the records behind it, uncompressed.
    bytes: Vec<u8>,
    compression: Compression,
    flags: i16,
    base_offset: i64,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    count: i32,
    next_delta: i32,
}

impl RecordBatchBuilder {
    /// An empty batch that will be compressed so.
    pub fn new(compression: Compression) -> Self {
        Self {
            bytes: vec![0; HEADER_LEN],
            compression,
            flags: 0,
            base_offset: 0,
            base_timestamp: None,
            max_timestamp: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            count: 0,
            next_delta: 0,
        }
    }

    /// Makes the batch idempotent (KIP-98): producer id, epoch, and sequence number of the first record.
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base_sequence;
        self
    }

    /// Marks the batch as part of a transaction.
    pub fn transactional(mut self) -> Self {
        self.flags |= Attributes::TRANSACTIONAL;
        self
    }

    /// Offset of the first record, 0 by default: brokers give a produced batch its offset themselves.
    pub fn base_offset(mut self, base_offset: i64) -> Self {
        self.base_offset = base_offset;
        self
    }

    /// Appends a record.
    ///
    /// # Errors
    /// [`RecordError::TooLong`] if the record or the batch grows beyond 2 147 483 647 bytes or records; the batch
    /// is then as it was.
    pub fn append<'h>(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'h [u8], Option<&'h [u8]>), IntoIter: Clone>,
    ) -> Result<(), RecordError> {
        let headers = headers.into_iter();
        let base_timestamp = self.base_timestamp.unwrap_or(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(base_timestamp);
        let body = body_len(timestamp_delta, self.next_delta, key, value, headers.clone());
        let too_long = |length| RecordError::TooLong { what: "a record", length };
        let length = i32::try_from(body).map_err(|_| too_long(body))?;
        let grown = self.bytes.len().saturating_add(body).saturating_add(5);
        let count = self.count.checked_add(1);
        let next_delta = self.next_delta.checked_add(1);
        let (Ok(_), Some(count), Some(next_delta)) = (i32::try_from(grown), count, next_delta) else {
            return Err(RecordError::TooLong { what: "a batch", length: grown });
        };
        let bytes = &mut self.bytes;
        bytes.reserve(body.saturating_add(5));
        put_varlong(bytes, i64::from(length));
        bytes.push(0);
        put_varlong(bytes, timestamp_delta);
        put_varlong(bytes, i64::from(self.next_delta));
        put_nullable(bytes, key);
        put_nullable(bytes, value);
        put_varlong(bytes, headers.clone().count() as i64);
        for (key, value) in headers {
            put_nullable(bytes, Some(key));
            put_nullable(bytes, value);
        }
        self.base_timestamp = Some(base_timestamp);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.count = count;
        self.next_delta = next_delta;
        Ok(())
    }

    /// Leaves a gap of `count` offsets, as compaction does. Brokers refuse such a batch from a producer.
    pub fn skip_offsets(&mut self, count: i32) {
        self.next_delta = self.next_delta.saturating_add(count.max(0));
    }

    /// Records appended.
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(0)
    }

    /// True before the first record.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the batch before compression.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The most bytes that such a record adds before compression.
    pub fn estimate<'h>(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'h [u8], Option<&'h [u8]>), IntoIter: Clone>,
    ) -> usize {
        body_len(i64::MAX, i32::MAX, key, value, headers.into_iter()).saturating_add(5)
    }

    /// Compresses the records, fills in the header and the checksum.
    ///
    /// # Errors
    /// [`RecordError::Compress`] if the codec fails, [`RecordError::TooLong`] if compression made the batch too
    /// long.
    pub fn build(self) -> Result<Bytes, RecordError> {
        let mut bytes = self.bytes;
        if self.compression != Compression::None {
            let records = bytes.get(HEADER_LEN..).unwrap_or_default();
            let compressed = self.compression.compress(records)?;
            bytes.truncate(HEADER_LEN);
            bytes.extend_from_slice(&compressed);
        }
        let length = bytes.len().saturating_sub(LENGTH_FROM);
        let length = i32::try_from(length).map_err(|_| RecordError::TooLong { what: "a batch", length })?;
        let last_offset_delta = self.next_delta.saturating_sub(1).max(0);
        let base_timestamp = self.base_timestamp.unwrap_or(-1);

        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend_from_slice(&self.base_offset.to_be_bytes());
        header.extend_from_slice(&length.to_be_bytes());
        header.extend_from_slice(&(-1i32).to_be_bytes());
        header.push(2);
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&(self.compression.bits() | self.flags).to_be_bytes());
        header.extend_from_slice(&last_offset_delta.to_be_bytes());
        header.extend_from_slice(&base_timestamp.to_be_bytes());
        header.extend_from_slice(&self.max_timestamp.to_be_bytes());
        header.extend_from_slice(&self.producer_id.to_be_bytes());
        header.extend_from_slice(&self.producer_epoch.to_be_bytes());
        header.extend_from_slice(&self.base_sequence.to_be_bytes());
        header.extend_from_slice(&self.count.to_be_bytes());
        if let Some(place) = bytes.get_mut(..HEADER_LEN) {
            place.copy_from_slice(&header);
        }
        seal(&mut bytes);
        Ok(Bytes::from(bytes))
    }
}

/// Writes the checksum of a batch into its header.
pub(super) fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(batch.get(CRC_FROM..).unwrap_or_default());
    if let Some(place) = batch.get_mut(CRC_AT..CRC_FROM) {
        place.copy_from_slice(&crc.to_be_bytes());
    }
}

/// The marker that ends a producer's transaction in a partition, as the broker writes it. Its base offset is 0; give
/// it its own with [`super::place`].
///
/// # Errors
/// None in practice: a marker is short.
pub fn control_batch(
    control: ControlType,
    producer_id: i64,
    producer_epoch: i16,
    coordinator_epoch: i32,
    timestamp: i64,
) -> Result<Bytes, RecordError> {
    let mut builder = RecordBatchBuilder::new(Compression::None).producer(producer_id, producer_epoch, -1);
    builder.flags = Attributes::TRANSACTIONAL | Attributes::CONTROL;
    let [high, low] = control.code().to_be_bytes();
    let key = [0, 0, high, low];
    let mut value = vec![0, 0];
    value.extend_from_slice(&coordinator_epoch.to_be_bytes());
    builder.append(timestamp, Some(&key), Some(&value), [])?;
    builder.build()
}

fn put_nullable(buf: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            // The record's own length was checked to fit 31 bits.
            put_varlong(buf, bytes.len() as i64);
            buf.extend_from_slice(bytes);
        }
        None => put_varlong(buf, -1),
    }
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    match bytes {
        Some(bytes) => varlong_len(bytes.len() as i64).saturating_add(bytes.len()),
        None => 1,
    }
}

fn body_len<'h>(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)>,
) -> usize {
    let mut count = 0i64;
    let mut length = 1usize
        .saturating_add(varlong_len(timestamp_delta))
        .saturating_add(varlong_len(i64::from(offset_delta)))
        .saturating_add(nullable_len(key))
        .saturating_add(nullable_len(value));
    for (key, value) in headers {
        count = count.saturating_add(1);
        length = length.saturating_add(nullable_len(Some(key))).saturating_add(nullable_len(value));
    }
    length.saturating_add(varlong_len(count))
}
