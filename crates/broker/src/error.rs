//! What goes wrong when a program uses a broker of its own. Errors on the wire are Kafka's codes, see `api`.

use std::io;

use kohort_protocol::ErrorCode;
use kohort_protocol::records::RecordError;
use thiserror::Error;

/// A broker could not do what it was asked to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// Another process listens there.
    #[error(
        "{address} is in use: another process listens there; stop it, or listen on another port (port 0 takes a \
         free one)"
    )]
    AddressInUse {
        /// The address asked for.
        address: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; it must be `host:port` with a host of this machine")]
    Listen {
        /// The address asked for.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// A topic was refused.
    #[error("topic '{topic}' was not created: {message}")]
    TopicRefused {
        /// The topic.
        topic: String,
        /// The code that a client would get.
        code: ErrorCode,
        /// Why.
        message: String,
    },
    /// There is no such node, or it does not run.
    #[error("node {node} {problem}")]
    NoSuchNode {
        /// The node asked for.
        node: i32,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such partition.
    #[error("{topic}-{partition} does not exist; create the topic first, with enough partitions")]
    NoSuchPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// A batch was refused.
    #[error("{topic}-{partition} refused the batch: {code}")]
    Refused {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The code that a client would get.
        code: ErrorCode,
    },
    /// The offset lies outside the log.
    #[error("offset {offset} is outside {topic}-{partition}, which holds {start} to {end}")]
    OffsetOutOfRange {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The offset asked for.
        offset: i64,
        /// First offset.
        start: i64,
        /// The offset the next record gets.
        end: i64,
    },
    /// A record cannot be written or read.
    #[error(transparent)]
    Record(#[from] RecordError),
}
