//! LeaveGroup: the coordinator's business.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: LeaveGroupRequest,
    now: Instant,
    out: &mut Outcome,
) {
    node.coordinate(from, request, now, out);
}

pub(crate) fn refused(_request: &LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse {
    LeaveGroupResponse { error: code, members: Vec::new() }
}
