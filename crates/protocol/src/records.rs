//! Record batches of magic 2 (Kafka 0.11 and newer): reading them in bulk and in detail, and writing them. The two
//! older formats are refused with a typed error, never misread.
//!
//! | who | does | with |
//! |---|---|---|
//! | a fetcher | learns the next offset from headers alone | [`scan`], [`batches`] |
//! | a worker | checks and decompresses one batch, then iterates it | [`RawBatch::decode`], [`RecordBatch::iter`] |
//! | a producer | writes a batch | [`RecordBatchBuilder`] |
//! | a broker | checks a produced batch and gives it its offsets | [`validate_produced`], [`place`] |
//!
//! ```
//! use kohort_protocol::records::{Compression, RecordBatchBuilder, batches, place, scan};
//!
//! let mut builder = RecordBatchBuilder::new(Compression::Zstd);
//! builder.append(1_700_000_000_000, Some(b"key"), Some(b"value"), [(&b"trace"[..], Some(&b"7"[..]))])?;
//! let fetched = place(&builder.build()?, 42, 0, None)?;
//!
//! assert_eq!(scan(&fetched)?.next_offset, Some(43));
//! for raw in batches(&fetched) {
//!     let batch = raw?.decode(64 << 20)?;
//!     for record in &batch {
//!         assert_eq!((record.offset, record.value), (42, Some(&b"value"[..])));
//!         assert_eq!(record.headers().get("trace").and_then(|header| header.value), Some(&b"7"[..]));
//!     }
//! }
//! # Ok::<(), kohort_protocol::records::RecordError>(())
//! ```

pub mod append;
pub mod batch;
pub mod builder;
pub mod compression;
mod cursor;
pub mod error;
pub mod header;
pub mod record;

pub use append::{place, place_in, validate_produced};
pub use batch::RecordBatch;
pub use builder::{RecordBatchBuilder, control_batch};
pub use compression::Compression;
pub use error::RecordError;
pub use header::{
    Attributes, BatchHeader, Batches, ControlType, HEADER_LEN, RawBatch, Scan, TimestampType, batches, scan,
};
pub use record::{Header, Headers, OwnedHeader, OwnedRecord, Record, Records};
