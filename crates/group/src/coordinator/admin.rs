//! What an operator asks of groups: describe, list, delete groups and offsets; and what happens to them when
//! the coordinator moves or they lie idle.

use std::time::Instant;

use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{JoinGroupResponse, SyncGroupResponse};

use super::group::{GroupState, GroupView};
use super::io::reply;
use super::session::Timer;
use super::{Coordinator, CoordinatorEffects};

impl Coordinator {
    /// The ids of the groups in one of these states, by Kafka's names whatever their case; all of them if none
    /// is named (KIP-518).
    pub fn list(&self, states: &[&str]) -> Vec<(String, GroupState)> {
        self.groups
            .values()
            .filter(|group| {
                states.is_empty() || states.iter().any(|state| state.eq_ignore_ascii_case(group.state.name()))
            })
            .map(|group| (group.id.to_string(), group.state))
            .collect()
    }

    /// The group, as DescribeGroups shows it.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND.
    pub fn describe(&self, group_id: &str) -> Result<GroupView, ErrorCode> {
        self.group(group_id).ok_or(ErrorCode::GroupIdNotFound)
    }

    /// The protocol type of a group, if a member ever joined it.
    pub fn protocol_type(&self, group_id: &str) -> Option<&str> {
        self.groups.get(group_id)?.protocol_type.as_deref()
    }

    /// Deletes a group and its offsets.
    pub fn delete(&mut self, group_id: &str) -> ErrorCode {
        match self.groups.get(group_id) {
            None => ErrorCode::GroupIdNotFound,
            Some(group) if group.state != GroupState::Empty => ErrorCode::NonEmptyGroup,
            Some(_) => {
                self.forget_group(group_id);
                ErrorCode::None
            }
        }
    }

    /// The topic was deleted: what groups committed of it goes too.
    pub fn forget_topic(&mut self, topic: &str) {
        for group in self.groups.values_mut() {
            group.offsets.retain(|(name, _), _| name != topic);
        }
    }

    /// Deletes the committed offset of a partition (KIP-496). While a member subscribes to the topic that is
    /// refused; who asks knows the subscriptions and says so.
    pub fn delete_offset(
        &mut self,
        group_id: &str,
        topic: &str,
        partition: i32,
        subscribed: bool,
    ) -> ErrorCode {
        match self.groups.get_mut(group_id) {
            None => ErrorCode::GroupIdNotFound,
            Some(group) if subscribed && !group.members.is_empty() => ErrorCode::GroupSubscribedToTopic,
            Some(group) => {
                group.offsets.remove(&(topic.to_owned(), partition));
                ErrorCode::None
            }
        }
    }

    /// This node stops being the coordinator: what is parked is told so, all groups are gone from here.
    #[must_use]
    pub fn unload(&mut self) -> CoordinatorEffects {
        let mut fx = CoordinatorEffects::new();
        let error = ErrorCode::NotCoordinator;
        for group in self.groups.values() {
            for (member_id, member) in &group.members {
                if let Some(call) = member.awaiting_join {
                    let (generation, member_id) = (-1, member_id.clone());
                    reply(
                        &mut fx,
                        call,
                        JoinGroupResponse { error, generation, member_id, ..Default::default() },
                    );
                }
                if let Some(call) = member.awaiting_sync {
                    reply(&mut fx, call, SyncGroupResponse { error, ..Default::default() });
                }
            }
        }
        self.groups.clear();
        self.timers.clear();
        fx
    }

    /// Takes over the groups of a coordinator that went away: every member has a full session from now on;
    /// member ids that were given out are lost, and a group that had not synced comes back Empty.
    pub fn load(&mut self, from: &Coordinator, now: Instant) {
        for (id, group) in &from.groups {
            let mut group = group.clone();
            group.pending.clear();
            (group.join_by, group.sync_by, group.initial_delay, group.retained_until) =
                (None, None, None, None);
            if group.state != GroupState::Stable {
                group.members.clear();
                group.static_members.clear();
                group.leader = None;
                group.protocol_name = None;
                group.state = GroupState::Empty;
            }
            let members: Vec<String> = group.members.keys().cloned().collect();
            for member in group.members.values_mut() {
                (member.expires, member.awaiting_join, member.awaiting_sync) = (None, None, None);
            }
            self.groups.insert(id.clone(), group);
            for member_id in members {
                self.extend_session(id, &member_id, now);
            }
            self.retain_offsets(id, now);
        }
    }

    /// An Empty group's offsets are kept for the retention time (`offsets.retention.minutes`).
    pub(super) fn retain_offsets(&mut self, group_id: &str, now: Instant) {
        let until = now + self.config.offsets_retention;
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let timer = Timer::Retention(group.id.clone());
        if let Some(before) = group.retained_until.take() {
            self.timers.remove(&(before, timer.clone()));
        }
        if group.state == GroupState::Empty {
            group.retained_until = Some(until);
            self.timers.insert((until, timer));
        }
    }

    pub(super) fn on_retention_timer(&mut self, group_id: &str, at: Instant) {
        let over = self
            .groups
            .get(group_id)
            .is_some_and(|group| group.retained_until == Some(at) && group.state == GroupState::Empty);
        if over {
            self.forget_group(group_id);
        }
    }

    fn forget_group(&mut self, group_id: &str) {
        let Some(group) = self.groups.remove(group_id) else { return };
        for (member_id, until) in &group.pending {
            self.timers.remove(&(*until, Timer::Pending(group.id.clone(), member_id.clone())));
        }
        if let Some(until) = group.retained_until {
            self.timers.remove(&(until, Timer::Retention(group.id.clone())));
        }
    }
}
