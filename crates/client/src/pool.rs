//! Idle connections, and the pace at which a broker that refuses is tried again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Address;
use crate::connection::Connection;
use crate::error::ClientError;
use crate::transport::Connector;

/// Idle connections kept for one broker.
const MAX_IDLE: usize = 8;
/// Brokers close a connection that is idle for 10 min (`connections.max.idle.ms`); we let go before.
const MAX_IDLE_TIME: Duration = Duration::from_secs(9 * 60);

/// A back-off that ran out so long ago begins anew.
const KEPT_BACKOFF: Duration = Duration::from_secs(60);

pub(crate) struct PoolConfig {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) client_id: Arc<str>,
    pub(crate) max_frame_bytes: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) backoff: Duration,
    pub(crate) backoff_max: Duration,
}

pub(crate) struct Pool {
    config: PoolConfig,
    brokers: Mutex<HashMap<Address, Broker>>,
    chance: RandomState,
}

#[derive(Default)]
struct Broker {
    idle: Vec<Connection>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Pool {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self { config, brokers: Mutex::default(), chance: RandomState::new() }
    }

    fn brokers(&self) -> MutexGuard<'_, HashMap<Address, Broker>> {
        self.brokers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection that is still good.
    pub(crate) fn idle(&self, address: &Address) -> Option<Connection> {
        let mut brokers = self.brokers();
        let idle = &mut brokers.get_mut(address)?.idle;
        idle.retain(|connection| connection.last_used.elapsed() < MAX_IDLE_TIME);
        while let Some(mut connection) = idle.pop() {
            if connection.is_usable() {
                return Some(connection);
            }
        }
        None
    }

    /// Takes a connection back, unless it is spoiled.
    pub(crate) fn put_back(&self, address: &Address, mut connection: Connection) {
        if !connection.is_usable() {
            return;
        }
        let mut brokers = self.brokers();
        let broker = brokers.entry(address.clone()).or_default();
        if broker.idle.len() < MAX_IDLE {
            broker.idle.push(connection);
        }
    }

    /// When the address may be connected to again; `None` for now.
    pub(crate) fn not_before(&self, address: &Address) -> Option<Instant> {
        self.brokers().get(address)?.not_before.filter(|at| *at > Instant::now())
    }

    /// Opens a connection, now. A failure stretches the back-off of the address.
    pub(crate) async fn connect(
        &self,
        address: &Address,
        deadline: Instant,
    ) -> Result<Connection, ClientError> {
        let by = deadline.min(Instant::now() + self.config.connect_timeout);
        let opened = self.open(address, by).await;
        let mut brokers = self.brokers();
        // Addresses come and go with the cluster: what is left of one is not kept for ever.
        let forgotten = |at: Instant| at + KEPT_BACKOFF < Instant::now();
        brokers.retain(|_, broker| {
            !broker.idle.is_empty() || broker.not_before.is_some_and(|at| !forgotten(at))
        });
        let broker = brokers.entry(address.clone()).or_default();
        match &opened {
            Ok(_) => *broker = Broker { idle: std::mem::take(&mut broker.idle), ..Broker::default() },
            Err(_) => {
                let doubled = self.config.backoff.saturating_mul(1 << broker.failures.min(16));
                broker.failures = broker.failures.saturating_add(1);
                broker.not_before =
                    Some(Instant::now() + self.jittered(doubled.min(self.config.backoff_max)));
            }
        }
        opened
    }

    async fn open(&self, address: &Address, by: Instant) -> Result<Connection, ClientError> {
        let failed =
            |source: io::Error| ClientError::Connect { address: address.clone(), source: Arc::new(source) };
        let connecting = self.config.connector.connect(&address.host, address.port);
        let stream = match tokio::time::timeout_at(by, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(failed(error)),
            Err(_) => return Err(failed(io::Error::new(io::ErrorKind::TimedOut, "no connection in time"))),
        };
        Connection::open(
            stream,
            address.clone(),
            self.config.client_id.clone(),
            self.config.max_frame_bytes,
            by,
        )
        .await
    }

    /// 20 % to either side, so that members that lost the same broker do not come back as one.
    fn jittered(&self, wait: Duration) -> Duration {
        let draw = self.chance.hash_one(Instant::now()) % 401;
        wait.mul_f64(0.8 + draw as f64 / 1000.0)
    }
}
