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
//!
//! ```
//! use kohort_protocol::messages::{HeartbeatRequest, HeartbeatResponse};
//! use kohort_protocol::{ApiKey, ErrorCode, Request, RequestHeader, frame};
//!
//! // The client.
//! let beat = HeartbeatRequest { group_id: "orders".into(), generation: 3, ..Default::default() };
//! let mut sent = frame::encode_request(&beat, 4, 1, Some("kohort"))?.slice(4..);
//!
//! // The broker.
//! let header = RequestHeader::decode(&mut sent)?;
//! assert_eq!(header.spoken(), Some(ApiKey::Heartbeat));
//! assert_eq!(HeartbeatRequest::decode(header.api_version, sent)?, beat);
//! let answer = HeartbeatResponse { error: ErrorCode::RebalanceInProgress };
//! let answered = frame::encode_response(&answer, header.api_version, header.correlation_id)?;
//!
//! // The client again.
//! assert_eq!(frame::decode_response(answered.slice(4..), 4)?, (1, answer));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod api;
pub mod consumer;
pub mod error;
pub mod error_code;
pub mod frame;
pub mod message;
pub mod messages;
pub mod reader;
pub mod records;
pub mod sticky;
pub mod topic_partition;
mod wire;

pub use api::{ApiKey, ApiVersions, VersionRange};
pub use consumer::{Assignment, Subscription};
pub use error::{DecodeError, DecodeErrorKind, EncodeError, FrameError};
pub use error_code::ErrorCode;
pub use frame::RequestHeader;
pub use message::{AnyRequest, AnyResponse, Request, Response};
pub use topic_partition::TopicPartition;
