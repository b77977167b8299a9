//! DeleteTopics, by name. What groups committed of a topic goes with it.

use std::time::Instant;

use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, DeletedTopic};

use crate::node::{Caller, Node, Outcome};

pub(crate) fn handle(
    node: &mut Node,
    from: &Caller<'_>,
    request: DeleteTopicsRequest,
    _now: Instant,
    out: &mut Outcome,
) {
    let mut topics = Vec::with_capacity(request.topics.len());
    for name in request.topics {
        topics.push(match node.delete_topic(&name, out) {
            Ok(()) => DeletedTopic { name, error: ErrorCode::None, error_message: None },
            Err(code) => failed(name, code),
        });
    }
    out.answer(from.call, DeleteTopicsResponse { topics });
}

pub(crate) fn refused(request: &DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse {
    let topics = request.topics.iter().map(|name| failed(name.clone(), code));
    DeleteTopicsResponse { topics: topics.collect() }
}

fn failed(name: String, error: ErrorCode) -> DeletedTopic {
    DeletedTopic { name, error, error_message: Some(error.text().to_owned()) }
}
