//! CreateTopics. Every topic lives on one node, so the only replication factor is 1. Settings of topics are taken
//! and not looked at.

use std::collections::BTreeMap;

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse, CreatedTopic, NewTopic};

use crate::node::{Caller, NODE_ID, Node, Outcome};
use crate::topics::TopicRefusal;

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: CreateTopicsRequest,
    _now: Instant,
    out: &mut Outcome,
) {
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
            create(node, topic, request.validate_only, out)
        };
        topics.push(match result {
            Ok(num_partitions) => CreatedTopic {
                name: topic.name.clone(),
                error: ErrorCode::None,
                error_message: None,
                num_partitions,
                replication_factor: 1,
            },
            Err(refusal) => failed(topic.name.clone(), refusal.code, refusal.message),
        });
    }
    out.answer(from.call, CreateTopicsResponse { topics });
}

pub(crate) fn refused(request: &CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse {
    let topics = request.topics.iter().map(|topic| failed(topic.name.clone(), code, code.text().to_owned()));
    CreateTopicsResponse { topics: topics.collect() }
}

fn create(
    node: &mut Node,
    topic: &NewTopic,
    validate_only: bool,
    out: &mut Outcome,
) -> Result<i32, TopicRefusal> {
    let refuse = |code, message: String| Err(TopicRefusal::new(code, message));
    let by_hand = !topic.assignments.is_empty();
    if by_hand && (topic.num_partitions != -1 || topic.replication_factor != -1) {
        let message = "Replicas are assigned by hand, so partitions and replication factor must be -1.";
        return refuse(ErrorCode::InvalidRequest, message.to_owned());
    }
    let partitions = match topic.num_partitions {
        -1 if by_hand => assigned(&topic.assignments)?,
        -1 => node.settings.default_partitions,
        asked => asked,
    };
    if !by_hand && !matches!(topic.replication_factor, -1 | 1) {
        let message = format!(
            "The replication factor {} cannot be had: there is one broker, so it must be 1 or -1.",
            topic.replication_factor
        );
        return refuse(ErrorCode::InvalidReplicationFactor, message);
    }
    if validate_only {
        node.topics.check(&topic.name, partitions)?;
    } else {
        node.create_topic(&topic.name, partitions, out)?;
    }
    Ok(partitions)
}

/// How many partitions an assignment by hand makes.
fn assigned(assignments: &[(i32, Vec<i32>)]) -> Result<i32, TopicRefusal> {
    let mut numbers: Vec<i32> = assignments.iter().map(|(partition, _)| *partition).collect();
    numbers.sort_unstable();
    let consecutive = (0..).zip(&numbers).all(|(expected, number)| expected == *number);
    if !consecutive || assignments.iter().any(|(_, replicas)| replicas != &[NODE_ID]) {
        let message = format!("Partitions must be numbered from 0, each with the one replica {NODE_ID}.");
        return Err(TopicRefusal::new(ErrorCode::InvalidReplicaAssignment, message));
    }
    Ok(i32::try_from(numbers.len()).unwrap_or(i32::MAX))
}

fn failed(name: String, error: ErrorCode, message: String) -> CreatedTopic {
    let error_message = Some(message);
    CreatedTopic { name, error, error_message, num_partitions: -1, replication_factor: -1 }
}
