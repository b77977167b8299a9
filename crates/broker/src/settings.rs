//! A broker's settings, with their defaults. Filled in by `builder`.

use std::collections::BTreeMap;

use kohort_group::coordinator::CoordinatorConfig;
use kohort_protocol::ApiKey;

/// What a broker may be told; see the methods of `BrokerBuilder`.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) coordinator: CoordinatorConfig,
    pub(crate) auto_create_topics: bool,
    pub(crate) default_partitions: i32,
    pub(crate) nodes: usize,
    pub(crate) seed: u64,
    pub(crate) max_frame_bytes: usize,
    pub(crate) max_message_bytes: usize,
    pub(crate) max_decompressed_bytes: usize,
    pub(crate) max_partition_bytes: usize,
    pub(crate) max_partitions: usize,
    pub(crate) max_connections: usize,
    pub(crate) journal: usize,
    pub(crate) max_versions: BTreeMap<ApiKey, i16>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            coordinator: CoordinatorConfig::default(),
            auto_create_topics: true,
            default_partitions: 1,
            nodes: 1,
            seed: 0,
            max_frame_bytes: 100 * 1024 * 1024,
            // Kafka's `message.max.bytes`: 1 MiB and the header of a batch before magic 2.
            max_message_bytes: 1024 * 1024 + 12,
            max_decompressed_bytes: 64 * 1024 * 1024,
            max_partition_bytes: 256 * 1024 * 1024,
            max_partitions: 100_000,
            max_connections: 10_000,
            journal: 10_000,
            max_versions: BTreeMap::new(),
        }
    }
}
