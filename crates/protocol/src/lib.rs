//! The Kafka wire: bytes ↔ small plain types.
//!
//! This crate knows no runtime, no socket, no clock and no state machine. All bytes from outside pass its
//! bounded decoders: a count is checked against what the rest of the frame can hold before anything is
//! allocated for it. `kafka-protocol` encodes, and is the oracle of the differential tests; its own decoders
//! never see foreign bytes.
//!
//! | to | use |
//! |---|---|
//! | send a request, read its answer | [`frame::encode_request`], [`frame::decode_response`] |
//! | serve requests | [`RequestHeader::decode`], [`AnyRequest::decode`], [`frame::encode_response`] |
//! | agree on a version | [`ApiVersions::negotiate`] |
//! | read what members tell each other | [`Subscription`], [`Assignment`] |
//! | read and write records | [`records`] |

pub mod api;
pub mod consumer;
pub mod error;
pub mod error_code;
pub mod frame;
pub mod message;
pub mod messages;
pub mod reader;
pub mod records;
pub mod topic_partition;
mod wire;

pub use api::{ApiKey, ApiVersions, VersionRange};
pub use consumer::{Assignment, Subscription};
pub use error::{DecodeError, DecodeErrorKind, EncodeError, FrameError};
pub use error_code::ErrorCode;
pub use frame::RequestHeader;
pub use message::{AnyRequest, AnyResponse, Request, Response};
pub use topic_partition::TopicPartition;
