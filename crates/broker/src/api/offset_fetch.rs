//! OffsetFetch: the coordinator's business.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{
    FetchedOffset, FetchedOffsets, FetchedOffsetsTopic, OffsetFetchRequest, OffsetFetchResponse,
    OffsetFetchTopic,
};

use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: OffsetFetchRequest,
    now: Instant,
    out: &mut Outcome,
) {
    node.coordinate(from, request, now, out);
}

/// Before version 2 an error has no place but at each partition.
pub(crate) fn refused(request: &OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse {
    let partition = |partition: &i32| FetchedOffset {
        partition: *partition,
        offset: -1,
        leader_epoch: -1,
        metadata: Some(String::new()),
        error: code,
    };
    let topic = |topic: &OffsetFetchTopic| FetchedOffsetsTopic {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(partition).collect(),
    };
    let groups = request.groups.iter().map(|group| FetchedOffsets {
        group_id: group.group_id.clone(),
        error: code,
        topics: group.topics.iter().flatten().map(topic).collect(),
    });
    OffsetFetchResponse { groups: groups.collect() }
}
