//! ApiVersions: the ranges that are served.

use std::collections::BTreeMap;
use std::time::Instant;

use kohort_protocol::{ApiKey, ErrorCode};

use kohort_protocol::messages::{ApiVersionRange, ApiVersionsRequest, ApiVersionsResponse};

use crate::api::SERVED;
use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    _request: ApiVersionsRequest,
    _now: Instant,
    out: &mut Outcome,
) {
    out.answer(from.call, answer(ErrorCode::None, &node.settings.max_versions));
}

pub(crate) fn refused(_request: &ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse {
    answer(code, &BTreeMap::new())
}

/// The ranges. They stand in the answer to a version that is not spoken too, so that the client can ask again.
pub(crate) fn answer(error: ErrorCode, at_most: &BTreeMap<ApiKey, i16>) -> ApiVersionsResponse {
    let range = |api: &ApiKey| {
        let versions = api.versions();
        let max = at_most.get(api).map_or(versions.max, |most| versions.max.min(*most));
        ApiVersionRange { key: api.key(), min: versions.min, max }
    };
    ApiVersionsResponse { error, apis: SERVED.iter().map(range).collect() }
}
