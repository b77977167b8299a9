//! ApiVersions: the ranges that are served.

use std::time::Instant;

use kohort_protocol::ErrorCode;

use kohort_protocol::messages::{ApiVersionRange, ApiVersionsRequest, ApiVersionsResponse};

use crate::api::SERVED;
use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    _node: &mut Node,
    from: &Caller<'_>,
    _request: ApiVersionsRequest,
    _now: Instant,
    out: &mut Outcome,
) {
    out.answer(from.call, answer(ErrorCode::None));
}

pub(crate) fn refused(_request: &ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse {
    answer(code)
}

/// The ranges. They stand in the answer to a version that is not spoken too, so that the client can ask again.
pub(crate) fn answer(error: ErrorCode) -> ApiVersionsResponse {
    let range = |api: &kohort_protocol::ApiKey| {
        let versions = api.versions();
        ApiVersionRange { key: api.key(), min: versions.min, max: versions.max }
    };
    ApiVersionsResponse { error, apis: SERVED.iter().map(range).collect() }
}
