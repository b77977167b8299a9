//! A small producer: acks from all replicas, idempotent where the broker can (KIP-98), in batches. It serves
//! the command and the tests; it is no stand-in for a producer tuned for throughput.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kohort_protocol::messages::{InitProducerIdRequest, ProducePartition, ProduceRequest, ProduceTopic};
use kohort_protocol::records::{Compression, OwnedHeader, RecordBatchBuilder, RecordError};
use kohort_protocol::{ErrorCode, TopicPartition};
use thiserror::Error;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;
use crate::partitioner::partition_for_key;

/// Settings of a [`Producer`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProducerConfig {
    /// `compression.type`. Default none.
    pub compression: Compression,
    /// Largest batch before compression, in bytes. Default 512 KiB (Kafka accepts 1 MiB by default); a record
    /// that is larger goes alone.
    pub batch_bytes: usize,
    /// How long one request may take. Default 15 s (`request.timeout.ms`).
    pub request_timeout: Duration,
    /// How long a record is tried for in all. Default 2 min (`delivery.timeout.ms`).
    pub delivery_timeout: Duration,
    /// First wait before another try. Default 100 ms, doubling to 1 s (`retry.backoff.ms`).
    pub retry_backoff: Duration,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            compression: Compression::None,
            batch_bytes: 512 * 1024,
            request_timeout: Duration::from_secs(15),
            delivery_timeout: Duration::from_secs(120),
            retry_backoff: Duration::from_millis(100),
        }
    }
}

/// A record to produce.
#[derive(Debug, Clone, Default)]
pub struct ProducerRecord {
    /// The topic.
    pub topic: String,
    /// The partition; `None`: by the key, or spread when there is no key.
    pub partition: Option<i32>,
    /// Milliseconds since the epoch; `None` for now.
    pub timestamp: Option<i64>,
    /// Key.
    pub key: Option<Bytes>,
    /// Value.
    pub value: Option<Bytes>,
    /// Headers.
    pub headers: Vec<OwnedHeader>,
}

/// Where a record went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The partition.
    pub partition: TopicPartition,
    /// The record's offset; `None` if the broker acknowledged a repetition without saying where it was.
    pub offset: Option<i64>,
}

/// Why a record was not acknowledged.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ProducerError {
    /// The broker refused the batch for good.
    #[error("{partition}: {code}{}", .message.as_deref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// The partition.
        partition: TopicPartition,
        /// Its code.
        code: ErrorCode,
        /// Its words.
        message: Option<String>,
    },
    /// The delivery timeout passed; whether the record was written is unknown if it was sent at all.
    #[error("{topic}: not acknowledged within {after:?}; last: {last}")]
    DeliveryTimeout {
        /// The topic.
        topic: String,
        /// The delivery timeout.
        after: Duration,
        /// What the last try came to.
        last: String,
    },
    /// The topic has no such partition.
    #[error("{partition} does not exist: {topic} has {count} partitions", topic = .partition.topic)]
    NoSuchPartition {
        /// The partition asked for.
        partition: TopicPartition,
        /// How many there are.
        count: i32,
    },
    /// The records cannot be written as a batch.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No broker answers, or one answers what cannot be mended by another try.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Sends records and waits for their acknowledgement by all in-sync replicas.
#[derive(Debug)]
pub struct Producer {
    client: Client,
    config: ProducerConfig,
    identity: Option<Identity>,
    spread: usize,
}

/// Producer id and the next sequence number of each partition; `id` −1 if the broker has none to give.
#[derive(Debug)]
struct Identity {
    id: i64,
    epoch: i16,
    next: HashMap<TopicPartition, i32>,
}

struct Batch {
    /// Places in the caller's list.
    places: Vec<usize>,
    bytes: Bytes,
}

impl Producer {
    /// A producer on this client's connections.
    pub fn new(client: Client, config: ProducerConfig) -> Self {
        Self { client, config, identity: None, spread: 0 }
    }

    /// Sends the records and waits for all; the results stand in the records' order. Records of one partition
    /// are written in that order. A topic that does not exist is created if the broker does so.
    ///
    /// # Errors
    /// Each record has its own result, see [`ProducerError`].
    ///
    /// # Cancel safety
    /// Not cancel safe: what was sent may have been written.
    pub async fn send(&mut self, records: Vec<ProducerRecord>) -> Vec<Result<Delivery, ProducerError>> {
        let deadline = Instant::now() + self.config.delivery_timeout;
        let mut results: Vec<Option<Result<Delivery, ProducerError>>> =
            records.iter().map(|_| None).collect();
        let topics: BTreeMap<&str, Vec<usize>> =
            records.iter().enumerate().fold(BTreeMap::new(), |mut topics, (place, record)| {
                topics.entry(record.topic.as_str()).or_insert_with(Vec::new).push(place);
                topics
            });
        if let Err(error) = self.identify(deadline).await {
            return records.iter().map(|_| Err(error.clone().into())).collect();
        }
        let mut pending: BTreeMap<TopicPartition, VecDeque<Batch>> = BTreeMap::new();
        for (topic, places) in topics {
            match self.partitions_of(topic, deadline).await {
                Ok(count) => self.batch(&records, topic, &places, count, &mut pending, &mut results),
                Err(error) => places.iter().for_each(|place| results[*place] = Some(Err(error.clone()))),
            }
        }
        self.deliver(pending, deadline, &mut results).await;
        let unanswered = || ProducerError::DeliveryTimeout {
            topic: String::new(),
            after: self.config.delivery_timeout,
            last: "never sent".into(),
        };
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(unanswered()))).collect()
    }

    /// A broker without InitProducerId is produced to without sequence numbers.
    async fn identify(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
        };
        let mut wait = self.config.retry_backoff;
        while self.identity.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match self.client.call_any(&request, self.config.request_timeout.min(left)).await {
                Ok(answer) if answer.error.is_none() => {
                    let (id, epoch) = (answer.producer_id, answer.producer_epoch);
                    self.identity = Some(Identity { id, epoch, next: HashMap::new() });
                    break;
                }
                Ok(answer) if answer.error == ErrorCode::ClusterAuthorizationFailed => {
                    self.identity = Some(Identity { id: -1, epoch: -1, next: HashMap::new() });
                    break;
                }
                Ok(answer) => {
                    ClientError::Broker { api: kohort_protocol::ApiKey::InitProducerId, code: answer.error }
                }
                Err(ClientError::Unsupported { .. }) => {
                    self.identity = Some(Identity { id: -1, epoch: -1, next: HashMap::new() });
                    break;
                }
                Err(error) => error,
            };
            if !error.is_retriable() || Instant::now() + wait >= deadline {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(1));
        }
        Ok(())
    }

    /// How many partitions the topic has, once it has leaders.
    async fn partitions_of(&self, topic: &str, deadline: Instant) -> Result<i32, ProducerError> {
        let mut wait = self.config.retry_backoff;
        loop {
            let cluster = self.client.cluster();
            if let Some(count) = cluster.partition_count(topic).filter(|count| *count > 0) {
                return Ok(count);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let names = [topic.to_owned()];
            let last = match self.client.metadata(&names, true, self.config.request_timeout.min(left)).await {
                Ok(answer) => match answer.topics.into_iter().next() {
                    Some(found) if found.error.is_none() && !found.partitions.is_empty() => continue,
                    Some(found) if is_final(found.error) => {
                        let partition = TopicPartition::new(topic, -1);
                        return Err(ProducerError::Refused { partition, code: found.error, message: None });
                    }
                    Some(found) => found.error.to_string(),
                    None => "the broker does not speak of the topic".into(),
                },
                Err(error) if !error.is_retriable() => return Err(error.into()),
                Err(error) => error.to_string(),
            };
            if Instant::now() + wait >= deadline {
                let after = self.config.delivery_timeout;
                return Err(ProducerError::DeliveryTimeout { topic: topic.to_owned(), after, last });
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(1));
        }
    }

    fn batch(
        &mut self,
        records: &[ProducerRecord],
        topic: &str,
        places: &[usize],
        count: i32,
        pending: &mut BTreeMap<TopicPartition, VecDeque<Batch>>,
        results: &mut [Option<Result<Delivery, ProducerError>>],
    ) {
        let name: std::sync::Arc<str> = topic.into();
        let mut open: BTreeMap<i32, (RecordBatchBuilder, Vec<usize>)> = BTreeMap::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        for place in places {
            let record = &records[*place];
            let partition = match (record.partition, &record.key) {
                (Some(partition), _) => partition,
                (None, Some(key)) => partition_for_key(key, count),
                (None, None) => {
                    self.spread = self.spread.wrapping_add(1);
                    (self.spread % count as usize) as i32
                }
            };
            if !(0..count).contains(&partition) {
                let partition = TopicPartition::new(name.clone(), partition);
                results[*place] = Some(Err(ProducerError::NoSuchPartition { partition, count }));
                continue;
            }
            let key = TopicPartition::new(name.clone(), partition);
            let headers = record.headers.iter().map(|header| (&*header.key, header.value.as_deref()));
            let size =
                RecordBatchBuilder::estimate(record.key.as_deref(), record.value.as_deref(), headers.clone());
            if let Some((builder, _)) = open.get(&partition)
                && !builder.is_empty()
                && builder.size() + size > self.config.batch_bytes
                && let Some((builder, places)) = open.remove(&partition)
            {
                self.close_batch(key.clone(), builder, places, pending, results);
            }
            if let std::collections::btree_map::Entry::Vacant(vacant) = open.entry(partition) {
                vacant.insert((self.new_batch(&key), Vec::new()));
            }
            let Some((builder, in_batch)) = open.get_mut(&partition) else { continue };
            let timestamp = record.timestamp.unwrap_or(now);
            match builder.append(timestamp, record.key.as_deref(), record.value.as_deref(), headers) {
                Ok(()) => in_batch.push(*place),
                Err(error) => results[*place] = Some(Err(error.into())),
            }
        }
        for (partition, (builder, places)) in open {
            self.close_batch(TopicPartition::new(name.clone(), partition), builder, places, pending, results);
        }
    }

    fn new_batch(&self, partition: &TopicPartition) -> RecordBatchBuilder {
        let builder = RecordBatchBuilder::new(self.config.compression);
        match &self.identity {
            Some(identity) if identity.id >= 0 => {
                let sequence = identity.next.get(partition).copied().unwrap_or(0);
                builder.producer(identity.id, identity.epoch, sequence)
            }
            _ => builder,
        }
    }

    fn close_batch(
        &mut self,
        partition: TopicPartition,
        builder: RecordBatchBuilder,
        places: Vec<usize>,
        pending: &mut BTreeMap<TopicPartition, VecDeque<Batch>>,
        results: &mut [Option<Result<Delivery, ProducerError>>],
    ) {
        if places.is_empty() {
            return;
        }
        if let Some(identity) = &mut self.identity {
            let next = identity.next.entry(partition.clone()).or_default();
            // Sequence numbers wrap to 0 after the largest 32-bit number.
            *next = (i64::from(*next) + places.len() as i64).rem_euclid(1 << 31) as i32;
        }
        match builder.build() {
            Ok(bytes) => pending.entry(partition).or_default().push_back(Batch { places, bytes }),
            Err(error) => {
                self.identity = None;
                places.iter().for_each(|place| results[*place] = Some(Err(error.clone().into())));
            }
        }
    }

    /// One batch of each partition at a time, so that order and sequence hold.
    async fn deliver(
        &mut self,
        mut pending: BTreeMap<TopicPartition, VecDeque<Batch>>,
        deadline: Instant,
        results: &mut [Option<Result<Delivery, ProducerError>>],
    ) {
        let mut wait = self.config.retry_backoff;
        let mut last = String::from("no leader");
        while !pending.is_empty() {
            let cluster = self.client.cluster();
            let mut leaders: BTreeMap<_, Vec<TopicPartition>> = BTreeMap::new();
            for partition in pending.keys() {
                if let Some(leader) = cluster.leader(partition) {
                    leaders.entry(leader.address).or_default().push(partition.clone());
                }
            }
            let mut progressed = false;
            for (address, partitions) in leaders {
                let request = produce_request(&pending, &partitions, self.config.request_timeout);
                let left = deadline.saturating_duration_since(Instant::now());
                let timeout = self.config.request_timeout.min(left);
                match self.client.call(&address, &request, timeout).await {
                    Ok(answer) => {
                        // One answer to one batch: what is named twice, or was not sent, is passed over.
                        let mut unanswered: BTreeSet<&TopicPartition> = partitions.iter().collect();
                        for topic in answer.topics {
                            for produced in topic.partitions {
                                let partition = TopicPartition::new(topic.name.as_str(), produced.partition);
                                if !unanswered.remove(&partition) {
                                    continue;
                                }
                                let offset = match produced.error {
                                    ErrorCode::None => {
                                        Some(produced.base_offset).filter(|offset| *offset >= 0)
                                    }
                                    ErrorCode::DuplicateSequenceNumber => None,
                                    code if !is_final(code) => {
                                        last = format!("{partition}: {code}");
                                        continue;
                                    }
                                    code => {
                                        let message = produced.error_message;
                                        let error = ProducerError::Refused {
                                            partition: partition.clone(),
                                            code,
                                            message,
                                        };
                                        self.give_up(&partition, error, &mut pending, results);
                                        continue;
                                    }
                                };
                                progressed |= acknowledge(&partition, offset, &mut pending, results);
                            }
                        }
                    }
                    Err(error) if error.is_retriable() => last = error.to_string(),
                    Err(error) => {
                        for partition in &partitions {
                            self.give_up(partition, error.clone().into(), &mut pending, results);
                        }
                    }
                }
            }
            if progressed {
                wait = self.config.retry_backoff;
                continue;
            }
            if pending.is_empty() {
                break;
            }
            if Instant::now() + wait >= deadline {
                let partitions: Vec<_> = pending.keys().cloned().collect();
                for partition in partitions {
                    let error = ProducerError::DeliveryTimeout {
                        topic: partition.topic.to_string(),
                        after: self.config.delivery_timeout,
                        last: last.clone(),
                    };
                    self.give_up(&partition, error, &mut pending, results);
                }
                break;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(1));
            let topics: BTreeSet<String> =
                pending.keys().map(|partition| partition.topic.to_string()).collect();
            let topics: Vec<String> = topics.into_iter().collect();
            let left = deadline.saturating_duration_since(Instant::now());
            if let Err(error) =
                self.client.metadata(&topics, false, self.config.request_timeout.min(left)).await
            {
                last = error.to_string();
            }
        }
    }

    /// A partition's batches are given up whole: those behind a lost one would leave a gap in the sequence.
    fn give_up(
        &mut self,
        partition: &TopicPartition,
        error: ProducerError,
        pending: &mut BTreeMap<TopicPartition, VecDeque<Batch>>,
        results: &mut [Option<Result<Delivery, ProducerError>>],
    ) {
        self.identity = None;
        for batch in pending.remove(partition).into_iter().flatten() {
            batch.places.iter().for_each(|place| results[*place] = Some(Err(error.clone())));
        }
    }
}

fn acknowledge(
    partition: &TopicPartition,
    base_offset: Option<i64>,
    pending: &mut BTreeMap<TopicPartition, VecDeque<Batch>>,
    results: &mut [Option<Result<Delivery, ProducerError>>],
) -> bool {
    let Some(batches) = pending.get_mut(partition) else { return false };
    let Some(batch) = batches.pop_front() else { return false };
    for (index, place) in batch.places.iter().enumerate() {
        let offset = base_offset.map(|base| base.saturating_add(index as i64));
        results[*place] = Some(Ok(Delivery { partition: partition.clone(), offset }));
    }
    if batches.is_empty() {
        pending.remove(partition);
    }
    true
}

fn produce_request(
    pending: &BTreeMap<TopicPartition, VecDeque<Batch>>,
    partitions: &[TopicPartition],
    timeout: Duration,
) -> ProduceRequest {
    let mut topics: BTreeMap<&str, Vec<ProducePartition>> = BTreeMap::new();
    for partition in partitions {
        if let Some(batch) = pending.get(partition).and_then(VecDeque::front) {
            topics.entry(&partition.topic).or_default().push(ProducePartition {
                partition: partition.partition,
                records: Some(batch.bytes.clone()),
            });
        }
    }
    ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
        topics: topics
            .into_iter()
            .map(|(name, partitions)| ProduceTopic { name: name.to_owned(), partitions })
            .collect(),
    }
}

/// Codes after which another try of the same batch cannot help.
fn is_final(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::None
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::RequestTimedOut
            | ErrorCode::NetworkException
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::NotEnoughReplicasAfterAppend
            | ErrorCode::KafkaStorageError
            | ErrorCode::CorruptMessage
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownLeaderEpoch
    )
}
