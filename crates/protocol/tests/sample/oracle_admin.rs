//! The other side of the differential tests for what operators ask; belongs to `oracle.rs`.

use super::*;

oracle! {
    DescribeGroupsRequest flexible 5 |k, v| DescribeGroupsRequest { groups: all(&k.groups, |id| s(&id.0)) };
    decorate |d, version, g| {
        if version >= 3 {
            d.include_authorized_operations = g.bool();
        }
    }

    DescribeGroupsResponse flexible 5 |k, v| DescribeGroupsResponse {
        groups: all(&k.groups, |group| DescribedGroup {
            error: group.error_code.into(),
            error_message: o(&group.error_message),
            group_id: s(&group.group_id.0),
            state: s(&group.group_state),
            protocol_type: s(&group.protocol_type),
            protocol_name: s(&group.protocol_data),
            members: all(&group.members, |m| DescribedMember {
                member_id: s(&m.member_id),
                group_instance_id: o(&m.group_instance_id),
                client_id: s(&m.client_id),
                client_host: s(&m.client_host),
                metadata: m.member_metadata.clone(),
                assignment: m.member_assignment.clone(),
            }),
        }),
    };
    decorate |d, version, g| {
        if version >= 1 {
            d.throttle_time_ms = g.i32();
        }
        for group in &mut d.groups {
            if version >= 3 {
                group.authorized_operations = g.i32();
            }
            if version >= 5 {
                tag!(group, g);
                group.members.iter_mut().for_each(|member| tag!(member, g));
            }
        }
    }

    ListGroupsRequest flexible 3 |k, v| ListGroupsRequest {
        states: all(&k.states_filter, s),
        types: all(&k.types_filter, s),
    };
    decorate |d, version, g| {}

    ListGroupsResponse flexible 3 |k, v| ListGroupsResponse {
        error: k.error_code.into(),
        groups: all(&k.groups, |group| ListedGroup {
            group_id: s(&group.group_id.0),
            protocol_type: s(&group.protocol_type),
            state: s(&group.group_state),
            group_type: s(&group.group_type),
        }),
    };
    decorate |d, version, g| {
        if version >= 1 {
            d.throttle_time_ms = g.i32();
        }
        if version >= 3 {
            d.groups.iter_mut().for_each(|group| tag!(group, g));
        }
    }

    DeleteGroupsRequest flexible 2 |k, v| DeleteGroupsRequest { groups: all(&k.groups_names, |id| s(&id.0)) };
    decorate |d, version, g| {}

    DeleteGroupsResponse flexible 2 |k, v| DeleteGroupsResponse {
        groups: all(&k.results, |group| DeletedGroup {
            group_id: s(&group.group_id.0),
            error: group.error_code.into(),
        }),
    };
    decorate |d, version, g| {
        d.throttle_time_ms = g.i32();
        if version >= 2 {
            d.results.iter_mut().for_each(|group| tag!(group, g));
        }
    }

    DeleteTopicsRequest flexible 4 |k, v| DeleteTopicsRequest {
        topics: all(&k.topic_names, |name| s(&name.0)),
        timeout_ms: k.timeout_ms,
    };
    decorate |d, version, g| {}

    DeleteTopicsResponse flexible 4 |k, v| DeleteTopicsResponse {
        topics: all(&k.responses, |topic| DeletedTopic {
            name: topic.name.as_ref().map(|name| s(&name.0)).unwrap_or_default(),
            error: topic.error_code.into(),
            error_message: o(&topic.error_message),
        }),
    };
    decorate |d, version, g| {
        d.throttle_time_ms = g.i32();
        if version >= 4 {
            d.responses.iter_mut().for_each(|topic| tag!(topic, g));
        }
    }

    CreatePartitionsRequest flexible 2 |k, v| CreatePartitionsRequest {
        topics: all(&k.topics, |topic| MorePartitions {
            name: s(&topic.name.0),
            count: topic.count,
            assignments: topic.assignments.as_ref().map(|given| all(given, |to| ids(&to.broker_ids))),
        }),
        timeout_ms: k.timeout_ms,
        validate_only: k.validate_only,
    };
    decorate |d, version, g| {
        if version >= 2 {
            for topic in &mut d.topics {
                tag!(topic, g);
                topic.assignments.iter_mut().flatten().for_each(|given| tag!(given, g));
            }
        }
    }

    CreatePartitionsResponse flexible 2 |k, v| CreatePartitionsResponse {
        topics: all(&k.results, |topic| CreatedPartitions {
            name: s(&topic.name.0),
            error: topic.error_code.into(),
            error_message: o(&topic.error_message),
        }),
    };
    decorate |d, version, g| {
        d.throttle_time_ms = g.i32();
        if version >= 2 {
            d.results.iter_mut().for_each(|topic| tag!(topic, g));
        }
    }
}

// OffsetDelete has no version with tagged fields.

impl Oracle for OffsetDeleteRequest {
    type Kp = kp::OffsetDeleteRequest;

    fn plain(kp: &Self::Kp, _version: i16) -> Self {
        Self {
            group_id: s(&kp.group_id.0),
            topics: all(&kp.topics, |topic| OffsetDeleteTopic {
                name: s(&topic.name.0),
                partitions: all(&topic.partitions, |partition| partition.partition_index),
            }),
        }
    }

    fn decorate(_kp: &mut Self::Kp, _version: i16, _g: &mut Sample) {}
}

impl Oracle for OffsetDeleteResponse {
    type Kp = kp::OffsetDeleteResponse;

    fn plain(kp: &Self::Kp, _version: i16) -> Self {
        Self {
            error: kp.error_code.into(),
            topics: all(&kp.topics, |topic| OffsetDeletedTopic {
                name: s(&topic.name.0),
                partitions: all(&topic.partitions, |p| (p.partition_index, p.error_code.into())),
            }),
        }
    }

    fn decorate(kp: &mut Self::Kp, _version: i16, g: &mut Sample) {
        kp.throttle_time_ms = g.i32();
    }
}
