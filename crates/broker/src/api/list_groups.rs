//! ListGroups: the groups that this node coordinates, of the states and types asked for.

use std::time::Instant;

use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{ListGroupsRequest, ListGroupsResponse, ListedGroup};

use crate::node::{Caller, Node, Outcome};

/// The only type of groups here.
const CLASSIC: &str = "classic";

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: ListGroupsRequest,
    now: Instant,
    out: &mut Outcome,
) {
    let coordinators = match node.cluster.coordinators_of(from.node, now) {
        Ok(coordinators) => coordinators,
        Err(code) => {
            out.answer(from.call, refused(&request, code));
            return;
        }
    };
    let states: Vec<&str> = request.states.iter().map(String::as_str).collect();
    let wanted = request.types.is_empty() || request.types.iter().any(|of| of.eq_ignore_ascii_case(CLASSIC));
    let mut groups = Vec::new();
    for coordinator in coordinators.into_iter().filter(|_| wanted) {
        for (group_id, state) in coordinator.list(&states) {
            groups.push(ListedGroup {
                protocol_type: coordinator.protocol_type(&group_id).unwrap_or_default().to_owned(),
                group_id,
                state: state.name().to_owned(),
                group_type: CLASSIC.to_owned(),
            });
        }
    }
    out.answer(from.call, ListGroupsResponse { error: ErrorCode::None, groups });
}

pub(crate) fn refused(_request: &ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse {
    ListGroupsResponse { error: code, groups: Vec::new() }
}
