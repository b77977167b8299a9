//! What the client tells: connections and requests.

use std::fmt::Display;
use std::time::Duration;

use kohort_protocol::ApiKey;
use kohort_telemetry::{Event, Label};

use crate::cluster::Address;

/// An event of the client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ClientEvent {
    /// A request was answered, or given up.
    Request {
        /// The request.
        api: ApiKey,
        /// The broker.
        address: Address,
        /// From sending to the end.
        duration: Duration,
        /// `None` if it was answered, else the kind of failure.
        failure: Option<&'static str>,
    },
    /// A connection was opened, or could not be.
    Connection {
        /// The broker.
        address: Address,
        /// What it took.
        duration: Duration,
        /// `None` if it was opened, else why not.
        failure: Option<String>,
    },
    /// The subscriber was too slow.
    Lagged {
        /// Events missed.
        missed: u64,
    },
}

impl Event for ClientEvent {
    fn name(&self) -> &'static str {
        match self {
            ClientEvent::Request { .. } => "kohort.client.request",
            ClientEvent::Connection { .. } => "kohort.client.connection",
            ClientEvent::Lagged { .. } => "kohort.client.lagged",
        }
    }

    fn measurements(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        match self {
            ClientEvent::Request { duration, .. } | ClientEvent::Connection { duration, .. } => {
                visit("duration_seconds", duration.as_secs_f64());
            }
            ClientEvent::Lagged { missed } => visit("missed", *missed as f64),
        }
    }

    fn labels(&self, visit: &mut dyn FnMut(Label, &str)) {
        match self {
            ClientEvent::Request { api, failure, .. } => {
                visit(Label::Api, api.name());
                visit(Label::Result, failure.unwrap_or("ok"));
            }
            ClientEvent::Connection { failure, .. } => {
                visit(Label::Result, if failure.is_some() { "failed" } else { "ok" });
            }
            ClientEvent::Lagged { .. } => {}
        }
    }

    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display)) {
        match self {
            ClientEvent::Request { address, .. } => visit("broker", address),
            ClientEvent::Connection { address, failure, .. } => {
                visit("broker", address);
                if let Some(failure) = failure {
                    visit("error", failure);
                }
            }
            ClientEvent::Lagged { .. } => {}
        }
    }

    fn level(&self) -> tracing::Level {
        match self {
            ClientEvent::Request { .. } => tracing::Level::TRACE,
            ClientEvent::Connection { .. } | ClientEvent::Lagged { .. } => tracing::Level::DEBUG,
        }
    }

    fn lagged(missed: u64) -> Self {
        ClientEvent::Lagged { missed }
    }
}
