//! What can be wrong with a record batch.

use thiserror::Error;

use super::Compression;

/// A record batch cannot be read, written or accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The bytes end before the batch does.
    #[error("the batch needs {needed} bytes, {remaining} remain")]
    Truncated {
        /// Bytes the batch needs.
        needed: usize,
        /// Bytes that are there.
        remaining: usize,
    },
    /// A message set of Kafka 0.10 and older (magic 0 and 1), or of a format not yet known.
    #[error("the message format {magic} at offset {base_offset} is unsupported, only 2 is")]
    UnsupportedMagic {
        /// The format's number.
        magic: i8,
        /// First offset of the batch.
        base_offset: i64,
    },
    /// A field of the batch's header says what cannot be.
    #[error("the batch at offset {base_offset} has the invalid {field} {value}")]
    InvalidHeader {
        /// First offset of the batch.
        base_offset: i64,
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// The checksum is wrong: the batch was damaged on its way or on a disk.
    #[error("the batch at offset {base_offset} is damaged: CRC32C {computed:08x}, expected {expected:08x}")]
    CrcMismatch {
        /// First offset of the batch.
        base_offset: i64,
        /// The checksum in the header.
        expected: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The batch names a compression that Kafka does not define.
    #[error("the compression {0} is not defined")]
    UnknownCompression(i16),
    /// The codec cannot read the compressed bytes.
    #[error("{codec} cannot decompress the batch: {reason}")]
    Decompress {
        /// The codec.
        codec: Compression,
        /// Its words.
        reason: String,
    },
    /// The batch decompresses to more than allowed, or claims to.
    #[error("the batch decompresses with {codec} to more than {max} bytes")]
    DecompressedTooLarge {
        /// The codec.
        codec: Compression,
        /// The most bytes that were allowed.
        max: usize,
    },
    /// The codec failed to compress.
    #[error("{codec} cannot compress the batch: {reason}")]
    Compress {
        /// The codec.
        codec: Compression,
        /// Its words.
        reason: String,
    },
    /// More records are promised than the bytes can hold.
    #[error("{count} records cannot fit into {remaining} bytes")]
    CountTooLarge {
        /// Records promised.
        count: usize,
        /// Bytes there.
        remaining: usize,
    },
    /// A record is malformed.
    #[error("record {index} of the batch at offset {base_offset} is invalid: {reason}")]
    InvalidRecord {
        /// First offset of the batch.
        base_offset: i64,
        /// The record's place in the batch, from 0.
        index: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// Bytes follow the last record.
    #[error("{remaining} bytes follow the last record of the batch at offset {base_offset}")]
    TrailingBytes {
        /// First offset of the batch.
        base_offset: i64,
        /// Bytes that follow.
        remaining: usize,
    },
    /// A producer sent something else than exactly one batch for a partition.
    #[error("a partition must get exactly one batch: the batch has {batch} bytes, {sent} were sent")]
    NotOneBatch {
        /// Bytes of the first batch.
        batch: usize,
        /// Bytes sent.
        sent: usize,
    },
    /// A producer sent a batch whose offsets are not 0, 1, 2 ….
    #[error("the batch has {count} records but its last offset delta is {last_offset_delta}")]
    OffsetsNotContiguous {
        /// Records in the batch.
        count: i32,
        /// The last offset relative to the first.
        last_offset_delta: i32,
    },
    /// A producer sent a control batch, which only brokers write.
    #[error("a producer may not write control batches")]
    ControlBatch,
    /// A batch, a record or a part of one is longer than the format can say.
    #[error("{what} of {length} bytes is longer than the format can say")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
    },
}
