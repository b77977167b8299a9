//! How a broker is set up before it starts.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use kohort_group::coordinator::CoordinatorConfig;
use kohort_protocol::ApiKey;

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::settings::Settings;

/// Nodes of a cluster at the most.
const MAX_NODES: usize = 100;

/// Settings of a [`Broker`] that is to start. Where Kafka has a setting of the kind, its name is given.
#[derive(Debug, Clone)]
#[must_use = "a broker starts with `start`"]
pub struct BrokerBuilder {
    listen: Option<String>,
    topics: Vec<(String, i32)>,
    seed: Option<u64>,
    settings: Settings,
}

impl BrokerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            listen: Some("127.0.0.1:0".to_owned()),
            topics: Vec::new(),
            seed: None,
            settings: Settings::default(),
        }
    }

    /// Listen on this `host:port`. Default `127.0.0.1:0`: a free port of the loopback interface.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = Some(address.into());
        self
    }

    /// Listen on no socket: only [`Broker::memory`] connects. Works under tokio's paused clock.
    pub fn in_memory(mut self) -> Self {
        self.listen = None;
        self
    }

    /// A cluster of this many nodes, with the ids 0, 1 and so on. Default 1. They listen on the port asked for and the
    /// ones after it, or each on a free one for port 0. See [`Broker`] for what several nodes can do.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.settings.nodes = nodes;
        self
    }

    /// Create this topic at the start.
    pub fn topic(mut self, name: impl Into<String>, partitions: i32) -> Self {
        self.topics.push((name.into(), partitions));
        self
    }

    /// May Metadata and Produce create unknown topics? Default true (`auto.create.topics.enable`).
    pub fn auto_create_topics(mut self, allowed: bool) -> Self {
        self.settings.auto_create_topics = allowed;
        self
    }

    /// Partitions of a topic created without a number. Default 1 (`num.partitions`).
    pub fn default_partitions(mut self, partitions: i32) -> Self {
        self.settings.default_partitions = partitions;
        self
    }

    /// The coordinator's limits (`group.*`).
    pub fn coordinator(mut self, config: CoordinatorConfig) -> Self {
        self.settings.coordinator = config;
        self
    }

    /// How long the first rebalance of an empty group waits for more members. Default 0
    /// (`group.initial.rebalance.delay.ms`, where Kafka has 3 s).
    pub fn initial_rebalance_delay(mut self, delay: Duration) -> Self {
        self.settings.coordinator.initial_rebalance_delay = delay;
        self
    }

    /// Member ids and the cluster id follow from this number. Default: a random one.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The longest request, in bytes. Default 100 MiB (`socket.request.max.bytes`).
    pub fn max_frame_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_frame_bytes = bytes;
        self
    }

    /// The largest batch, in bytes as it is sent. Default 1 048 588 (`message.max.bytes`).
    pub fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_message_bytes = bytes;
        self
    }

    /// The largest batch, in bytes after decompression. Default 64 MiB.
    pub fn max_decompressed_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_decompressed_bytes = bytes;
        self
    }

    /// Bytes kept of each partition; older batches are dropped. Default 256 MiB (`log.retention.bytes`).
    pub fn max_partition_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_partition_bytes = bytes;
        self
    }

    /// Partitions of all topics together. Default 100 000.
    pub fn max_partitions(mut self, partitions: usize) -> Self {
        self.settings.max_partitions = partitions;
        self
    }

    /// Connections at a time; more are closed at once. Default 10 000 (`max.connections`).
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.settings.max_connections = connections;
        self
    }

    /// Requests kept for [`Broker::requests`]. Default 10 000; 0 keeps none.
    pub fn journal(mut self, requests: usize) -> Self {
        self.settings.journal = requests;
        self
    }

    /// Speak this request up to this version only, as an older broker does. Default: all that are known.
    pub fn max_version(mut self, api: ApiKey, version: i16) -> Self {
        self.settings.max_versions.insert(api, version);
        self
    }

    /// Starts the broker.
    ///
    /// # Errors
    /// [`BrokerError::AddressInUse`], [`BrokerError::Listen`], [`BrokerError::NoSuchNode`] for a number of nodes that
    /// cannot be, or [`BrokerError::TopicRefused`] for a topic asked for here.
    pub async fn start(self) -> Result<Broker, BrokerError> {
        let mut settings = self.settings;
        if !(1..=MAX_NODES).contains(&settings.nodes) {
            let node = i32::try_from(settings.nodes).unwrap_or(i32::MAX);
            let problem = format!("is too many or too few: a cluster has 1 to {MAX_NODES} nodes");
            return Err(BrokerError::NoSuchNode { node, problem });
        }
        settings.seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
        let broker = Broker::new(settings, self.listen);
        for (topic, partitions) in self.topics {
            broker.create_topic(&topic, partitions).await?;
        }
        broker.restart().await?;
        Ok(broker)
    }
}
