//! JoinGroup and the join phase.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{JoinGroupRequest, SyncGroupResponse};

use super::group::{GroupState, Member};
use super::io::reply;
use super::session::{Timer, refused_join};
use super::{Coordinator, CoordinatorEffect, CoordinatorEffects, CoordinatorNotice, RemovalReason};

/// Who sends a JoinGroup.
pub(super) struct Joiner {
    pub(super) call: u64,
    pub(super) version: i16,
    pub(super) client_id: String,
    pub(super) client_host: String,
}

impl Coordinator {
    pub(super) fn join(
        &mut self,
        from: Joiner,
        request: JoinGroupRequest,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let call = from.call;
        let member_id = request.member_id.clone();
        if let Err(error) = self.try_join(from, request, now, fx) {
            // KIP-389: a newcomer to a full group gets no id back.
            let echo = if error == ErrorCode::GroupMaxSizeReached { "" } else { &member_id };
            reply(fx, call, refused_join(error, echo));
        }
    }

    /// Parks or answers the join; an error answers it.
    fn try_join(
        &mut self,
        from: Joiner,
        request: JoinGroupRequest,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) -> Result<(), ErrorCode> {
        if request.group_id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        let session_timeout = millis(request.session_timeout_ms);
        if session_timeout < self.config.min_session_timeout
            || session_timeout > self.config.max_session_timeout
        {
            return Err(ErrorCode::InvalidSessionTimeout);
        }
        if !request.member_id.is_empty() && !self.groups.contains_key(&*request.group_id) {
            return Err(ErrorCode::UnknownMemberId);
        }
        // version 0 has no rebalance timeout.
        let rebalance_timeout =
            if from.version == 0 { session_timeout } else { millis(request.rebalance_timeout_ms) };
        let protocols: Vec<(String, Bytes)> =
            request.protocols.into_iter().map(|protocol| (protocol.name, protocol.metadata)).collect();
        let max_size = self.config.max_group_size;
        let group = self.group_or_new(&request.group_id);
        let instance = request.group_instance_id.as_deref();
        // A new incarnation of a static member comes without an id, and takes its predecessor's place.
        let predecessor =
            match (instance.and_then(|instance| group.static_members.get(instance)), &*request.member_id) {
                (Some(owner), "") => Some(owner.clone()),
                _ => None,
            };
        let known = group.members.get(predecessor.as_deref().unwrap_or(&request.member_id));
        let room = max_size.is_none_or(|max| match group.state {
            GroupState::Empty => true,
            // Who waits already counts, not who once was a member: a lowered limit bites one by one.
            GroupState::PreparingRebalance => {
                known.is_some_and(|member| member.awaiting_join.is_some()) || group.awaiting_join() < max
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                known.is_some() || group.members.len() < max
            }
        });
        if !room {
            self.forget_member(&request.group_id, &request.member_id, RemovalReason::GroupFull, fx);
            return Err(ErrorCode::GroupMaxSizeReached);
        }
        if !group.supports(&request.protocol_type, &protocols) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let member = Member {
            client_id: from.client_id,
            client_host: from.client_host,
            group_instance_id: request.group_instance_id,
            session_timeout,
            rebalance_timeout,
            protocols,
            assignment: Bytes::new(),
            awaiting_join: Some(from.call),
            awaiting_sync: None,
            synced: false,
            is_new: true,
            expires: None,
        };
        if let Some(predecessor) = predecessor {
            self.replace_static(&request.group_id, &predecessor, from.version, member, now, fx);
            return Ok(());
        }
        if request.member_id.is_empty() {
            let base = member.group_instance_id.as_deref().unwrap_or(&member.client_id);
            let member_id = format!("{base}-{}", self.chance.uuid());
            // KIP-394, from version 4: a dynamic member has to come back with the id.
            if from.version >= 4 && member.group_instance_id.is_none() {
                self.give_out(&request.group_id, &member_id, now + session_timeout);
                reply(fx, from.call, refused_join(ErrorCode::MemberIdRequired, &member_id));
            } else {
                self.add_member(&request.group_id, member_id, &request.protocol_type, member, now, fx);
            }
            return Ok(());
        }
        if group.pending.contains_key(&request.member_id) {
            if member.group_instance_id.is_some() {
                return Err(ErrorCode::UnknownServerError);
            }
            self.take_pending(&request.group_id, &request.member_id);
            self.add_member(&request.group_id, request.member_id, &request.protocol_type, member, now, fx);
            return Ok(());
        }
        group.check_member(&request.member_id, member.group_instance_id.as_deref())?;
        let Some(known) = known else { return Err(ErrorCode::UnknownMemberId) };
        let unchanged = known.protocols == member.protocols;
        let leads = group.leader.as_deref() == Some(&*request.member_id);
        match group.state {
            // The answer to its last join was lost on the way.
            GroupState::CompletingRebalance if unchanged => {
                reply(fx, from.call, group.joined(&request.member_id));
            }
            GroupState::Stable if unchanged && !leads => {
                reply(fx, from.call, group.joined(&request.member_id));
            }
            GroupState::Empty => return Err(ErrorCode::UnknownMemberId),
            _ => {
                self.update_member(&request.group_id, &request.member_id, member);
                self.prepare_rebalance(&request.group_id, now, fx);
            }
        }
        Ok(())
    }

    fn give_out(&mut self, group_id: &str, member_id: &str, until: Instant) {
        let group = self.group_or_new(group_id);
        group.pending.insert(member_id.to_owned(), until);
        let timer = Timer::Pending(group.id.clone(), member_id.to_owned());
        self.timers.insert((until, timer));
    }

    pub(super) fn take_pending(&mut self, group_id: &str, member_id: &str) -> bool {
        let Some(group) = self.groups.get_mut(group_id) else { return false };
        let Some(until) = group.pending.remove(member_id) else { return false };
        self.timers.remove(&(until, Timer::Pending(group.id.clone(), member_id.to_owned())));
        true
    }

    fn add_member(
        &mut self,
        group_id: &str,
        member_id: String,
        protocol_type: &str,
        member: Member,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let group = self.group_or_new(group_id);
        if group.members.is_empty() {
            group.protocol_type = Some(protocol_type.to_owned());
        }
        group.leader.get_or_insert_with(|| member_id.clone());
        if let Some(instance) = &member.group_instance_id {
            group.static_members.insert(instance.clone(), member_id.clone());
        }
        group.members.insert(member_id.clone(), member);
        group.newcomer = true;
        self.extend_session(group_id, &member_id, now);
        self.prepare_rebalance(group_id, now, fx);
    }

    /// A new incarnation of a static member (KIP-345): same place and assignment, new id, the old one fenced. It
    /// costs a rebalance only where the group would choose another assignor, or is between join and sync.
    fn replace_static(
        &mut self,
        group_id: &str,
        old_id: &str,
        version: i16,
        update: Member,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let base = update.group_instance_id.clone().unwrap_or_default();
        let new_id = format!("{base}-{}", self.chance.uuid());
        let Some(group) = self.groups.get_mut(group_id) else { return };
        let Some(old) = group.members.remove(old_id) else { return };
        if let Some(expires) = old.expires {
            self.timers.remove(&(expires, Timer::Session(group.id.clone(), old_id.to_owned())));
        }
        if let Some(call) = old.awaiting_join {
            reply(fx, call, refused_join(ErrorCode::FencedInstanceId, old_id));
        }
        if let Some(call) = old.awaiting_sync {
            let error = ErrorCode::FencedInstanceId;
            reply(fx, call, SyncGroupResponse { error, ..SyncGroupResponse::default() });
        }
        let call = update.awaiting_join;
        let led = group.leader.as_deref() == Some(old_id);
        if led {
            group.leader = Some(new_id.clone());
        }
        group.static_members.insert(base, new_id.clone());
        let member = Member { is_new: old.is_new, assignment: old.assignment, synced: old.synced, ..update };
        group.members.insert(new_id.clone(), member);
        let stays = group.state == GroupState::Stable && group.elect_protocol() == group.protocol_name;
        self.extend_session(group_id, &new_id, now);
        if !stays {
            return self.prepare_rebalance(group_id, now, fx);
        }
        let Some(group) = self.groups.get_mut(group_id) else { return };
        if let Some(member) = group.members.get_mut(&new_id) {
            member.awaiting_join = None;
        }
        let mut answer = group.joined(&new_id);
        if led && version >= 9 {
            // KIP-814: it leads, knows everybody, and must not assign anew.
            answer.skip_assignment = true;
        } else if led {
            // Older versions cannot say so: under its old id it takes itself for a follower.
            answer.leader = old_id.to_owned();
            answer.members.clear();
        }
        if let Some(call) = call {
            reply(fx, call, answer);
        }
    }

    /// A member that rejoins keeps its place; an earlier join of its that is still parked stays unanswered.
    fn update_member(&mut self, group_id: &str, member_id: &str, update: Member) {
        let Some(member) = self.groups.get_mut(group_id).and_then(|group| group.members.get_mut(member_id))
        else {
            return;
        };
        *member = Member {
            is_new: member.is_new,
            expires: member.expires,
            assignment: member.assignment.clone(),
            ..update
        };
    }

    /// Starts a rebalance, or goes on with the one that runs.
    pub(super) fn prepare_rebalance(&mut self, group_id: &str, now: Instant, fx: &mut CoordinatorEffects) {
        let initial_delay = self.config.initial_rebalance_delay;
        let Some(group) = self.groups.get_mut(group_id) else { return };
        if group.state != GroupState::PreparingRebalance {
            let first = group.state == GroupState::Empty;
            let mut unheard = Vec::new();
            for (member_id, member) in &mut group.members {
                if let Some(call) = member.awaiting_sync.take() {
                    let error = ErrorCode::RebalanceInProgress;
                    reply(fx, call, SyncGroupResponse { error, ..SyncGroupResponse::default() });
                    // Its parked sync kept it alive; from this answer on it has to be heard of again.
                    unheard.push(member_id.clone());
                }
                if group.state == GroupState::CompletingRebalance {
                    member.assignment = Bytes::new();
                }
                member.synced = false;
            }
            group.to(GroupState::PreparingRebalance);
            let limit = group.rebalance_timeout();
            let wait = if first && !initial_delay.is_zero() {
                group.initial_delay = Some(limit.saturating_sub(initial_delay));
                group.newcomer = false;
                initial_delay
            } else {
                limit
            };
            fx.push(CoordinatorEffect::Notice(CoordinatorNotice::RebalanceStarted {
                group_id: group_id.to_owned(),
                generation: group.generation,
            }));
            for member_id in unheard {
                self.extend_session(group_id, &member_id, now);
            }
            self.set_sync_by(group_id, None);
            self.set_join_by(group_id, Some(now + wait));
            self.retain_offsets(group_id, now);
        }
        self.complete_join_if_all_joined(group_id, now, fx);
    }

    pub(super) fn complete_join_if_all_joined(
        &mut self,
        group_id: &str,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let ready = self.groups.get(group_id).is_some_and(|group| {
            group.state == GroupState::PreparingRebalance
                && group.initial_delay.is_none()
                && group.all_joined()
        });
        if ready {
            self.complete_join(group_id, now, fx);
        }
    }

    pub(super) fn on_join_timer(
        &mut self,
        group_id: &str,
        at: Instant,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let delay = self.config.initial_rebalance_delay;
        let Some(group) = self.groups.get_mut(group_id).filter(|group| group.join_by == Some(at)) else {
            return;
        };
        group.join_by = None;
        match group.initial_delay {
            // Newcomers stretch the initial delay, up to the rebalance timeout in all.
            Some(left) if group.newcomer && !left.is_zero() => {
                group.newcomer = false;
                group.initial_delay = Some(left.saturating_sub(delay));
                self.set_join_by(group_id, Some(now + delay.min(left)));
            }
            _ => self.complete_join(group_id, now, fx),
        }
    }

    /// Who did not rejoin is out; the rest are the new generation.
    fn complete_join(&mut self, group_id: &str, now: Instant, fx: &mut CoordinatorEffects) {
        self.set_join_by(group_id, None);
        let Some(group) = self.groups.get_mut(group_id) else { return };
        group.initial_delay = None;
        // A static member that is missing is kept: it may come back and expects its place.
        let missing: Vec<String> = group
            .members
            .iter()
            .filter(|(_, member)| member.awaiting_join.is_none() && member.group_instance_id.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for member_id in missing {
            self.forget_member(group_id, &member_id, RemovalReason::RebalanceTimeout, fx);
        }
        let Some(group) = self.groups.get_mut(group_id) else { return };
        if !group.members.is_empty() && !group.elect_leader() {
            // Only static members are left and none of them is here: wait until one comes or its session ends.
            let again = now + group.rebalance_timeout();
            return self.set_join_by(group_id, Some(again));
        }
        group.next_generation();
        fx.push(CoordinatorEffect::Notice(CoordinatorNotice::GenerationStarted {
            group_id: group_id.to_owned(),
            generation: group.generation,
            members: group.members.len(),
        }));
        if group.members.is_empty() {
            group.protocol_name = None;
            group.leader = None;
            group.to(GroupState::Empty);
            return self.retain_offsets(group_id, now);
        }
        group.protocol_name = group.elect_protocol();
        group.to(GroupState::CompletingRebalance);
        let ids: Vec<String> = group.members.keys().cloned().collect();
        for member_id in &ids {
            let answer = group.joined(member_id);
            let Some(member) = group.members.get_mut(member_id) else { continue };
            member.is_new = false;
            member.synced = false;
            if let Some(call) = member.awaiting_join.take() {
                reply(fx, call, answer);
            }
        }
        let sync_by = now + group.rebalance_timeout();
        self.set_sync_by(group_id, Some(sync_by));
        for member_id in &ids {
            self.extend_session(group_id, member_id, now);
        }
    }
}

fn millis(value: i32) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
