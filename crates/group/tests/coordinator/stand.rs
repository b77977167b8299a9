//! A coordinator with a clock of its own, and requests with defaults: the stand the rows are played on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kohort_group::Coordinator;
use kohort_group::coordinator::{
    CoordinatorConfig, CoordinatorEffect, CoordinatorInput, CoordinatorNotice, GroupReply, GroupRequest,
    GroupState,
};
use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, JoinProtocol, LeaveGroupRequest,
    LeaveGroupResponse, LeaveMember, MemberAssignment, OffsetCommitPartition, OffsetCommitRequest,
    OffsetCommitTopic, OffsetFetchGroup, OffsetFetchRequest, OffsetFetchResponse, OffsetFetchTopic,
    SyncGroupRequest, SyncGroupResponse,
};

pub(crate) const G: &str = "group";

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) struct Stand {
    pub(crate) coordinator: Coordinator,
    pub(crate) now: Instant,
    calls: u64,
    replies: BTreeMap<u64, GroupReply>,
    pub(crate) notices: Vec<CoordinatorNotice>,
}

/// A join with defaults: session 10 s, rebalance 20 s, range and roundrobin.
pub(crate) struct Join {
    pub(crate) request: JoinGroupRequest,
    pub(crate) version: i16,
}

pub(crate) fn protocols(names: &[&str]) -> Vec<JoinProtocol> {
    names
        .iter()
        .map(|name| JoinProtocol {
            name: name.to_string(),
            metadata: Bytes::from(format!("{name} metadata")),
        })
        .collect()
}

impl Join {
    pub(crate) fn new(member_id: &str) -> Self {
        let request = JoinGroupRequest {
            group_id: G.into(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 20_000,
            member_id: member_id.into(),
            protocol_type: "consumer".into(),
            protocols: protocols(&["range", "roundrobin"]),
            ..JoinGroupRequest::default()
        };
        Self { request, version: 9 }
    }

    pub(crate) fn of(instance: &str, member_id: &str) -> Self {
        Self::new(member_id).with(|request| request.group_instance_id = Some(instance.into()))
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut JoinGroupRequest)) -> Self {
        change(&mut self.request);
        self
    }

    pub(crate) fn v(mut self, version: i16) -> Self {
        self.version = version;
        self
    }
}

impl Stand {
    pub(crate) fn new() -> Self {
        Self::with(CoordinatorConfig::default())
    }

    pub(crate) fn with(config: CoordinatorConfig) -> Self {
        Self {
            coordinator: Coordinator::new(config, 1),
            now: Instant::now(),
            calls: 0,
            replies: BTreeMap::new(),
            notices: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, version: i16, request: impl Into<GroupRequest>) -> u64 {
        self.calls += 1;
        let input = CoordinatorInput::Request {
            call: self.calls,
            version,
            client_id: "client".into(),
            client_host: "/host".into(),
            request: request.into(),
        };
        let effects = self.coordinator.handle(input, self.now);
        self.take(effects);
        self.calls
    }

    pub(crate) fn take(&mut self, effects: Vec<CoordinatorEffect>) {
        for effect in effects {
            match effect {
                CoordinatorEffect::Reply { call, reply } => {
                    assert!(self.replies.insert(call, reply).is_none(), "call {call} is answered twice");
                }
                CoordinatorEffect::Notice(notice) => self.notices.push(notice),
                _ => {}
            }
        }
    }

    /// Lets time pass, every timer on its way at its own instant.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.coordinator.deadline().filter(|at| *at <= end) {
            self.now = at;
            let effects = self.coordinator.handle(CoordinatorInput::Deadline, at);
            self.take(effects);
        }
        self.now = end;
    }

    pub(crate) fn join(&mut self, join: Join) -> u64 {
        self.send(join.version, join.request)
    }

    pub(crate) fn joined(&mut self, call: u64) -> Option<JoinGroupResponse> {
        self.replies.remove(&call).map(|reply| match reply {
            GroupReply::Join(response) => response,
            other => panic!("{other:?}"),
        })
    }

    /// A join that is answered at once.
    pub(crate) fn join_now(&mut self, join: Join) -> JoinGroupResponse {
        let call = self.join(join);
        self.joined(call).expect("an answer at once")
    }

    /// The id that a new dynamic member gets; it is pending afterwards.
    pub(crate) fn pending(&mut self) -> String {
        let answer = self.join_now(Join::new(""));
        assert_eq!(answer.error, ErrorCode::MemberIdRequired);
        answer.member_id
    }

    pub(crate) fn sync(&mut self, member_id: &str, generation: i32, assignments: &[(&str, &str)]) -> u64 {
        self.sync_as(None, member_id, generation, assignments)
    }

    pub(crate) fn sync_as(
        &mut self,
        instance: Option<&str>,
        member_id: &str,
        generation: i32,
        assignments: &[(&str, &str)],
    ) -> u64 {
        let request = SyncGroupRequest {
            group_id: G.into(),
            generation,
            member_id: member_id.into(),
            group_instance_id: instance.map(Into::into),
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: assignments
                .iter()
                .map(|(member, blob)| MemberAssignment {
                    member_id: member.to_string(),
                    assignment: Bytes::copy_from_slice(blob.as_bytes()),
                })
                .collect(),
        };
        self.send(5, request)
    }

    pub(crate) fn synced(&mut self, call: u64) -> Option<SyncGroupResponse> {
        self.replies.remove(&call).map(|reply| match reply {
            GroupReply::Sync(response) => response,
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn beat(&mut self, member_id: &str, generation: i32) -> ErrorCode {
        self.beat_as(None, member_id, generation)
    }

    pub(crate) fn beat_as(&mut self, instance: Option<&str>, member_id: &str, generation: i32) -> ErrorCode {
        self.beat_with(HeartbeatRequest {
            group_id: G.into(),
            generation,
            member_id: member_id.into(),
            group_instance_id: instance.map(Into::into),
        })
    }

    pub(crate) fn beat_from(&mut self, group: &str, member_id: &str, generation: i32) -> ErrorCode {
        let (group_id, member_id) = (group.into(), member_id.into());
        self.beat_with(HeartbeatRequest { group_id, generation, member_id, group_instance_id: None })
    }

    fn beat_with(&mut self, request: HeartbeatRequest) -> ErrorCode {
        let call = self.send(4, request);
        match self.replies.remove(&call) {
            Some(GroupReply::Heartbeat(response)) => response.error,
            other => panic!("{other:?}"),
        }
    }

    /// Commits from outside of any generation.
    pub(crate) fn commit_from(&mut self, group: &str, offset: i64) -> ErrorCode {
        let partition = OffsetCommitPartition { partition: 0, offset, leader_epoch: -1, metadata: None };
        let topics = vec![OffsetCommitTopic { name: "t".into(), partitions: vec![partition] }];
        let request =
            OffsetCommitRequest { group_id: group.into(), generation: -1, topics, ..Default::default() };
        let call = self.send(8, request);
        match self.replies.remove(&call) {
            Some(GroupReply::OffsetCommit(response)) => response.topics[0].partitions[0].error,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn leave(&mut self, version: i16, members: &[(&str, Option<&str>)]) -> LeaveGroupResponse {
        self.leave_from(G, version, members)
    }

    pub(crate) fn leave_from(
        &mut self,
        group: &str,
        version: i16,
        members: &[(&str, Option<&str>)],
    ) -> LeaveGroupResponse {
        let members = members.iter().map(|(member_id, instance)| LeaveMember {
            member_id: member_id.to_string(),
            group_instance_id: instance.map(Into::into),
            reason: None,
        });
        let call =
            self.send(version, LeaveGroupRequest { group_id: group.into(), members: members.collect() });
        match self.replies.remove(&call) {
            Some(GroupReply::Leave(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn commit(&mut self, member_id: &str, generation: i32, offset: i64) -> ErrorCode {
        self.commit_as(8, None, member_id, generation, offset, "")
    }

    pub(crate) fn commit_as(
        &mut self,
        version: i16,
        instance: Option<&str>,
        member_id: &str,
        generation: i32,
        offset: i64,
        metadata: &str,
    ) -> ErrorCode {
        let partition =
            OffsetCommitPartition { partition: 0, offset, leader_epoch: 3, metadata: Some(metadata.into()) };
        let request = OffsetCommitRequest {
            group_id: G.into(),
            generation,
            member_id: member_id.into(),
            group_instance_id: instance.map(Into::into),
            topics: vec![OffsetCommitTopic { name: "t".into(), partitions: vec![partition] }],
        };
        let call = self.send(version, request);
        match self.replies.remove(&call) {
            Some(GroupReply::OffsetCommit(response)) => response.topics[0].partitions[0].error,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn fetch(&mut self, topics: Option<&[i32]>) -> OffsetFetchResponse {
        let topics = topics
            .map(|partitions| vec![OffsetFetchTopic { name: "t".into(), partitions: partitions.to_vec() }]);
        let groups = vec![OffsetFetchGroup { group_id: G.into(), topics }];
        let call = self.send(8, OffsetFetchRequest { groups, require_stable: false });
        match self.replies.remove(&call) {
            Some(GroupReply::OffsetFetch(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        self.coordinator.group(G).expect("the group exists").state
    }

    pub(crate) fn generation(&self) -> i32 {
        self.coordinator.group(G).expect("the group exists").generation
    }

    pub(crate) fn members(&self) -> usize {
        self.coordinator.group(G).map_or(0, |group| group.members.len())
    }

    pub(crate) fn is_answered(&self, call: u64) -> bool {
        self.replies.contains_key(&call)
    }

    /// A Stable group of `n` dynamic members; the leader is the first.
    pub(crate) fn stable(&mut self, n: usize) -> Vec<String> {
        let ids: Vec<String> = (0..n).map(|_| self.pending()).collect();
        let calls: Vec<u64> = ids.iter().map(|id| self.join(Join::new(id))).collect();
        self.settle(&calls)
    }

    /// A Stable group of static members i1 … in and `dynamic` others.
    pub(crate) fn stable_static(&mut self, instances: &[&str]) -> Vec<String> {
        let first: Vec<u64> = instances.iter().map(|instance| self.join(Join::of(instance, ""))).collect();
        // The first one's generation of its own ends when the others come: it joins again.
        let mut ids = Vec::new();
        let mut calls = Vec::new();
        for (instance, call) in instances.iter().zip(first) {
            match self.joined(call) {
                Some(answer) if instances.len() > 1 => {
                    ids.push(answer.member_id.clone());
                    calls.push(self.join(Join::of(instance, &answer.member_id)));
                }
                Some(answer) => {
                    let call = self.sync_as(
                        Some(instance),
                        &answer.member_id,
                        answer.generation,
                        &[(&answer.member_id, "a")],
                    );
                    self.synced(call).unwrap();
                    return vec![answer.member_id];
                }
                None => calls.push(call),
            }
        }
        self.settle(&calls)
    }

    /// Joins that are answered by now are synced by the leader; gives the ids, the leader's first.
    pub(crate) fn settle(&mut self, calls: &[u64]) -> Vec<String> {
        let answers: Vec<JoinGroupResponse> =
            calls.iter().map(|call| self.joined(*call).expect("joined")).collect();
        let generation = answers[0].generation;
        let leader = answers[0].leader.clone();
        let instances: BTreeMap<String, Option<String>> = answers
            .iter()
            .flat_map(|answer| &answer.members)
            .map(|member| (member.member_id.clone(), member.group_instance_id.clone()))
            .collect();
        let ids: Vec<String> = answers.iter().map(|answer| answer.member_id.clone()).collect();
        let blobs: Vec<(String, String)> = ids.iter().map(|id| (id.clone(), format!("for {id}"))).collect();
        let blobs: Vec<(&str, &str)> = blobs.iter().map(|(id, blob)| (id.as_str(), blob.as_str())).collect();
        let call = self.sync_as(instances[&leader].as_deref(), &leader, generation, &blobs);
        assert_eq!(self.synced(call).unwrap().error, ErrorCode::None);
        for id in ids.iter().filter(|id| **id != leader) {
            let call = self.sync_as(instances[id].as_deref(), id, generation, &[]);
            assert_eq!(self.synced(call).unwrap().error, ErrorCode::None);
        }
        assert_eq!(self.state(), GroupState::Stable);
        let mut ids = ids;
        ids.sort_by_key(|id| *id != leader);
        ids
    }
}
