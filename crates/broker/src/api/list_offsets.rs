//! ListOffsets: the offset of a timestamp, of the log's start or of its end.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListedOffset, ListedOffsetsTopic,
};

use crate::log::Found;
use crate::node::{Caller, Node, Outcome};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: ListOffsetsRequest,
    _now: Instant,
    out: &mut Outcome,
) {
    let topics = request.topics.into_iter().map(|topic| ListedOffsetsTopic {
        partitions: topic
            .partitions
            .iter()
            .map(|asked| {
                list(node, from.node, &topic.name, asked).unwrap_or_else(|code| failed(asked.partition, code))
            })
            .collect(),
        name: topic.name,
    });
    let topics = topics.collect();
    out.answer(from.call, ListOffsetsResponse { topics });
}

pub(crate) fn refused(request: &ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse {
    let topics = request.topics.iter().map(|topic| ListedOffsetsTopic {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(|asked| failed(asked.partition, code)).collect(),
    });
    ListOffsetsResponse { topics: topics.collect() }
}

fn list(
    node: &Node,
    asked_node: i32,
    topic: &str,
    asked: &ListOffsetsPartition,
) -> Result<ListedOffset, ErrorCode> {
    let partition =
        node.topics.partition(topic, asked.partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    partition.check_leader(asked_node, asked.leader_epoch)?;
    let log = &partition.log;
    let limit = node.settings.max_decompressed_bytes;
    let found = match asked.timestamp {
        LATEST => Some(Found { offset: log.end(), timestamp: -1 }),
        EARLIEST => Some(Found { offset: log.start(), timestamp: -1 }),
        MAX_TIMESTAMP => log.find_newest(limit).map_err(|_| ErrorCode::CorruptMessage)?,
        timestamp if timestamp >= 0 => log.find(timestamp, limit).map_err(|_| ErrorCode::CorruptMessage)?,
        _ => return Err(ErrorCode::UnsupportedVersion),
    };
    Ok(ListedOffset {
        partition: asked.partition,
        error: ErrorCode::None,
        timestamp: found.map_or(-1, |found| found.timestamp),
        offset: found.map_or(-1, |found| found.offset),
        leader_epoch: found.map_or(-1, |_| partition.leader_epoch),
    })
}

fn failed(partition: i32, error: ErrorCode) -> ListedOffset {
    ListedOffset { partition, error, timestamp: -1, offset: -1, leader_epoch: -1 }
}
