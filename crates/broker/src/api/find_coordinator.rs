//! FindCoordinator: the node that a key belongs to by its hash. Key types: 0 groups, 1 transactions, others are refused.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{CoordinatorAddress, FindCoordinatorRequest, FindCoordinatorResponse};

use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: FindCoordinatorRequest,
    _now: Instant,
    out: &mut Outcome,
) {
    if !(0..=1).contains(&request.key_type) {
        out.answer(from.call, refused(&request, ErrorCode::InvalidRequest));
        return;
    }
    let coordinators = request.keys.into_iter().map(|key| {
        let node_id = node.cluster.leader_of(&key);
        CoordinatorAddress {
            key,
            node_id,
            host: from.advertised.host.clone(),
            port: from.advertised.port(node_id),
            error: ErrorCode::None,
            error_message: None,
        }
    });
    out.answer(from.call, FindCoordinatorResponse { coordinators: coordinators.collect() });
}

pub(crate) fn refused(request: &FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse {
    let coordinators = request.keys.iter().map(|key| CoordinatorAddress {
        key: key.clone(),
        node_id: -1,
        host: String::new(),
        port: -1,
        error: code,
        error_message: Some(code.text().to_owned()),
    });
    FindCoordinatorResponse { coordinators: coordinators.collect() }
}
