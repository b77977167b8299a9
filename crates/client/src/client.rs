//! The client: calls to a given broker or to any, and the view of the cluster they keep up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kohort_protocol::messages::{
    CoordinatorAddress, FindCoordinatorRequest, MetadataRequest, MetadataResponse,
};
use kohort_protocol::{ApiKey, ErrorCode, Request, Response};
use kohort_telemetry::Hub;
use tokio::time::Instant;

use crate::cluster::{Address, Cluster};
use crate::connection::Connection;
use crate::error::ClientError;
use crate::event::ClientEvent;
use crate::pool::{Pool, PoolConfig};
use crate::transport::{Connector, TcpConnector};

/// Settings of a [`Client`].
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// `bootstrap.servers`: tried when no broker is known, or none that is known answers.
    pub bootstrap_servers: Vec<Address>,
    /// `client.id`. Default `kohort`.
    pub client_id: String,
    /// How a broker is reached. Default [`TcpConnector`].
    pub connector: Arc<dyn Connector>,
    /// The longest answer accepted, in bytes. Default 100 MiB.
    pub max_frame_bytes: usize,
    /// How long opening a connection may take. Default 10 s (`socket.connection.setup.timeout.ms`).
    pub connect_timeout: Duration,
    /// First wait before a broker is connected to again (`reconnect.backoff.ms`). Default 100 ms.
    pub reconnect_backoff: Duration,
    /// The longest such wait (`reconnect.backoff.max.ms`). Default 5 s.
    pub reconnect_backoff_max: Duration,
}

impl ClientConfig {
    /// The defaults, for these bootstrap servers.
    pub fn new(bootstrap_servers: Vec<Address>) -> Self {
        Self {
            bootstrap_servers,
            client_id: "kohort".into(),
            connector: Arc::new(TcpConnector),
            max_frame_bytes: 100 * 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            reconnect_backoff: Duration::from_millis(100),
            reconnect_backoff_max: Duration::from_secs(5),
        }
    }
}

impl std::fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

/// A client of one cluster. Cheap to clone; clones share connections. Use it on the runtime that it first
/// connects on: its sockets live there.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    bootstrap: Vec<Address>,
    pool: Pool,
    cluster: RwLock<Cluster>,
    turn: AtomicUsize,
    events: Hub<ClientEvent>,
}

impl Client {
    /// A client that has not connected yet. Telemetry goes through `events`.
    pub fn new(config: ClientConfig, events: Hub<ClientEvent>) -> Self {
        let pool = Pool::new(PoolConfig {
            connector: config.connector,
            client_id: config.client_id.into(),
            max_frame_bytes: config.max_frame_bytes,
            connect_timeout: config.connect_timeout,
            backoff: config.reconnect_backoff,
            backoff_max: config.reconnect_backoff_max,
        });
        let inner = Inner {
            bootstrap: config.bootstrap_servers,
            pool,
            cluster: RwLock::default(),
            turn: AtomicUsize::new(0),
            events,
        };
        Self { inner: Arc::new(inner) }
    }

    /// What is known of the cluster; empty before the first [`Client::metadata`].
    pub fn cluster(&self) -> Cluster {
        self.inner.cluster.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One round trip to `address`, within `timeout`, connecting included. A broker that refused lately is
    /// waited for as its back-off says.
    ///
    /// # Errors
    /// [`ClientError`]. The request was not resent; after anything but a refused connection it is unknown
    /// whether the broker acted on it.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the connection; whether the broker acts is unknown.
    pub async fn call<R: Request>(
        &self,
        address: &Address,
        request: &R,
        timeout: Duration,
    ) -> Result<R::Response, ClientError> {
        self.call_versioned(address, request, timeout).await.map(|(_, response)| response)
    }

    /// As [`Client::call`], and tells the version that was spoken.
    ///
    /// # Errors
    /// As [`Client::call`].
    ///
    /// # Cancel safety
    /// As [`Client::call`].
    pub async fn call_versioned<R: Request>(
        &self,
        address: &Address,
        request: &R,
        timeout: Duration,
    ) -> Result<(i16, R::Response), ClientError> {
        let deadline = Instant::now() + timeout;
        let connection = match self.inner.pool.idle(address) {
            Some(connection) => connection,
            None => {
                if let Some(at) = self.inner.pool.not_before(address) {
                    tokio::time::sleep_until(at.min(deadline)).await;
                }
                self.connect(address, deadline).await?
            }
        };
        self.call_on(connection, address, request, deadline).await
    }

    /// One round trip to whichever broker answers first to a knock: those known, then the bootstrap servers,
    /// whose names are resolved afresh. Each is tried once, whatever its back-off: the caller sets the pace.
    ///
    /// # Errors
    /// [`ClientError::NoBroker`] if none could be connected to; else the error of the call, which is not
    /// tried at another broker.
    ///
    /// # Cancel safety
    /// As [`Client::call`].
    pub async fn call_any<R: Request>(
        &self,
        request: &R,
        timeout: Duration,
    ) -> Result<R::Response, ClientError> {
        let deadline = Instant::now() + timeout;
        let mut candidates: Vec<Address> = self.cluster().brokers().values().cloned().collect();
        if candidates.len() > 1 {
            // Not always the same broker: the questions of many members spread.
            let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed) % candidates.len();
            candidates.rotate_left(turn);
        }
        for address in &self.inner.bootstrap {
            if !candidates.contains(address) {
                candidates.push(address.clone());
            }
        }
        let mut tried = Vec::new();
        let count = candidates.len();
        for (index, address) in candidates.into_iter().enumerate() {
            let connected = match self.inner.pool.idle(&address) {
                Some(connection) => Ok(connection),
                None => {
                    // A silent address must not use up the time of those behind it.
                    let left = deadline.saturating_duration_since(Instant::now());
                    let share = left / u32::try_from(count - index).unwrap_or(u32::MAX);
                    self.connect(&address, Instant::now() + share).await
                }
            };
            match connected {
                Ok(connection) => {
                    let answer = self.call_on(connection, &address, request, deadline).await;
                    return answer.map(|(_, response)| response);
                }
                Err(error) => tried.push((address, reason(&error))),
            }
        }
        Err(ClientError::NoBroker { tried })
    }

    /// Asks for metadata of these topics and takes it into the view of the cluster. With `create`, a broker
    /// that is set up so creates what is missing.
    ///
    /// # Errors
    /// As [`Client::call_any`]; errors of single topics stand in the answer.
    pub async fn metadata(
        &self,
        topics: &[String],
        create: bool,
        timeout: Duration,
    ) -> Result<MetadataResponse, ClientError> {
        let request = MetadataRequest { topics: Some(topics.to_vec()), allow_auto_topic_creation: create };
        let response = self.call_any(&request, timeout).await?;
        self.inner.cluster.write().unwrap_or_else(PoisonError::into_inner).update(&response);
        Ok(response)
    }

    /// The partition counts of these topics; one that does not exist or has an error is left out. Creates
    /// nothing.
    ///
    /// # Errors
    /// As [`Client::call_any`].
    pub async fn partition_counts(
        &self,
        topics: &[String],
        timeout: Duration,
    ) -> Result<BTreeMap<String, i32>, ClientError> {
        let response = self.metadata(topics, false, timeout).await?;
        let existing = response.topics.into_iter().filter(|topic| topic.error.is_none());
        Ok(existing
            .map(|topic| (topic.name, i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)))
            .collect())
    }

    /// Asks any broker which one coordinates a group.
    ///
    /// # Errors
    /// As [`Client::call_any`]; an error code stands in the answer.
    pub async fn find_coordinator(
        &self,
        request: &FindCoordinatorRequest,
        timeout: Duration,
    ) -> Result<CoordinatorAddress, ClientError> {
        let response = self.call_any(request, timeout).await?;
        let broken =
            ClientError::Broker { api: ApiKey::FindCoordinator, code: ErrorCode::UnknownServerError };
        response.coordinators.into_iter().next().ok_or(broken)
    }

    async fn connect(&self, address: &Address, deadline: Instant) -> Result<Connection, ClientError> {
        let begun = Instant::now();
        let connected = self.inner.pool.connect(address, deadline).await;
        if connected.is_err() {
            self.inner.cluster.write().unwrap_or_else(PoisonError::into_inner).forget(address);
        }
        self.inner.events.emit(ClientEvent::Connection {
            address: address.clone(),
            duration: begun.elapsed(),
            failure: connected.as_ref().err().map(ToString::to_string),
        });
        connected
    }

    async fn call_on<R: Request>(
        &self,
        mut connection: Connection,
        address: &Address,
        request: &R,
        deadline: Instant,
    ) -> Result<(i16, R::Response), ClientError> {
        let begun = Instant::now();
        let answer = connection.call(request, deadline).await;
        self.inner.pool.put_back(address, connection);
        self.inner.events.emit(ClientEvent::Request {
            api: <R::Response as Response>::API,
            address: address.clone(),
            duration: begun.elapsed(),
            failure: answer.as_ref().err().map(ClientError::kind),
        });
        answer
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("bootstrap", &self.inner.bootstrap).finish_non_exhaustive()
    }
}

/// Without the address, which stands beside it already.
fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Connect { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
