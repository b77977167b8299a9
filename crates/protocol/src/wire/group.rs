//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup on the wire.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as kp;
use kp::join_group_request::JoinGroupRequestProtocol;
use kp::join_group_response::JoinGroupResponseMember;
use kp::leave_group_request::MemberIdentity;
use kp::leave_group_response::MemberResponse;
use kp::sync_group_request::SyncGroupRequestAssignment;

use super::{group_id, nullable_text, only, put, request, response, text, text_since};
use crate::messages::*;
use crate::reader::min;
use crate::{ApiKey, DecodeError, EncodeError, ErrorCode, Request, Response};

impl Request for JoinGroupRequest {
    const API: ApiKey = ApiKey::JoinGroup;
    type Response = JoinGroupResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let protocols = self
                .protocols
                .iter()
                .map(|protocol| {
                    JoinGroupRequestProtocol::default()
                        .with_name(text(&protocol.name))
                        .with_metadata(protocol.metadata.clone())
                })
                .collect();
            Ok(kp::JoinGroupRequest::default()
                .with_group_id(group_id(&self.group_id))
                .with_session_timeout_ms(self.session_timeout_ms)
                .with_rebalance_timeout_ms(self.rebalance_timeout_ms)
                .with_member_id(text(&self.member_id))
                .with_group_instance_id(text_since(5, version, self.group_instance_id.as_ref()))
                .with_protocol_type(text(&self.protocol_type))
                .with_protocols(protocols)
                .with_reason(nullable_text(self.reason.as_ref())))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let group_id = r.string("group id")?;
        let session_timeout_ms = r.i32("session timeout")?;
        let message = Self {
            group_id,
            session_timeout_ms,
            rebalance_timeout_ms: if version >= 1 { r.i32("rebalance timeout")? } else { session_timeout_ms },
            member_id: r.string("member id")?,
            group_instance_id: if version >= 5 { r.nullable_string("group instance id")? } else { None },
            protocol_type: r.string("protocol type")?,
            protocols: r.list("protocols", min(6, 3), |r| {
                let protocol = JoinProtocol {
                    name: r.string("protocol name")?,
                    metadata: r.bytes("protocol metadata")?,
                };
                r.tagged_fields()?;
                Ok(protocol)
            })?,
            reason: if version >= 8 { r.nullable_string("reason")? } else { None },
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Response for JoinGroupResponse {
    const API: ApiKey = ApiKey::JoinGroup;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let members = self
                .members
                .iter()
                .map(|member| {
                    JoinGroupResponseMember::default()
                        .with_member_id(text(&member.member_id))
                        .with_group_instance_id(nullable_text(member.group_instance_id.as_ref()))
                        .with_metadata(member.metadata.clone())
                })
                .collect();
            // The name may be null from version 7 only.
            let protocol_name = match nullable_text(self.protocol_name.as_ref()) {
                None if version < 7 => Some(text("")),
                name => name,
            };
            Ok(kp::JoinGroupResponse::default()
                .with_error_code(self.error.code())
                .with_generation_id(self.generation)
                .with_protocol_type(nullable_text(self.protocol_type.as_ref()))
                .with_protocol_name(protocol_name)
                .with_leader(text(&self.leader))
                .with_skip_assignment(self.skip_assignment && version >= 9)
                .with_member_id(text(&self.member_id))
                .with_members(members))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 2 {
            r.i32("throttle time")?;
        }
        let message = Self {
            error: r.error_code("error code")?,
            generation: r.i32("generation")?,
            protocol_type: if version >= 7 { r.nullable_string("protocol type")? } else { None },
            protocol_name: r.nullable_string("protocol name")?,
            leader: r.string("leader")?,
            skip_assignment: if version >= 9 { r.bool("skip assignment")? } else { false },
            member_id: r.string("member id")?,
            members: r.list("members", min(6, 4), |r| {
                let member = JoinMember {
                    member_id: r.string("member's id")?,
                    group_instance_id: if version >= 5 {
                        r.nullable_string("member's group instance id")?
                    } else {
                        None
                    },
                    metadata: r.bytes("member's metadata")?,
                };
                r.tagged_fields()?;
                Ok(member)
            })?,
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Request for SyncGroupRequest {
    const API: ApiKey = ApiKey::SyncGroup;
    type Response = SyncGroupResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let assignments = self
                .assignments
                .iter()
                .map(|member| {
                    SyncGroupRequestAssignment::default()
                        .with_member_id(text(&member.member_id))
                        .with_assignment(member.assignment.clone())
                })
                .collect();
            Ok(kp::SyncGroupRequest::default()
                .with_group_id(group_id(&self.group_id))
                .with_generation_id(self.generation)
                .with_member_id(text(&self.member_id))
                .with_group_instance_id(text_since(3, version, self.group_instance_id.as_ref()))
                .with_protocol_type(nullable_text(self.protocol_type.as_ref()))
                .with_protocol_name(nullable_text(self.protocol_name.as_ref()))
                .with_assignments(assignments))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let message = Self {
            group_id: r.string("group id")?,
            generation: r.i32("generation")?,
            member_id: r.string("member id")?,
            group_instance_id: if version >= 3 { r.nullable_string("group instance id")? } else { None },
            protocol_type: if version >= 5 { r.nullable_string("protocol type")? } else { None },
            protocol_name: if version >= 5 { r.nullable_string("protocol name")? } else { None },
            assignments: r.list("assignments", min(6, 3), |r| {
                let member = MemberAssignment {
                    member_id: r.string("assigned member id")?,
                    assignment: r.bytes("assignment")?,
                };
                r.tagged_fields()?;
                Ok(member)
            })?,
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Response for SyncGroupResponse {
    const API: ApiKey = ApiKey::SyncGroup;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            Ok(kp::SyncGroupResponse::default()
                .with_error_code(self.error.code())
                .with_protocol_type(nullable_text(self.protocol_type.as_ref()))
                .with_protocol_name(nullable_text(self.protocol_name.as_ref()))
                .with_assignment(self.assignment.clone()))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 1 {
            r.i32("throttle time")?;
        }
        let message = Self {
            error: r.error_code("error code")?,
            protocol_type: if version >= 5 { r.nullable_string("protocol type")? } else { None },
            protocol_name: if version >= 5 { r.nullable_string("protocol name")? } else { None },
            assignment: r.bytes("assignment")?,
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Request for HeartbeatRequest {
    const API: ApiKey = ApiKey::Heartbeat;
    type Response = HeartbeatResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            Ok(kp::HeartbeatRequest::default()
                .with_group_id(group_id(&self.group_id))
                .with_generation_id(self.generation)
                .with_member_id(text(&self.member_id))
                .with_group_instance_id(text_since(3, version, self.group_instance_id.as_ref())))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let message = Self {
            group_id: r.string("group id")?,
            generation: r.i32("generation")?,
            member_id: r.string("member id")?,
            group_instance_id: if version >= 3 { r.nullable_string("group instance id")? } else { None },
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Response for HeartbeatResponse {
    const API: ApiKey = ApiKey::Heartbeat;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            Ok(kp::HeartbeatResponse::default().with_error_code(self.error.code()))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 1 {
            r.i32("throttle time")?;
        }
        let message = Self { error: r.error_code("error code")? };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Request for LeaveGroupRequest {
    const API: ApiKey = ApiKey::LeaveGroup;
    type Response = LeaveGroupResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let message = kp::LeaveGroupRequest::default().with_group_id(group_id(&self.group_id));
            if version < 3 {
                let member = only(&self.members, Self::API, version, "members")?;
                return Ok(message.with_member_id(text(&member.member_id)));
            }
            let members = self
                .members
                .iter()
                .map(|member| {
                    MemberIdentity::default()
                        .with_member_id(text(&member.member_id))
                        .with_group_instance_id(nullable_text(member.group_instance_id.as_ref()))
                        .with_reason(nullable_text(member.reason.as_ref()))
                })
                .collect();
            Ok(message.with_members(members))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let group_id = r.string("group id")?;
        let members = if version < 3 {
            vec![LeaveMember { member_id: r.string("member id")?, group_instance_id: None, reason: None }]
        } else {
            r.list("members", min(4, 3), |r| {
                let member = LeaveMember {
                    member_id: r.string("member id")?,
                    group_instance_id: r.nullable_string("group instance id")?,
                    reason: if version >= 5 { r.nullable_string("reason")? } else { None },
                };
                r.tagged_fields()?;
                Ok(member)
            })?
        };
        r.tagged_fields()?;
        Ok(Self { group_id, members })
    }
}

impl Response for LeaveGroupResponse {
    const API: ApiKey = ApiKey::LeaveGroup;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let message = kp::LeaveGroupResponse::default();
            if version < 3 {
                // One member left, so its result is that of the request.
                let member = self.members.iter().map(|member| member.error).find(|error| error.is_error());
                let error = if self.error.is_none() { member.unwrap_or(ErrorCode::None) } else { self.error };
                return Ok(message.with_error_code(error.code()));
            }
            let members = self
                .members
                .iter()
                .map(|member| {
                    MemberResponse::default()
                        .with_member_id(text(&member.member_id))
                        .with_group_instance_id(nullable_text(member.group_instance_id.as_ref()))
                        .with_error_code(member.error.code())
                })
                .collect();
            Ok(message.with_error_code(self.error.code()).with_members(members))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        if version >= 1 {
            r.i32("throttle time")?;
        }
        let error = r.error_code("error code")?;
        let members = if version < 3 {
            Vec::new()
        } else {
            r.list("members", min(6, 5), |r| {
                let member = LeftMember {
                    member_id: r.string("member id")?,
                    group_instance_id: r.nullable_string("group instance id")?,
                    error: r.error_code("member's error code")?,
                };
                r.tagged_fields()?;
                Ok(member)
            })?
        };
        r.tagged_fields()?;
        Ok(Self { error, members })
    }
}
