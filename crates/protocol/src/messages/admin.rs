//! DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, DeleteTopics, CreatePartitions: what an operator asks.

use bytes::Bytes;

use crate::ErrorCode;

/// DescribeGroups (key 15). Which operations the asker may do is not asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DescribeGroupsRequest {
    /// The groups.
    pub groups: Vec<String>,
}

/// Answer to [`DescribeGroupsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DescribeGroupsResponse {
    /// One entry a group.
    pub groups: Vec<DescribedGroup>,
}

/// A group in a [`DescribeGroupsResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DescribedGroup {
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// The broker's words on the error, version 6 and above.
    pub error_message: Option<String>,
    /// The group.
    pub group_id: String,
    /// Kafka's name of its state; `Dead` for a group that is not there.
    pub state: String,
    /// Protocol type, empty if no member ever joined.
    pub protocol_type: String,
    /// The assignor chosen, empty unless the group is stable.
    pub protocol_name: String,
    /// The members.
    pub members: Vec<DescribedMember>,
}

/// A member in a [`DescribedGroup`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DescribedMember {
    /// Member id.
    pub member_id: String,
    /// Group instance id, version 4 and above.
    pub group_instance_id: Option<String>,
    /// Client id.
    pub client_id: String,
    /// Client host.
    pub client_host: String,
    /// Subscription blob for the assignor chosen.
    pub metadata: Bytes,
    /// Assignment blob.
    pub assignment: Bytes,
}

/// ListGroups (key 16): the groups that a broker coordinates.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListGroupsRequest {
    /// Only groups in these states, all if empty; version 4 and above (KIP-518).
    pub states: Vec<String>,
    /// Only groups of these types, all if empty; version 5 and above (KIP-848).
    pub types: Vec<String>,
}

/// Answer to [`ListGroupsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListGroupsResponse {
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// One entry a group.
    pub groups: Vec<ListedGroup>,
}

/// A group in a [`ListGroupsResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ListedGroup {
    /// The group.
    pub group_id: String,
    /// Protocol type, empty if no member ever joined.
    pub protocol_type: String,
    /// Kafka's name of its state, version 4 and above.
    pub state: String,
    /// Its type: `classic`, `consumer` and others; version 5 and above.
    pub group_type: String,
}

/// DeleteGroups (key 42).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DeleteGroupsRequest {
    /// The groups.
    pub groups: Vec<String>,
}

/// Answer to [`DeleteGroupsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DeleteGroupsResponse {
    /// One entry a group.
    pub groups: Vec<DeletedGroup>,
}

/// What became of one group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DeletedGroup {
    /// The group.
    pub group_id: String,
    /// What went wrong, if anything.
    pub error: ErrorCode,
}

/// OffsetDelete (key 47): forget committed offsets (KIP-496).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetDeleteRequest {
    /// The group.
    pub group_id: String,
    /// The topics.
    pub topics: Vec<OffsetDeleteTopic>,
}

/// A topic of an [`OffsetDeleteRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetDeleteTopic {
    /// The topic's name.
    pub name: String,
    /// Partition numbers.
    pub partitions: Vec<i32>,
}

/// Answer to [`OffsetDeleteRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetDeleteResponse {
    /// What went wrong for the whole request, if anything; nothing is listed then.
    pub error: ErrorCode,
    /// One entry a topic.
    pub topics: Vec<OffsetDeletedTopic>,
}

/// A topic in an [`OffsetDeleteResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OffsetDeletedTopic {
    /// The topic's name.
    pub name: String,
    /// Partition numbers, and what went wrong, if anything.
    pub partitions: Vec<(i32, ErrorCode)>,
}

/// DeleteTopics (key 20), by name: version 6, which can name a topic by its id, is not spoken.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DeleteTopicsRequest {
    /// The topics.
    pub topics: Vec<String>,
    /// How long the broker may take, in milliseconds.
    pub timeout_ms: i32,
}

/// Answer to [`DeleteTopicsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DeleteTopicsResponse {
    /// One entry a topic.
    pub topics: Vec<DeletedTopic>,
}

/// What became of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DeletedTopic {
    /// The topic's name.
    pub name: String,
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// The broker's words on the error, version 5 and above.
    pub error_message: Option<String>,
}

/// CreatePartitions (key 37): more partitions for topics (KIP-195).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CreatePartitionsRequest {
    /// The topics.
    pub topics: Vec<MorePartitions>,
    /// How long the broker may take, in milliseconds.
    pub timeout_ms: i32,
    /// Check only, create nothing.
    pub validate_only: bool,
}

/// A topic of a [`CreatePartitionsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct MorePartitions {
    /// The topic's name.
    pub name: String,
    /// How many partitions it shall have in all.
    pub count: i32,
    /// The replicas of each new partition, when assigned by hand.
    pub assignments: Option<Vec<Vec<i32>>>,
}

/// Answer to [`CreatePartitionsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CreatePartitionsResponse {
    /// One entry a topic.
    pub topics: Vec<CreatedPartitions>,
}

/// What became of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CreatedPartitions {
    /// The topic's name.
    pub name: String,
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// The broker's words on the error.
    pub error_message: Option<String>,
}
