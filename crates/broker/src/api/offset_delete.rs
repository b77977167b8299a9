//! OffsetDelete. What a member of the group subscribes to cannot be deleted; that stands in the members' subscription
//! blobs, which the coordinator does not read.

use std::collections::BTreeSet;
use std::time::Instant;

use kohort_group::Coordinator;
use kohort_group::coordinator::GroupView;
use kohort_protocol::messages::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteTopic, OffsetDeletedTopic,
};
use kohort_protocol::{ErrorCode, Subscription};

use crate::node::{Caller, Node, Outcome};

/// The protocol type of members that consume.
const CONSUMER: &str = "consumer";

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: OffsetDeleteRequest,
    now: Instant,
    out: &mut Outcome,
) {
    let answer = delete(node, from, &request, now).unwrap_or_else(|code| refused(&request, code));
    out.answer(from.call, answer);
}

pub(crate) fn refused(_request: &OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse {
    OffsetDeleteResponse { error: code, topics: Vec::new() }
}

fn delete(
    node: &mut Node,
    from: &Caller<'_>,
    request: &OffsetDeleteRequest,
    now: Instant,
) -> Result<OffsetDeleteResponse, ErrorCode> {
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let led = node.cluster.check(&request.group_id, from.node, now)?;
    let group = node.group(&request.group_id).ok_or(ErrorCode::GroupIdNotFound)?;
    if !group.members.is_empty() && group.protocol_type.as_deref() != Some(CONSUMER) {
        return Err(ErrorCode::NonEmptyGroup);
    }
    let subscribed = subscribed(&group);
    let topics = &node.topics;
    let coordinator = node.cluster.coordinator(led).ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let answered = request.topics.iter().map(|topic| {
        let is_known = |partition| topics.partition(&topic.name, partition).is_some();
        let in_use = subscribed.as_ref().is_none_or(|topics| topics.contains(&topic.name));
        delete_topic(coordinator, &request.group_id, topic, in_use, is_known)
    });
    Ok(OffsetDeleteResponse { error: ErrorCode::None, topics: answered.collect() })
}

fn delete_topic(
    coordinator: &mut Coordinator,
    group_id: &str,
    topic: &OffsetDeleteTopic,
    in_use: bool,
    is_known: impl Fn(i32) -> bool,
) -> OffsetDeletedTopic {
    let partitions = topic.partitions.iter().map(|partition| {
        let error = match is_known(*partition) {
            true => coordinator.delete_offset(group_id, &topic.name, *partition, in_use),
            false => ErrorCode::UnknownTopicOrPartition,
        };
        (*partition, error)
    });
    OffsetDeletedTopic { name: topic.name.clone(), partitions: partitions.collect() }
}

/// The topics that the members subscribe to; `None` if that cannot be told, and any of them may be one.
fn subscribed(group: &GroupView) -> Option<BTreeSet<String>> {
    let mut topics = BTreeSet::new();
    for member in group.members.values() {
        topics.extend(Subscription::decode(&member.metadata).ok()?.topics);
    }
    Some(topics)
}
