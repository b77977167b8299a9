//! The fetcher of one broker: keeps a Fetch out for every partition that has room, and hands on what comes.
//!
//! Partitions that get room while a Fetch is out do not wait for it: they go with the next, beside it, up to a
//! bound. A Fetch is a task of its own, on a connection of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kohort_client::{Address, Client, ClientError};
use kohort_protocol::messages::{FetchPartition, FetchRequest, FetchResponse, FetchTopic, FetchedPartition};
use kohort_protocol::records::scan;
use kohort_protocol::{ErrorCode, TopicPartition};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::table::{FetchTable, Ready, Reservation};
use crate::event::MemberEvent;
use crate::member::Incarnation;

/// Fetches out at once to one broker.
const MAX_FETCHES: usize = 3;

#[derive(Clone)]
pub(super) struct Fetcher {
    pub(super) incarnation: Arc<Incarnation>,
    pub(super) client: Client,
    pub(super) table: FetchTable,
    pub(super) node_id: i32,
    pub(super) address: Address,
}

impl Fetcher {
    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let mut changes = self.table.watch();
        let mut fetches: JoinSet<()> = JoinSet::new();
        loop {
            changes.mark_unchanged();
            let mut next = None;
            if fetches.len() < MAX_FETCHES {
                let (taken, later) = self.table.take_ready(self.node_id, fetches.is_empty(), Instant::now());
                next = later;
                if let Some((ready, room)) = taken {
                    let fetcher = self.clone();
                    fetches.spawn(async move { fetcher.fetch(ready, room).await });
                    continue;
                }
            }
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                Some(fetched) = fetches.join_next() => {
                    if let Err(error) = fetched && error.is_panic() {
                        // This task's own panic then, so that its supervisor sees it.
                        std::panic::resume_unwind(error.into_panic());
                    }
                }
                () = due => {}
            }
        }
    }

    /// The broker fills its answer in the order of the request: who waits longest stands first.
    async fn fetch(&self, ready: Vec<Ready>, room: Reservation) {
        let config = &self.incarnation.config;
        let mut topics: Vec<FetchTopic> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for ready in &ready {
            let place = *places.entry(&ready.partition.topic).or_insert(topics.len());
            if place == topics.len() {
                topics.push(FetchTopic { name: ready.partition.topic.to_string(), partitions: Vec::new() });
            }
            topics[place].partitions.push(FetchPartition {
                partition: ready.partition.partition,
                current_leader_epoch: ready.leader_epoch,
                fetch_offset: ready.offset,
                log_start_offset: -1,
                max_bytes: config.max_partition_fetch_bytes,
            });
        }
        let request = FetchRequest {
            replica_id: -1,
            max_wait_ms: i32::try_from(config.fetch_max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: config.fetch_min_bytes,
            max_bytes: i32::try_from(room.bytes).unwrap_or(i32::MAX).min(config.fetch_max_bytes),
            isolation_level: config.isolation_level.code(),
            session_id: 0,
            session_epoch: -1,
            topics,
            forgotten: Vec::new(),
            rack_id: String::new(),
        };
        let timeout = config.membership.request_timeout.max(config.fetch_max_wait + Duration::from_secs(1));
        match self.client.call(&self.address, &request, timeout).await {
            Ok(answer) => self.take(ready, answer),
            Err(error) => self.lost(ready, &error),
        }
    }

    fn take(&self, ready: Vec<Ready>, answer: FetchResponse) {
        let mut fetched: BTreeMap<TopicPartition, FetchedPartition> = BTreeMap::new();
        for topic in answer.topics {
            let name: Arc<str> = topic.name.as_str().into();
            for partition in topic.partitions {
                fetched.insert(TopicPartition::new(name.clone(), partition.partition), partition);
            }
        }
        for ready in ready {
            let code = if answer.error.is_error() { Some(answer.error) } else { None };
            match (code, fetched.remove(&ready.partition)) {
                (Some(code), _) => self.refused(ready, code),
                (None, Some(partition)) if partition.error.is_error() => self.refused(ready, partition.error),
                (None, Some(partition)) => self.took(ready, partition),
                (None, None) => self.table.idle(&ready.partition, ready.token),
            }
        }
    }

    fn took(&self, ready: Ready, fetched: FetchedPartition) {
        if let Some(arguments) = self.table.arguments(&ready.partition, ready.token) {
            arguments.slot.set_high_watermark(fetched.high_watermark);
        }
        if fetched.records.is_empty() {
            return self.table.idle(&ready.partition, ready.token);
        }
        let next = match scan(&fetched.records) {
            Ok(scan) => scan.next_offset.filter(|next| *next > ready.offset),
            Err(error) => return self.trouble(&ready, error.to_string()),
        };
        match next {
            Some(next) => {
                let aborted = fetched.aborted_transactions;
                self.table.deliver(&ready.partition, ready.token, next, fetched.records, aborted);
            }
            None => {
                let (offset, size) = (ready.offset, fetched.records.len());
                self.trouble(
                    &ready,
                    format!("stuck at offset {offset}: {size} bytes hold no whole batch beyond it"),
                );
            }
        }
    }

    fn refused(&self, ready: Ready, code: ErrorCode) {
        match code {
            ErrorCode::OffsetOutOfRange => {
                self.table.out_of_range(&ready.partition, ready.token, Instant::now())
            }
            ErrorCode::NotLeaderOrFollower
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownLeaderEpoch
            | ErrorCode::ReplicaNotAvailable
            | ErrorCode::KafkaStorageError => {
                if self.table.lost_leader(&ready.partition, ready.token, Instant::now()) {
                    self.tell(&ready, code.to_string());
                }
            }
            code => self.trouble(&ready, code.to_string()),
        }
    }

    fn lost(&self, ready: Vec<Ready>, error: &ClientError) {
        for ready in ready {
            // Without the partition's own fault: told by the connection's event, not once for each partition.
            self.table.lost_leader(&ready.partition, ready.token, Instant::now());
            tracing::debug!(target: "kohort", partition = %ready.partition, "fetch: {error}");
        }
    }

    fn trouble(&self, ready: &Ready, reason: String) {
        if self.table.failed(&ready.partition, ready.token, Instant::now()) {
            self.tell(ready, reason);
        }
    }

    fn tell(&self, ready: &Ready, reason: String) {
        self.incarnation.emit(MemberEvent::PartitionFailed {
            member: self.incarnation.name.clone(),
            partition: ready.partition.clone(),
            reason,
        });
    }
}
