//! Record batches of magic 2 (Kafka 0.11 and newer): reading them in bulk and in detail, and writing them. The two
//! older formats are refused with a typed error, never misread.
//!
//! | who | does | with |
//! |---|---|---|
//! | a fetcher | learns the next offset from headers alone | [`scan`], [`batches`] |
//! | a worker | checks and decompresses one batch, then iterates it | [`RawBatch::decode`], [`RecordBatch::iter`] |
//! | a producer | writes a batch | [`RecordBatchBuilder`] |
//! | a broker | checks a produced batch and gives it its offsets | [`validate_produced`], [`place`] |

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
