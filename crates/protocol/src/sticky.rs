//! The user data that Kafka's sticky assignors put into a subscription. Written by *other members*: read within
//! bounds, and what cannot be read is no claim.
//!
//! `sticky` is eager: its members have given everything back when they join, so what they had stands here.
//! `cooperative-sticky` says what it owns in the subscription itself and puts only its generation here.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::TopicPartition;
use crate::error::{DecodeError, EncodeError, What};
use crate::reader::{Reader, min};

/// What a member of a group with the `sticky` assignor had, and in which generation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StickyUserData {
    /// The partitions it had.
    pub previous: Vec<TopicPartition>,
    /// In which generation; −1 if unknown (version 0 had none).
    pub generation: i32,
}

impl StickyUserData {
    /// Writes version 1.
    ///
    /// # Errors
    /// [`EncodeError::Blob`] if a topic's name is longer than 32 767 bytes.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        let too_long =
            |_| EncodeError::Blob { blob: "sticky user data", version: 1, reason: "too long".into() };
        let mut buf = BytesMut::new();
        let topics: Vec<_> = self.previous.chunk_by(|left, right| left.topic == right.topic).collect();
        buf.put_i32(i32::try_from(topics.len()).map_err(too_long)?);
        for partitions in topics {
            let topic = partitions.first().map(|first| first.topic.as_bytes()).unwrap_or_default();
            buf.put_i16(i16::try_from(topic.len()).map_err(too_long)?);
            buf.put_slice(topic);
            buf.put_i32(i32::try_from(partitions.len()).map_err(too_long)?);
            partitions.iter().for_each(|partition| buf.put_i32(partition.partition));
        }
        buf.put_i32(self.generation);
        Ok(buf.freeze())
    }

    /// Reads either version.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no such data.
    pub fn decode(data: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(data, What::Subscription, false);
        let mut previous = Vec::new();
        for _ in 0..r.count("previous assignment", min(6, 6))? {
            let topic: Arc<str> = Arc::from(r.str("topic")?);
            let count = r.count("partitions", min(4, 4))?;
            previous.reserve(count);
            for _ in 0..count {
                previous.push(TopicPartition { topic: topic.clone(), partition: r.i32("partition")? });
            }
        }
        let generation = if r.remaining() >= 4 { r.i32("generation")? } else { -1 };
        Ok(Self { previous, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_reads_the_version_without_a_generation() {
        let previous =
            vec![TopicPartition::new("a", 0), TopicPartition::new("a", 5), TopicPartition::new("b", 1)];
        let data = StickyUserData { previous, generation: 7 };
        let bytes = data.encode().unwrap();
        assert_eq!(StickyUserData::decode(&bytes).unwrap(), data);
        let old = bytes.slice(..bytes.len() - 4);
        assert_eq!(StickyUserData::decode(&old).unwrap(), StickyUserData { generation: -1, ..data });
    }

    #[test]
    fn huge_counts_and_truncated_data_are_errors() {
        for bytes in [
            &[0x7f, 0xff, 0xff, 0xff][..],
            &[0, 0, 0, 1, 0, 1, b't', 0x7f, 0xff, 0xff, 0xff],
            &[0, 0, 0, 1, 0, 9, b't'],
            &[0xff, 0xff, 0xff, 0xff],
        ] {
            let bytes = Bytes::copy_from_slice(bytes);
            assert!(StickyUserData::decode(&bytes).is_err(), "{bytes:?}");
        }
    }
}
