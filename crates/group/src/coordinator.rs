//! The broker's side of the classic group protocol, as a pure state machine over all groups of a node.
//!
//! Feed requests and time to [`Coordinator::handle`]; it answers with replies, some at once, some parked
//! until the group gets there. Keep one timer for [`Coordinator::deadline`]. It knows no connection: whoever
//! drives it maps a *call* to one.
//!
//! A member with a group instance id is static (KIP-345): its next incarnation takes its place.

mod admin;
pub mod config;
mod group;
pub mod io;
mod join;
mod leave;
mod offsets;
mod session;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

pub use self::config::CoordinatorConfig;
pub use self::group::{CommittedOffset, GroupState, GroupView, MemberView};
pub use self::io::{
    CoordinatorEffect, CoordinatorEffects, CoordinatorInput, CoordinatorNotice, GroupReply, GroupRequest,
    RemovalReason,
};

use self::group::Group;
use self::session::Timer;
use crate::seed::Seeded;

/// The group coordinator of one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Coordinator {
    config: CoordinatorConfig,
    chance: Seeded,
    groups: BTreeMap<Arc<str>, Group>,
    /// Invariant: holds exactly the deadlines that the groups and members hold.
    timers: BTreeSet<(Instant, Timer)>,
}

impl Coordinator {
    /// A coordinator without groups. The same seed gives the same member ids.
    pub fn new(config: CoordinatorConfig, seed: u64) -> Self {
        Self { config, chance: Seeded::new(seed), groups: BTreeMap::new(), timers: BTreeSet::new() }
    }

    /// Takes one input at `now` and says what to answer.
    #[must_use]
    pub fn handle(&mut self, input: CoordinatorInput, now: Instant) -> CoordinatorEffects {
        let mut fx = CoordinatorEffects::new();
        match input {
            CoordinatorInput::Request { call, version, client_id, client_host, request } => match request {
                GroupRequest::Join(request) => {
                    let from = join::Joiner { call, version, client_id, client_host };
                    self.join(from, request, now, &mut fx);
                }
                GroupRequest::Sync(request) => self.sync(call, version, request, now, &mut fx),
                GroupRequest::Heartbeat(request) => {
                    let error = self.heartbeat(&request, now);
                    io::reply(&mut fx, call, kohort_protocol::messages::HeartbeatResponse { error });
                }
                GroupRequest::Leave(request) => self.leave(call, version, request, now, &mut fx),
                GroupRequest::OffsetCommit(request) => {
                    self.offset_commit(call, version, request, now, &mut fx)
                }
                GroupRequest::OffsetFetch(request) => self.offset_fetch(call, request, &mut fx),
            },
            CoordinatorInput::Deadline => self.on_deadline(now, &mut fx),
        }
        fx
    }

    /// When [`CoordinatorInput::Deadline`] is due next.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// What an onlooker may know of a group.
    pub fn group(&self, group_id: &str) -> Option<GroupView> {
        self.groups.get(group_id).map(Group::view)
    }

    /// The ids of all groups, in order.
    pub fn group_ids(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(|id| &**id)
    }
}
