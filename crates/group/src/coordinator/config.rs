//! The broker's limits for groups, by Kafka's names.

use std::time::Duration;

/// Settings of a [`Coordinator`](super::Coordinator).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CoordinatorConfig {
    /// `group.min.session.timeout.ms`. Default 6 s.
    pub min_session_timeout: Duration,
    /// `group.max.session.timeout.ms`. Default 30 min.
    pub max_session_timeout: Duration,
    /// `group.initial.rebalance.delay.ms`. Default 0, where Kafka has 3 s: nothing waits that need not.
    pub initial_rebalance_delay: Duration,
    /// `group.max.size`. Default none.
    pub max_group_size: Option<usize>,
    /// How long a member that never was in a generation may wait in a join. Default 5 min.
    pub new_member_join_timeout: Duration,
    /// `offset.metadata.max.bytes`, counted in characters as Kafka does. Default 4096.
    pub max_offset_metadata: usize,
    /// `offsets.retention.minutes`: how long the offsets of an Empty group are kept. Default 7 days.
    pub offsets_retention: Duration,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            min_session_timeout: Duration::from_secs(6),
            max_session_timeout: Duration::from_secs(30 * 60),
            initial_rebalance_delay: Duration::ZERO,
            max_group_size: None,
            new_member_join_timeout: Duration::from_secs(5 * 60),
            max_offset_metadata: 4096,
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
        }
    }
}
