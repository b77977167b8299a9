//! The settings of a group and their checks. A [`ConsumerGroup`](crate::ConsumerGroup) holds only settings that
//! passed them.

mod builder;
mod instance;
mod property;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kohort_client::{Address, ClientConfig, Connector, TcpConnector};
use kohort_group::backoff::BackoffConfig;
use kohort_group::{Assignor, CrashBound, MembershipConfig};

pub use builder::ConsumerGroupBuilder;
pub(crate) use instance::InstanceId;

use crate::error::ConfigError;

pub(crate) use self::property::names as property_names;

/// No span is longer: Kafka's are 32-bit milliseconds, and a sum of two stays within what clocks can tell.
pub(crate) const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// Members in one process beyond this are a slip of the hand.
const MOST_MEMBERS: usize = 10_000;

/// Where a partition starts that has no committed offset, or whose offset is gone (`auto.offset.reset`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum AutoOffsetReset {
    /// At the first record there is.
    Earliest,
    /// Behind the last record there is. The default, as in Kafka.
    #[default]
    Latest,
    /// Nowhere: the partition is not read, [`MemberEvent::PartitionFailed`](crate::MemberEvent::PartitionFailed)
    /// tells it, with the offset that is gone if there was one, and the member is unhealthy until an offset is committed and the partition
    /// is assigned anew. For those to whom records skipped or read again are worse than none.
    None,
}

impl AutoOffsetReset {
    /// Kafka's word.
    pub fn as_str(self) -> &'static str {
        match self {
            AutoOffsetReset::Earliest => "earliest",
            AutoOffsetReset::Latest => "latest",
            AutoOffsetReset::None => "none",
        }
    }

    /// What ListOffsets is asked for.
    pub(crate) fn timestamp(self) -> Option<i64> {
        match self {
            AutoOffsetReset::Earliest => Some(-2),
            AutoOffsetReset::Latest => Some(-1),
            AutoOffsetReset::None => None,
        }
    }
}

/// Whether records of open and aborted transactions are handled (`isolation.level`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IsolationLevel {
    /// All records. The default, as in Kafka.
    #[default]
    ReadUncommitted,
    /// Only records outside of transactions and of committed ones.
    ReadCommitted,
}

impl IsolationLevel {
    pub(crate) fn code(self) -> i8 {
        match self {
            IsolationLevel::ReadUncommitted => 0,
            IsolationLevel::ReadCommitted => 1,
        }
    }
}

/// Where the manager and the heartbeat of a member run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MembershipRuntime {
    /// On one thread of their own, shared by all members of the process: whatever handlers do, hearts beat.
    #[default]
    Dedicated,
    /// On the runtime that the member is started from. For tests under a paused clock.
    Current,
}

/// Checked settings.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) membership: MembershipConfig,
    pub(crate) bootstrap_servers: Vec<Address>,
    pub(crate) client_id: String,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) max_frame_bytes: usize,
    pub(crate) max_decompressed_bytes: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) reconnect_backoff: Duration,
    pub(crate) reconnect_backoff_max: Duration,
    pub(crate) auto_offset_reset: AutoOffsetReset,
    pub(crate) isolation_level: IsolationLevel,
    pub(crate) fetch_max_wait: Duration,
    pub(crate) fetch_min_bytes: i32,
    pub(crate) fetch_max_bytes: i32,
    pub(crate) max_partition_fetch_bytes: i32,
    pub(crate) max_buffered_bytes: usize,
    pub(crate) worker_max_restarts: u32,
    pub(crate) worker_restart_window: Duration,
    pub(crate) close_timeout: Duration,
    pub(crate) max_processing_time: Duration,
    pub(crate) runtime: MembershipRuntime,
    pub(crate) members: usize,
    pub(crate) instance_id: Option<InstanceId>,
    pub(crate) seed: Option<u64>,
}

impl Config {
    pub(crate) fn new(group_id: String, topics: Vec<String>) -> Self {
        Self {
            membership: MembershipConfig::new(group_id, topics),
            bootstrap_servers: Vec::new(),
            client_id: "kohort".into(),
            connector: Arc::new(TcpConnector),
            max_frame_bytes: 100 << 20,
            max_decompressed_bytes: 64 << 20,
            connect_timeout: Duration::from_secs(10),
            reconnect_backoff: Duration::from_millis(100),
            reconnect_backoff_max: Duration::from_secs(5),
            auto_offset_reset: AutoOffsetReset::default(),
            isolation_level: IsolationLevel::default(),
            fetch_max_wait: Duration::from_millis(500),
            fetch_min_bytes: 1,
            fetch_max_bytes: 50 << 20,
            max_partition_fetch_bytes: 1 << 20,
            max_buffered_bytes: 64 << 20,
            worker_max_restarts: 3,
            worker_restart_window: Duration::from_secs(30),
            close_timeout: Duration::from_secs(30),
            max_processing_time: Duration::from_secs(300),
            runtime: MembershipRuntime::default(),
            members: 1,
            instance_id: None,
            seed: None,
        }
    }

    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new(self.bootstrap_servers.clone());
        config.client_id = self.client_id.clone();
        config.connector = self.connector.clone();
        config.max_frame_bytes = self.max_frame_bytes;
        config.connect_timeout = self.connect_timeout;
        config.reconnect_backoff = self.reconnect_backoff;
        config.reconnect_backoff_max = self.reconnect_backoff_max;
        config
    }

    /// What no single setting shows.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let membership = &self.membership;
        let session = membership.session_timeout;
        if self.bootstrap_servers.is_empty() {
            let reason = "without a broker's address (host:port) there is nothing to connect to";
            return Err(ConfigError::Missing { setting: "bootstrap.servers", reason });
        }
        if membership.group_id.trim().is_empty() || membership.group_id.len() > i16::MAX as usize {
            return Err(invalid("group.id", &membership.group_id, "a group has a name of 1 to 32 767 bytes"));
        }
        if let Some(pattern) = &membership.pattern {
            topic_pattern(pattern).map_err(|error| invalid("topic_pattern", pattern, error.to_string()))?;
            if !membership.topics.is_empty() {
                let reason = "a group subscribes to topics by name or by a pattern, not to both";
                return Err(invalid("topic_pattern", pattern, reason));
            }
        } else if membership.topics.is_empty() {
            return Err(ConfigError::Missing {
                setting: "topics",
                reason: "a member subscribes to at least one topic",
            });
        }
        for topic in &membership.topics {
            if !is_topic_name(topic) {
                let reason = "a topic's name has 1 to 249 letters, digits, dots, underscores and hyphens";
                return Err(invalid("topics", topic, reason));
            }
        }
        if self.client_id.len() > i16::MAX as usize {
            return Err(invalid("client.id", self.client_id.len(), "longer than 32 767 bytes"));
        }
        if let Some(instance_id) = &self.instance_id {
            instance_id.check(self.members)?;
        }
        let spans = [
            ("session.timeout.ms", session),
            ("heartbeat.interval.ms", self.membership.heartbeat_interval),
            ("rebalance.timeout.ms", membership.rebalance_timeout),
            ("request.timeout.ms", membership.request_timeout),
            ("metadata.max.age.ms", membership.metadata_max_age),
            ("auto.commit.interval.ms", membership.commit_interval),
            ("socket.connection.setup.timeout.ms", self.connect_timeout),
            ("reconnect.backoff.ms", self.reconnect_backoff),
            ("reconnect.backoff.max.ms", self.reconnect_backoff_max),
            ("retry.backoff.ms", membership.backoff.initial),
            ("retry.backoff.max.ms", membership.backoff.max),
            ("crash_rejoin_window", membership.crash_rejoin_window),
            ("worker_restart_window", self.worker_restart_window),
            ("max_processing_time", self.max_processing_time),
        ];
        for (setting, value) in spans {
            if value.is_zero() {
                return Err(invalid(setting, format!("{value:?}"), "must be longer than zero"));
            }
        }
        for (setting, value) in spans.into_iter().chain([
            ("close_timeout", self.close_timeout),
            ("session_timeout_padding", membership.session_timeout_padding),
        ]) {
            if value > LONGEST {
                return Err(invalid(
                    setting,
                    format!("{value:?}"),
                    "must be no longer than 2 147 483 647 ms",
                ));
            }
        }
        if self.membership.heartbeat_interval >= session {
            let reason =
                format!("must be shorter than the session timeout of {session:?}, best a third of it");
            return Err(invalid(
                "heartbeat.interval.ms",
                format!("{:?}", self.membership.heartbeat_interval),
                reason,
            ));
        }
        if membership.crash_rejoin_max_jitter > session {
            let reason = format!("must be no longer than the session timeout of {session:?}");
            let value = format!("{:?}", membership.crash_rejoin_max_jitter);
            return Err(invalid("crash_rejoin_max_jitter", value, reason));
        }
        if self.reconnect_backoff > self.reconnect_backoff_max {
            let reason =
                format!("must not exceed reconnect.backoff.max.ms of {:?}", self.reconnect_backoff_max);
            return Err(invalid("reconnect.backoff.ms", format!("{:?}", self.reconnect_backoff), reason));
        }
        let BackoffConfig { initial, max } = membership.backoff;
        if initial > max {
            let reason = format!("must not exceed retry.backoff.max.ms of {max:?}");
            return Err(invalid("retry.backoff.ms", format!("{initial:?}"), reason));
        }
        if membership.assignors.is_empty() {
            let reason = "a member offers at least one assignor";
            return Err(ConfigError::Missing { setting: "partition.assignment.strategy", reason });
        }
        for (place, assignor) in membership.assignors.iter().enumerate() {
            let name = assignor.name();
            let kafkas = matches!(assignor, Assignor::Custom(_)) && Assignor::from_name(name).is_some();
            let twice = membership.assignors[..place].iter().any(|other| other.name() == name);
            if name.is_empty() || name.len() > i16::MAX as usize || kafkas || twice {
                let reason = "each assignor needs a name of its own, and not one of Kafka's";
                return Err(invalid("partition.assignment.strategy", format!("{name:?}"), reason));
            }
        }
        for (setting, value) in [
            ("max_frame_bytes", self.max_frame_bytes),
            ("max_decompressed_bytes", self.max_decompressed_bytes),
            ("max_buffered_bytes", self.max_buffered_bytes),
            ("members", self.members),
        ] {
            if value == 0 {
                return Err(invalid(setting, value, "must be at least 1"));
            }
        }
        if self.members > MOST_MEMBERS {
            return Err(invalid("members", self.members, format!("must be no more than {MOST_MEMBERS}")));
        }
        for (setting, value) in [
            ("fetch.min.bytes", self.fetch_min_bytes),
            ("fetch.max.bytes", self.fetch_max_bytes),
            ("max.partition.fetch.bytes", self.max_partition_fetch_bytes),
        ] {
            if value < 1 {
                return Err(invalid(setting, value, "must be at least 1"));
            }
        }
        if self.fetch_max_wait >= membership.request_timeout {
            let reason =
                format!("must be shorter than the request timeout of {:?}", membership.request_timeout);
            return Err(invalid("fetch.max.wait.ms", format!("{:?}", self.fetch_max_wait), reason));
        }
        if self.fetch_max_bytes as usize > self.max_frame_bytes {
            let reason =
                format!("an answer of that size exceeds max_frame_bytes of {}", self.max_frame_bytes);
            return Err(invalid("fetch.max.bytes", self.fetch_max_bytes, reason));
        }
        Ok(())
    }

    /// What is allowed but seldom meant.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let (interval, session) = (self.membership.heartbeat_interval, self.membership.session_timeout);
        if interval > session / 3 {
            warnings.push(format!(
                "heartbeat.interval.ms of {interval:?} leaves fewer than three beats to a session timeout of {session:?}"
            ));
        }
        if self.membership.rebalance_timeout < session {
            warnings.push(format!(
                "a rebalance timeout of {:?} is shorter than the session timeout of {session:?}",
                self.membership.rebalance_timeout
            ));
        }
        warnings
    }
}

pub(crate) fn invalid(setting: &str, value: impl fmt::Display, reason: impl Into<String>) -> ConfigError {
    ConfigError::Invalid { setting: setting.into(), value: value.to_string(), reason: reason.into() }
}

fn is_topic_name(name: &str) -> bool {
    (1..=249).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// A pattern that a topic's whole name must match, as in Kafka.
pub(crate) fn topic_pattern(pattern: &str) -> Result<regex::Regex, regex::Error> {
    regex::Regex::new(&format!("^(?:{pattern})$"))
}

/// An assignor by its name on the wire, or by the name of Kafka's class for it.
fn assignor(name: &str) -> Option<Assignor> {
    let name = name.trim();
    let class = |assignor: &Assignor| match assignor {
        Assignor::Range => "RangeAssignor",
        Assignor::RoundRobin => "RoundRobinAssignor",
        Assignor::Sticky => "StickyAssignor",
        _ => "CooperativeStickyAssignor",
    };
    let of_kafka = name.strip_prefix("org.apache.kafka.clients.consumer.");
    Assignor::from_name(name)
        .or_else(|| Assignor::ALL.into_iter().find(|assignor| Some(class(assignor)) == of_kafka))
}

/// `unlimited` or a number.
pub(crate) fn crash_bound(value: &str) -> Result<CrashBound, ConfigError> {
    match value.trim() {
        "unlimited" | "infinity" => Ok(CrashBound::Unlimited),
        number => number.parse().map(CrashBound::Max).map_err(|_| {
            invalid("crash_rejoin_max_restarts", value, "must be a number of restarts, or \"unlimited\"")
        }),
    }
}
