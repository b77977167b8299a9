//! One child as the plan sees it.

use crate::id::ChildId;
use crate::reason::ExitReason;
use crate::spec::{ChildKind, ChildSpec, Restart, Shutdown};
use std::time::Instant;

/// Names a child for as long as its spec exists; an id can be used again after it was deleted, a key cannot.
pub(crate) type Key = u64;

/// Why a start is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `start_child`: a failure removes the spec.
    New,
    /// `restart_child`: a failure leaves it down.
    Request,
    /// A restart of this child alone: a failure is retried.
    Restart,
    /// A restart of several children: a failure begins the group again.
    Group,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Down,
    /// `stop`: stop it when it has started.
    Starting {
        purpose: Purpose,
        stop: bool,
    },
    Running,
    Stopping,
    /// It survived a kill. It counts as gone, and nothing takes its place.
    Lost,
}

impl State {
    pub(crate) fn has_actor(self) -> bool {
        matches!(self, State::Running | State::Stopping | State::Lost)
    }
}

#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) key: Key,
    pub(crate) id: ChildId,
    pub(crate) restart: Restart,
    pub(crate) shutdown: Shutdown,
    pub(crate) kind: ChildKind,
    /// Of the latest start; 0 before the first.
    pub(crate) incarnation: u64,
    pub(crate) state: State,
    /// A retry of its restart is in the mailbox.
    pub(crate) retry: bool,
    /// When the next, harsher step of its stop is due.
    pub(super) until: Option<Instant>,
    /// The harsher step was taken: it was killed, or its start cancelled.
    pub(super) killed: bool,
    /// Why its latest start failed.
    pub(super) cause: Option<ExitReason>,
    pub(super) start_token: Option<u64>,
    pub(super) stop_tokens: Vec<u64>,
}

impl Child {
    pub(super) fn new(key: Key, spec: &ChildSpec) -> Child {
        Child {
            key,
            id: spec.id.clone(),
            restart: spec.restart.clone(),
            shutdown: spec.effective_shutdown(),
            kind: spec.kind,
            incarnation: 0,
            state: State::Down,
            retry: false,
            until: None,
            killed: false,
            cause: None,
            start_token: None,
            stop_tokens: Vec::new(),
        }
    }
}
