//! What a membership needs to know of its user's wishes. Checked by whoever builds it.

use std::time::Duration;

use crate::assignor::Assignor;
use crate::backoff::BackoffConfig;
use crate::crash_window::CrashBound;

/// Settings of the membership core. The builder of the `kohort` crate checks them and fills them in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MembershipConfig {
    /// `group.id`.
    pub group_id: String,
    /// The topics subscribed to.
    pub topics: Vec<String>,
    /// Subscribe to whatever topics match this instead; who asks the cluster knows how to match.
    pub pattern: Option<String>,
    /// `group.instance.id` of a static member (KIP-345); `None` for a dynamic one.
    pub group_instance_id: Option<String>,
    /// The assignors offered, preferred first.
    pub assignors: Vec<Assignor>,
    /// `session.timeout.ms`. Default 45 s.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`: how often the driver's heart beats, and how often a member that works while it joins shows by
    /// a commit that it is counted in. Default 3 s.
    pub heartbeat_interval: Duration,
    /// The rebalance timeout of JoinGroup. Default 3 × session timeout.
    pub rebalance_timeout: Duration,
    /// `request.timeout.ms`. Default 15 s.
    pub request_timeout: Duration,
    /// What a JoinGroup or SyncGroup may take beyond the rebalance timeout. Default 10 s.
    pub session_timeout_padding: Duration,
    /// `retry.backoff.ms` and `retry.backoff.max.ms`.
    pub backoff: BackoffConfig,
    /// How often progress is committed. Default 5 s.
    pub commit_interval: Duration,
    /// Commit earlier after so many records. Default 10 000.
    pub commit_threshold: u64,
    /// How often a leader looks whether partitions or topics appeared (`metadata.max.age.ms`). Default 5 min.
    pub metadata_max_age: Duration,
    /// `crash_rejoin_max_restarts`.
    pub crash_rejoin_max_restarts: CrashBound,
    /// `crash_rejoin_window`. Default 60 s.
    pub crash_rejoin_window: Duration,
    /// `crash_rejoin_max_jitter`. Default 1 s.
    pub crash_rejoin_max_jitter: Duration,
    /// How long a member that ends for a terminal reason may still drain, commit and leave. Default 5 s.
    pub terminal_timeout: Duration,
}

impl MembershipConfig {
    /// The defaults of the design for a group and its topics.
    pub fn new(group_id: impl Into<String>, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let session_timeout = Duration::from_secs(45);
        Self {
            group_id: group_id.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            group_instance_id: None,
            assignors: vec![Assignor::Range, Assignor::CooperativeSticky],
            pattern: None,
            session_timeout,
            heartbeat_interval: Duration::from_secs(3),
            rebalance_timeout: session_timeout * 3,
            request_timeout: Duration::from_secs(15),
            session_timeout_padding: Duration::from_secs(10),
            backoff: BackoffConfig::default(),
            commit_interval: Duration::from_secs(5),
            commit_threshold: 10_000,
            metadata_max_age: Duration::from_secs(300),
            crash_rejoin_max_restarts: CrashBound::default(),
            crash_rejoin_window: Duration::from_secs(60),
            crash_rejoin_max_jitter: Duration::from_secs(1),
            terminal_timeout: Duration::from_secs(5),
        }
    }

    /// How long a JoinGroup or SyncGroup may stay unanswered: the coordinator holds it for up to the largest
    /// rebalance timeout, so the client must wait longer than that.
    pub fn join_timeout(&self) -> Duration {
        self.request_timeout.max(self.rebalance_timeout.saturating_add(self.session_timeout_padding))
    }

    /// How long giving partitions back may take from the beginning of a rebalance on.
    pub(crate) fn handover_timeout(&self) -> Duration {
        let one = Duration::from_secs(1);
        self.rebalance_timeout
            .checked_sub(one)
            .filter(|left| *left >= one)
            .unwrap_or(self.rebalance_timeout / 2)
    }
}
