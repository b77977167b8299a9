//! The builder of a [`ConsumerGroup`].

use std::sync::Arc;
use std::time::Duration;

use kohort_client::Connector;
use kohort_group::{Assignor, CrashBound};
use kohort_protocol::TopicPartition;

use super::{AutoOffsetReset, Config, InstanceId, IsolationLevel, MembershipRuntime, property};
use crate::error::ConfigError;
use crate::group::ConsumerGroup;
use crate::handler::{BatchHandler, Handler};
use crate::worker::{Factory, PerBatch, PerRecord, WorkerFactory};

/// Describes a group; [`ConsumerGroupBuilder::build`] checks it. Made by
/// [`ConsumerGroup::builder`](crate::ConsumerGroup::builder).
#[derive(Clone)]
pub struct ConsumerGroupBuilder {
    config: Config,
    factory: Option<Arc<dyn WorkerFactory>>,
    /// The first setting that was wrong, told at the end.
    wrong: Option<ConfigError>,
}

impl ConsumerGroupBuilder {
    pub(crate) fn new(group_id: String, topics: Vec<String>) -> Self {
        Self { config: Config::new(group_id, topics), factory: None, wrong: None }
    }

    fn then(mut self, change: impl FnOnce(&mut Config) -> Result<(), ConfigError>) -> Self {
        if let Err(error) = change(&mut self.config) {
            self.wrong.get_or_insert(error);
        }
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Brokers to begin with, as `host:port` (`bootstrap.servers`).
    pub fn bootstrap_servers(self, servers: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.then(|config| {
            config.bootstrap_servers = property::addresses("bootstrap.servers", servers)?;
            Ok(())
        })
    }

    /// How brokers are reached. Default [`TcpConnector`](crate::TcpConnector).
    pub fn connector(self, connector: Arc<dyn Connector>) -> Self {
        self.with(|config| config.connector = connector)
    }

    /// `client.id`. Default `kohort`.
    pub fn client_id(self, client_id: impl Into<String>) -> Self {
        self.with(|config| config.client_id = client_id.into())
    }

    /// `session.timeout.ms`: a member that is not heard of for so long is out of the group; it fences itself
    /// after as long without a good heartbeat. Default 45 s.
    pub fn session_timeout(self, timeout: Duration) -> Self {
        self.with(|config| {
            if config.membership.rebalance_timeout == config.membership.session_timeout * 3 {
                config.membership.rebalance_timeout = timeout.saturating_mul(3);
            }
            config.membership.session_timeout = timeout;
        })
    }

    /// `heartbeat.interval.ms`. Must be below the session timeout, best a third of it. Default 3 s.
    pub fn heartbeat_interval(self, interval: Duration) -> Self {
        self.with(|config| config.membership.heartbeat_interval = interval)
    }

    /// How long the coordinator waits for members to rejoin; so long a handler may take before its partition
    /// is taken away. Default 3 × session timeout.
    pub fn rebalance_timeout(self, timeout: Duration) -> Self {
        self.with(|config| config.membership.rebalance_timeout = timeout)
    }

    /// `request.timeout.ms`. Default 15 s.
    pub fn request_timeout(self, timeout: Duration) -> Self {
        self.with(|config| config.membership.request_timeout = timeout)
    }

    /// What a JoinGroup or SyncGroup may take beyond the rebalance timeout. Default 10 s.
    pub fn session_timeout_padding(self, padding: Duration) -> Self {
        self.with(|config| config.membership.session_timeout_padding = padding)
    }

    /// `group.instance.id`: makes the member static (KIP-345). It keeps its place and partitions over a restart
    /// within the session timeout, and does not leave the group when it closes by default. The newest process
    /// with an id holds the place; an older one is fenced and stops for good. With several
    /// [`members`](Self::members) it is the prefix of `PREFIX-INDEX-consumer`. Default none: a dynamic member.
    pub fn group_instance_id(self, id: impl Into<String>) -> Self {
        self.with(|config| config.instance_id = Some(InstanceId::Value(id.into())))
    }

    /// As [`group_instance_id`](Self::group_instance_id), read from an environment variable at each start.
    pub fn group_instance_id_from_env(self, variable: impl Into<String>) -> Self {
        self.with(|config| config.instance_id = Some(InstanceId::Env(variable.into())))
    }

    /// As [`group_instance_id`](Self::group_instance_id), asked for at each start.
    pub fn group_instance_id_from(self, find: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.with(|config| config.instance_id = Some(InstanceId::Closure(Arc::new(find))))
    }

    /// Subscribes to every topic whose whole name matches this regular expression, instead of to topics by name:
    /// `ConsumerGroup::builder("audit", [""; 0]).topic_pattern("orders-.*")`. The cluster is looked through every
    /// `metadata.max.age.ms`; a topic that appears, or stays away, leads to a rebalance.
    pub fn topic_pattern(self, pattern: impl Into<String>) -> Self {
        self.with(|config| config.membership.pattern = Some(pattern.into()))
    }

    /// The assignors offered, preferred first (`partition.assignment.strategy`). Only when all of them are
    /// cooperative does the member keep its partitions through a rebalance. Default range, cooperative-sticky, as
    /// in Kafka: eager, and ready for a rolling change to cooperative.
    pub fn assignors(self, assignors: impl IntoIterator<Item = Assignor>) -> Self {
        self.with(|config| config.membership.assignors = assignors.into_iter().collect())
    }

    /// `auto.offset.reset`. Default latest.
    pub fn auto_offset_reset(self, reset: AutoOffsetReset) -> Self {
        self.with(|config| config.auto_offset_reset = reset)
    }

    /// `isolation.level`. Default read_uncommitted.
    pub fn isolation_level(self, level: IsolationLevel) -> Self {
        self.with(|config| config.isolation_level = level)
    }

    /// `auto.commit.interval.ms`: how often handled records are committed. Default 5 s.
    pub fn commit_interval(self, interval: Duration) -> Self {
        self.with(|config| config.membership.commit_interval = interval)
    }

    /// Commit earlier after so many records. Default 10 000.
    pub fn commit_threshold(self, records: u64) -> Self {
        self.with(|config| config.membership.commit_threshold = records)
    }

    /// `metadata.max.age.ms`: how often the group's leader looks for new partitions. Default 5 min.
    pub fn metadata_max_age(self, age: Duration) -> Self {
        self.with(|config| config.membership.metadata_max_age = age)
    }

    /// First and longest wait before a broker that refused is connected to again (`reconnect.backoff.ms`,
    /// `reconnect.backoff.max.ms`). Default 100 ms and 5 s, with 20 % jitter.
    pub fn reconnect_backoff(self, initial: Duration, max: Duration) -> Self {
        self.with(|config| {
            config.reconnect_backoff = initial;
            config.reconnect_backoff_max = max;
        })
    }

    /// First and longest wait before a group request is tried again (`retry.backoff.ms`,
    /// `retry.backoff.max.ms`). Default 100 ms and 5 s, with 20 % jitter.
    pub fn retry_backoff(self, initial: Duration, max: Duration) -> Self {
        self.with(|config| {
            config.membership.backoff.initial = initial;
            config.membership.backoff.max = max;
        })
    }

    /// How many heartbeat crashes within the window a member survives in place; the next one ends it. A number,
    /// or [`CrashBound::Unlimited`]. Default 10.
    pub fn crash_rejoin_max_restarts(self, bound: impl Into<CrashBound>) -> Self {
        self.with(|config| config.membership.crash_rejoin_max_restarts = bound.into())
    }

    /// The sliding window in which crashes count. Default 60 s.
    pub fn crash_rejoin_window(self, window: Duration) -> Self {
        self.with(|config| config.membership.crash_rejoin_window = window)
    }

    /// The longest pause between a heartbeat crash and the rejoin; each is drawn at random. Default 1 s.
    pub fn crash_rejoin_max_jitter(self, jitter: Duration) -> Self {
        self.with(|config| config.membership.crash_rejoin_max_jitter = jitter)
    }

    /// How often the workers of a member may fail within a window before the member ends. Default 3 in 30 s.
    pub fn worker_max_restarts(self, restarts: u32, window: Duration) -> Self {
        self.with(|config| {
            config.worker_max_restarts = restarts;
            config.worker_restart_window = window;
        })
    }

    /// How long a handler may take for one record, or one batch. One that takes longer is told of
    /// ([`MemberEvent::WorkerStuck`](crate::MemberEvent::WorkerStuck)) and aborted; its worker starts again with that
    /// record. Stands in for `max.poll.interval.ms`, whose default of 5 min it has; here the member stays in the
    /// group, and its other partitions go on.
    pub fn max_processing_time(self, time: Duration) -> Self {
        self.with(|config| config.max_processing_time = time)
    }

    /// How long a close may take that sets no timeout of its own. Default 30 s.
    pub fn close_timeout(self, timeout: Duration) -> Self {
        self.with(|config| config.close_timeout = timeout)
    }

    /// The longest answer of a broker that is accepted, in bytes. Default 100 MiB.
    pub fn max_frame_bytes(self, bytes: usize) -> Self {
        self.with(|config| config.max_frame_bytes = bytes)
    }

    /// The most bytes that a record batch may decompress to. Default 64 MiB.
    pub fn max_decompressed_bytes(self, bytes: usize) -> Self {
        self.with(|config| config.max_decompressed_bytes = bytes)
    }

    /// The most fetched bytes that wait for this member's workers. Default 64 MiB. A single Fetch asks for a
    /// sixteenth of it, or `fetch.max.bytes` if that is less; a batch that is larger still comes whole.
    pub fn max_buffered_bytes(self, bytes: usize) -> Self {
        self.with(|config| config.max_buffered_bytes = bytes)
    }

    /// Where manager and heartbeat run. Default [`MembershipRuntime::Dedicated`].
    pub fn membership_runtime(self, runtime: MembershipRuntime) -> Self {
        self.with(|config| config.runtime = runtime)
    }

    /// How many members of the group this process runs; see
    /// [`ConsumerGroup::child_specs`](crate::ConsumerGroup::child_specs). Default 1.
    pub fn members(self, members: usize) -> Self {
        self.with(|config| config.members = members)
    }

    /// Makes jitter repeatable. Default: a seed from the operating system.
    pub fn seed(self, seed: u64) -> Self {
        self.with(|config| config.seed = Some(seed))
    }

    /// A setting by its Kafka name, as text: `("session.timeout.ms", "6000")`. Settings without a Kafka name
    /// go by their name here, durations in milliseconds.
    pub fn property(self, key: &str, value: &str) -> Self {
        self.then(|config| property::apply(config, key, value))
    }

    /// Several settings by their Kafka names.
    pub fn properties<'a>(self, properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        properties.into_iter().fold(self, |builder, (key, value)| builder.property(key, value))
    }

    /// What handles records: a closure that makes a [`Handler`] for each partition assigned.
    pub fn handler<F, H>(mut self, make: F) -> Self
    where
        F: Fn(&TopicPartition) -> H + Send + Sync + 'static,
        H: Handler,
    {
        self.factory =
            Some(Arc::new(Factory::new(move |partition: &TopicPartition| PerRecord(make(partition)))));
        self
    }

    /// What handles batches: a closure that makes a [`BatchHandler`] for each partition assigned.
    pub fn batch_handler<F, H>(mut self, make: F) -> Self
    where
        F: Fn(&TopicPartition) -> H + Send + Sync + 'static,
        H: BatchHandler,
    {
        self.factory =
            Some(Arc::new(Factory::new(move |partition: &TopicPartition| PerBatch(make(partition)))));
        self
    }

    /// Checks everything. Nothing is started and no broker is asked.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting, the value and the reason.
    pub fn build(self) -> Result<ConsumerGroup, ConfigError> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        self.config.check()?;
        let reason = "records need somewhere to go; see ConsumerGroupBuilder::handler";
        let factory = self.factory.ok_or(ConfigError::Missing { setting: "handler", reason })?;
        for warning in self.config.warnings() {
            tracing::warn!(target: "kohort", group = %self.config.membership.group_id, "{warning}");
        }
        Ok(ConsumerGroup::new(self.config, factory))
    }
}

impl std::fmt::Debug for ConsumerGroupBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerGroupBuilder")
            .field("membership", &self.config.membership)
            .field("wrong", &self.wrong)
            .finish_non_exhaustive()
    }
}
