//! What can go wrong between us and a broker.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kohort_protocol::{ApiKey, DecodeError, EncodeError, ErrorCode, FrameError};
use thiserror::Error;

use crate::cluster::Address;

/// Why a call has no answer. [`ClientError::is_retriable`] says whether another try may help.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A connection could not be opened.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where to.
        address: Address,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// No broker could be reached.
    #[error("no broker reached; tried {}", tried_text(.tried))]
    NoBroker {
        /// Every address tried and what came of it.
        tried: Vec<(Address, String)>,
    },
    /// The connection was lost before the answer was complete.
    #[error("connection to {address} lost while waiting for {api}: {source}")]
    Disconnected {
        /// The broker.
        address: Address,
        /// The request.
        api: ApiKey,
        /// What the socket said.
        source: Arc<io::Error>,
    },
    /// No answer in time; the connection was given up.
    #[error("{api} to {address} unanswered after {after:?}")]
    Timeout {
        /// The broker.
        address: Address,
        /// The request.
        api: ApiKey,
        /// How long was waited.
        after: Duration,
    },
    /// The answer's length is unusable; the connection was given up.
    #[error("{api} to {address}: {source}")]
    Frame {
        /// The broker.
        address: Address,
        /// The request.
        api: ApiKey,
        /// What is wrong.
        source: FrameError,
    },
    /// The answer could not be read; the connection was given up.
    #[error("{api} to {address}: {source}")]
    Decode {
        /// The broker.
        address: Address,
        /// The request.
        api: ApiKey,
        /// What is wrong.
        source: DecodeError,
    },
    /// The answer belongs to another request; the connection was given up.
    #[error("{api} to {address}: the answer is for request {found}, not {expected}")]
    Correlation {
        /// The broker.
        address: Address,
        /// The request.
        api: ApiKey,
        /// The id asked with.
        expected: i32,
        /// The id that came.
        found: i32,
    },
    /// Broker and client share no version of the request.
    #[error("{address} does not speak {api} in a version between {} and {}", .api.versions().min, .api.versions().max)]
    Unsupported {
        /// The broker.
        address: Address,
        /// The request.
        api: ApiKey,
    },
    /// The request cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The broker answered with an error code.
    #[error("{api}: {code}")]
    Broker {
        /// The request.
        api: ApiKey,
        /// The code.
        code: ErrorCode,
    },
}

impl ClientError {
    /// May the same call succeed later?
    pub fn is_retriable(&self) -> bool {
        match self {
            ClientError::Unsupported { .. } | ClientError::Encode(_) => false,
            ClientError::Broker { code, .. } => matches!(
                code,
                ErrorCode::UnknownTopicOrPartition
                    | ErrorCode::LeaderNotAvailable
                    | ErrorCode::NotLeaderOrFollower
                    | ErrorCode::RequestTimedOut
                    | ErrorCode::CoordinatorLoadInProgress
                    | ErrorCode::CoordinatorNotAvailable
                    | ErrorCode::NotCoordinator
                    | ErrorCode::NetworkException
                    | ErrorCode::KafkaStorageError
            ),
            _ => true,
        }
    }

    /// A fixed word for labels.
    pub fn kind(&self) -> &'static str {
        match self {
            ClientError::Connect { .. } => "connect",
            ClientError::NoBroker { .. } => "no_broker",
            ClientError::Disconnected { .. } => "disconnected",
            ClientError::Timeout { .. } => "timeout",
            ClientError::Frame { .. } | ClientError::Decode { .. } | ClientError::Correlation { .. } => {
                "malformed"
            }
            ClientError::Unsupported { .. } => "unsupported",
            ClientError::Encode(_) => "encode",
            ClientError::Broker { .. } => "broker",
        }
    }
}

fn tried_text(tried: &[(Address, String)]) -> String {
    if tried.is_empty() {
        return "nothing: no bootstrap server is configured".into();
    }
    tried.iter().map(|(address, error)| format!("{address} ({error})")).collect::<Vec<_>>().join(", ")
}
