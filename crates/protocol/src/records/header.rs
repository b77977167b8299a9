//! The 61-byte header of a batch, and walking over fetched bytes by headers alone: nothing is decompressed, checked
//! or copied. Fetchers call this; [`super::batch`] looks inside.

use std::fmt;

use bytes::Bytes;

use super::cursor::Cursor;
use super::{Compression, RecordBatch, RecordError};

/// Length of a batch's header in bytes.
pub const HEADER_LEN: usize = 61;

/// The length field counts from here.
pub(super) const LENGTH_FROM: usize = 12;
/// The leader's epoch stands here.
pub(super) const EPOCH_AT: usize = 12;
/// The checksum stands here.
pub(super) const CRC_AT: usize = 17;
/// The checksum covers everything from here; it leaves out what the broker fills in.
pub(super) const CRC_FROM: usize = 21;
/// The largest timestamp stands here.
pub(super) const MAX_TIMESTAMP_AT: usize = 35;

/// The attribute bits of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Attributes(pub i16);

/// Where the timestamps of a batch come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    /// Each record has the time its producer gave it.
    #[default]
    CreateTime,
    /// All records have the time at which the broker appended the batch (`message.timestamp.type`).
    LogAppendTime,
}

impl Attributes {
    pub(super) const LOG_APPEND_TIME: i16 = 1 << 3;
    pub(super) const TRANSACTIONAL: i16 = 1 << 4;
    pub(super) const CONTROL: i16 = 1 << 5;

    /// How the records are compressed.
    ///
    /// # Errors
    /// [`RecordError::UnknownCompression`] for a number that Kafka does not define.
    pub fn compression(self) -> Result<Compression, RecordError> {
        Compression::from_bits(self.0 & 0b111)
    }

    /// Where the timestamps come from.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// True if the batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// True if the batch holds a marker that ends a transaction, not records of a producer.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }
}

/// What the header of a batch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Length of the whole batch in bytes, header included.
    pub total_len: usize,
    /// Epoch of the leader that appended it, −1 before.
    pub partition_leader_epoch: i32,
    /// CRC32C over everything behind it.
    pub crc: u32,
    /// Compression, kind of timestamps, transactional, control.
    pub attributes: Attributes,
    /// Last offset, relative to the first. Compaction keeps it when it removes records.
    pub last_offset_delta: i32,
    /// Timestamp that the records' are relative to, in milliseconds since the epoch.
    pub base_timestamp: i64,
    /// The largest timestamp, or the append time if the broker sets it; in milliseconds since the epoch.
    pub max_timestamp: i64,
    /// The producer, −1 if it is not idempotent.
    pub producer_id: i64,
    /// Its epoch, −1 if it is not idempotent.
    pub producer_epoch: i16,
    /// Sequence number of the first record, −1 if it is not idempotent.
    pub base_sequence: i32,
    /// Records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the first byte of `bytes`. The batch itself need not be there in full; the checksum is
    /// not looked at.
    ///
    /// # Errors
    /// [`RecordError::Truncated`], [`RecordError::UnsupportedMagic`] or [`RecordError::InvalidHeader`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let truncated = RecordError::Truncated { needed: HEADER_LEN, remaining: bytes.len() };
        let mut fields = Fields(Cursor::new(bytes));
        // The magic stands at the same place in every format, so an old one is told from a short one.
        let (Some(base_offset), Some(length), Some(epoch), Some(magic)) =
            (fields.i64(), fields.i32(), fields.i32(), fields.i8())
        else {
            return Err(truncated);
        };
        if magic != 2 {
            return Err(RecordError::UnsupportedMagic { magic, base_offset });
        }
        let invalid = |field, value: i64| RecordError::InvalidHeader { base_offset, field, value };
        let total_len = usize::try_from(length).ok().and_then(|length| length.checked_add(LENGTH_FROM));
        let total_len = match total_len {
            Some(total_len) if total_len >= HEADER_LEN => total_len,
            _ => return Err(invalid("length", i64::from(length))),
        };
        let header = fields.rest_of_header(base_offset, total_len, epoch).ok_or(truncated)?;
        if base_offset < 0 {
            return Err(invalid("base offset", base_offset));
        }
        let last = i64::from(header.last_offset_delta);
        if last < 0 || base_offset.checked_add(last).and_then(|last| last.checked_add(1)).is_none() {
            return Err(invalid("last offset delta", last));
        }
        // Compaction can remove every record of a batch, so that none is left.
        if header.record_count < 0 || i64::from(header.record_count) > last.saturating_add(1) {
            return Err(invalid("record count", i64::from(header.record_count)));
        }
        Ok(header)
    }

    /// Offset of the last record, also of one that compaction removed.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset behind the batch: where to read on.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// True if the batch holds a marker that ends a transaction.
    pub fn is_control(&self) -> bool {
        self.attributes.is_control()
    }
}

struct Fields<'a>(Cursor<'a>);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.0.take(N)?.try_into().ok()
    }

    fn i8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn rest_of_header(&mut self, base_offset: i64, total_len: usize, epoch: i32) -> Option<BatchHeader> {
        Some(BatchHeader {
            base_offset,
            total_len,
            partition_leader_epoch: epoch,
            crc: self.array().map(u32::from_be_bytes)?,
            attributes: Attributes(self.i16()?),
            last_offset_delta: self.i32()?,
            base_timestamp: self.i64()?,
            max_timestamp: self.i64()?,
            producer_id: self.i64()?,
            producer_epoch: self.i16()?,
            base_sequence: self.i32()?,
            record_count: self.i32()?,
        })
    }
}

/// A whole batch as it was fetched: its header is read, nothing else of it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBatch {
    /// What the header says.
    pub header: BatchHeader,
    /// The batch, header included, as a slice of the fetched bytes.
    pub bytes: Bytes,
}

impl RawBatch {
    /// Checks the batch and decompresses it, to at most `max_decompressed_bytes`.
    ///
    /// # Errors
    /// As [`RecordBatch::decode`].
    pub fn decode(&self, max_decompressed_bytes: usize) -> Result<RecordBatch, RecordError> {
        RecordBatch::decode(&self.bytes, max_decompressed_bytes)
    }
}

/// Walks over the batches of fetched bytes. It ends where the bytes end; a batch that is cut off at the end is
/// left out, as brokers cut the last batch off. After an error it ends too.
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
}

/// The batches of fetched bytes, as slices of them.
pub fn batches(data: &Bytes) -> Batches {
    Batches { rest: data.clone() }
}

impl Batches {
    /// The bytes that were not walked over: what remains at the end is a batch cut off.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }
}

impl Iterator for Batches {
    type Item = Result<RawBatch, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        match whole_batch(&self.rest) {
            Ok(Some(header)) => {
                let bytes = self.rest.split_to(header.total_len);
                Some(Ok(RawBatch { header, bytes }))
            }
            Ok(None) => None,
            Err(error) => {
                self.rest = Bytes::new();
                Some(Err(error))
            }
        }
    }
}

/// The header of the first batch, `None` if the batch is not there in full.
fn whole_batch(bytes: &[u8]) -> Result<Option<BatchHeader>, RecordError> {
    match BatchHeader::parse(bytes) {
        Ok(header) if header.total_len <= bytes.len() => Ok(Some(header)),
        Ok(_) | Err(RecordError::Truncated { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the headers of fetched bytes say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scan {
    /// Whole batches.
    pub batches: usize,
    /// Bytes of the whole batches; behind them is at most a batch cut off.
    pub bytes: usize,
    /// Records that the headers promise, those of control batches included.
    pub records: u64,
    /// Where to read on, `None` without a whole batch.
    pub next_offset: Option<i64>,
}

/// Reads the headers only, to know where to read on before anything is decoded.
///
/// # Errors
/// The first header's [`RecordError`]; use [`batches`] to have the batches before it.
pub fn scan(data: &[u8]) -> Result<Scan, RecordError> {
    let mut scan = Scan::default();
    let mut rest = data;
    while let Some(header) = whole_batch(rest)? {
        let Some((_, behind)) = rest.split_at_checked(header.total_len) else { break };
        rest = behind;
        scan.batches = scan.batches.saturating_add(1);
        scan.bytes = scan.bytes.saturating_add(header.total_len);
        scan.records = scan.records.saturating_add(u64::try_from(header.record_count).unwrap_or(0));
        scan.next_offset = Some(header.next_offset());
    }
    Ok(scan)
}

/// How a transaction ended, as the marker in a control batch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ControlType {
    /// The transaction was aborted.
    Abort,
    /// The transaction was committed.
    Commit,
    /// A marker of another kind, to be skipped.
    Other(i16),
}

impl ControlType {
    /// The number as it stands on the wire.
    pub fn code(self) -> i16 {
        match self {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::Other(code) => code,
        }
    }
}

impl From<i16> for ControlType {
    fn from(code: i16) -> Self {
        match code {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            other => ControlType::Other(other),
        }
    }
}

/// `abort`, `commit` or `control 7`
impl fmt::Display for ControlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlType::Abort => f.write_str("abort"),
            ControlType::Commit => f.write_str("commit"),
            ControlType::Other(code) => write!(f, "control {code}"),
        }
    }
}
