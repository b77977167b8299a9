//! ApiVersions, Metadata, FindCoordinator, CreateTopics, InitProducerId: what a cluster says of itself.

use crate::ErrorCode;

/// ApiVersions (key 18): which requests does the broker speak? (KIP-35, KIP-511)
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ApiVersionsRequest {
    /// Name of the client's software, version 3 and above.
    pub client_software_name: String,
    /// Version of the client's software, version 3 and above.
    pub client_software_version: String,
}

/// Answer to [`ApiVersionsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ApiVersionsResponse {
    /// [`ErrorCode::UnsupportedVersion`] with the ranges when the version asked for is unknown.
    pub error: ErrorCode,
    /// A range for each request the broker speaks.
    pub apis: Vec<ApiVersionRange>,
}

/// The versions of one request that a broker speaks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ApiVersionRange {
    /// The request's key.
    pub key: i16,
    /// Lowest version.
    pub min: i16,
    /// Highest version.
    pub max: i16,
}

/// Metadata (key 3): brokers, topics, leaders.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct MetadataRequest {
    /// The topics asked for; `None` asks for all.
    pub topics: Option<Vec<String>>,
    /// May the broker create an unknown topic? Version 4 and above; before that it always may.
    pub allow_auto_topic_creation: bool,
}

/// Answer to [`MetadataRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct MetadataResponse {
    /// The brokers that are alive.
    pub brokers: Vec<BrokerAddress>,
    /// The cluster's id, version 2 and above.
    pub cluster_id: Option<String>,
    /// Node id of the controller, −1 if there is none.
    pub controller_id: i32,
    /// The topics asked for.
    pub topics: Vec<TopicMetadata>,
}

/// Where a broker listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct BrokerAddress {
    /// The broker's node id.
    pub node_id: i32,
    /// Host name or address.
    pub host: String,
    /// Port; a value outside 1–65535 is as the broker sent it.
    pub port: i32,
}

/// A topic in a [`MetadataResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TopicMetadata {
    /// What is wrong with the topic, if anything.
    pub error: ErrorCode,
    /// The topic's name.
    pub name: String,
    /// True for Kafka's own topics.
    pub is_internal: bool,
    /// The topic's partitions.
    pub partitions: Vec<PartitionMetadata>,
}

/// A partition in a [`MetadataResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PartitionMetadata {
    /// What is wrong with the partition, if anything.
    pub error: ErrorCode,
    /// The partition's number.
    pub partition: i32,
    /// Node id of the leader, −1 if there is none.
    pub leader: i32,
    /// The leader's epoch, −1 before version 7.
    pub leader_epoch: i32,
    /// Node ids of the replicas.
    pub replicas: Vec<i32>,
    /// Node ids of the in-sync replicas.
    pub isr: Vec<i32>,
}

/// FindCoordinator (key 10): which broker coordinates these keys? Several keys from version 4 (KIP-699).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FindCoordinatorRequest {
    /// 0 a group, 1 a transaction.
    pub key_type: i8,
    /// Group ids or transactional ids; exactly one before version 4.
    pub keys: Vec<String>,
}

/// Answer to [`FindCoordinatorRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FindCoordinatorResponse {
    /// One entry a key.
    pub coordinators: Vec<CoordinatorAddress>,
}

/// The coordinator of one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CoordinatorAddress {
    /// The key asked for; empty before version 4.
    pub key: String,
    /// Node id, −1 with an error.
    pub node_id: i32,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: i32,
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// The broker's words on the error.
    pub error_message: Option<String>,
}

/// CreateTopics (key 19).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CreateTopicsRequest {
    /// The topics to create.
    pub topics: Vec<NewTopic>,
    /// How long the broker may take, in milliseconds.
    pub timeout_ms: i32,
    /// Check only, create nothing.
    pub validate_only: bool,
}

/// A topic to create.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NewTopic {
    /// The topic's name.
    pub name: String,
    /// Number of partitions, −1 for the broker's default.
    pub num_partitions: i32,
    /// Replication factor, −1 for the broker's default.
    pub replication_factor: i16,
    /// Replicas by partition, when assigned by hand.
    pub assignments: Vec<(i32, Vec<i32>)>,
    /// Topic settings by name.
    pub configs: Vec<(String, Option<String>)>,
}

/// Answer to [`CreateTopicsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CreateTopicsResponse {
    /// One entry a topic.
    pub topics: Vec<CreatedTopic>,
}

/// What became of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CreatedTopic {
    /// The topic's name.
    pub name: String,
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// The broker's words on the error.
    pub error_message: Option<String>,
    /// Partitions of the topic, version 5 and above, else −1.
    pub num_partitions: i32,
    /// Replication factor, version 5 and above, else −1.
    pub replication_factor: i16,
}

/// InitProducerId (key 22): an id for an idempotent producer (KIP-98).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct InitProducerIdRequest {
    /// Transactional id, if the producer has one.
    pub transactional_id: Option<String>,
    /// Transaction timeout in milliseconds.
    pub transaction_timeout_ms: i32,
    /// Current id, −1 if none; version 3 and above.
    pub producer_id: i64,
    /// Current epoch, −1 if none; version 3 and above.
    pub producer_epoch: i16,
}

/// Answer to [`InitProducerIdRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct InitProducerIdResponse {
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// The id, −1 with an error.
    pub producer_id: i64,
    /// The epoch, −1 with an error.
    pub producer_epoch: i16,
}
