//! The handle of a broker: start, stop, and a direct way to its topics and groups for tests. Clients use the wire.

mod nodes;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kohort_group::coordinator::GroupView;
use kohort_protocol::ApiKey;
use kohort_protocol::messages::{CreatePartitionsRequest, MorePartitions};
use kohort_protocol::records::{Compression, OwnedRecord, RecordBatch, RecordBatchBuilder};
use kohort_telemetry::EventStream;
use tokio::net::TcpListener;

use crate::api::{create_partitions, produce};
use crate::builder::BrokerBuilder;
use crate::error::BrokerError;
use crate::event::BrokerEvent;
use crate::faults::Faults;
use crate::journal::RequestSeen;
use crate::memory::{self, MemoryListener};
use crate::node::Node;
use crate::partitioner::partition_for_key;
use crate::server::Server;
use crate::settings::Settings;
use crate::shared::{Shared, now};

/// Events kept for a subscriber that is slow.
const EVENTS: usize = 4096;

/// A Kafka broker in this process. Dropping it stops it at once.
///
/// Of several nodes ([`BrokerBuilder::nodes`]) each has a port of its own and leads a part of the partitions and groups;
/// asked for what another leads it says so, as on Kafka. What a node leads moves by [`Broker::move_leader`],
/// [`Broker::move_coordinator`] and [`Broker::stop_node`]; nothing is lost by it, as if every node had a replica of
/// everything that is never behind.
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
    /// By node id.
    places: Mutex<Vec<Place>>,
    /// The wall clock when tokio's stood at `started`; timestamps follow tokio's from there.
    wall: (SystemTime, std::time::Instant),
}

/// Where a node is.
#[derive(Debug)]
struct Place {
    /// Where to listen; after the first start the very port that was taken. `None` without sockets.
    listen: Option<String>,
    address: Option<SocketAddr>,
    server: Option<Server>,
}

impl Place {
    /// What a client's `bootstrap.servers` needs for this node.
    fn shown(&self, index: usize) -> String {
        match self.address {
            // What listens everywhere is reached on the loopback interface.
            Some(address) if address.ip().is_unspecified() => match address {
                SocketAddr::V4(_) => format!("127.0.0.1:{}", address.port()),
                SocketAddr::V6(_) => format!("[::1]:{}", address.port()),
            },
            Some(address) => address.to_string(),
            None => {
                let port = usize::from(memory::PORT).saturating_add(index);
                format!("{}:{port}", memory::HOST)
            }
        }
    }
}

impl Broker {
    pub(crate) fn new(settings: Settings, listen: Option<String>) -> Self {
        let nodes = settings.nodes;
        let place = |index| Place {
            listen: listen.as_deref().map(|first| following(first, index)),
            address: None,
            server: None,
        };
        Self {
            max_decompressed_bytes: settings.max_decompressed_bytes,
            shared: Arc::new(Shared::new(settings)),
            memory: MemoryListener::new(nodes),
            places: Mutex::new((0..nodes).map(place).collect()),
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
        self.lock().iter().enumerate().map(|(index, place)| place.shown(index)).collect()
    }

    /// The address that the broker listens on, or listened on before it was stopped; `None` without sockets. Of
    /// several nodes, the first one's.
    pub fn address(&self) -> Option<SocketAddr> {
        self.lock().first()?.address
    }

    /// The way in without a socket. It works beside TCP too.
    pub fn memory(&self) -> MemoryListener {
        self.memory.clone()
    }

    /// Stops all nodes: cuts every connection and closes the ports. Topics, records and groups stay; returns when all is closed. A
    /// second stop does nothing.
    pub async fn stop(&self) {
        let servers: Vec<Server> = self.lock().iter_mut().filter_map(|place| place.server.take()).collect();
        for server in servers {
            server.stop().await;
        }
    }

    /// Starts a stopped broker again with all its nodes, at the same addresses; a running one is stopped before. As
    /// on Kafka, a stable group goes on, each member with a full session from now; a group in the middle of a
    /// rebalance lost its members; member ids that were given out are forgotten; committed offsets are kept.
    ///
    /// # Errors
    /// [`BrokerError::AddressInUse`] or [`BrokerError::Listen`]; the broker is then stopped.
    ///
    /// # Cancel safety
    /// A start that is given up leaves the broker stopped.
    pub async fn restart(&self) -> Result<(), BrokerError> {
        self.stop().await;
        let listen: Vec<Option<String>> = self.lock().iter().map(|place| place.listen.clone()).collect();
        let mut sockets = Vec::with_capacity(listen.len());
        for (index, address) in listen.into_iter().enumerate() {
            let tcp = match address {
                Some(address) => Some(listener(&address).await?),
                None => None,
            };
            sockets.push((index, tcp));
        }
        self.shared.change(|node, _| node.reload(now()));
        self.open(sockets);
        let address = self.bootstrap_servers().join(",");
        self.shared.events.emit(BrokerEvent::Started { address });
        Ok(())
    }

    /// Does it accept connections, at any node?
    pub fn is_running(&self) -> bool {
        self.lock().iter().any(|place| place.server.as_ref().is_some_and(Server::is_running))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
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
        let created = self.shared.change(|node, out| node.create_topic(topic, partitions, None, out));
        created.map_err(|refusal| BrokerError::TopicRefused {
            topic: topic.to_owned(),
            code: refusal.code,
            message: refusal.message,
        })
    }

    /// Gives a topic more partitions, `partitions` in all.
    ///
    /// # Errors
    /// [`BrokerError::TopicRefused`].
    pub async fn create_partitions(&self, topic: &str, partitions: i32) -> Result<(), BrokerError> {
        let request = CreatePartitionsRequest {
            topics: vec![MorePartitions { name: topic.to_owned(), count: partitions, assignments: None }],
            ..CreatePartitionsRequest::default()
        };
        let grown = self.shared.change(|node, out| create_partitions::grow_all(node, &request, out));
        match grown.into_iter().next() {
            Some(grown) if grown.error.is_error() => Err(BrokerError::TopicRefused {
                topic: topic.to_owned(),
                code: grown.error,
                message: grown.error_message.unwrap_or_default(),
            }),
            _ => Ok(()),
        }
    }

    /// Deletes a topic, its records and what groups committed of it. True if there was one.
    pub async fn delete_topic(&self, topic: &str) -> bool {
        self.shared.change(|node, out| node.delete_topic(topic, out)).is_ok()
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
        self.shared.view(|node| node.group(group_id))
    }

    /// The ids of all groups, in order.
    pub fn groups(&self) -> Vec<String> {
        self.shared.view(Node::group_ids)
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

/// The address of a node when the first one's is this: the port that follows, or a free one too.
fn following(first: &str, index: usize) -> String {
    match first.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?))) {
        Some((host, port)) if port != 0 => format!("{host}:{}", usize::from(port).saturating_add(index)),
        _ => first.to_owned(),
    }
}

async fn listener(address: &str) -> Result<TcpListener, BrokerError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BrokerError::AddressInUse { address: address.to_owned() },
        _ => BrokerError::Listen { address: address.to_owned(), source },
    })
}
