//! Finds the leader of each partition and the start of those without a committed offset, and has a fetcher
//! started for each leader broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kohort_client::{Address, Client};
use kohort_protocol::messages::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use kohort_protocol::{ErrorCode, TopicPartition};
use kohort_supervisor::{ChildSpec, SupervisorRef};
use tokio::time::Instant;

use super::fetcher::Fetcher;
use super::table::FetchTable;
use crate::event::MemberEvent;
use crate::member::Incarnation;

pub(super) struct Leaders {
    pub(super) incarnation: Arc<Incarnation>,
    pub(super) client: Client,
    pub(super) table: FetchTable,
    pub(super) supervisor: SupervisorRef,
}

impl Leaders {
    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let mut fetchers = BTreeSet::new();
        let mut changes = self.table.watch();
        loop {
            changes.mark_unchanged();
            let unresolved = self.table.unresolved(Instant::now());
            for (node_id, address) in &unresolved.leaders {
                if fetchers.insert((*node_id, address.clone())) {
                    self.start_fetcher(*node_id, address).await;
                }
            }
            if !unresolved.topics.is_empty() {
                self.find_leaders(&unresolved.topics).await;
                continue;
            }
            if !unresolved.starts.is_empty() {
                for (address, partitions) in unresolved.starts {
                    self.find_starts(&address, partitions).await;
                }
                continue;
            }
            let due = async {
                match unresolved.next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = due => {}
            }
        }
    }

    /// A broker that moved gets a new fetcher for its new address; the old one has nothing to do any more.
    async fn start_fetcher(&self, node_id: i32, address: &Address) {
        let fetcher = Fetcher {
            incarnation: self.incarnation.clone(),
            client: self.client.clone(),
            table: self.table.clone(),
            node_id,
            address: address.clone(),
        };
        let spec = ChildSpec::task(format!("broker-{node_id}@{address}"), move || fetcher.clone().run());
        // Refused for one that runs already, from before this task was restarted.
        let _ = self.supervisor.start_child(spec).await;
    }

    async fn find_leaders(&self, topics: &BTreeSet<String>) {
        let timeout = self.incarnation.config.membership.request_timeout;
        let names: Vec<String> = topics.iter().cloned().collect();
        let asked = self.client.metadata(&names, false, timeout).await;
        let cluster = self.client.cluster();
        let errors: BTreeMap<String, ErrorCode> = match &asked {
            Ok(response) => response.topics.iter().map(|topic| (topic.name.clone(), topic.error)).collect(),
            Err(_) => BTreeMap::new(),
        };
        for (partition, token) in self.table.leaderless(topics) {
            if asked.is_ok()
                && let Some(leader) = cluster.leader(&partition)
            {
                self.table.set_leader(&partition, leader);
                continue;
            }
            let reason = match (&asked, errors.get(&*partition.topic)) {
                (Err(error), _) => error.to_string(),
                (Ok(_), Some(code)) if code.is_error() => code.to_string(),
                _ => "no leader".into(),
            };
            if self.table.failed(&partition, token, Instant::now()) {
                self.tell_trouble(partition, reason);
            }
        }
    }

    async fn find_starts(&self, address: &Address, partitions: Vec<(TopicPartition, u64)>) {
        let config = &self.incarnation.config;
        let Some(timestamp) = config.auto_offset_reset.timestamp() else { return self.give_up(partitions) };
        let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for (partition, _) in &partitions {
            topics.entry(&partition.topic).or_default().push(ListOffsetsPartition {
                partition: partition.partition,
                leader_epoch: -1,
                timestamp,
            });
        }
        let request = ListOffsetsRequest {
            isolation_level: config.isolation_level.code(),
            topics: topics
                .into_iter()
                .map(|(name, partitions)| ListOffsetsTopic { name: name.to_owned(), partitions })
                .collect(),
        };
        let answer = self.client.call(address, &request, config.membership.request_timeout).await;
        let mut found: BTreeMap<TopicPartition, Result<i64, ErrorCode>> = BTreeMap::new();
        for topic in answer.as_ref().map(|answer| answer.topics.as_slice()).unwrap_or_default() {
            for listed in &topic.partitions {
                let result = if listed.error.is_error() { Err(listed.error) } else { Ok(listed.offset) };
                found.insert(TopicPartition::new(topic.name.as_str(), listed.partition), result);
            }
        }
        for (partition, token) in partitions {
            let reason = match (&answer, found.get(&partition)) {
                (_, Some(Ok(offset))) if *offset >= 0 => {
                    self.set_start(&partition, token, *offset);
                    continue;
                }
                (Err(error), _) => error.to_string(),
                (Ok(_), Some(Err(code))) => code.to_string(),
                (Ok(_), _) => "the broker has no offset for it".into(),
            };
            if self.table.lost_leader(&partition, token, Instant::now()) {
                self.tell_trouble(partition, reason);
            }
        }
    }

    /// Without a policy a partition that has no usable offset is not read.
    fn give_up(&self, partitions: Vec<(TopicPartition, u64)>) {
        for (partition, token) in partitions {
            let Some(from) = self.table.stop(&partition, token) else { continue };
            let missing = match from {
                Some(offset) => format!("offset {offset} is not in the log any more"),
                None => "no offset is committed".into(),
            };
            let reason = format!(
                "{missing}, and auto.offset.reset is none: it is not read until an offset is committed for it and it is assigned \
                 anew"
            );
            if let Some(slot) = self.incarnation.slots().get(&partition) {
                slot.set_failure(reason.clone());
            }
            self.tell_trouble(partition, reason);
        }
    }

    fn set_start(&self, partition: &TopicPartition, token: u64, offset: i64) {
        let Some(from) = self.table.set_start(partition, token, offset) else { return };
        self.incarnation.emit(MemberEvent::OffsetReset {
            member: self.incarnation.name.clone(),
            partition: partition.clone(),
            from,
            to: offset,
            policy: self.incarnation.config.auto_offset_reset.as_str(),
        });
    }

    fn tell_trouble(&self, partition: TopicPartition, reason: String) {
        let member = self.incarnation.name.clone();
        self.incarnation.emit(MemberEvent::PartitionFailed { member, partition, reason });
    }
}
