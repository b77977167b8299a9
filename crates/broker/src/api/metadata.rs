//! Metadata: the nodes that run, and the topics asked for. Creates a topic when both the request and the settings allow it.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{
    BrokerAddress, MetadataRequest, MetadataResponse, PartitionMetadata, TopicMetadata,
};

use crate::node::{Caller, Node, Outcome};
use crate::topics::{Partition, check_name};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: MetadataRequest,
    _now: Instant,
    out: &mut Outcome,
) {
    let create = request.allow_auto_topic_creation && node.settings.auto_create_topics;
    let replicas: Vec<i32> = node.cluster.ids().collect();
    let alive = node.leaders();
    let about = Replicas { all: &replicas, alive: &alive };
    let topics = match request.topics {
        Some(names) => names.into_iter().map(|name| describe(node, name, create, about, out)).collect(),
        None => {
            let all = node.topics.names().filter_map(|name| Some((name, node.topics.get(name)?)));
            all.map(|(name, partitions)| topic(name.to_owned(), partitions, about)).collect()
        }
    };
    let address = |id: &i32| BrokerAddress {
        node_id: *id,
        host: from.advertised.host.clone(),
        port: from.advertised.port(*id),
    };
    let brokers = alive.iter().map(address).collect();
    let controller_id = alive.first().copied().unwrap_or(-1);
    let cluster_id = Some(node.cluster_id.clone());
    out.answer(from.call, MetadataResponse { brokers, cluster_id, controller_id, topics });
}

pub(crate) fn refused(request: &MetadataRequest, code: ErrorCode) -> MetadataResponse {
    let topics = request.topics.iter().flatten().map(|name| failed(name.clone(), code));
    MetadataResponse { brokers: Vec::new(), cluster_id: None, controller_id: -1, topics: topics.collect() }
}

/// Every node has a replica of everything; those that run are in sync.
#[derive(Clone, Copy)]
struct Replicas<'a> {
    all: &'a [i32],
    alive: &'a [i32],
}

fn describe(
    node: &mut Node,
    name: String,
    create: bool,
    about: Replicas<'_>,
    out: &mut Outcome,
) -> TopicMetadata {
    if let Err(refusal) = check_name(&name) {
        return failed(name, refusal.code);
    }
    if node.topics.get(&name).is_none() {
        let partitions = node.settings.default_partitions;
        let created = create.then(|| node.create_topic(&name, partitions, None, out));
        match created {
            Some(Ok(())) => {}
            Some(Err(refusal)) => return failed(name, refusal.code),
            None => return failed(name, ErrorCode::UnknownTopicOrPartition),
        }
    }
    match node.topics.get(&name) {
        Some(partitions) => topic(name, partitions, about),
        None => failed(name, ErrorCode::UnknownTopicOrPartition),
    }
}

fn topic(name: String, partitions: &[Partition], about: Replicas<'_>) -> TopicMetadata {
    let partitions = (0..).zip(partitions).map(|(number, partition)| PartitionMetadata {
        error: ErrorCode::None,
        partition: number,
        leader: partition.leader,
        leader_epoch: partition.leader_epoch,
        replicas: about.all.to_vec(),
        isr: about.alive.to_vec(),
    });
    TopicMetadata { error: ErrorCode::None, name, is_internal: false, partitions: partitions.collect() }
}

fn failed(name: String, error: ErrorCode) -> TopicMetadata {
    TopicMetadata { error, name, is_internal: false, partitions: Vec::new() }
}
