//! OffsetCommit: what names no partition is answered here, the rest is the coordinator's business.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommittedPartition, OffsetCommittedTopic,
};

use crate::node::{Caller, Node, Outcome, Reply};
use kohort_protocol::AnyResponse;

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    mut request: OffsetCommitRequest,
    now: Instant,
    out: &mut Outcome,
) {
    // The answer in the request's order; what is not known keeps this code, whatever the coordinator says.
    let mut answer = refused(&request, ErrorCode::UnknownTopicOrPartition);
    let mut unknown = false;
    for topic in &mut request.topics {
        let asked = topic.partitions.len();
        topic.partitions.retain(|place| node.topics.partition(&topic.name, place.partition).is_some());
        unknown |= topic.partitions.len() < asked;
    }
    let led = node.cluster.check(&request.group_id, from.node, now);
    let led = match led {
        Ok(led) if !unknown => {
            node.coordinate(from, led, request, now, out);
            return;
        }
        Ok(led) => led,
        Err(code) => {
            merge(&mut answer, refused(&request, code), node);
            out.answer(from.call, answer);
            return;
        }
    };
    request.topics.retain(|topic| !topic.partitions.is_empty());
    if request.topics.is_empty() {
        out.answer(from.call, answer);
        return;
    }
    let mut coordinated = Outcome::default();
    node.coordinate(from, led, request, now, &mut coordinated);
    out.events.append(&mut coordinated.events);
    for (call, reply) in coordinated.replies {
        match reply {
            Reply::Answer(AnyResponse::OffsetCommit(known)) if call == from.call => {
                merge(&mut answer, known, node);
                out.answer(call, std::mem::take(&mut answer));
            }
            other => out.replies.push((call, other)),
        }
    }
}

/// Puts the coordinator's answer, which lacks what is unknown, into the whole one. Both have the same order.
fn merge(whole: &mut OffsetCommitResponse, known: OffsetCommitResponse, node: &Node) {
    let mut codes = known.topics.into_iter().flat_map(|topic| topic.partitions).map(|place| place.error);
    for topic in &mut whole.topics {
        for place in &mut topic.partitions {
            if node.topics.partition(&topic.name, place.partition).is_some() {
                place.error = codes.next().unwrap_or(ErrorCode::UnknownServerError);
            }
        }
    }
}

pub(crate) fn refused(request: &OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| OffsetCommittedTopic {
        name: topic.name.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|place| OffsetCommittedPartition { partition: place.partition, error: code })
            .collect(),
    });
    OffsetCommitResponse { topics: topics.collect() }
}
