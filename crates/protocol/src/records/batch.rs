//! One batch, checked and decompressed. Workers make it off the fetcher's path.

use bytes::Bytes;

use super::header::{BatchHeader, CRC_FROM, ControlType, HEADER_LEN};
use super::record::{self, Records};
use super::{Compression, RecordError};

/// A batch whose checksum, bounds and record count hold, decompressed. Iterating it allocates nothing and cannot
/// fail. An uncompressed batch keeps the fetched bytes alive as long as it lives.
#[derive(Debug, Clone)]
pub struct RecordBatch {
    header: BatchHeader,
    data: Bytes,
}

impl RecordBatch {
    /// Checks the batch at the first byte of `bytes` and decompresses it. Bytes behind the batch are not looked at.
    /// `max_decompressed_bytes` bounds the records' bytes, of uncompressed batches too.
    ///
    /// # Errors
    /// Any [`RecordError`] of reading; the batch is then unusable as a whole, its header may still be read with
    /// [`BatchHeader::parse`].
    pub fn decode(bytes: &Bytes, max_decompressed_bytes: usize) -> Result<Self, RecordError> {
        let header = BatchHeader::parse(bytes)?;
        let base_offset = header.base_offset;
        let (Some(covered), Some(stored)) =
            (bytes.get(CRC_FROM..header.total_len), bytes.get(HEADER_LEN..header.total_len))
        else {
            return Err(RecordError::Truncated { needed: header.total_len, remaining: bytes.len() });
        };
        let computed = crc32c::crc32c(covered);
        if computed != header.crc {
            return Err(RecordError::CrcMismatch { base_offset, expected: header.crc, computed });
        }
        let data = match header.attributes.compression()? {
            codec @ Compression::None if stored.len() > max_decompressed_bytes => {
                return Err(RecordError::DecompressedTooLarge { codec, max: max_decompressed_bytes });
            }
            Compression::None => bytes.slice(HEADER_LEN..header.total_len),
            // Compaction leaves batches without records and without a compressed stream.
            _ if stored.is_empty() && header.record_count == 0 => Bytes::new(),
            codec => Bytes::from(codec.decompress(stored, max_decompressed_bytes)?),
        };
        let count = usize::try_from(header.record_count).unwrap_or(0);
        if count > data.len() / record::MIN_RECORD_LEN {
            return Err(RecordError::CountTooLarge { count, remaining: data.len() });
        }
        match record::check(&header, &data) {
            Ok(0) => Ok(Self { header, data }),
            Ok(remaining) => Err(RecordError::TrailingBytes { base_offset, remaining }),
            Err((index, reason)) => Err(RecordError::InvalidRecord { base_offset, index, reason }),
        }
    }

    /// What the header says.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Records in the batch.
    pub fn len(&self) -> usize {
        usize::try_from(self.header.record_count).unwrap_or(0)
    }

    /// True if compaction left no record.
    pub fn is_empty(&self) -> bool {
        self.header.record_count == 0
    }

    /// Bytes of the records, decompressed.
    pub fn data_len(&self) -> usize {
        self.data.len()
    }

    /// The offset behind the batch: where to read on.
    pub fn next_offset(&self) -> i64 {
        self.header.next_offset()
    }

    /// True if the batch holds a marker that ends a transaction: not to be given to a consumer.
    pub fn is_control(&self) -> bool {
        self.header.is_control()
    }

    /// What the marker in a control batch says; `None` for a batch of records or an unreadable marker.
    pub fn control_type(&self) -> Option<ControlType> {
        if !self.is_control() {
            return None;
        }
        let key = self.iter().next()?.key?;
        let code = key.get(2..4)?.try_into().ok()?;
        Some(ControlType::from(i16::from_be_bytes(code)))
    }

    /// The records in the order of their offsets.
    pub fn iter(&self) -> Records<'_> {
        Records::new(&self.header, &self.data)
    }
}

impl<'a> IntoIterator for &'a RecordBatch {
    type Item = super::Record<'a>;
    type IntoIter = Records<'a>;

    fn into_iter(self) -> Records<'a> {
        self.iter()
    }
}
