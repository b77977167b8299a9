//! What is known of the cluster: brokers, partitions, leaders.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use kohort_protocol::messages::MetadataResponse;
use kohort_protocol::{ErrorCode, TopicPartition};

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Host name, IPv4 or IPv6 address (without brackets).
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Address {
    /// `host`:`port`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// `host:port` or `[v6]:port`, as in `bootstrap.servers`. The error says what is wrong.
impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| format!("{text:?} has no port; write host:port"))?;
        let port: u16 = port.parse().map_err(|_| format!("{port:?} is no port between 1 and 65535"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || host.contains(char::is_whitespace) || host.contains("://") {
            return Err(format!("{host:?} is no host name; write host:port"));
        }
        if port == 0 {
            return Err("port 0 cannot be connected to".into());
        }
        Ok(Address::new(host, port))
    }
}

/// Who leads a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Node id.
    pub node_id: i32,
    /// Where it listens.
    pub address: Address,
    /// Its epoch, −1 if unknown.
    pub epoch: i32,
}

/// A view of the cluster, from its last metadata answers.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    brokers: BTreeMap<i32, Address>,
    leaders: HashMap<TopicPartition, (i32, i32)>,
    partitions: BTreeMap<String, i32>,
}

impl Cluster {
    /// The brokers by node id.
    pub fn brokers(&self) -> &BTreeMap<i32, Address> {
        &self.brokers
    }

    /// The leader of a partition, if one is known.
    pub fn leader(&self, partition: &TopicPartition) -> Option<Leader> {
        let (node_id, epoch) = *self.leaders.get(partition)?;
        Some(Leader { node_id, address: self.brokers.get(&node_id)?.clone(), epoch })
    }

    /// The number of partitions of a topic, if it is known to exist.
    pub fn partition_count(&self, topic: &str) -> Option<i32> {
        self.partitions.get(topic).copied()
    }

    /// Takes over what a metadata answer says; a topic with an error is forgotten.
    pub(crate) fn update(&mut self, response: &MetadataResponse) {
        self.brokers = response
            .brokers
            .iter()
            .filter_map(|broker| {
                let port = u16::try_from(broker.port).ok().filter(|port| *port > 0)?;
                (!broker.host.is_empty()).then(|| (broker.node_id, Address::new(broker.host.as_str(), port)))
            })
            .collect();
        for topic in &response.topics {
            self.leaders.retain(|partition, _| *partition.topic != *topic.name);
            self.partitions.remove(&topic.name);
            if topic.error.is_error() {
                continue;
            }
            let name: std::sync::Arc<str> = topic.name.as_str().into();
            self.partitions
                .insert(topic.name.clone(), i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX));
            for partition in &topic.partitions {
                let led = partition.leader >= 0 && partition.error != ErrorCode::LeaderNotAvailable;
                if led {
                    let key = TopicPartition::new(name.clone(), partition.partition);
                    self.leaders.insert(key, (partition.leader, partition.leader_epoch));
                }
            }
        }
    }

    /// An address that could not be connected to is not kept (the names are asked again instead).
    pub(crate) fn forget(&mut self, address: &Address) {
        self.brokers.retain(|_, known| known != address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        assert_eq!("localhost:9092".parse(), Ok(Address::new("localhost", 9092)));
        assert_eq!("[::1]:9092".parse(), Ok(Address::new("::1", 9092)));
        assert_eq!(Address::new("::1", 9092).to_string(), "[::1]:9092");
        for bad in
            ["", "localhost", "localhost:", ":9092", "localhost:0", "localhost:99999", "kafka://x:1", "a b:1"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad:?}");
        }
    }
}
