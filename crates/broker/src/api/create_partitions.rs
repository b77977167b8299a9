//! CreatePartitions: a topic gets more partitions, never fewer.

use std::collections::BTreeMap;
use std::time::Instant;

use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatedPartitions, MorePartitions,
};

use crate::api::create_topics::are_nodes;
use crate::event::BrokerEvent;
use crate::node::{Caller, Node, Outcome};
use crate::topics::TopicRefusal;

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: CreatePartitionsRequest,
    _now: Instant,
    out: &mut Outcome,
) {
    let topics = grow_all(node, &request, out);
    out.answer(from.call, CreatePartitionsResponse { topics });
}

/// Grows each topic that can be grown.
pub(crate) fn grow_all(
    node: &mut Node,
    request: &CreatePartitionsRequest,
    out: &mut Outcome,
) -> Vec<CreatedPartitions> {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        let count = named.entry(&topic.name).or_default();
        *count = count.saturating_add(1);
    }
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let twice = named.get(topic.name.as_str()).is_some_and(|count| *count > 1);
        let result = if twice {
            let message = "The request names the topic more than once.";
            Err(TopicRefusal::new(ErrorCode::InvalidRequest, message))
        } else {
            grow(node, topic, request.validate_only, out)
        };
        topics.push(match result {
            Ok(()) => {
                CreatedPartitions { name: topic.name.clone(), error: ErrorCode::None, error_message: None }
            }
            Err(refusal) => failed(topic.name.clone(), refusal.code, refusal.message),
        });
    }
    topics
}

pub(crate) fn refused(request: &CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse {
    let failed = |topic: &MorePartitions| failed(topic.name.clone(), code, code.text().to_owned());
    CreatePartitionsResponse { topics: request.topics.iter().map(failed).collect() }
}

fn grow(
    node: &mut Node,
    topic: &MorePartitions,
    validate_only: bool,
    out: &mut Outcome,
) -> Result<(), TopicRefusal> {
    let more = node.topics.check_growth(&topic.name, topic.count)?;
    let leaders = match &topic.assignments {
        None => node.leaders(),
        Some(given) if given.len() == more && given.iter().all(|replicas| are_nodes(node, replicas)) => {
            given.iter().filter_map(|replicas| replicas.first().copied()).collect()
        }
        Some(given) => {
            let message = format!(
                "{} new partitions need as many assignments to nodes that run; there are {}.",
                more,
                given.len()
            );
            return Err(TopicRefusal::new(ErrorCode::InvalidReplicaAssignment, message));
        }
    };
    if !validate_only {
        node.topics.grow(&topic.name, topic.count, &leaders)?;
        let (topic, partitions) = (topic.name.clone(), topic.count);
        out.events.push(BrokerEvent::PartitionsCreated { topic, partitions });
    }
    Ok(())
}

fn failed(name: String, error: ErrorCode, message: String) -> CreatedPartitions {
    CreatedPartitions { name, error, error_message: Some(message) }
}
