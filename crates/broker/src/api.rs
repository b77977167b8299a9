//! What each request does, one file an API: `handle` serves it, `refused` is its answer with an error code, for
//! scripted faults. Called by `node` and `connection`.

pub(crate) mod api_versions;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_groups;
pub(crate) mod delete_topics;
pub(crate) mod describe_groups;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod heartbeat;
pub(crate) mod init_producer_id;
pub(crate) mod join_group;
pub(crate) mod leave_group;
pub(crate) mod list_groups;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod produce;
pub(crate) mod sync_group;

use std::time::Instant;

use kohort_protocol::{AnyRequest, AnyResponse, ApiKey, ErrorCode};

use crate::event::CloseReason;
use crate::node::{Caller, Node, Outcome, Reply};

macro_rules! served {
    ($($name:ident $module:ident,)*) => {
        /// The requests that this broker serves.
        pub(crate) const SERVED: &[ApiKey] = &[$(ApiKey::$name,)*];

        /// Serves one request.
        pub(crate) fn dispatch(
            node: &mut Node,
            from: &Caller<'_>,
            request: AnyRequest,
            now: Instant,
            out: &mut Outcome,
        ) {
            match request {
                $(AnyRequest::$name(request) => $module::handle(node, from, request, now, out),)*
                other => {
                    let reason = CloseReason::NotServed { key: other.api().key(), version: from.version };
                    out.replies.push((from.call, Reply::Close(reason)));
                }
            }
        }

        /// The answer that says `code` to everything in the request.
        pub(crate) fn refused(request: &AnyRequest, code: ErrorCode) -> Option<AnyResponse> {
            match request {
                $(AnyRequest::$name(request) => Some($module::refused(request, code).into()),)*
                _ => None,
            }
        }
    };
}

served! {
    Produce produce,
    Fetch fetch,
    ListOffsets list_offsets,
    Metadata metadata,
    OffsetCommit offset_commit,
    OffsetFetch offset_fetch,
    FindCoordinator find_coordinator,
    JoinGroup join_group,
    Heartbeat heartbeat,
    LeaveGroup leave_group,
    SyncGroup sync_group,
    DescribeGroups describe_groups,
    ListGroups list_groups,
    ApiVersions api_versions,
    CreateTopics create_topics,
    DeleteTopics delete_topics,
    InitProducerId init_producer_id,
    CreatePartitions create_partitions,
    DeleteGroups delete_groups,
    OffsetDelete offset_delete,
}
