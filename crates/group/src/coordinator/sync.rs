//! SyncGroup and the sync phase.

use std::time::Instant;

use bytes::Bytes;
use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::group::{Group, GroupState};
use super::io::reply;
use super::{Coordinator, CoordinatorEffects, RemovalReason};

impl Coordinator {
    pub(super) fn sync(
        &mut self,
        call: u64,
        version: i16,
        request: SyncGroupRequest,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        if let Err(error) = self.try_sync(call, version, request, now, fx) {
            reply(fx, call, SyncGroupResponse { error, ..SyncGroupResponse::default() });
        }
    }

    fn try_sync(
        &mut self,
        call: u64,
        version: i16,
        request: SyncGroupRequest,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) -> Result<(), ErrorCode> {
        if request.group_id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        if version >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let group = self.groups.get_mut(&*request.group_id).ok_or(ErrorCode::UnknownMemberId)?;
        group.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        let member = group.members.get_mut(&request.member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if request.generation != group.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs = |asked: &Option<String>, known: &Option<String>| asked.is_some() && asked != known;
        if differs(&request.protocol_type, &group.protocol_type)
            || differs(&request.protocol_name, &group.protocol_name)
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        match group.state {
            GroupState::Empty => Err(ErrorCode::UnknownMemberId),
            GroupState::PreparingRebalance => Err(ErrorCode::RebalanceInProgress),
            GroupState::Stable => {
                member.synced = true;
                reply(fx, call, group.synced(&request.member_id));
                Ok(())
            }
            GroupState::CompletingRebalance => {
                member.awaiting_sync = Some(call);
                member.synced = true;
                if group.leader.as_deref() != Some(&*request.member_id) {
                    return Ok(());
                }
                for member in group.members.values_mut() {
                    member.assignment = Bytes::new();
                }
                for given in request.assignments {
                    if let Some(member) = group.members.get_mut(&given.member_id) {
                        member.assignment = given.assignment;
                    }
                }
                group.to(GroupState::Stable);
                let ids: Vec<String> = group.members.keys().cloned().collect();
                let mut parked = Vec::new();
                for member_id in ids {
                    let answer = group.synced(&member_id);
                    let Some(call) =
                        group.members.get_mut(&member_id).and_then(|member| member.awaiting_sync.take())
                    else {
                        continue;
                    };
                    reply(fx, call, answer);
                    parked.push(member_id);
                }
                // A session that ran out while its sync was parked was not counted: it starts afresh.
                for member_id in parked {
                    self.extend_session(&request.group_id, &member_id, now);
                }
                Ok(())
            }
        }
    }

    /// Members that did not sync within the rebalance timeout are out.
    pub(super) fn on_sync_timer(
        &mut self,
        group_id: &str,
        at: Instant,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let Some(group) = self.groups.get_mut(group_id).filter(|group| group.sync_by == Some(at)) else {
            return;
        };
        group.sync_by = None;
        if !group.is(&[GroupState::CompletingRebalance, GroupState::Stable]) {
            return;
        }
        let missing: Vec<String> =
            group.members.iter().filter(|(_, member)| !member.synced).map(|(id, _)| id.clone()).collect();
        if missing.is_empty() {
            return;
        }
        for member_id in missing {
            self.forget_member(group_id, &member_id, RemovalReason::RebalanceTimeout, fx);
        }
        self.prepare_rebalance(group_id, now, fx);
    }
}

impl Group {
    fn synced(&self, member_id: &str) -> SyncGroupResponse {
        SyncGroupResponse {
            error: ErrorCode::None,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            assignment: self
                .members
                .get(member_id)
                .map(|member| member.assignment.clone())
                .unwrap_or_default(),
        }
    }
}
