//! OffsetFetch: each group is its coordinator's business.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{
    FetchedOffset, FetchedOffsets, FetchedOffsetsTopic, OffsetFetchRequest, OffsetFetchResponse,
    OffsetFetchTopic,
};

use crate::cluster::Led;
use crate::node::{Caller, Node, Outcome, Reply};
use kohort_protocol::AnyResponse;

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: OffsetFetchRequest,
    now: Instant,
    out: &mut Outcome,
) {
    let require_stable = request.require_stable;
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let led = node.cluster.check(&group.group_id, from.node, now);
        let one = OffsetFetchRequest { groups: vec![group], require_stable };
        let answer = match led {
            Ok(led) => coordinated(node, from, led, one, now, out),
            Err(code) => not_here(&one, from.version, code),
        };
        groups.extend(answer.groups);
    }
    out.answer(from.call, OffsetFetchResponse { groups });
}

fn coordinated(
    node: &mut Node,
    from: &Caller<'_>,
    led: Led,
    one: OffsetFetchRequest,
    now: Instant,
    out: &mut Outcome,
) -> OffsetFetchResponse {
    let mut coordinated = Outcome::default();
    node.coordinate(from, led, one, now, &mut coordinated);
    out.events.append(&mut coordinated.events);
    let mut answered = OffsetFetchResponse::default();
    for (call, reply) in coordinated.replies {
        match reply {
            Reply::Answer(AnyResponse::OffsetFetch(answer)) if call == from.call => answered = answer,
            other => out.replies.push((call, other)),
        }
    }
    answered
}

/// From version 2 an error of the group stands alone.
fn not_here(one: &OffsetFetchRequest, version: i16, code: ErrorCode) -> OffsetFetchResponse {
    let mut answer = refused(one, code);
    if version >= 2 {
        answer.groups.iter_mut().for_each(|group| group.topics.clear());
    }
    answer
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
