//! Metadata and CreateTopics on the wire.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as kp;
use kp::BrokerId;
use kp::metadata_request::MetadataRequestTopic;
use kp::{create_topics_request as ct, create_topics_response as ctr, metadata_response as m};

use super::{broker_ids, nullable_text, put, request, response, text, topic_name};
use crate::messages::*;
use crate::reader::{Reader, min};
use crate::{ApiKey, DecodeError, EncodeError, Request, Response};

impl Request for MetadataRequest {
    const API: ApiKey = ApiKey::Metadata;
    type Response = MetadataResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let topic = |name: &String| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
            let topics = match &self.topics {
                Some(topics) if topics.is_empty() && version == 0 => {
                    let reason = "an empty list means all topics in version 0";
                    return Err(super::not_in_version(Self::API, version, "topics", reason));
                }
                Some(topics) => Some(topics.iter().map(topic).collect()),
                None if version == 0 => Some(Vec::new()),
                None => None,
            };
            Ok(kp::MetadataRequest::default()
                .with_topics(topics)
                .with_allow_auto_topic_creation(self.allow_auto_topic_creation || version < 4))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let topic = |r: &mut Reader<'_>| {
            let name = r.string("topic")?;
            r.tagged_fields()?;
            Ok(name)
        };
        let topics = if version == 0 {
            Some(r.list("topics", min(2, 2), topic)?).filter(|topics| !topics.is_empty())
        } else {
            r.nullable_list("topics", min(2, 2), topic)?
        };
        let allow_auto_topic_creation =
            if version >= 4 { r.bool("allow auto topic creation")? } else { true };
        if version >= 8 {
            r.bool("include cluster authorized operations")?;
            r.bool("include topic authorized operations")?;
        }
        r.tagged_fields()?;
        Ok(Self { topics, allow_auto_topic_creation })
    }
}

impl Response for MetadataResponse {
    const API: ApiKey = ApiKey::Metadata;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let brokers = self
                .brokers
                .iter()
                .map(|broker| {
                    m::MetadataResponseBroker::default()
                        .with_node_id(BrokerId(broker.node_id))
                        .with_host(text(&broker.host))
                        .with_port(broker.port)
                })
                .collect();
            let partition = |partition: &PartitionMetadata| {
                m::MetadataResponsePartition::default()
                    .with_error_code(partition.error.code())
                    .with_partition_index(partition.partition)
                    .with_leader_id(BrokerId(partition.leader))
                    .with_leader_epoch(partition.leader_epoch)
                    .with_replica_nodes(broker_ids(&partition.replicas))
                    .with_isr_nodes(broker_ids(&partition.isr))
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    m::MetadataResponseTopic::default()
                        .with_error_code(topic.error.code())
                        .with_name(Some(topic_name(&topic.name)))
                        .with_is_internal(topic.is_internal)
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(kp::MetadataResponse::default()
                .with_brokers(brokers)
                .with_cluster_id(nullable_text(self.cluster_id.as_ref()))
                .with_controller_id(BrokerId(self.controller_id))
                .with_topics(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 3 {
            r.i32("throttle time")?;
        }
        let message = Self {
            brokers: r.list("brokers", min(10, 11), |r| {
                let broker = BrokerAddress {
                    node_id: r.i32("node id")?,
                    host: r.string("host")?,
                    port: r.i32("port")?,
                };
                if version >= 1 {
                    r.nullable_str("rack")?;
                }
                r.tagged_fields()?;
                Ok(broker)
            })?,
            cluster_id: if version >= 2 { r.nullable_string("cluster id")? } else { None },
            controller_id: if version >= 1 { r.i32("controller id")? } else { -1 },
            topics: r.list("topics", min(8, 10), |r| {
                let topic = TopicMetadata {
                    error: r.error_code("topic's error code")?,
                    name: r.string("topic")?,
                    is_internal: if version >= 1 { r.bool("is internal")? } else { false },
                    partitions: r.list("partitions", min(18, 18), |r| metadata_partition(r, version))?,
                };
                if version >= 8 {
                    r.i32("topic's authorized operations")?;
                }
                r.tagged_fields()?;
                Ok(topic)
            })?,
        };
        if version >= 8 {
            r.i32("cluster's authorized operations")?;
        }
        r.tagged_fields()?;
        Ok(message)
    }
}

fn metadata_partition(r: &mut Reader<'_>, version: i16) -> Result<PartitionMetadata, DecodeError> {
    let partition = PartitionMetadata {
        error: r.error_code("partition's error code")?,
        partition: r.i32("partition")?,
        leader: r.i32("leader")?,
        leader_epoch: if version >= 7 { r.i32("leader epoch")? } else { -1 },
        replicas: r.i32_list("replicas")?,
        isr: r.i32_list("in-sync replicas")?,
    };
    if version >= 5 {
        for _ in 0..r.count("offline replicas", min(4, 4))? {
            r.i32("offline replicas")?;
        }
    }
    r.tagged_fields()?;
    Ok(partition)
}

impl Request for CreateTopicsRequest {
    const API: ApiKey = ApiKey::CreateTopics;
    type Response = CreateTopicsResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let assignment = |(partition, brokers): &(i32, Vec<i32>)| {
                ct::CreatableReplicaAssignment::default()
                    .with_partition_index(*partition)
                    .with_broker_ids(broker_ids(brokers))
            };
            let config = |(name, value): &(String, Option<String>)| {
                ct::CreatableTopicConfig::default()
                    .with_name(text(name))
                    .with_value(nullable_text(value.as_ref()))
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    ct::CreatableTopic::default()
                        .with_name(topic_name(&topic.name))
                        .with_num_partitions(topic.num_partitions)
                        .with_replication_factor(topic.replication_factor)
                        .with_assignments(topic.assignments.iter().map(assignment).collect())
                        .with_configs(topic.configs.iter().map(config).collect())
                })
                .collect();
            Ok(kp::CreateTopicsRequest::default()
                .with_topics(topics)
                .with_timeout_ms(self.timeout_ms)
                .with_validate_only(self.validate_only))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let message = Self {
            topics: r.list("topics", min(16, 10), |r| {
                let topic = NewTopic {
                    name: r.string("topic")?,
                    num_partitions: r.i32("number of partitions")?,
                    replication_factor: r.i16("replication factor")?,
                    assignments: r.list("assignments", min(8, 6), |r| {
                        let assignment = (r.i32("partition")?, r.i32_list("broker ids")?);
                        r.tagged_fields()?;
                        Ok(assignment)
                    })?,
                    configs: r.list("configs", min(4, 3), |r| {
                        let config = (r.string("config name")?, r.nullable_string("config value")?);
                        r.tagged_fields()?;
                        Ok(config)
                    })?,
                };
                r.tagged_fields()?;
                Ok(topic)
            })?,
            timeout_ms: r.i32("timeout")?,
            validate_only: r.bool("validate only")?,
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Response for CreateTopicsResponse {
    const API: ApiKey = ApiKey::CreateTopics;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    ctr::CreatableTopicResult::default()
                        .with_name(topic_name(&topic.name))
                        .with_error_code(topic.error.code())
                        .with_error_message(nullable_text(topic.error_message.as_ref()))
                        .with_num_partitions(topic.num_partitions)
                        .with_replication_factor(topic.replication_factor)
                        .with_configs(Some(Vec::new()))
                })
                .collect();
            Ok(kp::CreateTopicsResponse::default().with_topics(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        r.i32("throttle time")?;
        let topics = r.list("topics", min(6, 12), |r| {
            let name = r.string("topic")?;
            if version >= 7 {
                r.uuid("topic id")?;
            }
            let mut topic = CreatedTopic {
                name,
                error: r.error_code("topic's error code")?,
                error_message: r.nullable_string("error message")?,
                num_partitions: -1,
                replication_factor: -1,
            };
            if version >= 5 {
                topic.num_partitions = r.i32("number of partitions")?;
                topic.replication_factor = r.i16("replication factor")?;
                for _ in 0..r.nullable_count("configs", min(9, 6))?.unwrap_or(0) {
                    r.str("config name")?;
                    r.nullable_str("config value")?;
                    r.bool("read only")?;
                    r.i8("config source")?;
                    r.bool("is sensitive")?;
                    r.tagged_fields()?;
                }
            }
            r.tagged_fields()?;
            Ok(topic)
        })?;
        r.tagged_fields()?;
        Ok(Self { topics })
    }
}
