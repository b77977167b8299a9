//! A supervised Kafka consumer-group member.
//!
//! [`ConsumerGroup`] is the checked definition, [`Member`] one running incarnation of it: a tree of actors that
//! joins the group, keeps its heart beating, consumes, survives crashes in place, knows when to give up and
//! says so. Started by an application's own [`supervisor::Supervisor`] it is started afresh after a terminal
//! stop.
//!
//! ```text
//! your supervisor                        restarts a terminated member fresh
//! └─ member                  supervisor · one_for_all · max_restarts 0
//!    ├─ heartbeat            worker · delegated to the manager (crash-rejoin window)
//!    ├─ manager              worker · its failure ends the tree
//!    ├─ partitions           supervisor · one_for_one · one worker per partition
//!    └─ fetchers             supervisor · one_for_one · one per leader broker
//! ```
//!
//! Rooms: `group` and `config` define, `member` and `tree` run, `manager` performs what the pure core of
//! `kohort-group` decides, `heartbeat` beats, `fetch` reads, `worker` decodes and calls the [`Handler`].

mod close;
mod config;
mod error;
mod event;
mod fetch;
mod group;
mod handler;
mod heartbeat;
mod manager;
mod member;
mod runtime;
mod status;
mod tree;
mod worker;

pub use close::{CloseOptions, CloseReport, GroupMembershipOperation, LeaveOutcome};
pub use config::{AutoOffsetReset, ConsumerGroupBuilder, IsolationLevel, MembershipRuntime};
pub use error::{CommitError, ConfigError, StartError, TerminalClass, TerminalReason};
pub use event::{MemberEvent, MemberEvents, MemberName};
pub use group::ConsumerGroup;
pub use handler::{BatchError, BatchHandler, Context, FnHandler, Handler, handler_fn};
pub use member::{Member, MemberRef};
pub use status::{Health, MemberStatus, PartitionStatus};

pub use kohort_client::{Address, Connector, Stream, TcpConnector, connector_fn};
pub use kohort_group::assignor::{CustomAssignor, MemberSubscription, Shares};
pub use kohort_group::{Assignor, CrashBound, MemberState};
pub use kohort_protocol::records::{Header, Headers, OwnedHeader, OwnedRecord, Record, RecordBatch};
pub use kohort_protocol::{ErrorCode, TopicPartition};

/// OTP-style supervision, for the application's own tree.
pub mod supervisor {
    pub use kohort_supervisor::*;
}

/// Process-wide telemetry: attach handlers to, or subscribe to, every event of every member.
pub mod telemetry {
    pub use kohort_telemetry::*;
}
