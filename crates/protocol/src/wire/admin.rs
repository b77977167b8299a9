//! DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, DeleteTopics and CreatePartitions on the wire.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as kp;
use kp::{create_partitions_request as cp, create_partitions_response as cpr, delete_topics_response as dtr};
use kp::{delete_groups_response as dgr, describe_groups_response as dr, list_groups_response as lr};
use kp::{offset_delete_request as od, offset_delete_response as odr};

use super::{
    broker_ids, group_id, not_in_version, nullable_text, put, request, response, text, text_since, topic_name,
};
use crate::messages::*;
use crate::reader::min;
use crate::{ApiKey, DecodeError, EncodeError, Request, Response};

impl Request for DescribeGroupsRequest {
    const API: ApiKey = ApiKey::DescribeGroups;
    type Response = DescribeGroupsResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let groups = self.groups.iter().map(|group| group_id(group)).collect();
            Ok(kp::DescribeGroupsRequest::default().with_groups(groups))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let groups = r.string_list("groups")?;
        if version >= 3 {
            r.bool("include authorized operations")?;
        }
        r.tagged_fields()?;
        Ok(Self { groups })
    }
}

impl Response for DescribeGroupsResponse {
    const API: ApiKey = ApiKey::DescribeGroups;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let member = |member: &DescribedMember| {
                dr::DescribedGroupMember::default()
                    .with_member_id(text(&member.member_id))
                    .with_group_instance_id(text_since(4, version, member.group_instance_id.as_ref()))
                    .with_client_id(text(&member.client_id))
                    .with_client_host(text(&member.client_host))
                    .with_member_metadata(member.metadata.clone())
                    .with_member_assignment(member.assignment.clone())
            };
            let groups = self
                .groups
                .iter()
                .map(|group| {
                    dr::DescribedGroup::default()
                        .with_error_code(group.error.code())
                        .with_error_message(text_since(6, version, group.error_message.as_ref()))
                        .with_group_id(group_id(&group.group_id))
                        .with_group_state(text(&group.state))
                        .with_protocol_type(text(&group.protocol_type))
                        .with_protocol_data(text(&group.protocol_name))
                        .with_members(group.members.iter().map(member).collect())
                })
                .collect();
            Ok(kp::DescribeGroupsResponse::default().with_groups(groups))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 1 {
            r.i32("throttle time")?;
        }
        let groups = r.list("groups", min(14, 12), |r| {
            let group = DescribedGroup {
                error: r.error_code("group's error code")?,
                error_message: if version >= 6 { r.nullable_string("error message")? } else { None },
                group_id: r.string("group id")?,
                state: r.string("group's state")?,
                protocol_type: r.string("protocol type")?,
                protocol_name: r.string("protocol name")?,
                members: r.list("members", min(14, 7), |r| {
                    let member = DescribedMember {
                        member_id: r.string("member id")?,
                        group_instance_id: if version >= 4 {
                            r.nullable_string("group instance id")?
                        } else {
                            None
                        },
                        client_id: r.string("client id")?,
                        client_host: r.string("client host")?,
                        metadata: r.bytes("member metadata")?,
                        assignment: r.bytes("member assignment")?,
                    };
                    r.tagged_fields()?;
                    Ok(member)
                })?,
            };
            if version >= 3 {
                r.i32("authorized operations")?;
            }
            r.tagged_fields()?;
            Ok(group)
        })?;
        r.tagged_fields()?;
        Ok(Self { groups })
    }
}

impl Request for ListGroupsRequest {
    const API: ApiKey = ApiKey::ListGroups;
    type Response = ListGroupsResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            if !self.states.is_empty() && version < 4 {
                let reason = "states can be asked for from version 4";
                return Err(not_in_version(Self::API, version, "states", reason));
            }
            if !self.types.is_empty() && version < 5 {
                let reason = "types can be asked for from version 5";
                return Err(not_in_version(Self::API, version, "types", reason));
            }
            Ok(kp::ListGroupsRequest::default()
                .with_states_filter(self.states.iter().map(|state| text(state)).collect())
                .with_types_filter(self.types.iter().map(|of| text(of)).collect()))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let states = if version >= 4 { r.string_list("states filter")? } else { Vec::new() };
        let types = if version >= 5 { r.string_list("types filter")? } else { Vec::new() };
        r.tagged_fields()?;
        Ok(Self { states, types })
    }
}

impl Response for ListGroupsResponse {
    const API: ApiKey = ApiKey::ListGroups;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let groups = self
                .groups
                .iter()
                .map(|group| {
                    lr::ListedGroup::default()
                        .with_group_id(group_id(&group.group_id))
                        .with_protocol_type(text(&group.protocol_type))
                        .with_group_state(text(&group.state))
                        .with_group_type(text(&group.group_type))
                })
                .collect();
            Ok(kp::ListGroupsResponse::default().with_error_code(self.error.code()).with_groups(groups))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 1 {
            r.i32("throttle time")?;
        }
        let error = r.error_code("error code")?;
        let groups = r.list("groups", min(4, 3), |r| {
            let group = ListedGroup {
                group_id: r.string("group id")?,
                protocol_type: r.string("protocol type")?,
                state: if version >= 4 { r.string("group's state")? } else { String::new() },
                group_type: if version >= 5 { r.string("group's type")? } else { String::new() },
            };
            r.tagged_fields()?;
            Ok(group)
        })?;
        r.tagged_fields()?;
        Ok(Self { error, groups })
    }
}

impl Request for DeleteGroupsRequest {
    const API: ApiKey = ApiKey::DeleteGroups;
    type Response = DeleteGroupsResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let groups = self.groups.iter().map(|group| group_id(group)).collect();
            Ok(kp::DeleteGroupsRequest::default().with_groups_names(groups))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let groups = r.string_list("groups")?;
        r.tagged_fields()?;
        Ok(Self { groups })
    }
}

impl Response for DeleteGroupsResponse {
    const API: ApiKey = ApiKey::DeleteGroups;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let results = self
                .groups
                .iter()
                .map(|group| {
                    dgr::DeletableGroupResult::default()
                        .with_group_id(group_id(&group.group_id))
                        .with_error_code(group.error.code())
                })
                .collect();
            Ok(kp::DeleteGroupsResponse::default().with_results(results))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        r.i32("throttle time")?;
        let groups = r.list("results", min(4, 4), |r| {
            let group =
                DeletedGroup { group_id: r.string("group id")?, error: r.error_code("group's error code")? };
            r.tagged_fields()?;
            Ok(group)
        })?;
        r.tagged_fields()?;
        Ok(Self { groups })
    }
}

impl Request for OffsetDeleteRequest {
    const API: ApiKey = ApiKey::OffsetDelete;
    type Response = OffsetDeleteResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let partition =
                |number: &i32| od::OffsetDeleteRequestPartition::default().with_partition_index(*number);
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    od::OffsetDeleteRequestTopic::default()
                        .with_name(topic_name(&topic.name))
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(kp::OffsetDeleteRequest::default().with_group_id(group_id(&self.group_id)).with_topics(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let group_id = r.string("group id")?;
        let topics = r.list("topics", min(6, 6), |r| {
            Ok(OffsetDeleteTopic { name: r.string("topic")?, partitions: r.i32_list("partitions")? })
        })?;
        Ok(Self { group_id, topics })
    }
}

impl Response for OffsetDeleteResponse {
    const API: ApiKey = ApiKey::OffsetDelete;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    let partitions = topic.partitions.iter().map(|(number, error)| {
                        odr::OffsetDeleteResponsePartition::default()
                            .with_partition_index(*number)
                            .with_error_code(error.code())
                    });
                    odr::OffsetDeleteResponseTopic::default()
                        .with_name(topic_name(&topic.name))
                        .with_partitions(partitions.collect())
                })
                .collect();
            Ok(kp::OffsetDeleteResponse::default().with_error_code(self.error.code()).with_topics(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        let error = r.error_code("error code")?;
        r.i32("throttle time")?;
        let topics = r.list("topics", min(6, 6), |r| {
            Ok(OffsetDeletedTopic {
                name: r.string("topic")?,
                partitions: r.list("partitions", min(6, 6), |r| {
                    Ok((r.i32("partition")?, r.error_code("partition's error code")?))
                })?,
            })
        })?;
        Ok(Self { error, topics })
    }
}

impl Request for DeleteTopicsRequest {
    const API: ApiKey = ApiKey::DeleteTopics;
    type Response = DeleteTopicsResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            Ok(kp::DeleteTopicsRequest::default()
                .with_topic_names(self.topics.iter().map(|topic| topic_name(topic)).collect())
                .with_timeout_ms(self.timeout_ms))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let message = Self { topics: r.string_list("topics")?, timeout_ms: r.i32("timeout")? };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Response for DeleteTopicsResponse {
    const API: ApiKey = ApiKey::DeleteTopics;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    dtr::DeletableTopicResult::default()
                        .with_name(Some(topic_name(&topic.name)))
                        .with_error_code(topic.error.code())
                        .with_error_message(text_since(5, version, topic.error_message.as_ref()))
                })
                .collect();
            Ok(kp::DeleteTopicsResponse::default().with_responses(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        r.i32("throttle time")?;
        let topics = r.list("topics", min(4, 4), |r| {
            let topic = DeletedTopic {
                name: r.string("topic")?,
                error: r.error_code("topic's error code")?,
                error_message: if version >= 5 { r.nullable_string("error message")? } else { None },
            };
            r.tagged_fields()?;
            Ok(topic)
        })?;
        r.tagged_fields()?;
        Ok(Self { topics })
    }
}

impl Request for CreatePartitionsRequest {
    const API: ApiKey = ApiKey::CreatePartitions;
    type Response = CreatePartitionsResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let replicas =
                |ids: &Vec<i32>| cp::CreatePartitionsAssignment::default().with_broker_ids(broker_ids(ids));
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    let by_hand = topic.assignments.as_ref();
                    cp::CreatePartitionsTopic::default()
                        .with_name(topic_name(&topic.name))
                        .with_count(topic.count)
                        .with_assignments(by_hand.map(|given| given.iter().map(replicas).collect()))
                })
                .collect();
            Ok(kp::CreatePartitionsRequest::default()
                .with_topics(topics)
                .with_timeout_ms(self.timeout_ms)
                .with_validate_only(self.validate_only))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let message = Self {
            topics: r.list("topics", min(10, 7), |r| {
                let topic = MorePartitions {
                    name: r.string("topic")?,
                    count: r.i32("number of partitions")?,
                    assignments: r.nullable_list("assignments", min(4, 2), |r| {
                        let replicas = r.i32_list("broker ids")?;
                        r.tagged_fields()?;
                        Ok(replicas)
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

impl Response for CreatePartitionsResponse {
    const API: ApiKey = ApiKey::CreatePartitions;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let results = self
                .topics
                .iter()
                .map(|topic| {
                    cpr::CreatePartitionsTopicResult::default()
                        .with_name(topic_name(&topic.name))
                        .with_error_code(topic.error.code())
                        .with_error_message(nullable_text(topic.error_message.as_ref()))
                })
                .collect();
            Ok(kp::CreatePartitionsResponse::default().with_results(results))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        r.i32("throttle time")?;
        let topics = r.list("results", min(6, 5), |r| {
            let topic = CreatedPartitions {
                name: r.string("topic")?,
                error: r.error_code("topic's error code")?,
                error_message: r.nullable_string("error message")?,
            };
            r.tagged_fields()?;
            Ok(topic)
        })?;
        r.tagged_fields()?;
        Ok(Self { topics })
    }
}
