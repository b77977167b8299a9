//! Connections to a Kafka cluster: version negotiation, metadata, calls of one round trip, a small producer.
//!
//! This crate knows no actors and no membership. A call is asked once and answered once, or fails with a typed
//! error that says whether another try may help; who calls decides about trying again. Only *connecting* is
//! paced here, by a capped, jittered back-off per address.

mod client;
mod cluster;
mod connection;
mod error;
mod event;
mod partitioner;
mod pool;
mod producer;
mod transport;

pub use client::{Client, ClientConfig};
pub use cluster::{Address, Cluster, Leader};
pub use error::ClientError;
pub use event::ClientEvent;
pub use partitioner::partition_for_key;
pub use producer::{Delivery, Producer, ProducerConfig, ProducerError, ProducerRecord};
pub use transport::{ConnectFuture, Connector, Stream, TcpConnector, connector_fn};
