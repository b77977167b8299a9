//! Fetch, without sessions (KIP-227 lets a broker answer session 0 always). A fetch that finds less than it wants is
//! parked until enough was appended or its time is over. There are no transactions, so what is appended is stable.

use std::collections::BTreeSet;
use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{
    FetchPartition, FetchRequest, FetchResponse, FetchedPartition, FetchedTopic,
};

use crate::log::Chosen;
use crate::node::{Caller, Node, Outcome, millis};

/// A fetch that waits for records.
#[derive(Debug)]
pub(crate) struct ParkedFetch {
    node: i32,
    request: FetchRequest,
    until: Instant,
}

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: FetchRequest,
    now: Instant,
    out: &mut Outcome,
) {
    let session = match (request.session_id, request.session_epoch) {
        (0, -1..=0) => Ok(()),
        (0, _) => Err(ErrorCode::InvalidFetchSessionEpoch),
        // Sessions are never given out, so none can be known.
        (_, -1) => Ok(()),
        _ => Err(ErrorCode::FetchSessionIdNotFound),
    };
    if let Err(code) = session {
        out.answer(from.call, FetchResponse { error: code, ..FetchResponse::default() });
        return;
    }
    let found = read(node, from.node, &request);
    if found.enough(&request) || request.max_wait_ms <= 0 {
        out.answer(from.call, found.into_response());
        return;
    }
    park(node, from.call, ParkedFetch { node: from.node, until: now + millis(request.max_wait_ms), request });
}

pub(crate) fn refused(request: &FetchRequest, code: ErrorCode) -> FetchResponse {
    let topics = request.topics.iter().map(|topic| FetchedTopic {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(|asked| failed(asked.partition, code)).collect(),
    });
    FetchResponse { error: ErrorCode::None, session_id: 0, topics: topics.collect() }
}

/// Looks again at the fetches that wait for this partition.
pub(crate) fn wake(node: &mut Node, topic: &str, partition: i32, out: &mut Outcome) {
    let Some(place) = node.topics.partition(topic, partition) else { return };
    let waiting = place.waiting.clone();
    look_again(node, waiting, out);
}

/// Looks again at these fetches: what they wait for has changed.
pub(crate) fn look_again(node: &mut Node, waiting: BTreeSet<u64>, out: &mut Outcome) {
    for call in waiting {
        let Some(parked) = node.fetches.get(&call) else { continue };
        let found = read(node, parked.node, &parked.request);
        if found.enough(&parked.request) {
            let answer = found.into_response();
            unpark(node, call);
            out.answer(call, answer);
        }
    }
}

/// Answers the fetches whose time is over with what there is.
pub(crate) fn on_deadline(node: &mut Node, now: Instant, out: &mut Outcome) {
    while let Some((at, call)) = node.fetch_deadlines.first().copied()
        && at <= now
    {
        if let Some(parked) = unpark(node, call) {
            let answer = read(node, parked.node, &parked.request).into_response();
            out.answer(call, answer);
        }
    }
}

fn park(node: &mut Node, call: u64, parked: ParkedFetch) {
    node.fetch_deadlines.insert((parked.until, call));
    for topic in &parked.request.topics {
        for asked in &topic.partitions {
            if let Some(place) = node.topics.partition_mut(&topic.name, asked.partition) {
                place.waiting.insert(call);
            }
        }
    }
    node.fetches.insert(call, parked);
}

/// Takes a fetch out of everything that knows it.
pub(crate) fn unpark(node: &mut Node, call: u64) -> Option<ParkedFetch> {
    let parked = node.fetches.remove(&call)?;
    node.fetch_deadlines.remove(&(parked.until, call));
    for topic in &parked.request.topics {
        for asked in &topic.partitions {
            if let Some(place) = node.topics.partition_mut(&topic.name, asked.partition) {
                place.waiting.remove(&call);
            }
        }
    }
    Some(parked)
}

/// What a fetch would get now.
struct Read {
    topics: Vec<(String, Vec<(FetchedPartition, Chosen)>)>,
    size: usize,
    failures: bool,
}

impl Read {
    fn enough(&self, request: &FetchRequest) -> bool {
        self.failures
            || request.topics.is_empty()
            || i64::try_from(self.size).unwrap_or(i64::MAX) >= i64::from(request.min_bytes)
    }

    fn into_response(self) -> FetchResponse {
        let topics = self.topics.into_iter().map(|(name, partitions)| FetchedTopic {
            name,
            partitions: partitions
                .into_iter()
                .map(|(mut partition, chosen)| {
                    partition.records = chosen.into_bytes();
                    partition
                })
                .collect(),
        });
        FetchResponse { error: ErrorCode::None, session_id: 0, topics: topics.collect() }
    }
}

fn read(node: &Node, asked_node: i32, request: &FetchRequest) -> Read {
    let limit = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
    let mut left = limit(request.max_bytes);
    let mut read = Read { topics: Vec::with_capacity(request.topics.len()), size: 0, failures: false };
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let max = limit(asked.max_bytes).min(left);
            match read_partition(node, asked_node, &topic.name, asked, max, read.size == 0) {
                Ok((partition, chosen)) => {
                    left = left.saturating_sub(chosen.size);
                    read.size = read.size.saturating_add(chosen.size);
                    partitions.push((partition, chosen));
                }
                Err(partition) => {
                    read.failures = true;
                    partitions.push((partition, Chosen::default()));
                }
            }
        }
        read.topics.push((topic.name.clone(), partitions));
    }
    read
}

fn read_partition(
    node: &Node,
    asked_node: i32,
    topic: &str,
    asked: &FetchPartition,
    max_bytes: usize,
    first: bool,
) -> Result<(FetchedPartition, Chosen), FetchedPartition> {
    let fail = |code| failed(asked.partition, code);
    let place = node
        .topics
        .partition(topic, asked.partition)
        .ok_or_else(|| fail(ErrorCode::UnknownTopicOrPartition))?;
    place.check_leader(asked_node, asked.current_leader_epoch).map_err(fail)?;
    let log = &place.log;
    let mut partition = failed(asked.partition, ErrorCode::None);
    partition.high_watermark = log.end();
    partition.last_stable_offset = log.end();
    partition.log_start_offset = log.start();
    if !(log.start()..=log.end()).contains(&asked.fetch_offset) {
        partition.error = ErrorCode::OffsetOutOfRange;
        return Err(partition);
    }
    Ok((partition, log.read(asked.fetch_offset, max_bytes, first)))
}

fn failed(partition: i32, error: ErrorCode) -> FetchedPartition {
    FetchedPartition {
        partition,
        error,
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        preferred_read_replica: -1,
        ..FetchedPartition::default()
    }
}
