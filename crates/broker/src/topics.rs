//! Topics and partitions: who leads them and what is in them. Names and counts are checked here. Owned by `node`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kohort_protocol::ErrorCode;

use crate::log::Log;

/// The longest name of a topic, as on Kafka.
const MAX_NAME: usize = 249;

/// A partition.
#[derive(Debug)]
pub(crate) struct Partition {
    /// Node id of the leader.
    pub(crate) leader: i32,
    /// How often the leader changed.
    pub(crate) leader_epoch: i32,
    /// Its records.
    pub(crate) log: Log,
    /// Fetches parked until something is appended.
    pub(crate) waiting: BTreeSet<u64>,
}

impl Partition {
    fn new(leader: i32, max_log_size: usize) -> Self {
        Self { leader, leader_epoch: 0, log: Log::new(max_log_size), waiting: BTreeSet::new() }
    }

    /// Is `node` the leader, and does the epoch that a client knows fit ours? In Kafka's order.
    pub(crate) fn check_leader(&self, node: i32, known_epoch: i32) -> Result<(), ErrorCode> {
        self.check_epoch(known_epoch)?;
        if self.leader == node { Ok(()) } else { Err(ErrorCode::NotLeaderOrFollower) }
    }

    /// Does the epoch that a client knows fit ours? −1 is a client that knows none.
    fn check_epoch(&self, known: i32) -> Result<(), ErrorCode> {
        match known {
            -1 => Ok(()),
            known if known > self.leader_epoch => Err(ErrorCode::UnknownLeaderEpoch),
            known if known < self.leader_epoch => Err(ErrorCode::FencedLeaderEpoch),
            _ => Ok(()),
        }
    }
}

/// Why a topic was not created: a code for the wire and the words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicRefusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl TopicRefusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for TopicRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// All topics of the cluster.
#[derive(Debug)]
pub(crate) struct Topics {
    by_name: BTreeMap<String, Vec<Partition>>,
    total: usize,
    max_total: usize,
    max_log_size: usize,
}

impl Topics {
    /// No topics yet; at most `max_total` partitions in all, each of about `max_log_size` bytes.
    pub(crate) fn new(max_total: usize, max_log_size: usize) -> Self {
        Self { by_name: BTreeMap::new(), total: 0, max_total, max_log_size }
    }

    /// The partitions of a topic.
    pub(crate) fn get(&self, topic: &str) -> Option<&[Partition]> {
        self.by_name.get(topic).map(Vec::as_slice)
    }

    /// A partition.
    pub(crate) fn partition(&self, topic: &str, partition: i32) -> Option<&Partition> {
        self.by_name.get(topic)?.get(usize::try_from(partition).ok()?)
    }

    /// A partition, to change it.
    pub(crate) fn partition_mut(&mut self, topic: &str, partition: i32) -> Option<&mut Partition> {
        self.by_name.get_mut(topic)?.get_mut(usize::try_from(partition).ok()?)
    }

    /// Topic names in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Could a topic be created so?
    pub(crate) fn check(&self, name: &str, partitions: i32) -> Result<usize, TopicRefusal> {
        check_name(name)?;
        if self.by_name.contains_key(name) {
            let message = format!("Topic '{name}' already exists.");
            return Err(TopicRefusal::new(ErrorCode::TopicAlreadyExists, message));
        }
        let count = match usize::try_from(partitions) {
            Ok(count) if count > 0 => count,
            _ => {
                let message = format!("Topic '{name}' needs at least one partition, not {partitions}.");
                return Err(TopicRefusal::new(ErrorCode::InvalidPartitions, message));
            }
        };
        let free = self.max_total.saturating_sub(self.total);
        if count > free {
            let message = format!(
                "Topic '{name}' of {count} partitions does not fit: this broker holds {} in all and has room for \
                 {free}.",
                self.max_total
            );
            return Err(TopicRefusal::new(ErrorCode::InvalidPartitions, message));
        }
        Ok(count)
    }

    /// Creates a topic; `leaders` lead its partitions in turn.
    pub(crate) fn create(
        &mut self,
        name: &str,
        partitions: i32,
        leaders: &[i32],
    ) -> Result<(), TopicRefusal> {
        let count = self.check(name, partitions)?;
        let size = self.max_log_size;
        let made = leaders.iter().cycle().take(count).map(|leader| Partition::new(*leader, size)).collect();
        self.by_name.insert(name.to_owned(), made);
        self.total = self.total.saturating_add(count);
        Ok(())
    }

    /// Could a topic be grown to this many partitions? By how many?
    pub(crate) fn check_growth(&self, name: &str, count: i32) -> Result<usize, TopicRefusal> {
        let Some(partitions) = self.by_name.get(name) else {
            let message = format!("The topic '{name}' does not exist.");
            return Err(TopicRefusal::new(ErrorCode::UnknownTopicOrPartition, message));
        };
        let has = partitions.len();
        let more = usize::try_from(count).unwrap_or(0).saturating_sub(has);
        if more == 0 {
            let message = format!(
                "The topic {name} currently has {has} partition(s); {count} would not be an increase."
            );
            return Err(TopicRefusal::new(ErrorCode::InvalidPartitions, message));
        }
        let free = self.max_total.saturating_sub(self.total);
        if more > free {
            let message = format!("{more} more partitions of '{name}' do not fit: there is room for {free}.");
            return Err(TopicRefusal::new(ErrorCode::InvalidPartitions, message));
        }
        Ok(more)
    }

    /// Adds partitions to a topic; `leaders` lead them in turn.
    pub(crate) fn grow(&mut self, name: &str, count: i32, leaders: &[i32]) -> Result<(), TopicRefusal> {
        let more = self.check_growth(name, count)?;
        let size = self.max_log_size;
        let made = leaders.iter().cycle().take(more).map(|leader| Partition::new(*leader, size));
        if let Some(partitions) = self.by_name.get_mut(name) {
            partitions.extend(made);
            self.total = self.total.saturating_add(more);
        }
        Ok(())
    }

    /// Deletes a topic; the fetches that waited for it are returned.
    pub(crate) fn delete(&mut self, name: &str) -> Option<BTreeSet<u64>> {
        let partitions = self.by_name.remove(name)?;
        self.total = self.total.saturating_sub(partitions.len());
        Some(partitions.into_iter().flat_map(|partition| partition.waiting).collect())
    }

    /// The partitions whose leader is one of these.
    pub(crate) fn led_by(&self, is: impl Fn(i32) -> bool) -> Vec<(String, i32)> {
        let all = self.by_name.iter().flat_map(|(name, partitions)| {
            (0..).zip(partitions).map(move |(number, place)| (name, number, place))
        });
        all.filter(|(_, _, place)| is(place.leader)).map(|(name, number, _)| (name.clone(), number)).collect()
    }
}

/// Kafka's rule for the names of topics.
pub(crate) fn check_name(name: &str) -> Result<(), TopicRefusal> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let problem = match name {
        "" => "is empty",
        "." | ".." => "may not be '.' or '..'",
        _ if name.len() > MAX_NAME => "is longer than 249 characters",
        _ if !name.bytes().all(legal) => "has other characters than letters, digits, '.', '_' and '-'",
        _ => return Ok(()),
    };
    let shown: String = name.chars().take(MAX_NAME).collect();
    Err(TopicRefusal::new(
        ErrorCode::InvalidTopicException,
        format!("The name of topic '{shown}' {problem}."),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rule() {
        for name in ["", ".", "..", "a b", "a/b", "ä", &"x".repeat(250)] {
            assert_eq!(check_name(name).unwrap_err().code, ErrorCode::InvalidTopicException, "{name}");
        }
        for name in ["a", "a.b_c-D9", "...", &"x".repeat(249)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn the_number_of_partitions_is_bounded() {
        let mut topics = Topics::new(5, 1000);
        topics.create("a", 3, &[0]).unwrap();
        assert_eq!(topics.create("b", 3, &[0]).unwrap_err().code, ErrorCode::InvalidPartitions);
        assert_eq!(topics.create("b", i32::MAX, &[0]).unwrap_err().code, ErrorCode::InvalidPartitions);
        assert_eq!(topics.create("b", 0, &[0]).unwrap_err().code, ErrorCode::InvalidPartitions);
        assert_eq!(topics.create("a", 1, &[0]).unwrap_err().code, ErrorCode::TopicAlreadyExists);
        topics.create("b", 2, &[0]).unwrap();
    }
}
