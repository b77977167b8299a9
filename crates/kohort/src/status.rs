//! What a member says of itself at any time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use kohort_group::membership::Node;
use kohort_group::{CrashBound, CrashWindow, MemberState};
use kohort_protocol::TopicPartition;
use tokio::time::Instant;

use crate::error::TerminalReason;

/// How a member is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Health {
    /// In the group, heart beating. A member without partitions is healthy too.
    Healthy,
    /// Joining or rebalancing: wait.
    Rebalancing,
    /// Not in the group for longer than a session timeout, or a partition is not read (see
    /// [`PartitionStatus::failure`]).
    Unhealthy {
        /// What is in the way, as far as known.
        cause: String,
    },
    /// Closing, or closed.
    Closed,
    /// Ended for good.
    Failed {
        /// Why.
        reason: TerminalReason,
    },
}

/// A member at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its state in the group protocol.
    pub state: MemberState,
    /// How it is.
    pub health: Health,
    /// Member id, empty before the coordinator gave one.
    pub member_id: String,
    /// Group instance id of a static member.
    pub group_instance_id: Option<String>,
    /// Generation, −1 outside of one.
    pub generation: i32,
    /// The coordinator as `host:port`, if known.
    pub coordinator: Option<String>,
    /// Time since the coordinator last counted the member in; `None` before it ever did.
    pub last_good_heartbeat: Option<Duration>,
    /// The partitions assigned, and how far they are.
    pub assignment: Vec<PartitionStatus>,
    /// Heartbeat crashes in the window.
    pub crashes_in_window: u32,
    /// How many of them are survived.
    pub crash_rejoin_max_restarts: CrashBound,
}

/// A partition at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// The partition.
    pub partition: TopicPartition,
    /// The next offset to handle; `None` until it is known.
    pub position: Option<i64>,
    /// The committed offset; `None` if there is none.
    pub committed: Option<i64>,
    /// Records between position and log end, as of the last fetch; `None` before it.
    pub lag: Option<i64>,
    /// Time since the position last moved, or the partition was assigned.
    pub since_progress: Duration,
    /// Why the partition is not read, if it is not to be read at all in this assignment.
    pub failure: Option<String>,
}

/// What the manager last wrote down.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) state: MemberState,
    pub(crate) member_id: String,
    pub(crate) generation: i32,
    pub(crate) coordinator: Option<Node>,
    pub(crate) last_good: Option<Instant>,
    pub(crate) assignment: Vec<TopicPartition>,
    pub(crate) crashes: CrashWindow,
    /// What was last in the way; empty when nothing is.
    pub(crate) trouble: String,
    pub(crate) ending: bool,
    pub(crate) since: Instant,
}

/// A partition's figures, shared by its worker, its fetcher and the manager.
#[derive(Debug)]
pub(crate) struct Slot {
    /// −1 while unknown.
    position: AtomicI64,
    committed: AtomicI64,
    high_watermark: AtomicI64,
    born: Instant,
    /// Milliseconds after `born`.
    progress: AtomicU64,
    /// Starts of a worker since the last record that was handled.
    pub(crate) starts: AtomicU32,
    /// A handler has a record in hand.
    handling: AtomicBool,
    failure: OnceLock<String>,
}

impl Slot {
    pub(crate) fn new(committed: Option<i64>) -> Self {
        let committed = committed.unwrap_or(-1);
        Self {
            position: AtomicI64::new(committed),
            committed: AtomicI64::new(committed),
            high_watermark: AtomicI64::new(-1),
            born: Instant::now(),
            progress: AtomicU64::new(0),
            starts: AtomicU32::new(0),
            handling: AtomicBool::new(false),
            failure: OnceLock::new(),
        }
    }

    pub(crate) fn position(&self) -> Option<i64> {
        Some(self.position.load(Ordering::Acquire)).filter(|position| *position >= 0)
    }

    /// Gives the slot's age, which is how long ago the partition was assigned.
    pub(crate) fn set_position(&self, position: i64) -> Duration {
        self.position.store(position, Ordering::Release);
        self.touch()
    }

    /// Since the partition was assigned.
    pub(crate) fn age(&self) -> Duration {
        self.born.elapsed()
    }

    fn touch(&self) -> Duration {
        let age = self.age();
        self.progress.store(u64::try_from(age.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        age
    }

    /// How long the handler has had the record in hand; `None` while it has none.
    pub(crate) fn in_hand(&self) -> Option<Duration> {
        let progress = Duration::from_millis(self.progress.load(Ordering::Relaxed));
        self.is_handling().then(|| self.born.elapsed().saturating_sub(progress))
    }

    pub(crate) fn is_handling(&self) -> bool {
        self.handling.load(Ordering::Acquire)
    }

    pub(crate) fn set_handling(&self, handling: bool) {
        if handling {
            self.touch();
        }
        self.handling.store(handling, Ordering::Release);
    }

    /// The partition is not read in this assignment. The first reason stands.
    pub(crate) fn set_failure(&self, reason: String) {
        let _ = self.failure.set(reason);
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(crate) fn set_committed(&self, offset: i64) {
        self.committed.store(offset, Ordering::Relaxed);
    }

    pub(crate) fn set_high_watermark(&self, offset: i64) {
        self.high_watermark.store(offset, Ordering::Relaxed);
    }

    pub(crate) fn status(&self, partition: TopicPartition) -> PartitionStatus {
        let known = |value: i64| Some(value).filter(|value| *value >= 0);
        let position = self.position();
        let end = known(self.high_watermark.load(Ordering::Relaxed));
        let progress = Duration::from_millis(self.progress.load(Ordering::Relaxed));
        PartitionStatus {
            partition,
            position,
            committed: known(self.committed.load(Ordering::Relaxed)),
            lag: position.zip(end).map(|(position, end)| (end - position).max(0)),
            since_progress: self.born.elapsed().saturating_sub(progress),
            failure: self.failure.get().cloned(),
        }
    }
}

/// The workers of one generation: whether they may go on. Set by the manager, read before every handler call.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) generation: i32,
    phase: AtomicU8,
}

const HANDLING: u8 = 0;
const DRAINING: u8 = 1;
const RELEASED: u8 = 2;

impl Run {
    pub(crate) fn new(generation: i32) -> Self {
        Self { generation, phase: AtomicU8::new(HANDLING) }
    }

    /// May a handler be called?
    pub(crate) fn may_handle(&self) -> bool {
        self.phase.load(Ordering::Acquire) == HANDLING
    }

    /// May a worker be started, or go on being one?
    pub(crate) fn is_released(&self) -> bool {
        self.phase.load(Ordering::Acquire) == RELEASED
    }

    pub(crate) fn drain(&self) {
        self.phase.fetch_max(DRAINING, Ordering::AcqRel);
    }

    pub(crate) fn release(&self) {
        self.phase.store(RELEASED, Ordering::Release);
    }
}
