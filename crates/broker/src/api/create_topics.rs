//! CreateTopics. Every node has a replica of every topic, whatever replication factor is asked for; it cannot be more
//! than there are nodes. Settings of topics are taken and not looked at.

use std::collections::{BTreeMap, BTreeSet};

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse, CreatedTopic, NewTopic};

use crate::node::{Caller, Node, Outcome};
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
                replication_factor: i16::try_from(node.cluster.len()).unwrap_or(i16::MAX),
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
        -1 if by_hand => assigned(node, &topic.assignments)?,
        -1 => node.settings.default_partitions,
        asked => asked,
    };
    let nodes = node.cluster.len();
    let fits = usize::try_from(topic.replication_factor).is_ok_and(|factor| (1..=nodes).contains(&factor));
    if !by_hand && topic.replication_factor != -1 && !fits {
        let message = format!(
            "The replication factor {} cannot be had: there are {nodes} brokers, so it must be 1 to {nodes}, or -1.",
            topic.replication_factor
        );
        return refuse(ErrorCode::InvalidReplicationFactor, message);
    }
    if validate_only {
        node.topics.check(&topic.name, partitions)?;
    } else {
        let leaders = by_hand.then(|| leaders(&topic.assignments));
        node.create_topic(&topic.name, partitions, leaders.as_deref(), out)?;
    }
    Ok(partitions)
}

/// How many partitions an assignment by hand makes.
fn assigned(node: &Node, assignments: &[(i32, Vec<i32>)]) -> Result<i32, TopicRefusal> {
    let mut numbers: Vec<i32> = assignments.iter().map(|(partition, _)| *partition).collect();
    numbers.sort_unstable();
    let consecutive = (0..).zip(&numbers).all(|(expected, number)| expected == *number);
    if !consecutive || assignments.iter().any(|(_, replicas)| !are_nodes(node, replicas)) {
        let message = "Partitions must be numbered from 0, each with replicas on nodes that run.";
        return Err(TopicRefusal::new(ErrorCode::InvalidReplicaAssignment, message));
    }
    Ok(i32::try_from(numbers.len()).unwrap_or(i32::MAX))
}

/// Do all these nodes run, and is none named twice?
pub(crate) fn are_nodes(node: &Node, replicas: &[i32]) -> bool {
    let different: BTreeSet<&i32> = replicas.iter().collect();
    !replicas.is_empty()
        && different.len() == replicas.len()
        && replicas.iter().all(|id| node.cluster.is_alive(*id))
}

/// By partition, the first replica.
fn leaders(assignments: &[(i32, Vec<i32>)]) -> Vec<i32> {
    let in_order: BTreeMap<i32, i32> = assignments
        .iter()
        .filter_map(|(partition, replicas)| Some((*partition, *replicas.first()?)))
        .collect();
    in_order.into_values().collect()
}

fn failed(name: String, error: ErrorCode, message: String) -> CreatedTopic {
    let error_message = Some(message);
    CreatedTopic { name, error, error_message, num_partitions: -1, replication_factor: -1 }
}
