//! DescribeGroups. Of a group that is not stable the members are shown without what they subscribed to, as on Kafka.

use std::time::Instant;

use bytes::Bytes;
use kohort_group::coordinator::{GroupState, GroupView};
use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedMember,
};

use crate::node::{Caller, Node, Outcome};

/// Kafka's name for the state of a group that is not there.
const DEAD: &str = "Dead";

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: DescribeGroupsRequest,
    now: Instant,
    out: &mut Outcome,
) {
    let groups =
        request.groups.into_iter().map(|group_id| match node.cluster.check(&group_id, from.node, now) {
            Err(code) => failed(group_id, code, None),
            Ok(_) => match node.group(&group_id) {
                Some(group) => described(group_id, group),
                None => unknown(group_id, from.version),
            },
        });
    let groups = groups.collect();
    out.answer(from.call, DescribeGroupsResponse { groups });
}

pub(crate) fn refused(request: &DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse {
    let groups = request.groups.iter().map(|group| failed(group.clone(), code, None));
    DescribeGroupsResponse { groups: groups.collect() }
}

fn described(group_id: String, group: GroupView) -> DescribedGroup {
    let stable = group.state == GroupState::Stable;
    let members = group.members.into_iter().map(|(member_id, member)| DescribedMember {
        member_id,
        group_instance_id: member.group_instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        metadata: if stable { member.metadata } else { Bytes::new() },
        assignment: member.assignment,
    });
    DescribedGroup {
        error: ErrorCode::None,
        error_message: None,
        group_id,
        state: group.state.name().to_owned(),
        protocol_type: group.protocol_type.unwrap_or_default(),
        protocol_name: group.protocol_name.filter(|_| stable).unwrap_or_default(),
        members: members.collect(),
    }
}

/// Before version 6 a group that is not there is no error (KIP-1043).
fn unknown(group_id: String, version: i16) -> DescribedGroup {
    if version < 6 {
        return DescribedGroup { group_id, state: DEAD.to_owned(), ..DescribedGroup::default() };
    }
    let message = format!("Group {group_id} not found.");
    DescribedGroup { state: DEAD.to_owned(), ..failed(group_id, ErrorCode::GroupIdNotFound, Some(message)) }
}

fn failed(group_id: String, error: ErrorCode, error_message: Option<String>) -> DescribedGroup {
    DescribedGroup { error, error_message, group_id, ..DescribedGroup::default() }
}
