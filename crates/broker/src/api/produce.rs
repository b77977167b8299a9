//! Produce: checks each batch, appends it, and wakes the fetches that wait for it.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use bytes::Bytes;
use kohort_protocol::messages::{
    ProducePartition, ProduceRequest, ProduceResponse, ProducedPartition, ProducedTopic,
};
use kohort_protocol::records::{RecordError, validate_produced};

use crate::api::fetch;
use crate::event::CloseReason;
use crate::node::{Caller, Node, Outcome, Reply};
use crate::producers::Sequence;
use crate::topics::check_name;

/// A batch that was refused: the code and the words for it.
type Refusal = (ErrorCode, Option<String>);

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: ProduceRequest,
    _now: Instant,
    out: &mut Outcome,
) {
    if !matches!(request.acks, -1..=1) {
        out.answer(from.call, refused(&request, ErrorCode::InvalidRequiredAcks));
        return;
    }
    if request.transactional_id.is_some() {
        out.answer(from.call, refused(&request, ErrorCode::TransactionalIdAuthorizationFailed));
        return;
    }
    let mut failures = false;
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let produced = match produce(node, from.node, &topic.name, &asked, out) {
                Ok(base_offset) => appended(node, &topic.name, asked.partition, base_offset),
                Err((code, message)) => failed(asked.partition, code, message),
            };
            failures |= produced.error.is_error();
            partitions.push(produced);
        }
        topics.push(ProducedTopic { name: topic.name, partitions });
    }
    if request.acks != 0 {
        out.answer(from.call, ProduceResponse { topics });
    } else if failures {
        out.replies.push((from.call, Reply::Close(CloseReason::UnacknowledgedProduce)));
    } else {
        out.replies.push((from.call, Reply::Nothing));
    }
}

pub(crate) fn refused(request: &ProduceRequest, code: ErrorCode) -> ProduceResponse {
    let topics = request.topics.iter().map(|topic| ProducedTopic {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(|asked| failed(asked.partition, code, None)).collect(),
    });
    ProduceResponse { topics: topics.collect() }
}

fn produce(
    node: &mut Node,
    asked_node: i32,
    topic: &str,
    asked: &ProducePartition,
    out: &mut Outcome,
) -> Result<i64, Refusal> {
    if node.topics.get(topic).is_none() {
        check_name(topic).map_err(|refusal| (refusal.code, Some(refusal.message)))?;
        if !node.settings.auto_create_topics {
            return Err((ErrorCode::UnknownTopicOrPartition, None));
        }
        let partitions = node.settings.default_partitions;
        node.create_topic(topic, partitions, None, out)
            .map_err(|refusal| (refusal.code, Some(refusal.message)))?;
    }
    if node.topics.partition(topic, asked.partition).is_some_and(|place| place.leader != asked_node) {
        return Err((ErrorCode::NotLeaderOrFollower, None));
    }
    let records = asked.records.clone().unwrap_or_default();
    append(node, topic, asked.partition, &records, out)
}

/// Appends one batch as a producer sent it.
pub(crate) fn append(
    node: &mut Node,
    topic: &str,
    partition: i32,
    records: &Bytes,
    out: &mut Outcome,
) -> Result<i64, Refusal> {
    let (max_message, max_decompressed) =
        (node.settings.max_message_bytes, node.settings.max_decompressed_bytes);
    let Some(place) = node.topics.partition_mut(topic, partition) else {
        return Err((ErrorCode::UnknownTopicOrPartition, None));
    };
    if records.len() > max_message {
        let message = format!("The batch has {} bytes, at most {max_message} are taken.", records.len());
        return Err((ErrorCode::MessageTooLarge, Some(message)));
    }
    if records.is_empty() {
        return Err((ErrorCode::InvalidRecord, Some("There is no batch for the partition.".to_owned())));
    }
    let batch = validate_produced(records, max_decompressed)
        .map_err(|error| (code(&error), Some(error.to_string())))?;
    let header = batch.header();
    if header.attributes.is_transactional() {
        let message = "Transactions are not served.";
        return Err((ErrorCode::InvalidTxnState, Some(message.to_owned())));
    }
    match place.log.producers.check(header).map_err(|code| (code, None))? {
        Sequence::Duplicate(base_offset) => return Ok(base_offset),
        Sequence::New => {}
    }
    let base_offset = place
        .log
        .append(records, place.leader_epoch)
        .map_err(|error| (code(&error), Some(error.to_string())))?;
    place.log.producers.appended(header, base_offset);
    fetch::wake(node, topic, partition, out);
    Ok(base_offset)
}

/// Appends one batch without looking inside.
pub(crate) fn append_raw(
    node: &mut Node,
    topic: &str,
    partition: i32,
    batch: &[u8],
    out: &mut Outcome,
) -> Result<i64, RecordError> {
    let Some(place) = node.topics.partition_mut(topic, partition) else { return Ok(-1) };
    let base_offset = place.log.append(batch, place.leader_epoch)?;
    fetch::wake(node, topic, partition, out);
    Ok(base_offset)
}

/// What Kafka answers to such a batch.
fn code(error: &RecordError) -> ErrorCode {
    match error {
        RecordError::CrcMismatch { .. }
        | RecordError::UnsupportedMagic { .. }
        | RecordError::Truncated { .. }
        | RecordError::InvalidHeader { field: "length", .. } => ErrorCode::CorruptMessage,
        RecordError::DecompressedTooLarge { .. } => ErrorCode::MessageTooLarge,
        _ => ErrorCode::InvalidRecord,
    }
}

fn appended(node: &Node, topic: &str, partition: i32, base_offset: i64) -> ProducedPartition {
    let log_start_offset = node.topics.partition(topic, partition).map_or(-1, |place| place.log.start());
    ProducedPartition {
        partition,
        error: ErrorCode::None,
        base_offset,
        log_append_time: -1,
        log_start_offset,
        error_message: None,
    }
}

fn failed(partition: i32, error: ErrorCode, error_message: Option<String>) -> ProducedPartition {
    ProducedPartition {
        partition,
        error,
        base_offset: -1,
        log_append_time: -1,
        log_start_offset: -1,
        error_message,
    }
}
