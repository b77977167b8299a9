//! LeaveGroup: a batch, each entry on its own.

use std::time::Instant;

use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse, LeaveMember, LeftMember};

use super::group::GroupState;
use super::io::reply;
use super::{Coordinator, CoordinatorEffect, CoordinatorEffects, CoordinatorNotice, RemovalReason};

impl Coordinator {
    pub(super) fn leave(
        &mut self,
        call: u64,
        version: i16,
        request: LeaveGroupRequest,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        if request.group_id.is_empty() {
            let error = ErrorCode::InvalidGroupId;
            return reply(fx, call, LeaveGroupResponse { error, members: Vec::new() });
        }
        let mut members = Vec::with_capacity(request.members.len());
        for member in request.members {
            let error = self.leave_one(&request.group_id, &member, now, fx);
            members.push(LeftMember {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                error,
            });
        }
        // Before the batch there was one member and its result was the request's.
        let answer = if version < 3 {
            let error = members.first().map(|member| member.error).unwrap_or(ErrorCode::UnknownMemberId);
            LeaveGroupResponse { error, members: Vec::new() }
        } else {
            LeaveGroupResponse { error: ErrorCode::None, members }
        };
        reply(fx, call, answer);
    }

    fn leave_one(
        &mut self,
        group_id: &str,
        leaver: &LeaveMember,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) -> ErrorCode {
        if leaver.member_id.is_empty() && leaver.group_instance_id.as_deref().unwrap_or_default().is_empty() {
            let group_id = group_id.to_owned();
            fx.push(CoordinatorEffect::Notice(CoordinatorNotice::NamelessLeave { group_id }));
        }
        if self.take_pending(group_id, &leaver.member_id) {
            // As on Kafka: in a group that runs, even a pending id that leaves starts a rebalance.
            let state = self.groups.get(group_id).map(|group| group.state);
            match state {
                Some(GroupState::PreparingRebalance) => self.complete_join_if_all_joined(group_id, now, fx),
                Some(GroupState::CompletingRebalance | GroupState::Stable) => {
                    self.prepare_rebalance(group_id, now, fx)
                }
                Some(GroupState::Empty) | None => {}
            }
            return ErrorCode::None;
        }
        let Some(group) = self.groups.get(group_id) else { return ErrorCode::UnknownMemberId };
        let member_id = match &leaver.group_instance_id {
            Some(instance) => match group.static_members.get(instance) {
                None => return ErrorCode::UnknownMemberId,
                Some(id) if leaver.member_id.is_empty() || *id == leaver.member_id => id.clone(),
                Some(_) => return ErrorCode::FencedInstanceId,
            },
            None if group.members.contains_key(&leaver.member_id) => leaver.member_id.clone(),
            None => return ErrorCode::UnknownMemberId,
        };
        self.remove_member(group_id, &member_id, RemovalReason::Left, now, fx);
        ErrorCode::None
    }
}
