//! What members of a consumer group (protocol type `consumer`) tell each other through the coordinator: their
//! subscriptions and their assignments, versions 0–3 of both blobs.
//!
//! The coordinator passes the blobs on unread, so the bytes come from *other members*: they are decoded as
//! carefully as any frame. A blob of a newer version is read as far as version 3 knows it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::consumer_protocol_assignment as kpa;
use kafka_protocol::messages::consumer_protocol_subscription as kps;
use kafka_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicName};
use kafka_protocol::protocol::{Encodable, StrBytes};

use crate::TopicPartition;
use crate::error::{DecodeError, DecodeErrorKind, EncodeError, What};
use crate::reader::{Reader, min};

/// The protocol type of consumer groups, as JoinGroup names it.
pub const PROTOCOL_TYPE: &str = "consumer";

/// The highest version of both blobs that this crate writes.
pub const MAX_VERSION: i16 = 3;

/// What a member tells the leader when it joins: the metadata of a JoinGroup protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subscription {
    /// The topics the member subscribes to.
    pub topics: Vec<String>,
    /// The assignor's own data.
    pub user_data: Option<Bytes>,
    /// What the member owns at the moment, version 1 and above (KIP-429).
    pub owned_partitions: Vec<TopicPartition>,
    /// The generation in which it owns that, −1 if unknown; version 2 and above (KIP-792).
    pub generation: i32,
    /// The member's rack, version 3 and above (KIP-881).
    pub rack_id: Option<String>,
}

impl Default for Subscription {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            user_data: None,
            owned_partitions: Vec::new(),
            generation: -1,
            rack_id: None,
        }
    }
}

/// What the leader assigns to a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Assignment {
    /// The partitions assigned.
    pub partitions: Vec<TopicPartition>,
    /// The assignor's own data.
    pub user_data: Option<Bytes>,
}

impl Subscription {
    /// Writes the blob in `version` (0–3); what the version cannot say is left out.
    ///
    /// # Errors
    /// [`EncodeError::Blob`] if the version is not spoken or a name is longer than 32 767 bytes.
    pub fn encode(&self, version: i16) -> Result<Bytes, EncodeError> {
        let mut message = ConsumerProtocolSubscription::default()
            .with_topics(self.topics.iter().map(|topic| StrBytes::from_string(topic.clone())).collect())
            .with_user_data(self.user_data.clone());
        if version >= 1 {
            let owned = by_topic(&self.owned_partitions, |topic, partitions| {
                kps::TopicPartition::default().with_topic(topic).with_partitions(partitions)
            });
            message = message.with_owned_partitions(owned);
        }
        if version >= 2 {
            message = message.with_generation_id(self.generation);
        }
        if version >= 3 {
            message = message.with_rack_id(self.rack_id.clone().map(StrBytes::from_string));
        }
        put("subscription", version, &message)
    }

    /// Reads a blob of any version; of a version above 3, as much as version 3 knows. Bytes behind that are ignored.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a blob.
    pub fn decode(blob: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(blob, What::Subscription, false);
        let version = version(&mut r)?;
        let topics = r.string_list("topics")?;
        let user_data = r.nullable_bytes("user data")?;
        let owned_partitions =
            if version >= 1 { partitions(&mut r, "owned partitions")? } else { Vec::new() };
        let generation = if version >= 2 { r.i32("generation")? } else { -1 };
        let rack_id = if version >= 3 { r.nullable_string("rack id")? } else { None };
        Ok(Self { topics, user_data, owned_partitions, generation, rack_id })
    }
}

impl Assignment {
    /// Writes the blob in `version` (0–3).
    ///
    /// # Errors
    /// [`EncodeError::Blob`] if the version is not spoken or a name is longer than 32 767 bytes.
    pub fn encode(&self, version: i16) -> Result<Bytes, EncodeError> {
        let partitions = by_topic(&self.partitions, |topic, partitions| {
            kpa::TopicPartition::default().with_topic(topic).with_partitions(partitions)
        });
        let message = ConsumerProtocolAssignment::default()
            .with_assigned_partitions(partitions)
            .with_user_data(self.user_data.clone());
        put("assignment", version, &message)
    }

    /// Reads a blob of any version. No bytes at all are an empty assignment, as a member gets it that the leader
    /// left out. Bytes behind what version 3 knows are ignored.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a blob.
    pub fn decode(blob: &Bytes) -> Result<Self, DecodeError> {
        if blob.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::new(blob, What::Assignment, false);
        version(&mut r)?;
        let partitions = partitions(&mut r, "assigned partitions")?;
        let user_data = r.nullable_bytes("user data")?;
        Ok(Self { partitions, user_data })
    }
}

fn version(r: &mut Reader<'_>) -> Result<i16, DecodeError> {
    let version = r.i16("version")?;
    if version < 0 {
        return Err(r.error("version", DecodeErrorKind::UnsupportedVersion(version)));
    }
    Ok(version)
}

fn partitions(r: &mut Reader<'_>, field: &'static str) -> Result<Vec<TopicPartition>, DecodeError> {
    let mut partitions = Vec::new();
    for _ in 0..r.count(field, min(6, 6))? {
        let topic: Arc<str> = Arc::from(r.str("topic")?);
        let count = r.count("partitions", min(4, 4))?;
        partitions.reserve(count);
        for _ in 0..count {
            partitions.push(TopicPartition { topic: topic.clone(), partition: r.i32("partition")? });
        }
    }
    Ok(partitions)
}

/// Groups neighbours of the same topic and keeps the order, so that nothing is reordered on the way.
fn by_topic<T>(partitions: &[TopicPartition], build: impl Fn(TopicName, Vec<i32>) -> T) -> Vec<T> {
    partitions
        .chunk_by(|left, right| left.topic == right.topic)
        .filter_map(|chunk| {
            let topic = TopicName(StrBytes::from_string(chunk.first()?.topic.to_string()));
            Some(build(topic, chunk.iter().map(|partition| partition.partition).collect()))
        })
        .collect()
}

fn put(blob: &'static str, version: i16, message: &impl Encodable) -> Result<Bytes, EncodeError> {
    let refused = |reason: String| EncodeError::Blob { blob, version, reason };
    if !(0..=MAX_VERSION).contains(&version) {
        return Err(refused(format!("only versions 0–{MAX_VERSION} are spoken")));
    }
    let size = message.compute_size(version).map_err(|error| refused(error.to_string()))?;
    let mut buf = BytesMut::with_capacity(size.saturating_add(2));
    bytes::BufMut::put_i16(&mut buf, version);
    message.encode(&mut buf, version).map_err(|error| refused(error.to_string()))?;
    Ok(buf.freeze())
}
