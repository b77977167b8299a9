//! The commit ledger: per partition, how far the work is done and how far the coordinator knows.
//!
//! A position moves forward only; what is committed is never past it and never goes back. A partition is
//! dirty until its commit is acknowledged, and has one commit in flight at the most.

use std::collections::BTreeMap;

use kohort_protocol::{ErrorCode, TopicPartition};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Entry {
    position: i64,
    committed: Option<i64>,
    in_flight: Option<i64>,
    /// The last offset that the coordinator refused for good, and with what.
    refused: Option<(i64, ErrorCode)>,
}

impl Entry {
    fn is_dirty(&self) -> bool {
        let settled = self.committed.max(self.refused.map(|(offset, _)| offset));
        settled.is_none_or(|settled| settled < self.position)
    }
}

/// The positions and commits of the partitions a member owns in one generation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Ledger {
    partitions: BTreeMap<TopicPartition, Entry>,
    unacknowledged: u64,
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// A partition starts at its committed offset.
    pub fn start(&mut self, partition: TopicPartition, committed: i64) {
        let entry = Entry { position: committed, committed: Some(committed), ..Entry::default() };
        self.partitions.insert(partition, entry);
    }

    /// A partition without a committed offset starts at `offset`, which the reset policy gave: dirty at once,
    /// so that a restart before the first record finds the same place.
    pub fn reset(&mut self, partition: TopicPartition, offset: i64) {
        self.partitions.insert(partition, Entry { position: offset, ..Entry::default() });
    }

    /// Everything before `position` is handled; `records` of them since the last report. A position that is
    /// not ahead changes nothing.
    pub fn handled(&mut self, partition: &TopicPartition, position: i64, records: u64) {
        if let Some(entry) = self.partitions.get_mut(partition) {
            if position > entry.position {
                entry.position = position;
            }
            self.unacknowledged = self.unacknowledged.saturating_add(records);
        }
    }

    /// Records handled since the last commit was begun.
    pub fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// Is anything left to commit, in flight included?
    pub fn is_dirty(&self) -> bool {
        self.partitions.values().any(Entry::is_dirty)
    }

    /// Is anything of these partitions left to commit, in flight included?
    pub fn is_dirty_in<'a>(&self, partitions: impl IntoIterator<Item = &'a TopicPartition>) -> bool {
        partitions.into_iter().any(|partition| self.partitions.get(partition).is_some_and(Entry::is_dirty))
    }

    /// Forgets a partition that was given back.
    pub fn remove(&mut self, partition: &TopicPartition) {
        self.partitions.remove(partition);
    }

    /// Partitions with work that is not committed.
    pub fn dirty(&self) -> impl Iterator<Item = &TopicPartition> {
        self.partitions.iter().filter(|(_, entry)| entry.is_dirty()).map(|(partition, _)| partition)
    }

    /// Marks the dirty partitions as in flight and gives their offsets; those in flight already are left out.
    pub fn begin_commit(&mut self) -> Vec<(TopicPartition, i64)> {
        self.unacknowledged = 0;
        let ready =
            self.partitions.iter_mut().filter(|(_, entry)| entry.is_dirty() && entry.in_flight.is_none());
        ready
            .map(|(partition, entry)| {
                entry.in_flight = Some(entry.position);
                (partition.clone(), entry.position)
            })
            .collect()
    }

    /// The coordinator has the offset in flight; returns it.
    pub fn commit_succeeded(&mut self, partition: &TopicPartition) -> Option<i64> {
        let entry = self.partitions.get_mut(partition)?;
        let offset = entry.in_flight.take()?;
        entry.committed = Some(entry.committed.map_or(offset, |committed| committed.max(offset)));
        Some(offset)
    }

    /// The commit in flight failed: the partition is dirty as before.
    pub fn commit_failed(&mut self, partition: &TopicPartition) {
        if let Some(entry) = self.partitions.get_mut(partition) {
            entry.in_flight = None;
        }
    }

    /// The coordinator refuses the offset in flight for good: it is given up, so that it is not offered for ever.
    pub fn commit_refused(&mut self, partition: &TopicPartition, code: ErrorCode) {
        if let Some(entry) = self.partitions.get_mut(partition) {
            entry.refused = entry.in_flight.take().map(|offset| (offset, code)).or(entry.refused);
        }
    }

    /// The last offset of a partition that was refused for good, and with what.
    pub fn refused(&self, partition: &TopicPartition) -> Option<(i64, ErrorCode)> {
        self.partitions.get(partition)?.refused
    }

    /// The committed offset of a partition, if known.
    pub fn committed(&self, partition: &TopicPartition) -> Option<i64> {
        self.partitions.get(partition)?.committed
    }

    /// The committed offsets that are known.
    pub fn known(&self) -> impl Iterator<Item = (TopicPartition, i64)> {
        self.partitions.iter().filter_map(|(partition, entry)| Some((partition.clone(), entry.committed?)))
    }

    /// What is handled and not committed.
    pub fn uncommitted(&self) -> impl Iterator<Item = (TopicPartition, i64)> {
        let dirty = self.partitions.iter().filter(|(_, entry)| entry.is_dirty());
        dirty.map(|(partition, entry)| (partition.clone(), entry.position))
    }

    /// Forgets everything: the generation is over.
    pub fn clear(&mut self) {
        self.partitions.clear();
        self.unacknowledged = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition() -> TopicPartition {
        TopicPartition::new("t", 0)
    }

    #[test]
    fn a_position_and_a_commit_never_go_back() {
        let mut ledger = Ledger::new();
        ledger.start(partition(), 10);
        assert!(!ledger.is_dirty());
        ledger.handled(&partition(), 15, 5);
        ledger.handled(&partition(), 12, 0);
        assert_eq!(ledger.begin_commit(), [(partition(), 15)]);
        ledger.handled(&partition(), 20, 5);
        assert!(ledger.begin_commit().is_empty(), "one in flight per partition");
        assert_eq!(ledger.commit_succeeded(&partition()), Some(15));
        assert!(ledger.is_dirty());
        assert_eq!(ledger.begin_commit(), [(partition(), 20)]);
        ledger.commit_failed(&partition());
        assert!(ledger.is_dirty(), "dirty until acknowledged");
        assert_eq!(ledger.begin_commit(), [(partition(), 20)]);
        ledger.commit_succeeded(&partition());
        assert!(!ledger.is_dirty());
        assert_eq!(ledger.committed(&partition()), Some(20));
    }

    #[test]
    fn a_start_from_the_reset_policy_is_committed_too() {
        let mut ledger = Ledger::new();
        ledger.reset(partition(), 0);
        assert!(ledger.is_dirty());
        assert_eq!(ledger.begin_commit(), [(partition(), 0)]);
        ledger.commit_succeeded(&partition());
        assert!(!ledger.is_dirty());
    }

    #[test]
    fn what_is_refused_is_neither_committed_nor_offered_again() {
        let mut ledger = Ledger::new();
        ledger.start(partition(), 10);
        ledger.handled(&partition(), 15, 5);
        ledger.begin_commit();
        ledger.commit_refused(&partition(), ErrorCode::OffsetMetadataTooLarge);
        assert!(!ledger.is_dirty());
        assert_eq!(ledger.committed(&partition()), Some(10));
        assert_eq!(ledger.refused(&partition()), Some((15, ErrorCode::OffsetMetadataTooLarge)));
        ledger.handled(&partition(), 16, 1);
        assert_eq!(ledger.begin_commit(), [(partition(), 16)], "what follows is");
        ledger.commit_succeeded(&partition());
        assert_eq!(ledger.committed(&partition()), Some(16));
    }

    #[test]
    fn reports_for_unknown_partitions_change_nothing() {
        let mut ledger = Ledger::new();
        ledger.handled(&partition(), 5, 5);
        assert!(!ledger.is_dirty());
        assert_eq!(ledger.commit_succeeded(&partition()), None);
        assert_eq!(ledger.unacknowledged(), 0);
    }
}
