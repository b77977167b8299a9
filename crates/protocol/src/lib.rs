//! The Kafka wire: bytes ↔ small plain types.
//!
//! This crate knows no runtime, no socket, no clock and no state machine. All bytes from outside pass its
//! bounded decoders: a count is checked against what the rest of the frame can hold before anything is
//! allocated for it. `kafka-protocol` encodes, and is the oracle of the differential tests; its own decoders
//! never see foreign bytes.

pub mod error_code;
pub mod messages;
pub mod topic_partition;

pub use error_code::ErrorCode;
pub use topic_partition::TopicPartition;
