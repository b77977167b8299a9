//! OffsetCommit, OffsetFetch, ListOffsets.

use crate::ErrorCode;

/// OffsetCommit (key 8).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetCommitRequest {
    /// The group.
    pub group_id: String,
    /// The member's generation, −1 outside a group.
    pub generation: i32,
    /// Member id, empty outside a group.
    pub member_id: String,
    /// Group instance id, version 7 and above.
    pub group_instance_id: Option<String>,
    /// The offsets.
    pub topics: Vec<OffsetCommitTopic>,
}

/// A topic's offsets to commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetCommitTopic {
    /// The topic's name.
    pub name: String,
    /// The partitions.
    pub partitions: Vec<OffsetCommitPartition>,
}

/// A partition's offset to commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetCommitPartition {
    /// The partition's number.
    pub partition: i32,
    /// The next offset to handle.
    pub offset: i64,
    /// Leader epoch of the last record handled, −1 if unknown; version 6 and above.
    pub leader_epoch: i32,
    /// Free text kept with the offset.
    pub metadata: Option<String>,
}

/// Answer to [`OffsetCommitRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetCommitResponse {
    /// One entry a topic.
    pub topics: Vec<OffsetCommittedTopic>,
}

/// A topic in an [`OffsetCommitResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetCommittedTopic {
    /// The topic's name.
    pub name: String,
    /// The partitions.
    pub partitions: Vec<OffsetCommittedPartition>,
}

/// What became of one partition's commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetCommittedPartition {
    /// The partition's number.
    pub partition: i32,
    /// What went wrong, if anything.
    pub error: ErrorCode,
}

/// OffsetFetch (key 9). Several groups from version 8 (KIP-709).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetFetchRequest {
    /// The groups; exactly one before version 8.
    pub groups: Vec<OffsetFetchGroup>,
    /// Refuse offsets that a pending transaction may still change, version 7 and above.
    pub require_stable: bool,
}

/// One group of an [`OffsetFetchRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetFetchGroup {
    /// The group.
    pub group_id: String,
    /// The partitions; `None` asks for all, version 2 and above.
    pub topics: Option<Vec<OffsetFetchTopic>>,
}

/// A topic of an [`OffsetFetchRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetFetchTopic {
    /// The topic's name.
    pub name: String,
    /// Partition numbers.
    pub partitions: Vec<i32>,
}

/// Answer to [`OffsetFetchRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetFetchResponse {
    /// One entry a group; before version 8 one entry with an empty group id.
    pub groups: Vec<FetchedOffsets>,
}

/// A group's committed offsets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FetchedOffsets {
    /// The group; empty before version 8.
    pub group_id: String,
    /// What went wrong for the whole group, if anything.
    pub error: ErrorCode,
    /// One entry a topic.
    pub topics: Vec<FetchedOffsetsTopic>,
}

/// A topic's committed offsets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FetchedOffsetsTopic {
    /// The topic's name.
    pub name: String,
    /// The partitions.
    pub partitions: Vec<FetchedOffset>,
}

/// A partition's committed offset.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FetchedOffset {
    /// The partition's number.
    pub partition: i32,
    /// The committed offset, −1 if there is none.
    pub offset: i64,
    /// Leader epoch kept with it, −1 if unknown; version 5 and above.
    pub leader_epoch: i32,
    /// Free text kept with it.
    pub metadata: Option<String>,
    /// What went wrong, if anything.
    pub error: ErrorCode,
}

/// ListOffsets (key 2): the offset of a timestamp.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListOffsetsRequest {
    /// 0 read_uncommitted, 1 read_committed; version 2 and above.
    pub isolation_level: i8,
    /// The topics.
    pub topics: Vec<ListOffsetsTopic>,
}

/// A topic of a [`ListOffsetsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListOffsetsTopic {
    /// The topic's name.
    pub name: String,
    /// The partitions.
    pub partitions: Vec<ListOffsetsPartition>,
}

/// A partition of a [`ListOffsetsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListOffsetsPartition {
    /// The partition's number.
    pub partition: i32,
    /// The leader epoch known to the client, −1 if unknown; version 4 and above.
    pub leader_epoch: i32,
    /// Milliseconds since the epoch; −1 the latest offset, −2 the earliest.
    pub timestamp: i64,
}

/// Answer to [`ListOffsetsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListOffsetsResponse {
    /// One entry a topic.
    pub topics: Vec<ListedOffsetsTopic>,
}

/// A topic in a [`ListOffsetsResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListedOffsetsTopic {
    /// The topic's name.
    pub name: String,
    /// The partitions.
    pub partitions: Vec<ListedOffset>,
}

/// The offset found for one partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListedOffset {
    /// The partition's number.
    pub partition: i32,
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// Timestamp of the record at the offset, −1 if unknown.
    pub timestamp: i64,
    /// The offset, −1 if none was found.
    pub offset: i64,
    /// Leader epoch of the offset, −1 if unknown; version 4 and above.
    pub leader_epoch: i32,
}
