//! The partitions that are to be read, and how far each is. Shared by workers, fetchers and the `leaders` task;
//! every change wakes whoever watches.
//!
//! A partition is put in anew by each incarnation of its worker, under a new *token*; what belongs to an older
//! token is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kohort_client::{Address, Leader};
use kohort_protocol::TopicPartition;
use kohort_protocol::messages::AbortedTransaction;
use ractor::ActorRef;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::worker::{WorkerArguments, WorkerMessage};

/// This part of the buffer is one Fetch's to fill: enough to be quick, and the others find room beside it.
const SHARE: usize = 16;
/// Chunks that may wait for one worker: the next is on its way while one is worked on.
const CREDIT: u8 = 2;
/// First and longest pause after an error of a partition.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

fn pause(attempts: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << attempts.min(8)).min(LONGEST_PAUSE)
}

/// Where a partition is to be read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    At(i64),
    /// By the reset policy; `from` is the offset that could not be used.
    Reset {
        from: Option<i64>,
    },
    /// Nowhere: there is no usable offset and no policy to give one.
    Stopped,
}

struct Entry {
    token: u64,
    arguments: WorkerArguments,
    worker: ActorRef<WorkerMessage>,
    start: Start,
    leader: Option<Leader>,
    credit: u8,
    /// Which delivery of all was its last: who waits longest goes first.
    served: u64,
    in_flight: bool,
    attempts: u32,
    not_before: Option<Instant>,
    /// Told of its trouble; told again only after it went well.
    told: bool,
}

#[derive(Default)]
struct Inner {
    partitions: BTreeMap<TopicPartition, Entry>,
    tokens: u64,
    deliveries: u64,
    /// Bytes that wait for workers, and that Fetches under way may bring.
    buffered: usize,
    reserved: usize,
}

impl Inner {
    /// What belongs to the entry's token comes to nothing from here on.
    fn suspend(&mut self, partition: &TopicPartition, which: impl FnOnce(&Entry) -> bool) {
        if let Some(entry) = self.partitions.get_mut(partition).filter(|entry| which(entry)) {
            self.tokens += 1;
            entry.token = self.tokens;
            entry.credit = 0;
            entry.in_flight = false;
        }
    }
}

/// A reference to the table. Cheap to clone.
#[derive(Clone)]
pub(crate) struct FetchTable {
    inner: Arc<Mutex<Inner>>,
    version: Arc<watch::Sender<u64>>,
    max_buffered: usize,
}

/// Fetched bytes on their way to a worker. Dropping it makes room for the next.
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    pub(crate) aborted: Vec<AbortedTransaction>,
    _credit: Credit,
}

struct Credit {
    table: FetchTable,
    partition: TopicPartition,
    token: u64,
    bytes: usize,
}

impl Drop for Credit {
    fn drop(&mut self) {
        let mut inner = self.table.lock();
        inner.buffered = inner.buffered.saturating_sub(self.bytes);
        if let Some(entry) =
            inner.partitions.get_mut(&self.partition).filter(|entry| entry.token == self.token)
        {
            entry.credit = (entry.credit + 1).min(CREDIT);
        }
        drop(inner);
        self.table.changed();
    }
}

/// A partition that a fetcher may ask for now.
pub(super) struct Ready {
    pub(super) partition: TopicPartition,
    pub(super) token: u64,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
}

/// Room for what a Fetch may bring. Dropping it gives the room back.
pub(super) struct Reservation {
    table: FetchTable,
    pub(super) bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut inner = self.table.lock();
        inner.reserved = inner.reserved.saturating_sub(self.bytes);
        drop(inner);
        self.table.changed();
    }
}

/// What the `leaders` task has to find.
#[derive(Default)]
pub(super) struct Unresolved {
    pub(super) topics: BTreeSet<String>,
    pub(super) starts: BTreeMap<Address, Vec<(TopicPartition, u64)>>,
    pub(super) leaders: BTreeMap<i32, Address>,
    /// When there may be more to do.
    pub(super) next: Option<Instant>,
}

impl FetchTable {
    pub(crate) fn new(max_buffered: usize) -> Self {
        Self { inner: Arc::default(), version: Arc::new(watch::Sender::new(0)), max_buffered }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Sees every change after this call.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(crate) fn insert(&self, arguments: &WorkerArguments, start: Start, worker: ActorRef<WorkerMessage>) {
        let mut inner = self.lock();
        inner.tokens += 1;
        let token = inner.tokens;
        let known = inner.partitions.get(&arguments.partition).and_then(|entry| entry.leader.clone());
        let entry = Entry {
            token,
            arguments: arguments.clone(),
            worker,
            start,
            leader: known,
            credit: CREDIT,
            served: 0,
            in_flight: false,
            attempts: 0,
            not_before: None,
            told: false,
        };
        let replaced = inner.partitions.insert(arguments.partition.clone(), entry);
        drop(inner);
        drop(replaced);
        self.changed();
    }

    pub(crate) fn remove(&self, partition: &TopicPartition) {
        // The entry goes after the lock does: it may hold the last reference to a mailbox whose chunks give
        // their credit back.
        let removed = self.lock().partitions.remove(partition);
        drop(removed);
        self.changed();
    }

    /// The worker is gone, and its successor not ready yet: what was fetched for it is dropped, and nothing
    /// more is.
    pub(crate) fn suspend(&self, partition: &TopicPartition) {
        self.lock().suspend(partition, |_| true);
    }

    /// The partitions led by this broker that have an offset and room, now; marks them as asked for. And when
    /// another may become ready by time alone.
    ///
    /// A broker that has no Fetch under way gets one while there is any room: long polls of the others must not
    /// keep it waiting.
    pub(super) fn take_ready(
        &self,
        node_id: i32,
        first: bool,
        now: Instant,
    ) -> (Option<(Vec<Ready>, Reservation)>, Option<Instant>) {
        let mut inner = self.lock();
        let mut next = None;
        let share = (self.max_buffered / SHARE).max(1);
        let taken = if first { inner.buffered } else { inner.buffered + inner.reserved + share - 1 };
        if taken >= self.max_buffered {
            return (None, next);
        }
        let mut ready = Vec::new();
        for (partition, entry) in &mut inner.partitions {
            let (Start::At(offset), Some(leader)) = (entry.start, &entry.leader) else { continue };
            if leader.node_id != node_id
                || entry.in_flight
                || entry.credit == 0
                || !entry.arguments.run.may_handle()
            {
                continue;
            }
            if let Some(at) = entry.not_before.filter(|at| *at > now) {
                next = Some(next.map_or(at, |next: Instant| next.min(at)));
                continue;
            }
            entry.in_flight = true;
            let one = Ready {
                partition: partition.clone(),
                token: entry.token,
                offset,
                leader_epoch: leader.epoch,
            };
            ready.push((entry.served, one));
        }
        if ready.is_empty() {
            return (None, next);
        }
        inner.reserved += share;
        drop(inner);
        ready.sort_by_key(|(served, _)| *served);
        let ready = ready.into_iter().map(|(_, one)| one).collect();
        (Some((ready, Reservation { table: self.clone(), bytes: share })), next)
    }

    /// Bytes came; the worker gets them, and the next fetch goes on behind them.
    pub(super) fn deliver(
        &self,
        partition: &TopicPartition,
        token: u64,
        next_offset: i64,
        bytes: Bytes,
        aborted: Vec<AbortedTransaction>,
    ) {
        let mut inner = self.lock();
        let size = bytes.len();
        inner.deliveries += 1;
        let served = inner.deliveries;
        let Some(entry) = inner.partitions.get_mut(partition).filter(|entry| entry.token == token) else {
            return;
        };
        entry.in_flight = false;
        entry.attempts = 0;
        entry.told = false;
        entry.served = served;
        entry.start = Start::At(next_offset);
        entry.credit = entry.credit.saturating_sub(1);
        let worker = entry.worker.clone();
        inner.buffered += size;
        drop(inner);
        let credit = Credit { table: self.clone(), partition: partition.clone(), token, bytes: size };
        // The chunk comes back from a worker that is gone, and must not make room for the next.
        let chunk = Chunk { bytes, aborted, _credit: credit };
        if let Err(returned) = worker.cast(WorkerMessage::Deliver(chunk)) {
            self.lock().suspend(partition, |entry| entry.token == token);
            drop(returned);
        }
        self.changed();
    }

    /// Nothing new.
    pub(super) fn idle(&self, partition: &TopicPartition, token: u64) {
        self.update(partition, token, |entry| {
            entry.in_flight = false;
            entry.attempts = 0;
            entry.told = false;
        });
    }

    /// The leader is not, or no longer, the leader, or cannot be reached. True the first time.
    pub(super) fn lost_leader(&self, partition: &TopicPartition, token: u64, now: Instant) -> bool {
        self.trouble(partition, token, now, |entry| entry.leader = None)
    }

    /// An error that may pass. True the first time.
    pub(super) fn failed(&self, partition: &TopicPartition, token: u64, now: Instant) -> bool {
        self.trouble(partition, token, now, |_| {})
    }

    /// The offset is not in the log any more.
    pub(super) fn out_of_range(&self, partition: &TopicPartition, token: u64, now: Instant) {
        self.update(partition, token, |entry| {
            entry.in_flight = false;
            // The first is answered at once; a start that is refused in its turn is paced.
            if entry.attempts > 0 {
                entry.not_before = Some(now + pause(entry.attempts));
            }
            entry.attempts = entry.attempts.saturating_add(1);
            if let Start::At(offset) = entry.start {
                entry.start = Start::Reset { from: Some(offset) };
            }
        });
    }

    pub(super) fn set_leader(&self, partition: &TopicPartition, leader: Leader) {
        let mut inner = self.lock();
        if let Some(entry) = inner.partitions.get_mut(partition)
            && entry.leader.is_none()
        {
            entry.leader = Some(leader);
        }
        drop(inner);
        // The leader's fetcher may be asleep, having seen the partition come without a leader.
        self.changed();
    }

    /// The reset policy has an offset: the worker is told ahead of what is fetched from there, and behind what
    /// was before. Gives the offset that it replaces.
    pub(super) fn set_start(
        &self,
        partition: &TopicPartition,
        token: u64,
        offset: i64,
    ) -> Option<Option<i64>> {
        let mut inner = self.lock();
        let entry = inner.partitions.get_mut(partition).filter(|entry| entry.token == token)?;
        let Start::Reset { from } = entry.start else { return None };
        entry.start = Start::At(offset);
        entry.not_before = None;
        // One that is gone has a successor, which begins where the slot says, and is reset in its turn.
        let _ = entry.worker.cast(WorkerMessage::Reset { offset });
        drop(inner);
        self.changed();
        Some(from)
    }

    /// No policy gives the partition a start: it is not read. Gives the offset that could not be used.
    pub(super) fn stop(&self, partition: &TopicPartition, token: u64) -> Option<Option<i64>> {
        let mut inner = self.lock();
        let entry = inner.partitions.get_mut(partition).filter(|entry| entry.token == token)?;
        let Start::Reset { from } = entry.start else { return None };
        entry.start = Start::Stopped;
        Some(from)
    }

    /// The worker's slot, for the figures a fetch brings along.
    pub(super) fn arguments(&self, partition: &TopicPartition, token: u64) -> Option<WorkerArguments> {
        let inner = self.lock();
        inner
            .partitions
            .get(partition)
            .filter(|entry| entry.token == token)
            .map(|entry| entry.arguments.clone())
    }

    pub(super) fn unresolved(&self, now: Instant) -> Unresolved {
        let inner = self.lock();
        let mut unresolved = Unresolved::default();
        for (partition, entry) in &inner.partitions {
            if let Some(leader) = &entry.leader {
                unresolved.leaders.insert(leader.node_id, leader.address.clone());
            }
            let waits = matches!(entry.start, Start::Reset { .. }) || entry.leader.is_none();
            if !waits || !entry.arguments.run.may_handle() {
                continue;
            }
            if let Some(at) = entry.not_before.filter(|at| *at > now) {
                unresolved.next = Some(unresolved.next.map_or(at, |next| next.min(at)));
                continue;
            }
            match &entry.leader {
                None => {
                    unresolved.topics.insert(partition.topic.to_string());
                }
                Some(leader) => {
                    let starts = unresolved.starts.entry(leader.address.clone()).or_default();
                    starts.push((partition.clone(), entry.token));
                }
            }
        }
        unresolved
    }

    /// The partitions of these topics that have no leader, with their tokens.
    pub(super) fn leaderless(&self, topics: &BTreeSet<String>) -> Vec<(TopicPartition, u64)> {
        let inner = self.lock();
        inner
            .partitions
            .iter()
            .filter(|(partition, entry)| entry.leader.is_none() && topics.contains(&*partition.topic))
            .map(|(partition, entry)| (partition.clone(), entry.token))
            .collect()
    }

    fn trouble(
        &self,
        partition: &TopicPartition,
        token: u64,
        now: Instant,
        change: impl FnOnce(&mut Entry),
    ) -> bool {
        let mut first = false;
        self.update(partition, token, |entry| {
            entry.in_flight = false;
            entry.not_before = Some(now + pause(entry.attempts));
            entry.attempts = entry.attempts.saturating_add(1);
            first = !std::mem::replace(&mut entry.told, true);
            change(entry);
        });
        first
    }

    fn update(&self, partition: &TopicPartition, token: u64, change: impl FnOnce(&mut Entry)) {
        let mut inner = self.lock();
        if let Some(entry) = inner.partitions.get_mut(partition).filter(|entry| entry.token == token) {
            change(entry);
        }
        drop(inner);
        self.changed();
    }
}
