//! JoinGroup: the coordinator's business.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{JoinGroupRequest, JoinGroupResponse};

use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: JoinGroupRequest,
    now: Instant,
    out: &mut Outcome,
) {
    match node.cluster.check(&request.group_id, from.node, now) {
        Ok(led) => node.coordinate(from, led, request, now, out),
        Err(code) => out.answer(from.call, refused(&request, code)),
    }
}

pub(crate) fn refused(request: &JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse {
    JoinGroupResponse {
        error: code,
        generation: -1,
        protocol_name: Some(String::new()),
        member_id: request.member_id.clone(),
        ..JoinGroupResponse::default()
    }
}
