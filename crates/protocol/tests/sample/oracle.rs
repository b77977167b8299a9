//! What `kafka-protocol` understands, said in our plain types, and what it can say beyond them: the other side of
//! the differential tests.

use bytes::Bytes;
use kafka_protocol::messages as kp;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use kohort_protocol::messages::*;

use crate::messages::Sample;

/// A plain message that `kafka-protocol` can be asked about.
pub(crate) trait Oracle: Sized {
    type Kp: Encodable + Decodable + std::fmt::Debug;

    /// The same in our words.
    fn plain(kp: &Self::Kp, version: i16) -> Self;

    /// Fills in what our type has no place for, to be skipped by our decoder.
    fn decorate(kp: &mut Self::Kp, version: i16, g: &mut Sample);
}

fn s(text: &StrBytes) -> String {
    text.to_string()
}

fn o(text: &Option<StrBytes>) -> Option<String> {
    text.as_ref().map(s)
}

fn all<A, B>(list: &[A], map: impl FnMut(&A) -> B) -> Vec<B> {
    list.iter().map(map).collect()
}

fn ids(list: &[kp::BrokerId]) -> Vec<i32> {
    all(list, |id| id.0)
}

macro_rules! tag {
    ($on:expr, $g:expr) => {
        for _ in 0..$g.below(3) {
            let tag = 50 + $g.below(1000) as i32;
            let bytes: Bytes = $g.bytes();
            $on.unknown_tagged_fields.insert(tag, bytes);
        }
    };
}

macro_rules! oracle {
    ($($plain:ident flexible $flexible:literal
        |$k:ident, $v:ident| $body:expr;
        decorate |$d:ident, $w:ident, $g:ident| $decorate:block)*) => {
        $(
            impl Oracle for $plain {
                type Kp = kp::$plain;

                fn plain($k: &kp::$plain, $v: i16) -> Self {
                    let _ = ($k, $v);
                    $body
                }

                fn decorate($d: &mut kp::$plain, $w: i16, $g: &mut Sample) {
                    $decorate
                    if $w >= $flexible {
                        tag!($d, $g);
                    }
                }
            }
        )*
    };
}

#[path = "oracle_admin.rs"]
mod admin;

oracle! {
    ApiVersionsRequest flexible 3 |k, v| ApiVersionsRequest {
        client_software_name: s(&k.client_software_name),
        client_software_version: s(&k.client_software_version),
    };
    decorate |d, version, g| {}

    ApiVersionsResponse flexible 3 |k, v| ApiVersionsResponse {
        error: k.error_code.into(),
        apis: all(&k.api_keys, |a| ApiVersionRange { key: a.api_key, min: a.min_version, max: a.max_version }),
    };
    decorate |d, version, g| {
        d.throttle_time_ms = 0;
        if d.error_code != 35 {
            d.throttle_time_ms = g.i32();
            d.finalized_features_epoch = g.i64();
        }
    }

    MetadataRequest flexible 9 |k, v| MetadataRequest {
        topics: match &k.topics {
            Some(topics) if topics.is_empty() && v == 0 => None,
            topics => topics.as_ref().map(|t| all(t, |t| t.name.as_ref().map(|n| s(&n.0)).unwrap_or_default())),
        },
        allow_auto_topic_creation: k.allow_auto_topic_creation,
    };
    decorate |d, version, g| {
        if version >= 8 {
            d.include_cluster_authorized_operations = g.bool();
            d.include_topic_authorized_operations = g.bool();
        }
        if version >= 9 {
            for topic in d.topics.iter_mut().flatten() {
                tag!(topic, g);
            }
        }
    }

    MetadataResponse flexible 9 |k, v| MetadataResponse {
        brokers: all(&k.brokers, |b| BrokerAddress { node_id: b.node_id.0, host: s(&b.host), port: b.port }),
        cluster_id: o(&k.cluster_id),
        controller_id: k.controller_id.0,
        topics: all(&k.topics, |t| TopicMetadata {
            error: t.error_code.into(),
            name: t.name.as_ref().map(|n| s(&n.0)).unwrap_or_default(),
            is_internal: t.is_internal,
            partitions: all(&t.partitions, |p| PartitionMetadata {
                error: p.error_code.into(),
                partition: p.partition_index,
                leader: p.leader_id.0,
                leader_epoch: p.leader_epoch,
                replicas: ids(&p.replica_nodes),
                isr: ids(&p.isr_nodes),
            }),
        }),
    };
    decorate |d, version, g| {
        if version >= 3 {
            d.throttle_time_ms = g.i32();
        }
        if version >= 8 {
            d.cluster_authorized_operations = g.i32();
        }
        for broker in &mut d.brokers {
            if version >= 1 {
                broker.rack = g.maybe(|g| g.string().into());
            }
            if version >= 9 {
                tag!(broker, g);
            }
        }
        for topic in &mut d.topics {
            if version >= 8 {
                topic.topic_authorized_operations = g.i32();
            }
            if version >= 9 {
                tag!(topic, g);
            }
            for partition in &mut topic.partitions {
                if version >= 5 {
                    partition.offline_replicas = all(&g.i32s(), |id| kp::BrokerId(*id));
                }
                if version >= 9 {
                    tag!(partition, g);
                }
            }
        }
    }

    FindCoordinatorRequest flexible 3 |k, v| FindCoordinatorRequest {
        key_type: k.key_type,
        keys: if v >= 4 { all(&k.coordinator_keys, s) } else { vec![s(&k.key)] },
    };
    decorate |d, version, g| {}

    FindCoordinatorResponse flexible 3 |k, v| FindCoordinatorResponse {
        coordinators: if v >= 4 {
            all(&k.coordinators, |c| CoordinatorAddress {
                key: s(&c.key),
                node_id: c.node_id.0,
                host: s(&c.host),
                port: c.port,
                error: c.error_code.into(),
                error_message: o(&c.error_message),
            })
        } else {
            vec![CoordinatorAddress {
                key: String::new(),
                node_id: k.node_id.0,
                host: s(&k.host),
                port: k.port,
                error: k.error_code.into(),
                error_message: o(&k.error_message).filter(|_| v >= 1),
            }]
        },
    };
    decorate |d, version, g| {
        if version >= 1 {
            d.throttle_time_ms = g.i32();
        }
        for coordinator in &mut d.coordinators {
            tag!(coordinator, g);
        }
    }

    CreateTopicsRequest flexible 5 |k, v| CreateTopicsRequest {
        topics: all(&k.topics, |t| NewTopic {
            name: s(&t.name.0),
            num_partitions: t.num_partitions,
            replication_factor: t.replication_factor,
            assignments: all(&t.assignments, |a| (a.partition_index, ids(&a.broker_ids))),
            configs: all(&t.configs, |c| (s(&c.name), o(&c.value))),
        }),
        timeout_ms: k.timeout_ms,
        validate_only: k.validate_only,
    };
    decorate |d, version, g| {
        if version >= 5 {
            for topic in &mut d.topics {
                tag!(topic, g);
                topic.assignments.iter_mut().for_each(|assignment| tag!(assignment, g));
                topic.configs.iter_mut().for_each(|config| tag!(config, g));
            }
        }
    }

    CreateTopicsResponse flexible 5 |k, v| CreateTopicsResponse {
        topics: all(&k.topics, |t| CreatedTopic {
            name: s(&t.name.0),
            error: t.error_code.into(),
            error_message: o(&t.error_message),
            num_partitions: t.num_partitions,
            replication_factor: t.replication_factor,
        }),
    };
    decorate |d, version, g| {
        d.throttle_time_ms = g.i32();
        if version >= 5 {
            for topic in &mut d.topics {
                tag!(topic, g);
                topic.topic_config_error_code = g.i16();
                topic.configs = g.maybe(|g| g.list(|g| {
                    kp::create_topics_response::CreatableTopicConfigs::default()
                        .with_name(g.string().into())
                        .with_value(g.maybe(|g| g.string().into()))
                        .with_read_only(g.bool())
                        .with_config_source(g.i8())
                        .with_is_sensitive(g.bool())
                }));
            }
        }
    }

    InitProducerIdRequest flexible 2 |k, v| InitProducerIdRequest {
        transactional_id: k.transactional_id.as_ref().map(|t| s(&t.0)),
        transaction_timeout_ms: k.transaction_timeout_ms,
        producer_id: k.producer_id.0,
        producer_epoch: k.producer_epoch,
    };
    decorate |d, version, g| {}

    InitProducerIdResponse flexible 2 |k, v| InitProducerIdResponse {
        error: k.error_code.into(),
        producer_id: k.producer_id.0,
        producer_epoch: k.producer_epoch,
    };
    decorate |d, version, g| { d.throttle_time_ms = g.i32(); }

    ProduceRequest flexible 9 |k, v| ProduceRequest {
        transactional_id: k.transactional_id.as_ref().map(|t| s(&t.0)),
        acks: k.acks,
        timeout_ms: k.timeout_ms,
        topics: all(&k.topic_data, |t| ProduceTopic {
            name: s(&t.name.0),
            partitions: all(&t.partition_data, |p| ProducePartition {
                partition: p.index,
                records: p.records.clone(),
            }),
        }),
    };
    decorate |d, version, g| {
        if version >= 9 {
            for topic in &mut d.topic_data {
                tag!(topic, g);
                topic.partition_data.iter_mut().for_each(|partition| tag!(partition, g));
            }
        }
    }

    ProduceResponse flexible 9 |k, v| ProduceResponse {
        topics: all(&k.responses, |t| ProducedTopic {
            name: s(&t.name.0),
            partitions: all(&t.partition_responses, |p| ProducedPartition {
                partition: p.index,
                error: p.error_code.into(),
                base_offset: p.base_offset,
                log_append_time: p.log_append_time_ms,
                log_start_offset: p.log_start_offset,
                error_message: o(&p.error_message),
            }),
        }),
    };
    decorate |d, version, g| {
        d.throttle_time_ms = g.i32();
        for topic in &mut d.responses {
            for partition in &mut topic.partition_responses {
                if version >= 8 {
                    partition.record_errors = g.list(|g| {
                        kp::produce_response::BatchIndexAndErrorMessage::default()
                            .with_batch_index(g.i32())
                            .with_batch_index_error_message(g.maybe(|g| g.string().into()))
                    });
                }
                if version >= 9 {
                    tag!(partition, g);
                }
                if version >= 10 {
                    partition.current_leader.leader_epoch = g.i32();
                }
            }
        }
    }

    FetchRequest flexible 12 |k, v| FetchRequest {
        replica_id: k.replica_id.0,
        max_wait_ms: k.max_wait_ms,
        min_bytes: k.min_bytes,
        max_bytes: k.max_bytes,
        isolation_level: k.isolation_level,
        session_id: k.session_id,
        session_epoch: k.session_epoch,
        topics: all(&k.topics, |t| FetchTopic {
            name: s(&t.topic.0),
            partitions: all(&t.partitions, |p| FetchPartition {
                partition: p.partition,
                current_leader_epoch: p.current_leader_epoch,
                fetch_offset: p.fetch_offset,
                log_start_offset: p.log_start_offset,
                max_bytes: p.partition_max_bytes,
            }),
        }),
        forgotten: all(&k.forgotten_topics_data, |t| ForgottenTopic {
            name: s(&t.topic.0),
            partitions: t.partitions.clone(),
        }),
        rack_id: s(&k.rack_id),
    };
    decorate |d, version, g| {
        if version >= 12 {
            d.cluster_id = g.maybe(|g| g.string().into());
            for topic in &mut d.topics {
                tag!(topic, g);
                topic.partitions.iter_mut().for_each(|partition| {
                    partition.last_fetched_epoch = g.i32();
                    tag!(partition, g);
                });
            }
            d.forgotten_topics_data.iter_mut().for_each(|topic| tag!(topic, g));
        }
    }

    FetchResponse flexible 12 |k, v| FetchResponse {
        error: k.error_code.into(),
        session_id: k.session_id,
        topics: all(&k.responses, |t| FetchedTopic {
            name: s(&t.topic.0),
            partitions: all(&t.partitions, |p| FetchedPartition {
                partition: p.partition_index,
                error: p.error_code.into(),
                high_watermark: p.high_watermark,
                last_stable_offset: p.last_stable_offset,
                log_start_offset: p.log_start_offset,
                aborted_transactions: all(p.aborted_transactions.as_deref().unwrap_or_default(), |a| {
                    AbortedTransaction { producer_id: a.producer_id.0, first_offset: a.first_offset }
                }),
                preferred_read_replica: p.preferred_read_replica.0,
                records: p.records.clone().unwrap_or_default(),
            }),
        }),
    };
    decorate |d, version, g| {
        d.throttle_time_ms = g.i32();
        for partition in d.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if g.bool() {
                partition.aborted_transactions = None;
            }
            if g.bool() {
                partition.records = None;
            }
            if version >= 12 {
                partition.diverging_epoch.end_offset = g.i64();
                partition.current_leader.leader_epoch = g.i32();
                partition.snapshot_id.epoch = g.i32();
                tag!(partition, g);
                partition.aborted_transactions.iter_mut().flatten().for_each(|a| tag!(a, g));
            }
        }
    }

    JoinGroupRequest flexible 6 |k, v| JoinGroupRequest {
        group_id: s(&k.group_id.0),
        session_timeout_ms: k.session_timeout_ms,
        rebalance_timeout_ms: if v >= 1 { k.rebalance_timeout_ms } else { k.session_timeout_ms },
        member_id: s(&k.member_id),
        group_instance_id: o(&k.group_instance_id),
        protocol_type: s(&k.protocol_type),
        protocols: all(&k.protocols, |p| JoinProtocol { name: s(&p.name), metadata: p.metadata.clone() }),
        reason: o(&k.reason),
    };
    decorate |d, version, g| {
        if version >= 6 {
            d.protocols.iter_mut().for_each(|protocol| tag!(protocol, g));
        }
    }

    JoinGroupResponse flexible 6 |k, v| JoinGroupResponse {
        error: k.error_code.into(),
        generation: k.generation_id,
        protocol_type: o(&k.protocol_type),
        protocol_name: o(&k.protocol_name),
        leader: s(&k.leader),
        skip_assignment: k.skip_assignment,
        member_id: s(&k.member_id),
        members: all(&k.members, |m| JoinMember {
            member_id: s(&m.member_id),
            group_instance_id: o(&m.group_instance_id),
            metadata: m.metadata.clone(),
        }),
    };
    decorate |d, version, g| {
        if version >= 2 {
            d.throttle_time_ms = g.i32();
        }
        if version >= 6 {
            d.members.iter_mut().for_each(|member| tag!(member, g));
        }
    }

    SyncGroupRequest flexible 4 |k, v| SyncGroupRequest {
        group_id: s(&k.group_id.0),
        generation: k.generation_id,
        member_id: s(&k.member_id),
        group_instance_id: o(&k.group_instance_id),
        protocol_type: o(&k.protocol_type),
        protocol_name: o(&k.protocol_name),
        assignments: all(&k.assignments, |a| MemberAssignment {
            member_id: s(&a.member_id),
            assignment: a.assignment.clone(),
        }),
    };
    decorate |d, version, g| {
        if version >= 4 {
            d.assignments.iter_mut().for_each(|assignment| tag!(assignment, g));
        }
    }

    SyncGroupResponse flexible 4 |k, v| SyncGroupResponse {
        error: k.error_code.into(),
        protocol_type: o(&k.protocol_type),
        protocol_name: o(&k.protocol_name),
        assignment: k.assignment.clone(),
    };
    decorate |d, version, g| {
        if version >= 1 {
            d.throttle_time_ms = g.i32();
        }
    }

    HeartbeatRequest flexible 4 |k, v| HeartbeatRequest {
        group_id: s(&k.group_id.0),
        generation: k.generation_id,
        member_id: s(&k.member_id),
        group_instance_id: o(&k.group_instance_id),
    };
    decorate |d, version, g| {}

    HeartbeatResponse flexible 4 |k, v| HeartbeatResponse { error: k.error_code.into() };
    decorate |d, version, g| {
        if version >= 1 {
            d.throttle_time_ms = g.i32();
        }
    }

    LeaveGroupRequest flexible 4 |k, v| LeaveGroupRequest {
        group_id: s(&k.group_id.0),
        members: if v < 3 {
            vec![LeaveMember { member_id: s(&k.member_id), ..Default::default() }]
        } else {
            all(&k.members, |m| LeaveMember {
                member_id: s(&m.member_id),
                group_instance_id: o(&m.group_instance_id),
                reason: o(&m.reason),
            })
        },
    };
    decorate |d, version, g| {
        if version >= 4 {
            d.members.iter_mut().for_each(|member| tag!(member, g));
        }
    }

    LeaveGroupResponse flexible 4 |k, v| LeaveGroupResponse {
        error: k.error_code.into(),
        members: all(&k.members, |m| LeftMember {
            member_id: s(&m.member_id),
            group_instance_id: o(&m.group_instance_id),
            error: m.error_code.into(),
        }),
    };
    decorate |d, version, g| {
        if version >= 1 {
            d.throttle_time_ms = g.i32();
        }
        if version >= 4 {
            d.members.iter_mut().for_each(|member| tag!(member, g));
        }
    }

    OffsetCommitRequest flexible 8 |k, v| OffsetCommitRequest {
        group_id: s(&k.group_id.0),
        generation: k.generation_id_or_member_epoch,
        member_id: s(&k.member_id),
        group_instance_id: o(&k.group_instance_id),
        topics: all(&k.topics, |t| OffsetCommitTopic {
            name: s(&t.name.0),
            partitions: all(&t.partitions, |p| OffsetCommitPartition {
                partition: p.partition_index,
                offset: p.committed_offset,
                leader_epoch: p.committed_leader_epoch,
                metadata: o(&p.committed_metadata),
            }),
        }),
    };
    decorate |d, version, g| {
        if version <= 4 {
            d.retention_time_ms = g.i64();
        }
        if version >= 8 {
            for topic in &mut d.topics {
                tag!(topic, g);
                topic.partitions.iter_mut().for_each(|partition| tag!(partition, g));
            }
        }
    }

    OffsetCommitResponse flexible 8 |k, v| OffsetCommitResponse {
        topics: all(&k.topics, |t| OffsetCommittedTopic {
            name: s(&t.name.0),
            partitions: all(&t.partitions, |p| OffsetCommittedPartition {
                partition: p.partition_index,
                error: p.error_code.into(),
            }),
        }),
    };
    decorate |d, version, g| {
        if version >= 3 {
            d.throttle_time_ms = g.i32();
        }
        if version >= 8 {
            for topic in &mut d.topics {
                tag!(topic, g);
                topic.partitions.iter_mut().for_each(|partition| tag!(partition, g));
            }
        }
    }

    OffsetFetchRequest flexible 6 |k, v| OffsetFetchRequest {
        groups: if v >= 8 {
            all(&k.groups, |group| OffsetFetchGroup {
                group_id: s(&group.group_id.0),
                topics: group.topics.as_ref().map(|topics| all(topics, |t| OffsetFetchTopic {
                    name: s(&t.name.0),
                    partitions: t.partition_indexes.clone(),
                })),
            })
        } else {
            vec![OffsetFetchGroup {
                group_id: s(&k.group_id.0),
                topics: k.topics.as_ref().map(|topics| all(topics, |t| OffsetFetchTopic {
                    name: s(&t.name.0),
                    partitions: t.partition_indexes.clone(),
                })),
            }]
        },
        require_stable: k.require_stable,
    };
    decorate |d, version, g| {
        for group in &mut d.groups {
            if version >= 9 {
                group.member_id = g.maybe(|g| g.string().into());
                group.member_epoch = g.i32();
            }
            tag!(group, g);
        }
    }

    OffsetFetchResponse flexible 6 |k, v| OffsetFetchResponse {
        groups: if v >= 8 {
            all(&k.groups, |group| FetchedOffsets {
                group_id: s(&group.group_id.0),
                error: group.error_code.into(),
                topics: all(&group.topics, |t| FetchedOffsetsTopic {
                    name: s(&t.name.0),
                    partitions: all(&t.partitions, |p| FetchedOffset {
                        partition: p.partition_index,
                        offset: p.committed_offset,
                        leader_epoch: p.committed_leader_epoch,
                        metadata: o(&p.metadata),
                        error: p.error_code.into(),
                    }),
                }),
            })
        } else {
            vec![FetchedOffsets {
                group_id: String::new(),
                error: k.error_code.into(),
                topics: all(&k.topics, |t| FetchedOffsetsTopic {
                    name: s(&t.name.0),
                    partitions: all(&t.partitions, |p| FetchedOffset {
                        partition: p.partition_index,
                        offset: p.committed_offset,
                        leader_epoch: p.committed_leader_epoch,
                        metadata: o(&p.metadata),
                        error: p.error_code.into(),
                    }),
                }),
            }]
        },
    };
    decorate |d, version, g| {
        if version >= 3 {
            d.throttle_time_ms = g.i32();
        }
        for group in &mut d.groups {
            tag!(group, g);
            for topic in &mut group.topics {
                tag!(topic, g);
                topic.partitions.iter_mut().for_each(|partition| tag!(partition, g));
            }
        }
    }

    ListOffsetsRequest flexible 6 |k, v| ListOffsetsRequest {
        isolation_level: k.isolation_level,
        topics: all(&k.topics, |t| ListOffsetsTopic {
            name: s(&t.name.0),
            partitions: all(&t.partitions, |p| ListOffsetsPartition {
                partition: p.partition_index,
                leader_epoch: p.current_leader_epoch,
                timestamp: p.timestamp,
            }),
        }),
    };
    decorate |d, version, g| {
        d.replica_id = kp::BrokerId(g.i32());
        if version >= 6 {
            d.topics.iter_mut().for_each(|topic| tag!(topic, g));
        }
    }

    ListOffsetsResponse flexible 6 |k, v| ListOffsetsResponse {
        topics: all(&k.topics, |t| ListedOffsetsTopic {
            name: s(&t.name.0),
            partitions: all(&t.partitions, |p| ListedOffset {
                partition: p.partition_index,
                error: p.error_code.into(),
                timestamp: p.timestamp,
                offset: p.offset,
                leader_epoch: p.leader_epoch,
            }),
        }),
    };
    decorate |d, version, g| {
        if version >= 2 {
            d.throttle_time_ms = g.i32();
        }
        if version >= 6 {
            d.topics.iter_mut().flat_map(|topic| &mut topic.partitions).for_each(|p| tag!(p, g));
        }
    }
}
