//! OffsetFetch: the coordinator's business.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{FetchedOffsets, OffsetFetchRequest, OffsetFetchResponse};

use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: OffsetFetchRequest,
    now: Instant,
    out: &mut Outcome,
) {
    node.coordinate(from, request, now, out);
}

pub(crate) fn refused(request: &OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse {
    let groups = request.groups.iter().map(|group| FetchedOffsets {
        group_id: group.group_id.clone(),
        error: code,
        topics: Vec::new(),
    });
    OffsetFetchResponse { groups: groups.collect() }
}
