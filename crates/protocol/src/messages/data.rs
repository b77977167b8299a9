//! Produce and Fetch.

use bytes::Bytes;

use crate::ErrorCode;

/// Produce (key 0).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProduceRequest {
    /// Transactional id, if the producer has one.
    pub transactional_id: Option<String>,
    /// −1 all in-sync replicas, 1 the leader, 0 no answer.
    pub acks: i16,
    /// How long the broker may wait for replicas, in milliseconds.
    pub timeout_ms: i32,
    /// The record batches.
    pub topics: Vec<ProduceTopic>,
}

/// A topic of a [`ProduceRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProduceTopic {
    /// The topic's name.
    pub name: String,
    /// The partitions.
    pub partitions: Vec<ProducePartition>,
}

/// A partition's record batches to append.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProducePartition {
    /// The partition's number.
    pub partition: i32,
    /// The record batches as bytes.
    pub records: Option<Bytes>,
}

/// Answer to [`ProduceRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProduceResponse {
    /// One entry a topic.
    pub topics: Vec<ProducedTopic>,
}

/// A topic in a [`ProduceResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProducedTopic {
    /// The topic's name.
    pub name: String,
    /// The partitions.
    pub partitions: Vec<ProducedPartition>,
}

/// What became of one partition's batches.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProducedPartition {
    /// The partition's number.
    pub partition: i32,
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// Offset of the first record appended, −1 with an error.
    pub base_offset: i64,
    /// Broker's timestamp if it sets one, else −1.
    pub log_append_time: i64,
    /// First offset of the log, −1 if unknown; version 5 and above.
    pub log_start_offset: i64,
    /// The broker's words on the error, version 8 and above.
    pub error_message: Option<String>,
}

/// Fetch (key 1), up to version 12.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FetchRequest {
    /// −1 for a consumer.
    pub replica_id: i32,
    /// How long the broker may hold the answer, in milliseconds.
    pub max_wait_ms: i32,
    /// Answer as soon as so many bytes are there.
    pub min_bytes: i32,
    /// Size limit of the answer, in bytes.
    pub max_bytes: i32,
    /// 0 read_uncommitted, 1 read_committed.
    pub isolation_level: i8,
    /// Fetch session (KIP-227), 0 for none; version 7 and above.
    pub session_id: i32,
    /// Epoch in the session, −1 for none; version 7 and above.
    pub session_epoch: i32,
    /// What to fetch.
    pub topics: Vec<FetchTopic>,
    /// What to drop from the session, version 7 and above.
    pub forgotten: Vec<ForgottenTopic>,
    /// The client's rack, version 11 and above.
    pub rack_id: String,
}

/// A topic of a [`FetchRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FetchTopic {
    /// The topic's name.
    pub name: String,
    /// The partitions.
    pub partitions: Vec<FetchPartition>,
}

/// A partition of a [`FetchRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FetchPartition {
    /// The partition's number.
    pub partition: i32,
    /// The leader epoch known to the client, −1 if unknown; version 9 and above.
    pub current_leader_epoch: i32,
    /// The offset to fetch from.
    pub fetch_offset: i64,
    /// Start of a follower's log, −1 for consumers; version 5 and above.
    pub log_start_offset: i64,
    /// Size limit for this partition, in bytes; one batch always fits.
    pub max_bytes: i32,
}

/// A topic to drop from a fetch session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ForgottenTopic {
    /// The topic's name.
    pub name: String,
    /// Partition numbers.
    pub partitions: Vec<i32>,
}

/// Answer to [`FetchRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FetchResponse {
    /// What went wrong for the whole request, version 7 and above.
    pub error: ErrorCode,
    /// The fetch session, 0 for none; version 7 and above.
    pub session_id: i32,
    /// One entry a topic.
    pub topics: Vec<FetchedTopic>,
}

/// A topic in a [`FetchResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FetchedTopic {
    /// The topic's name.
    pub name: String,
    /// The partitions.
    pub partitions: Vec<FetchedPartition>,
}

/// A partition in a [`FetchResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FetchedPartition {
    /// The partition's number.
    pub partition: i32,
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// The first offset that is not replicated yet.
    pub high_watermark: i64,
    /// The first offset of an open transaction, −1 if unknown.
    pub last_stable_offset: i64,
    /// First offset of the log, −1 if unknown; version 5 and above.
    pub log_start_offset: i64,
    /// Transactions aborted within the batches, for read_committed.
    pub aborted_transactions: Vec<AbortedTransaction>,
    /// A nearer replica to fetch from, −1 for none; version 11 and above.
    pub preferred_read_replica: i32,
    /// Record batches as bytes; the last may be cut off.
    pub records: Bytes,
}

/// An aborted transaction in a [`FetchedPartition`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// First offset of the transaction.
    pub first_offset: i64,
}
