//! What a broker does with a batch before it stands in the log: check it, and write into it what only the broker
//! knows.

use bytes::{Bytes, BytesMut};

use super::builder::seal;
use super::header::{Attributes, BatchHeader, EPOCH_AT, MAX_TIMESTAMP_AT};
use super::{RecordBatch, RecordError};

/// Where the attributes stand.
const ATTRIBUTES_AT: usize = 21;

/// Checks what a producer sent for one partition: exactly one batch of magic 2 whose checksum holds, whose records
/// are readable and have the offsets 0, 1, 2 …, and which is no control batch.
///
/// # Errors
/// The [`RecordError`] that says which of these is broken. Kafka answers `CorruptMessage` to
/// [`RecordError::UnsupportedMagic`] and [`RecordError::CrcMismatch`], `InvalidRecord` to most others.
pub fn validate_produced(records: &Bytes, max_decompressed_bytes: usize) -> Result<RecordBatch, RecordError> {
    let header = BatchHeader::parse(records)?;
    if header.total_len > records.len() {
        return Err(RecordError::Truncated { needed: header.total_len, remaining: records.len() });
    }
    if header.total_len != records.len() {
        return Err(RecordError::NotOneBatch { batch: header.total_len, sent: records.len() });
    }
    if header.is_control() {
        return Err(RecordError::ControlBatch);
    }
    if header.base_offset != 0 {
        let base_offset = header.base_offset;
        return Err(RecordError::InvalidHeader { base_offset, field: "base offset", value: base_offset });
    }
    // Offsets within a batch are strictly ascending, so with this they have no gap.
    if header.record_count != header.last_offset_delta.saturating_add(1) {
        return Err(RecordError::OffsetsNotContiguous {
            count: header.record_count,
            last_offset_delta: header.last_offset_delta,
        });
    }
    RecordBatch::decode(records, max_decompressed_bytes)
}

/// Gives a batch its place in the log: base offset, leader epoch and, if the topic wants it
/// (`message.timestamp.type=LogAppendTime`), the append time in milliseconds. The batch is copied once, so that the
/// log does not keep the producer's frame alive.
///
/// # Errors
/// As [`place_in`].
pub fn place(
    batch: &[u8],
    base_offset: i64,
    leader_epoch: i32,
    log_append_time: Option<i64>,
) -> Result<Bytes, RecordError> {
    let mut copy = BytesMut::from(batch);
    place_in(&mut copy, base_offset, leader_epoch, log_append_time)?;
    Ok(copy.freeze())
}

/// As [`place`], in the batch's own bytes. The checksum covers neither offset nor epoch and is computed again only
/// for an append time.
///
/// # Errors
/// [`RecordError::Truncated`], [`RecordError::UnsupportedMagic`] or [`RecordError::InvalidHeader`]; the batch is
/// then as it was.
pub fn place_in(
    batch: &mut [u8],
    base_offset: i64,
    leader_epoch: i32,
    log_append_time: Option<i64>,
) -> Result<(), RecordError> {
    let header = BatchHeader::parse(batch)?;
    let last = base_offset.checked_add(i64::from(header.last_offset_delta));
    if base_offset < 0 || last.and_then(|last| last.checked_add(1)).is_none() {
        return Err(RecordError::InvalidHeader { base_offset, field: "base offset", value: base_offset });
    }
    let remaining = batch.len();
    let truncated = RecordError::Truncated { needed: header.total_len, remaining };
    let batch = batch.get_mut(..header.total_len).ok_or(truncated)?;
    put(batch, 0, &base_offset.to_be_bytes());
    put(batch, EPOCH_AT, &leader_epoch.to_be_bytes());
    if let Some(time) = log_append_time {
        let attributes = header.attributes.0 | Attributes::LOG_APPEND_TIME;
        put(batch, ATTRIBUTES_AT, &attributes.to_be_bytes());
        put(batch, MAX_TIMESTAMP_AT, &time.to_be_bytes());
        seal(batch);
    }
    Ok(())
}

fn put(batch: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = batch.get_mut(at..at.saturating_add(bytes.len())) {
        place.copy_from_slice(bytes);
    }
}
