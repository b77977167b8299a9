//! Timers, sessions and heartbeats; and how a member is removed.

use std::sync::Arc;
use std::time::Instant;

use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{HeartbeatRequest, JoinGroupResponse};

use super::group::{Group, GroupState};
use super::io::reply;
use super::{Coordinator, CoordinatorEffect, CoordinatorEffects, CoordinatorNotice, RemovalReason};

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The join phase, or its initial delay.
    Join(Arc<str>),
    /// The sync phase.
    Sync(Arc<str>),
    /// A member's session.
    Session(Arc<str>, String),
    /// A member id that was given out.
    Pending(Arc<str>, String),
    /// The offsets of an Empty group.
    Retention(Arc<str>),
}

impl Coordinator {
    pub(super) fn on_deadline(&mut self, now: Instant, fx: &mut CoordinatorEffects) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((at, timer)) = self.timers.pop_first() else { return };
            match timer {
                Timer::Join(group) => self.on_join_timer(&group, at, now, fx),
                Timer::Sync(group) => self.on_sync_timer(&group, at, now, fx),
                Timer::Session(group, member) => self.on_session_timer(&group, &member, at, now, fx),
                Timer::Pending(group, member) => self.on_pending_timer(&group, &member, at, now, fx),
                Timer::Retention(group) => self.on_retention_timer(&group, at),
            }
        }
    }

    /// Heartbeat. 27 keeps a member alive as well as NONE does.
    pub(super) fn heartbeat(&mut self, request: &HeartbeatRequest, now: Instant) -> ErrorCode {
        if request.group_id.is_empty() {
            return ErrorCode::InvalidGroupId;
        }
        let Some(group) = self.groups.get(&*request.group_id) else { return ErrorCode::UnknownMemberId };
        if let Err(error) = group.check_member(&request.member_id, request.group_instance_id.as_deref()) {
            return error;
        }
        if request.generation != group.generation {
            return ErrorCode::IllegalGeneration;
        }
        let state = group.state;
        self.extend_session(&request.group_id, &request.member_id, now);
        match state {
            GroupState::Empty => ErrorCode::UnknownMemberId,
            GroupState::PreparingRebalance => ErrorCode::RebalanceInProgress,
            GroupState::CompletingRebalance | GroupState::Stable => ErrorCode::None,
        }
    }

    /// A fresh session from now on.
    pub(super) fn extend_session(&mut self, group_id: &str, member_id: &str, now: Instant) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let Some(member) = group.members.get_mut(member_id) else { return };
        let wait = if member.is_new { self.config.new_member_join_timeout } else { member.session_timeout };
        let expires = now + wait;
        let timer = Timer::Session(group.id.clone(), member_id.to_owned());
        if let Some(before) = member.expires.replace(expires) {
            let entry = (before, timer);
            self.timers.remove(&entry);
            self.timers.insert((expires, entry.1));
        } else {
            self.timers.insert((expires, timer));
        }
    }

    fn on_session_timer(
        &mut self,
        group_id: &str,
        member_id: &str,
        at: Instant,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let Some(member) = group.members.get_mut(member_id).filter(|member| member.expires == Some(at))
        else {
            return;
        };
        member.expires = None;
        // A parked request proves life; the session starts afresh when it is answered.
        let parked = (member.awaiting_join.is_some() && !member.is_new) || member.awaiting_sync.is_some();
        if !parked {
            self.remove_member(group_id, member_id, RemovalReason::SessionExpired, now, fx);
        }
    }

    fn on_pending_timer(
        &mut self,
        group_id: &str,
        member_id: &str,
        at: Instant,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        if group.pending.get(member_id) == Some(&at) {
            group.pending.remove(member_id);
            self.complete_join_if_all_joined(group_id, now, fx);
        }
    }

    /// Removes a member, answers its parked join, and rebalances what is left.
    pub(super) fn remove_member(
        &mut self,
        group_id: &str,
        member_id: &str,
        reason: RemovalReason,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let Some(state) = self.forget_member(group_id, member_id, reason, fx) else { return };
        match state {
            GroupState::Empty => {}
            GroupState::PreparingRebalance => self.complete_join_if_all_joined(group_id, now, fx),
            GroupState::CompletingRebalance | GroupState::Stable => self.prepare_rebalance(group_id, now, fx),
        }
    }

    /// Removes a member without a thought for the others; the group's state if there was one to remove.
    pub(super) fn forget_member(
        &mut self,
        group_id: &str,
        member_id: &str,
        reason: RemovalReason,
        fx: &mut CoordinatorEffects,
    ) -> Option<GroupState> {
        let group = self.groups.get_mut(group_id)?;
        let member = group.members.remove(member_id)?;
        if let Some(instance) = &member.group_instance_id {
            group.static_members.remove(instance);
        }
        if let Some(expires) = member.expires {
            self.timers.remove(&(expires, Timer::Session(group.id.clone(), member_id.to_owned())));
        }
        if let Some(call) = member.awaiting_join {
            let error = match reason {
                RemovalReason::GroupFull => ErrorCode::GroupMaxSizeReached,
                _ => ErrorCode::UnknownMemberId,
            };
            reply(fx, call, refused_join(error, member_id));
        }
        if group.leader.as_deref() == Some(member_id) {
            group.leader = group.members.keys().next().cloned();
        }
        fx.push(CoordinatorEffect::Notice(CoordinatorNotice::MemberRemoved {
            group_id: group.id.to_string(),
            member_id: member_id.to_owned(),
            reason,
        }));
        Some(group.state)
    }

    pub(super) fn set_join_by(&mut self, group_id: &str, at: Option<Instant>) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        set_timer(&mut self.timers, &mut group.join_by, at, Timer::Join(group.id.clone()));
    }

    pub(super) fn set_sync_by(&mut self, group_id: &str, at: Option<Instant>) {
        let Some(group) = self.groups.get_mut(group_id) else { return };
        set_timer(&mut self.timers, &mut group.sync_by, at, Timer::Sync(group.id.clone()));
    }

    /// The group of this id, made if there is none.
    pub(super) fn group_or_new(&mut self, group_id: &str) -> &mut Group {
        let id: Arc<str> = group_id.into();
        self.groups.entry(id.clone()).or_insert_with(|| Group::new(id))
    }
}

fn set_timer(
    timers: &mut std::collections::BTreeSet<(Instant, Timer)>,
    slot: &mut Option<Instant>,
    at: Option<Instant>,
    timer: Timer,
) {
    if let Some(before) = slot.take() {
        timers.remove(&(before, timer.clone()));
    }
    if let Some(at) = at {
        timers.insert((at, timer));
    }
    *slot = at;
}

pub(super) fn refused_join(error: ErrorCode, member_id: &str) -> JoinGroupResponse {
    JoinGroupResponse {
        error,
        generation: -1,
        member_id: member_id.to_owned(),
        protocol_name: Some(String::new()),
        ..JoinGroupResponse::default()
    }
}
