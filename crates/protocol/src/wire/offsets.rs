//! OffsetCommit, OffsetFetch, ListOffsets on the wire.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as kp;
use kp::BrokerId;
use kp::{list_offsets_request as lo, list_offsets_response as lor};
use kp::{offset_commit_request as oc, offset_commit_response as ocr};
use kp::{offset_fetch_request as of, offset_fetch_response as ofr};

use super::{
    group_id, not_in_version, nullable_text, only, put, request, response, text, text_since, topic_name,
};
use crate::messages::*;
use crate::reader::{Reader, min};
use crate::{ApiKey, DecodeError, EncodeError, ErrorCode, Request, Response};

impl Request for OffsetCommitRequest {
    const API: ApiKey = ApiKey::OffsetCommit;
    type Response = OffsetCommitResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let partition = |partition: &OffsetCommitPartition| {
                oc::OffsetCommitRequestPartition::default()
                    .with_partition_index(partition.partition)
                    .with_committed_offset(partition.offset)
                    .with_committed_leader_epoch(partition.leader_epoch)
                    .with_committed_metadata(nullable_text(partition.metadata.as_ref()))
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    oc::OffsetCommitRequestTopic::default()
                        .with_name(topic_name(&topic.name))
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(kp::OffsetCommitRequest::default()
                .with_group_id(group_id(&self.group_id))
                .with_generation_id_or_member_epoch(self.generation)
                .with_member_id(text(&self.member_id))
                .with_group_instance_id(text_since(7, version, self.group_instance_id.as_ref()))
                .with_retention_time_ms(-1)
                .with_topics(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let group_id = r.string("group id")?;
        let generation = r.i32("generation")?;
        let member_id = r.string("member id")?;
        let group_instance_id = if version >= 7 { r.nullable_string("group instance id")? } else { None };
        if version <= 4 {
            r.i64("retention time")?;
        }
        let topics = r.list("topics", min(6, 3), |r| {
            let topic = OffsetCommitTopic {
                name: r.string("topic")?,
                partitions: r.list("partitions", min(14, 14), |r| {
                    let partition = OffsetCommitPartition {
                        partition: r.i32("partition")?,
                        offset: r.i64("offset")?,
                        leader_epoch: if version >= 6 { r.i32("leader epoch")? } else { -1 },
                        metadata: r.nullable_string("metadata")?,
                    };
                    r.tagged_fields()?;
                    Ok(partition)
                })?,
            };
            r.tagged_fields()?;
            Ok(topic)
        })?;
        r.tagged_fields()?;
        Ok(Self { group_id, generation, member_id, group_instance_id, topics })
    }
}

impl Response for OffsetCommitResponse {
    const API: ApiKey = ApiKey::OffsetCommit;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let partition = |partition: &OffsetCommittedPartition| {
                ocr::OffsetCommitResponsePartition::default()
                    .with_partition_index(partition.partition)
                    .with_error_code(partition.error.code())
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    ocr::OffsetCommitResponseTopic::default()
                        .with_name(topic_name(&topic.name))
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(kp::OffsetCommitResponse::default().with_topics(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 3 {
            r.i32("throttle time")?;
        }
        let topics = r.list("topics", min(6, 3), |r| {
            let topic = OffsetCommittedTopic {
                name: r.string("topic")?,
                partitions: r.list("partitions", min(6, 7), |r| {
                    let partition = OffsetCommittedPartition {
                        partition: r.i32("partition")?,
                        error: r.error_code("partition's error code")?,
                    };
                    r.tagged_fields()?;
                    Ok(partition)
                })?,
            };
            r.tagged_fields()?;
            Ok(topic)
        })?;
        r.tagged_fields()?;
        Ok(Self { topics })
    }
}

fn fetch_topics(r: &mut Reader<'_>, nullable: bool) -> Result<Option<Vec<OffsetFetchTopic>>, DecodeError> {
    let topic = |r: &mut Reader<'_>| {
        let topic = OffsetFetchTopic { name: r.string("topic")?, partitions: r.i32_list("partitions")? };
        r.tagged_fields()?;
        Ok(topic)
    };
    if nullable {
        r.nullable_list("topics", min(6, 3), topic)
    } else {
        r.list("topics", min(6, 3), topic).map(Some)
    }
}

impl Request for OffsetFetchRequest {
    const API: ApiKey = ApiKey::OffsetFetch;
    type Response = OffsetFetchResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            if self.require_stable && version < 7 {
                let reason = "it exists from version 7";
                return Err(not_in_version(Self::API, version, "require_stable", reason));
            }
            let message = kp::OffsetFetchRequest::default().with_require_stable(self.require_stable);
            if version >= 8 {
                let topic = |topic: &OffsetFetchTopic| {
                    of::OffsetFetchRequestTopics::default()
                        .with_name(topic_name(&topic.name))
                        .with_partition_indexes(topic.partitions.clone())
                };
                let groups = self
                    .groups
                    .iter()
                    .map(|group| {
                        let topics = group.topics.as_ref();
                        of::OffsetFetchRequestGroup::default()
                            .with_group_id(group_id(&group.group_id))
                            .with_member_id(None)
                            .with_member_epoch(-1)
                            .with_topics(topics.map(|topics| topics.iter().map(topic).collect()))
                    })
                    .collect();
                return Ok(message.with_groups(groups));
            }
            let group = only(&self.groups, Self::API, version, "groups")?;
            if group.topics.is_none() && version < 2 {
                let reason = "all topics can be asked for from version 2";
                return Err(not_in_version(Self::API, version, "topics", reason));
            }
            let topic = |topic: &OffsetFetchTopic| {
                of::OffsetFetchRequestTopic::default()
                    .with_name(topic_name(&topic.name))
                    .with_partition_indexes(topic.partitions.clone())
            };
            let topics = group.topics.as_ref();
            Ok(message
                .with_group_id(group_id(&group.group_id))
                .with_topics(topics.map(|topics| topics.iter().map(topic).collect())))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let groups = if version >= 8 {
            r.list("groups", min(6, 3), |r| {
                let group_id = r.string("group id")?;
                if version >= 9 {
                    r.nullable_str("member id")?;
                    r.i32("member epoch")?;
                }
                let group = OffsetFetchGroup { group_id, topics: fetch_topics(r, true)? };
                r.tagged_fields()?;
                Ok(group)
            })?
        } else {
            let group_id = r.string("group id")?;
            vec![OffsetFetchGroup { group_id, topics: fetch_topics(&mut r, version >= 2)? }]
        };
        let require_stable = if version >= 7 { r.bool("require stable")? } else { false };
        r.tagged_fields()?;
        Ok(Self { groups, require_stable })
    }
}

impl Response for OffsetFetchResponse {
    const API: ApiKey = ApiKey::OffsetFetch;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let message = kp::OffsetFetchResponse::default();
            if version >= 8 {
                let partition = |partition: &FetchedOffset| {
                    ofr::OffsetFetchResponsePartitions::default()
                        .with_partition_index(partition.partition)
                        .with_committed_offset(partition.offset)
                        .with_committed_leader_epoch(partition.leader_epoch)
                        .with_metadata(nullable_text(partition.metadata.as_ref()))
                        .with_error_code(partition.error.code())
                };
                let topic = |topic: &FetchedOffsetsTopic| {
                    ofr::OffsetFetchResponseTopics::default()
                        .with_name(topic_name(&topic.name))
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                };
                let groups = self
                    .groups
                    .iter()
                    .map(|group| {
                        ofr::OffsetFetchResponseGroup::default()
                            .with_group_id(group_id(&group.group_id))
                            .with_error_code(group.error.code())
                            .with_topics(group.topics.iter().map(topic).collect())
                    })
                    .collect();
                return Ok(message.with_groups(groups));
            }
            let group = only(&self.groups, Self::API, version, "groups")?;
            // Version 1 has no place for the group's error but its partitions.
            let group_error = if version < 2 { group.error } else { ErrorCode::None };
            let partition = |partition: &FetchedOffset| {
                let error = if partition.error.is_none() { group_error } else { partition.error };
                ofr::OffsetFetchResponsePartition::default()
                    .with_partition_index(partition.partition)
                    .with_committed_offset(partition.offset)
                    .with_committed_leader_epoch(partition.leader_epoch)
                    .with_metadata(nullable_text(partition.metadata.as_ref()))
                    .with_error_code(error.code())
            };
            let topics = group
                .topics
                .iter()
                .map(|topic| {
                    ofr::OffsetFetchResponseTopic::default()
                        .with_name(topic_name(&topic.name))
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(message.with_error_code(group.error.code()).with_topics(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 3 {
            r.i32("throttle time")?;
        }
        let topics = |r: &mut Reader<'_>| {
            r.list("topics", min(6, 3), |r| {
                let topic = FetchedOffsetsTopic {
                    name: r.string("topic")?,
                    partitions: r.list("partitions", min(16, 16), |r| {
                        let partition = FetchedOffset {
                            partition: r.i32("partition")?,
                            offset: r.i64("offset")?,
                            leader_epoch: if version >= 5 { r.i32("leader epoch")? } else { -1 },
                            metadata: r.nullable_string("metadata")?,
                            error: r.error_code("partition's error code")?,
                        };
                        r.tagged_fields()?;
                        Ok(partition)
                    })?,
                };
                r.tagged_fields()?;
                Ok(topic)
            })
        };
        let groups = if version >= 8 {
            r.list("groups", min(8, 5), |r| {
                let group_id = r.string("group id")?;
                let topics = topics(r)?;
                let group = FetchedOffsets { group_id, topics, error: r.error_code("group's error code")? };
                r.tagged_fields()?;
                Ok(group)
            })?
        } else {
            let topics = topics(&mut r)?;
            let error = if version >= 2 { r.error_code("error code")? } else { ErrorCode::None };
            vec![FetchedOffsets { group_id: String::new(), error, topics }]
        };
        r.tagged_fields()?;
        Ok(Self { groups })
    }
}

impl Request for ListOffsetsRequest {
    const API: ApiKey = ApiKey::ListOffsets;
    type Response = ListOffsetsResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let partition = |partition: &ListOffsetsPartition| {
                lo::ListOffsetsPartition::default()
                    .with_partition_index(partition.partition)
                    .with_current_leader_epoch(partition.leader_epoch)
                    .with_timestamp(partition.timestamp)
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    lo::ListOffsetsTopic::default()
                        .with_name(topic_name(&topic.name))
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(kp::ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_isolation_level(if version >= 2 { self.isolation_level } else { 0 })
                .with_topics(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        r.i32("replica id")?;
        let message = Self {
            isolation_level: if version >= 2 { r.i8("isolation level")? } else { 0 },
            topics: r.list("topics", min(6, 3), |r| {
                let topic = ListOffsetsTopic {
                    name: r.string("topic")?,
                    partitions: r.list("partitions", min(12, 17), |r| {
                        let partition = ListOffsetsPartition {
                            partition: r.i32("partition")?,
                            leader_epoch: if version >= 4 { r.i32("leader epoch")? } else { -1 },
                            timestamp: r.i64("timestamp")?,
                        };
                        r.tagged_fields()?;
                        Ok(partition)
                    })?,
                };
                r.tagged_fields()?;
                Ok(topic)
            })?,
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Response for ListOffsetsResponse {
    const API: ApiKey = ApiKey::ListOffsets;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let partition = |partition: &ListedOffset| {
                lor::ListOffsetsPartitionResponse::default()
                    .with_partition_index(partition.partition)
                    .with_error_code(partition.error.code())
                    .with_timestamp(partition.timestamp)
                    .with_offset(partition.offset)
                    .with_leader_epoch(if version >= 4 { partition.leader_epoch } else { -1 })
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    lor::ListOffsetsTopicResponse::default()
                        .with_name(topic_name(&topic.name))
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(kp::ListOffsetsResponse::default().with_topics(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 2 {
            r.i32("throttle time")?;
        }
        let topics = r.list("topics", min(6, 3), |r| {
            let topic = ListedOffsetsTopic {
                name: r.string("topic")?,
                partitions: r.list("partitions", min(22, 27), |r| {
                    let partition = ListedOffset {
                        partition: r.i32("partition")?,
                        error: r.error_code("partition's error code")?,
                        timestamp: r.i64("timestamp")?,
                        offset: r.i64("offset")?,
                        leader_epoch: if version >= 4 { r.i32("leader epoch")? } else { -1 },
                    };
                    r.tagged_fields()?;
                    Ok(partition)
                })?,
            };
            r.tagged_fields()?;
            Ok(topic)
        })?;
        r.tagged_fields()?;
        Ok(Self { topics })
    }
}
