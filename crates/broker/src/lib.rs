//! An embedded in-memory Kafka broker with a real group coordinator, for tests and for trying things out. Nothing is
//! written to disk.
//!
//! It serves the Kafka protocol on TCP and in memory ([`Broker::memory`], which works under tokio's paused clock), so
//! clients of any make can use it. A program that embeds it can look inside ([`Broker::group`],
//! [`Broker::records`], [`Broker::requests`]) and script what goes wrong ([`Broker::faults`]).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), kohort_broker::BrokerError> {
//! use kohort_broker::Broker;
//!
//! let broker = Broker::builder().topic("orders", 4).start().await?;
//! broker.produce("orders", "key", "value").await?;
//! println!("bootstrap.servers={}", broker.bootstrap_servers().join(","));
//! # Ok(()) }
//! ```
//!
//! Requests go through these rooms: `server` accepts, `connection` frames, `shared` locks, `node` decides, by way of
//! the file in `api` that has the request's name. One node or several ([`BrokerBuilder::nodes`]) run in one process and
//! share one state. Transactions are not served.

mod api;
mod broker;
mod builder;
mod cluster;
mod connection;
mod error;
mod event;
mod faults;
mod journal;
mod log;
mod memory;
mod node;
mod partitioner;
mod producers;
mod server;
mod settings;
mod shared;
mod topics;

pub use broker::Broker;
pub use builder::BrokerBuilder;
pub use error::BrokerError;
pub use event::{BrokerEvent, CloseReason};
pub use faults::{Fault, FaultBuilder, FaultRule, Faults};
pub use journal::RequestSeen;
pub use memory::MemoryListener;

pub use kohort_group::coordinator::{
    CommittedOffset, CoordinatorConfig, GroupState, GroupView, MemberView, RemovalReason,
};
pub use kohort_protocol::records::{Compression, OwnedRecord, RecordBatchBuilder};
pub use kohort_protocol::{ApiKey, ErrorCode};
pub use kohort_telemetry::EventStream;
