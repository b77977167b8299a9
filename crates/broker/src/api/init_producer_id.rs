//! InitProducerId: a fresh id for an idempotent producer. Transactions are not served, and said so.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: InitProducerIdRequest,
    _now: Instant,
    out: &mut Outcome,
) {
    if request.transactional_id.is_some() {
        // Fatal to every client; a retriable code would keep it asking.
        let code = ErrorCode::TransactionalIdAuthorizationFailed;
        out.answer(from.call, refused(&request, code));
        return;
    }
    let producer_id = node.next_producer_id;
    node.next_producer_id = producer_id.saturating_add(1);
    out.answer(from.call, InitProducerIdResponse { error: ErrorCode::None, producer_id, producer_epoch: 0 });
}

pub(crate) fn refused(_request: &InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse { error: code, producer_id: -1, producer_epoch: -1 }
}
