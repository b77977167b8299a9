//! Exploration: both cores are walked breadth-first over everything that can happen to them, with invariants at
//! every step; the transitions walked are those declared, no more and no fewer.
//!
//! States are told apart by what can be seen of them (and by what is owed to them), not by their counters and
//! clocks, or there would be no end. So this shows which transitions exist; that no order of events breaks the
//! group is the simulation's to show.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::{Duration, Instant};

use kohort_group::coordinator::{
    CoordinatorConfig, CoordinatorEffect, CoordinatorInput, CoordinatorNotice, GroupRequest, GroupState,
};
use kohort_group::membership::{
    Answer, Beat, Effect, ExitKind, Failure, GroupMembershipOperation, Notice, Question, TRANSITIONS,
};
use kohort_group::{Assignor, Coordinator, Input, MemberState, Membership, MembershipConfig};
use kohort_protocol::consumer::Assignment;
use kohort_protocol::messages::{
    CoordinatorAddress, FetchedOffset, FetchedOffsets, FetchedOffsetsTopic, HeartbeatRequest,
    JoinGroupRequest, JoinGroupResponse, JoinProtocol, LeaveGroupRequest, LeaveGroupResponse, LeaveMember,
    OffsetCommitResponse, OffsetCommittedPartition, OffsetCommittedTopic, OffsetFetchResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use kohort_protocol::{ErrorCode, TopicPartition};

/// A member and what its driver owes it.
#[derive(Clone)]
struct Node {
    core: Membership,
    now: Instant,
    /// Open questions: round and kind.
    open: BTreeMap<u64, &'static str>,
    orders: BTreeMap<u64, &'static str>,
    epoch: u64,
    armed: bool,
    incarnation: u64,
    heart: bool,
    workers: bool,
    steps: u32,
}

#[derive(PartialEq, Eq, Hash)]
struct Seen {
    state: MemberState,
    ending: bool,
    generation: bool,
    id: bool,
    coordinator: bool,
    open: Vec<&'static str>,
    orders: Vec<&'static str>,
    armed: bool,
    heart: bool,
    workers: bool,
    crashes: u32,
    waits: bool,
}

impl Node {
    fn seen(&self) -> Seen {
        Seen {
            state: self.core.state(),
            ending: self.core.is_ending(),
            generation: self.core.generation() >= 0,
            id: !self.core.member_id().is_empty(),
            coordinator: self.core.coordinator().is_some(),
            open: self.open.values().copied().collect(),
            orders: self.orders.values().copied().collect(),
            armed: self.armed,
            heart: self.heart,
            workers: self.workers,
            crashes: self.core.crashes_in_window(self.now),
            waits: self.core.deadline().is_some(),
        }
    }

    /// Everything that could happen next.
    fn inputs(&self) -> Vec<(Input, Duration)> {
        let mut inputs = Vec::new();
        let soon = Duration::from_millis(10);
        let mut add = |input| inputs.push((input, soon));
        add(Input::Start);
        let deadline = self.now + Duration::from_secs(3);
        add(Input::Close { operation: GroupMembershipOperation::Default, deadline });
        add(Input::Close { operation: GroupMembershipOperation::RemainInGroup, deadline: self.now });
        add(Input::WorkersGaveUp { partition: None, cause: "a handler".into() });
        add(Input::Commit);
        let (partition, generation) = (TopicPartition::new("t", 0), self.core.generation());
        add(Input::Handled { generation, partition, position: 5 + i64::from(self.steps), records: 1 });
        if self.heart {
            add(Input::HeartbeatExited { incarnation: self.incarnation, exit: ExitKind::Killed });
        } else {
            add(Input::HeartbeatStarted { incarnation: self.incarnation + 1 });
            add(Input::HeartbeatStartFailed { error: "no".into() });
        }
        if self.armed {
            for code in CODES {
                add(Input::Beat { epoch: self.epoch, beat: Beat::Answered(code) });
            }
            add(Input::Beat { epoch: self.epoch, beat: Beat::Failed(network()) });
            add(Input::Beat { epoch: self.epoch, beat: Beat::Panicked("defect".into()) });
        }
        for (round, order) in &self.orders {
            add(match *order {
                "drain" => Input::Drained { round: *round },
                _ => Input::Released { round: *round, aborted: Vec::new() },
            });
        }
        for (round, question) in &self.open {
            add(Input::Answered { round: *round, answer: Err(network()) });
            for answer in answers(question) {
                add(Input::Answered { round: *round, answer: Ok(answer) });
            }
        }
        if let Some(at) = self.core.deadline() {
            inputs.push((Input::Deadline, at.saturating_duration_since(self.now)));
        }
        inputs
    }

    fn step(&self, input: Input, wait: Duration, walked: &mut BTreeSet<(MemberState, MemberState)>) -> Node {
        let mut next = self.clone();
        next.now += wait;
        next.steps += 1;
        match &input {
            Input::HeartbeatExited { .. } => next.heart = false,
            Input::HeartbeatStarted { incarnation } => (next.heart, next.incarnation) = (true, *incarnation),
            Input::Answered { round, .. } => drop(next.open.remove(round)),
            Input::Drained { round } | Input::Released { round, .. } => drop(next.orders.remove(round)),
            _ => {}
        }
        let was_final = next.core.state().is_final();
        let effects = next.core.handle(input.clone(), next.now);
        if was_final {
            let silent = effects.iter().all(|effect| matches!(effect, Effect::Closed(_)));
            assert!(silent && next.core.deadline().is_none(), "silent after the end: {input:?} {effects:?}");
        }
        for effect in effects {
            match effect {
                Effect::Ask { round, question, .. } => {
                    if matches!(question, Question::Join(_)) {
                        assert!(!next.workers || self.core.is_cooperative(), "joins with workers alive");
                        assert!(!next.armed, "joins with a beating heart");
                    }
                    if matches!(question, Question::Leave(_)) {
                        assert!(!next.armed, "leaves with a beating heart");
                    }
                    next.open.insert(round, kind(&question));
                }
                Effect::ArmHeartbeat { epoch, .. } => {
                    assert!(next.heart, "arms a heart that is not there");
                    (next.epoch, next.armed) = (epoch, true);
                }
                Effect::DisarmHeartbeat => next.armed = false,
                Effect::StartWorkers { .. } => next.workers = true,
                Effect::DrainWorkers { round, .. } => drop(next.orders.insert(round, "drain")),
                Effect::ReleaseWorkers { round, .. } => {
                    next.orders.clear();
                    next.orders.insert(round, "release");
                    next.workers = false;
                }
                Effect::Notice(Notice::State { from, to }) => drop(walked.insert((from, to))),
                _ => {}
            }
        }
        if !next.heart {
            next.armed = false;
        }
        // What belongs to an older round is answered into the void; keep the newest of each kind.
        while next.open.len() > 3 {
            next.open.pop_first();
        }
        next
    }
}

const CODES: [ErrorCode; 7] = [
    ErrorCode::None,
    ErrorCode::RebalanceInProgress,
    ErrorCode::IllegalGeneration,
    ErrorCode::UnknownMemberId,
    ErrorCode::NotCoordinator,
    ErrorCode::CoordinatorLoadInProgress,
    ErrorCode::GroupAuthorizationFailed,
];

fn network() -> Failure {
    Failure::Network("reset".into())
}

fn kind(question: &Question) -> &'static str {
    match question {
        Question::FindCoordinator(_) => "find",
        Question::PartitionCounts(_) => "counts",
        Question::Join(_) => "join",
        Question::Sync(_) => "sync",
        Question::FetchOffsets(_) => "offsets",
        Question::CommitOffsets(_) => "commit",
        Question::Leave(_) => "leave",
        _ => "unknown",
    }
}

fn answers(question: &str) -> Vec<Answer> {
    let codes = CODES.into_iter();
    match question {
        "find" => codes
            .map(|error| {
                Answer::Coordinator(CoordinatorAddress {
                    error,
                    host: "b".into(),
                    port: 9092,
                    ..Default::default()
                })
            })
            .collect(),
        "counts" => vec![Answer::PartitionCounts(BTreeMap::from([("t".to_string(), 2)]))],
        "join" => codes
            .chain([ErrorCode::MemberIdRequired])
            .map(|error| Answer::Joined {
                version: 9,
                response: JoinGroupResponse {
                    error,
                    generation: 1,
                    protocol_name: Some("range".into()),
                    leader: "l".into(),
                    member_id: "m".into(),
                    ..Default::default()
                },
            })
            .collect(),
        "sync" => codes
            .flat_map(|error| {
                [vec![], vec![TopicPartition::new("t", 0)]].map(|partitions| {
                    let assignment = Assignment { partitions, user_data: None }.encode(1).unwrap();
                    Answer::Synced(SyncGroupResponse { error, assignment, ..Default::default() })
                })
            })
            .collect(),
        "offsets" => codes
            .map(|error| {
                let partition = FetchedOffset {
                    partition: 0,
                    offset: 5,
                    leader_epoch: -1,
                    metadata: None,
                    error: ErrorCode::None,
                };
                let topics = vec![FetchedOffsetsTopic { name: "t".into(), partitions: vec![partition] }];
                Answer::Offsets(OffsetFetchResponse {
                    groups: vec![FetchedOffsets { group_id: "g".into(), error, topics }],
                })
            })
            .collect(),
        "commit" => codes
            .map(|error| {
                let partitions = vec![OffsetCommittedPartition { partition: 0, error }];
                Answer::Committed(OffsetCommitResponse {
                    topics: vec![OffsetCommittedTopic { name: "t".into(), partitions }],
                })
            })
            .collect(),
        "leave" => codes.map(|error| Answer::Left(LeaveGroupResponse { error, members: vec![] })).collect(),
        _ => Vec::new(),
    }
}

/// Walks everything that a member with these assignors can come to; the number of states seen.
fn explore(assignors: &[Assignor], walked: &mut BTreeSet<(MemberState, MemberState)>) -> usize {
    let config = MembershipConfig {
        session_timeout: Duration::from_secs(6),
        rebalance_timeout: Duration::from_secs(10),
        crash_rejoin_max_restarts: 1.into(),
        assignors: assignors.to_vec(),
        ..MembershipConfig::new("g", ["t"])
    };
    let start = Node {
        core: Membership::new(config, 1),
        now: Instant::now(),
        open: BTreeMap::new(),
        orders: BTreeMap::new(),
        epoch: 0,
        armed: false,
        incarnation: 0,
        heart: false,
        workers: false,
        steps: 0,
    };
    let mut seen = HashSet::new();
    let mut queue = VecDeque::from([start]);
    let mut edges = 0;
    while let Some(node) = queue.pop_front() {
        for (input, wait) in node.inputs() {
            let next = node.step(input, wait, walked);
            edges += 1;
            if seen.insert(next.seen()) {
                queue.push_back(next);
            }
        }
        assert!(seen.len() < 200_000, "what can be seen of a member has no end");
    }
    eprintln!("{assignors:?}: {} states, {edges} edges", seen.len());
    seen.len()
}

#[test]
fn the_member_walks_exactly_the_declared_transitions() {
    let mut walked = BTreeSet::new();
    let eager = explore(&[Assignor::Range], &mut walked);
    let cooperative = explore(&[Assignor::CooperativeSticky], &mut walked);
    assert!(eager > 1000 && cooperative > eager);
    let declared: BTreeSet<_> = TRANSITIONS.iter().copied().collect();
    assert_eq!(walked, declared, "walked on the left, declared on the right");
}

/// A group of up to two members, under requests good and bad and the passing of time.
#[test]
fn the_group_walks_exactly_the_declared_transitions() {
    let mut walked = BTreeSet::new();
    let mut seen = HashSet::new();
    let now = Instant::now();
    let mut queue = VecDeque::from([(Coordinator::new(CoordinatorConfig::default(), 1), now, 0u32)]);
    let state = |coordinator: &Coordinator| coordinator.group("g").map(|group| group.state);
    while let Some((coordinator, now, depth)) = queue.pop_front() {
        if depth > 9 {
            continue;
        }
        let view = coordinator.group("g");
        let (members, pending, generation, leader) = view.map_or_else(Default::default, |view| {
            let members: Vec<String> = view.members.keys().cloned().collect();
            (members, view.pending, view.generation, view.leader)
        });
        let mut requests: Vec<GroupRequest> = Vec::new();
        let join = |member_id: &str, metadata: &'static str| JoinGroupRequest {
            group_id: "g".into(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 20_000,
            member_id: member_id.into(),
            protocol_type: "consumer".into(),
            protocols: vec![JoinProtocol { name: "range".into(), metadata: metadata.into() }],
            ..Default::default()
        };
        if members.len() + pending.len() < 2 {
            requests.push(join("", "a").into());
        }
        for id in members.iter().chain(&pending) {
            requests.push(join(id, "a").into());
            requests.push(join(id, "b").into());
            let leaver = LeaveMember { member_id: id.clone(), ..Default::default() };
            requests.push(LeaveGroupRequest { group_id: "g".into(), members: vec![leaver] }.into());
            for generation in [generation, generation + 1] {
                let (group_id, member_id) = ("g".to_string(), id.clone());
                requests.push(
                    SyncGroupRequest {
                        group_id: group_id.clone(),
                        generation,
                        member_id: member_id.clone(),
                        protocol_type: Some("consumer".into()),
                        protocol_name: Some("range".into()),
                        ..Default::default()
                    }
                    .into(),
                );
                requests.push(
                    HeartbeatRequest { group_id, generation, member_id, group_instance_id: None }.into(),
                );
            }
        }
        let inputs = requests
            .into_iter()
            .map(|request| {
                let input = CoordinatorInput::Request {
                    call: u64::from(depth),
                    version: 5,
                    client_id: "c".into(),
                    client_host: "h".into(),
                    request,
                };
                (input, now)
            })
            .chain(coordinator.deadline().map(|at| (CoordinatorInput::Deadline, at)));
        for (input, at) in inputs {
            let mut next = coordinator.clone();
            let before = state(&next).unwrap_or(GroupState::Empty);
            let effects = next.handle(input, at);
            let after = state(&next).unwrap_or(GroupState::Empty);
            // A step may pass through two states: the notices tell.
            let told = |wanted: fn(&CoordinatorNotice) -> bool| {
                effects
                    .iter()
                    .any(|effect| matches!(effect, CoordinatorEffect::Notice(notice) if wanted(notice)))
            };
            let started = told(|notice| matches!(notice, CoordinatorNotice::RebalanceStarted { .. }));
            let completed = told(|notice| matches!(notice, CoordinatorNotice::GenerationStarted { .. }));
            let mut path = vec![before];
            if started {
                path.push(GroupState::PreparingRebalance);
            }
            if completed && after != *path.last().unwrap() {
                path.push(after);
            }
            if *path.last().unwrap() != after {
                path.push(after);
            }
            walked.extend(path.windows(2).filter(|pair| pair[0] != pair[1]).map(|pair| (pair[0], pair[1])));
            let key = next.group("g").map(|view| {
                let leads = view.leader == leader;
                (view.state, view.members.len(), view.pending.len(), leads, next.deadline().is_some())
            });
            let fresh = seen.insert((key, view_of_parked(&effects), depth / 3));
            if fresh {
                queue.push_back((next, at, depth + 1));
            }
        }
    }
    let declared: BTreeSet<_> = GroupState::TRANSITIONS.iter().copied().collect();
    assert_eq!(walked, declared, "walked on the left, declared on the right");
}

/// How many replies a step released: tells apart groups that look alike and owe different answers.
fn view_of_parked(effects: &[CoordinatorEffect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, CoordinatorEffect::Reply { .. })).count()
}
