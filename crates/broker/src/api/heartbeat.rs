//! Heartbeat: the coordinator's business.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: HeartbeatRequest,
    now: Instant,
    out: &mut Outcome,
) {
    match node.cluster.check(&request.group_id, from.node, now) {
        Ok(led) => node.coordinate(from, led, request, now, out),
        Err(code) => out.answer(from.call, refused(&request, code)),
    }
}

pub(crate) fn refused(_request: &HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse {
    HeartbeatResponse { error: code }
}
