//! DeleteGroups: each group is its coordinator's business.

use std::time::Instant;

use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, DeletedGroup};

use crate::event::BrokerEvent;
use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: DeleteGroupsRequest,
    now: Instant,
    out: &mut Outcome,
) {
    let mut groups = Vec::with_capacity(request.groups.len());
    for group_id in request.groups {
        let error = match node.cluster.check(&group_id, from.node, now) {
            Err(code) => code,
            Ok(led) => match node.cluster.coordinator(led) {
                Some(coordinator) => coordinator.delete(&group_id),
                None => ErrorCode::CoordinatorNotAvailable,
            },
        };
        if error.is_none() {
            out.events.push(BrokerEvent::GroupDeleted { group_id: group_id.clone() });
        }
        groups.push(DeletedGroup { group_id, error });
    }
    out.answer(from.call, DeleteGroupsResponse { groups });
}

pub(crate) fn refused(request: &DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse {
    let failed = |group: &String| DeletedGroup { group_id: group.clone(), error: code };
    DeleteGroupsResponse { groups: request.groups.iter().map(failed).collect() }
}
