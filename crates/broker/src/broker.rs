//! The handle of a broker: start, stop, and a direct way to its topics and groups for tests. Clients use the wire.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kohort_group::coordinator::GroupView;
use kohort_protocol::ApiKey;
use kohort_protocol::records::{Compression, OwnedRecord, RecordBatch, RecordBatchBuilder};
use kohort_telemetry::EventStream;
use tokio::net::TcpListener;

use crate::api::produce;
use crate::builder::BrokerBuilder;
use crate::error::BrokerError;
use crate::event::BrokerEvent;
use crate::faults::Faults;
use crate::journal::RequestSeen;
use crate::memory::{self, MemoryListener};
use crate::partitioner::partition_for_key;
use crate::server::Server;
use crate::settings::Settings;
use crate::shared::{Shared, now};

/// Events kept for a subscriber that is slow.
const EVENTS: usize = 4096;

/// A Kafka broker in this process. Dropping it stops it at once.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), kohort_broker::BrokerError> {
/// use kohort_broker::Broker;
///
/// let broker = Broker::start().await?;
/// broker.create_topic("orders", 4).await?;
/// let (partition, offset) = broker.produce("orders", "key", "value").await?;
/// assert_eq!(offset, 0);
/// assert_eq!(broker.log_end_offset("orders", partition), Some(1));
/// println!("bootstrap.servers={}", broker.bootstrap_servers().join(","));
/// broker.stop().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Broker {
    shared: Arc<Shared>,
    memory: MemoryListener,
    max_decompressed_bytes: usize,
    place: Mutex<Place>,
    /// The wall clock when tokio's stood at `started`; timestamps follow tokio's from there.
    wall: (SystemTime, std::time::Instant),
}

#[derive(Debug)]
struct Place {
    /// Where to listen; after the first start the very port that was taken. `None` without sockets.
    listen: Option<String>,
    address: Option<SocketAddr>,
    server: Option<Server>,
}

impl Broker {
    pub(crate) fn new(settings: Settings, listen: Option<String>) -> Self {
        Self {
            max_decompressed_bytes: settings.max_decompressed_bytes,
            shared: Arc::new(Shared::new(settings)),
            memory: MemoryListener::new(),
            place: Mutex::new(Place { listen, address: None, server: None }),
            wall: (SystemTime::now(), now()),
        }
    }

    /// Starts a broker with the defaults, on a free port of the loopback interface.
    ///
    /// # Errors
    /// As [`BrokerBuilder::start`].
    pub async fn start() -> Result<Self, BrokerError> {
        Self::builder().start().await
    }

    /// A broker to set up.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::new()
    }

    /// What a client's `bootstrap.servers` needs: one `host:port` a node. Good while the broker is stopped, too.
    pub fn bootstrap_servers(&self) -> Vec<String> {
        vec![match self.address() {
            // What listens everywhere is reached on the loopback interface.
            Some(address) if address.ip().is_unspecified() => match address {
                SocketAddr::V4(_) => format!("127.0.0.1:{}", address.port()),
                SocketAddr::V6(_) => format!("[::1]:{}", address.port()),
            },
            Some(address) => address.to_string(),
            None => format!("{}:{}", memory::HOST, memory::PORT),
        }]
    }

    /// The address that the broker listens on, or listened on before it was stopped; `None` without sockets.
    pub fn address(&self) -> Option<SocketAddr> {
        self.lock().address
    }

    /// The way in without a socket. It works beside TCP too.
    pub fn memory(&self) -> MemoryListener {
        self.memory.clone()
    }

    /// Cuts every connection and closes the port. Topics, records and groups stay; returns when all is closed. A
    /// second stop does nothing.
    pub async fn stop(&self) {
        let server = self.lock().server.take();
        if let Some(server) = server {
            server.stop().await;
        }
    }

    /// Starts a stopped broker again, at the same address; a running one is stopped before. As on Kafka, a stable
    /// group goes on, each member with a full session from now; a group in the middle of a rebalance lost its
    /// members; committed offsets are kept.
    ///
    /// # Errors
    /// [`BrokerError::AddressInUse`] or [`BrokerError::Listen`]; the broker is then stopped.
    ///
    /// # Cancel safety
    /// A start that is given up leaves the broker stopped.
    pub async fn restart(&self) -> Result<(), BrokerError> {
        self.stop().await;
        let listen = self.lock().listen.clone();
        let tcp = match listen {
            Some(address) => Some(listener(&address).await?),
            None => None,
        };
        let address = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
        self.shared.change(|node, out| node.reload(now(), out));
        let mut place = self.lock();
        if let Some(address) = address {
            place.listen = Some(address.to_string());
            place.address = Some(address);
        }
        place.server = Some(Server::start(tcp, self.memory.clone(), self.shared.clone()));
        drop(place);
        let address = self.bootstrap_servers().join(",");
        self.shared.events.emit(BrokerEvent::Started { address });
        Ok(())
    }

    /// Does it accept connections?
    pub fn is_running(&self) -> bool {
        self.lock().server.as_ref().is_some_and(Server::is_running)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens from now on. A subscriber that is slow loses the oldest events and is told how many.
    pub fn events(&self) -> EventStream<BrokerEvent> {
        self.shared.events.subscribe(EVENTS)
    }

    /// The scripted faults.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The last requests of this kind, oldest first; how many are kept, all kinds together, is a setting.
    pub fn requests(&self, api: ApiKey) -> Vec<RequestSeen> {
        self.shared.journal.of(Some(api))
    }

    /// The last requests of every kind, oldest first.
    pub fn all_requests(&self) -> Vec<RequestSeen> {
        self.shared.journal.of(None)
    }

    /// Forgets the requests seen.
    pub fn clear_requests(&self) {
        self.shared.journal.clear();
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// [`BrokerError::TopicRefused`].
    pub async fn create_topic(&self, topic: &str, partitions: i32) -> Result<(), BrokerError> {
        let created = self.shared.change(|node, out| node.create_topic(topic, partitions, out));
        created.map_err(|refusal| BrokerError::TopicRefused {
            topic: topic.to_owned(),
            code: refusal.code,
            message: refusal.message,
        })
    }

    /// The topics, in order.
    pub fn topics(&self) -> Vec<String> {
        self.shared.view(|node| node.topics.names().map(str::to_owned).collect())
    }

    /// How many partitions a topic has.
    pub fn partitions(&self, topic: &str) -> Option<usize> {
        self.shared.view(|node| node.topics.get(topic).map(<[_]>::len))
    }

    /// Appends one record to the partition that its key belongs to, and says where it went. An unknown topic is
    /// created when that is allowed.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchPartition`], [`BrokerError::Refused`].
    pub async fn produce(
        &self,
        topic: &str,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(i32, i64), BrokerError> {
        let count = self.partitions_or_create(topic).await?;
        let place = partition_for_key(key.as_ref(), count);
        let partition = i32::try_from(place).unwrap_or(i32::MAX);
        let offset = self.produce_to(topic, partition, Some(key.as_ref()), Some(value.as_ref())).await?;
        Ok((partition, offset))
    }

    async fn partitions_or_create(&self, topic: &str) -> Result<usize, BrokerError> {
        if let Some(count) = self.partitions(topic) {
            return Ok(count);
        }
        let (allowed, partitions) =
            self.shared.view(|node| (node.settings.auto_create_topics, node.settings.default_partitions));
        if !allowed {
            return Err(BrokerError::NoSuchPartition { topic: topic.to_owned(), partition: 0 });
        }
        self.create_topic(topic, partitions).await?;
        Ok(self.partitions(topic).unwrap_or(1))
    }

    /// Appends one record to this partition; returns its offset.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchPartition`], [`BrokerError::Refused`].
    pub async fn produce_to(
        &self,
        topic: &str,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<i64, BrokerError> {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(self.timestamp(), key, value, [])?;
        self.produce_batch(topic, partition, builder.build()?).await
    }

    /// Appends a batch, checked as if a producer had sent it; returns the offset of its first record.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchPartition`], [`BrokerError::Refused`].
    pub async fn produce_batch(&self, topic: &str, partition: i32, batch: Bytes) -> Result<i64, BrokerError> {
        self.known(topic, partition)?;
        let appended = self.shared.change(|node, out| produce::append(node, topic, partition, &batch, out));
        appended.map_err(|(code, _)| BrokerError::Refused { topic: topic.to_owned(), partition, code })
    }

    /// Appends a batch without looking inside: only its header must be readable. For control batches, gaps and
    /// damaged records.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchPartition`], [`BrokerError::Record`].
    pub async fn append_raw(&self, topic: &str, partition: i32, batch: &[u8]) -> Result<i64, BrokerError> {
        self.known(topic, partition)?;
        Ok(self.shared.change(|node, out| produce::append_raw(node, topic, partition, batch, out))?)
    }

    /// The records that are kept of a partition, in order; control batches are left out.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchPartition`]; [`BrokerError::Record`] if a batch appended raw cannot be read.
    pub fn records(&self, topic: &str, partition: i32) -> Result<Vec<OwnedRecord>, BrokerError> {
        self.known(topic, partition)?;
        let (start, batches) = self.shared.view(|node| match node.topics.partition(topic, partition) {
            Some(place) => (place.log.start(), place.log.batches().cloned().collect::<Vec<Bytes>>()),
            None => (0, Vec::new()),
        });
        let mut records = Vec::new();
        for bytes in &batches {
            let batch = RecordBatch::decode(bytes, self.max_decompressed_bytes)?;
            if !batch.is_control() {
                let kept = batch.iter().filter(|record| record.offset >= start);
                records.extend(kept.map(|record| record.to_owned()));
            }
        }
        Ok(records)
    }

    /// First offset that can be read.
    pub fn log_start_offset(&self, topic: &str, partition: i32) -> Option<i64> {
        self.shared.view(|node| Some(node.topics.partition(topic, partition)?.log.start()))
    }

    /// The offset that the next record gets.
    pub fn log_end_offset(&self, topic: &str, partition: i32) -> Option<i64> {
        self.shared.view(|node| Some(node.topics.partition(topic, partition)?.log.end()))
    }

    /// Deletes the records before an offset: moves the start of the log there, to its end for −1.
    ///
    /// # Errors
    /// [`BrokerError::NoSuchPartition`], [`BrokerError::OffsetOutOfRange`].
    pub async fn delete_records(&self, topic: &str, partition: i32, before: i64) -> Result<(), BrokerError> {
        self.known(topic, partition)?;
        self.shared.change(|node, _| {
            let Some(place) = node.topics.partition_mut(topic, partition) else { return Ok(()) };
            let (start, end) = (place.log.start(), place.log.end());
            let before = if before == -1 { end } else { before };
            if !(0..=end).contains(&before) {
                let topic = topic.to_owned();
                return Err(BrokerError::OffsetOutOfRange { topic, partition, offset: before, start, end });
            }
            place.log.delete_before(before);
            Ok(())
        })
    }

    /// The offset that a group committed.
    pub fn committed(&self, group_id: &str, topic: &str, partition: i32) -> Option<i64> {
        let group = self.group(group_id)?;
        group.offsets.get(&(topic.to_owned(), partition)).map(|committed| committed.offset)
    }

    /// A group as its coordinator sees it.
    pub fn group(&self, group_id: &str) -> Option<GroupView> {
        self.shared.view(|node| node.coordinator.group(group_id))
    }

    /// The ids of all groups, in order.
    pub fn groups(&self) -> Vec<String> {
        self.shared.view(|node| node.coordinator.group_ids().map(str::to_owned).collect())
    }

    fn known(&self, topic: &str, partition: i32) -> Result<(), BrokerError> {
        if self.shared.view(|node| node.topics.partition(topic, partition).is_some()) {
            return Ok(());
        }
        Err(BrokerError::NoSuchPartition { topic: topic.to_owned(), partition })
    }

    fn timestamp(&self) -> i64 {
        let (wall, started) = self.wall;
        let elapsed = now().saturating_duration_since(started);
        let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(elapsed);
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

async fn listener(address: &str) -> Result<TcpListener, BrokerError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BrokerError::AddressInUse { address: address.to_owned() },
        _ => BrokerError::Listen { address: address.to_owned(), source },
    })
}
