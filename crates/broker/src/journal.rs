//! The last requests that came in, for tests to look at. Bounded: the oldest are dropped. Written by `connection`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use kohort_protocol::{AnyRequest, ApiKey};
use tokio::time::Instant;

/// A request that came in, before anything was done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestSeen {
    /// When, on tokio's clock.
    pub at: Instant,
    /// Id of the node that it came to.
    pub node: i32,
    /// The connection's number.
    pub connection: u64,
    /// Which request.
    pub api: ApiKey,
    /// Its version.
    pub version: i16,
    /// The client's name for itself, empty if it has none.
    pub client_id: Arc<str>,
    /// The client's number for it.
    pub correlation_id: i32,
    /// The group, if the request names exactly one.
    pub group_id: Option<String>,
    /// The member, if the request names exactly one.
    pub member_id: Option<String>,
    /// The group instance id, if the request names exactly one.
    pub group_instance_id: Option<String>,
    /// The generation, if the request has one.
    pub generation: Option<i32>,
}

impl RequestSeen {
    pub(crate) fn new(
        (node, connection): (i32, u64),
        version: i16,
        client_id: Arc<str>,
        correlation_id: i32,
        request: &AnyRequest,
    ) -> Self {
        let mut seen = Self {
            at: Instant::now(),
            node,
            connection,
            api: request.api(),
            version,
            client_id,
            correlation_id,
            group_id: None,
            member_id: None,
            group_instance_id: None,
            generation: None,
        };
        seen.name(request);
        seen
    }

    fn name(&mut self, request: &AnyRequest) {
        let mut names = |group: &str, member: Option<&str>, instance: Option<&String>, generation| {
            self.group_id = Some(group.to_owned());
            self.member_id = member.map(str::to_owned);
            self.group_instance_id = instance.cloned();
            self.generation = generation;
        };
        match request {
            AnyRequest::JoinGroup(join) => {
                names(&join.group_id, Some(&join.member_id), join.group_instance_id.as_ref(), None);
            }
            AnyRequest::SyncGroup(sync) => names(
                &sync.group_id,
                Some(&sync.member_id),
                sync.group_instance_id.as_ref(),
                Some(sync.generation),
            ),
            AnyRequest::Heartbeat(beat) => names(
                &beat.group_id,
                Some(&beat.member_id),
                beat.group_instance_id.as_ref(),
                Some(beat.generation),
            ),
            AnyRequest::LeaveGroup(leave) => match leave.members.as_slice() {
                [one] => {
                    names(&leave.group_id, Some(&one.member_id), one.group_instance_id.as_ref(), None);
                }
                _ => names(&leave.group_id, None, None, None),
            },
            AnyRequest::OffsetCommit(commit) => names(
                &commit.group_id,
                Some(&commit.member_id),
                commit.group_instance_id.as_ref(),
                Some(commit.generation),
            ),
            AnyRequest::OffsetFetch(fetch) => {
                if let [one] = fetch.groups.as_slice() {
                    names(&one.group_id, None, None, None);
                }
            }
            AnyRequest::OffsetDelete(delete) => names(&delete.group_id, None, None, None),
            AnyRequest::DescribeGroups(describe) => {
                if let [one] = describe.groups.as_slice() {
                    names(one, None, None, None);
                }
            }
            AnyRequest::DeleteGroups(delete) => {
                if let [one] = delete.groups.as_slice() {
                    names(one, None, None, None);
                }
            }
            AnyRequest::FindCoordinator(find) => {
                if let [one] = find.keys.as_slice() {
                    names(one, None, None, None);
                }
            }
            _ => {}
        }
    }
}

#[derive(Debug)]
pub(crate) struct Journal {
    capacity: usize,
    seen: Mutex<VecDeque<RequestSeen>>,
}

impl Journal {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, seen: Mutex::default() }
    }

    pub(crate) fn push(&self, request: RequestSeen) {
        if self.capacity == 0 {
            return;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= self.capacity {
            seen.pop_front();
        }
        seen.push_back(request);
    }

    pub(crate) fn of(&self, api: Option<ApiKey>) -> Vec<RequestSeen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|seen| api.is_none_or(|api| seen.api == api)).cloned().collect()
    }

    pub(crate) fn clear(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
