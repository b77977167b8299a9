//! A membership with a clock of its own, and answers with defaults.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kohort_group::membership::{
    Answer, Beat, Effect, Effects, Failure, Node, Notice, Question, TerminalCause,
};
use kohort_group::{Input, MemberState, Membership, MembershipConfig};
use kohort_protocol::consumer::{Assignment, Subscription};
use kohort_protocol::messages::{
    CoordinatorAddress, FetchedOffset, FetchedOffsets, FetchedOffsetsTopic, HeartbeatRequest,
    JoinGroupRequest, JoinGroupResponse, JoinMember, LeaveGroupResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetCommittedPartition, OffsetCommittedTopic, OffsetFetchResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use kohort_protocol::{ErrorCode, TopicPartition};

pub(crate) const TOPIC: &str = "t";

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn partition(number: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, number)
}

pub(crate) fn network() -> Failure {
    Failure::Network("connection reset".into())
}

/// Session 6 s, rebalance 10 s, request 2 s, padding 5 s, bound 3 in 30 s, jitter up to 200 ms.
pub(crate) fn config() -> MembershipConfig {
    MembershipConfig {
        session_timeout: secs(6),
        rebalance_timeout: secs(10),
        request_timeout: secs(2),
        session_timeout_padding: secs(5),
        commit_interval: secs(1),
        crash_rejoin_max_restarts: 3.into(),
        crash_rejoin_window: secs(30),
        crash_rejoin_max_jitter: Duration::from_millis(200),
        ..MembershipConfig::new("g", [TOPIC])
    }
}

pub(crate) struct Stand {
    pub(crate) core: Membership,
    pub(crate) now: Instant,
    incarnation: u64,
    /// Effects that no test has looked at yet.
    pub(crate) effects: Effects,
}

impl Stand {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    /// Started, with a heart that lives.
    pub(crate) fn with(config: MembershipConfig) -> Self {
        let mut stand = Self {
            core: Membership::new(config, 1),
            now: Instant::now(),
            incarnation: 1,
            effects: Vec::new(),
        };
        stand.input(Input::HeartbeatStarted { incarnation: 1 });
        stand.input(Input::Start);
        stand
    }

    pub(crate) fn input(&mut self, input: Input) {
        let effects = self.core.handle(input, self.now);
        self.effects.extend(effects);
    }

    /// Lets time pass, every deadline on its way at its own instant.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.core.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.input(Input::Deadline);
        }
        self.now = end;
    }

    pub(crate) fn state(&self) -> MemberState {
        self.core.state()
    }

    /// Takes the one question that is not looked at yet.
    pub(crate) fn question(&mut self) -> (u64, Question) {
        let place = self.effects.iter().position(|effect| matches!(effect, Effect::Ask { .. }));
        match self.effects.remove(place.unwrap_or_else(|| panic!("no question in {:?}", self.effects))) {
            Effect::Ask { round, question, .. } => (round, question),
            _ => unreachable!(),
        }
    }

    pub(crate) fn asks(&self) -> usize {
        self.effects.iter().filter(|effect| matches!(effect, Effect::Ask { .. })).count()
    }

    pub(crate) fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Notice(notice) => Some(notice),
            _ => None,
        })
    }

    pub(crate) fn has(&self, wanted: impl Fn(&Effect) -> bool) -> bool {
        self.effects.iter().any(wanted)
    }

    pub(crate) fn terminated(&self) -> Option<&TerminalCause> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Terminate(cause) => Some(cause),
            _ => None,
        })
    }

    pub(crate) fn answer(&mut self, round: u64, answer: Result<Answer, Failure>) {
        self.input(Input::Answered { round, answer });
    }

    /// Waits for the next FindCoordinator, and answers it.
    pub(crate) fn find(&mut self) {
        while self.asks() == 0 {
            let at = self.core.deadline().expect("something is due");
            self.now = self.now.max(at);
            self.input(Input::Deadline);
        }
        let (round, question) = self.question();
        assert!(matches!(question, Question::FindCoordinator(_)), "{question:?}");
        let address =
            CoordinatorAddress { node_id: 1, host: "broker".into(), port: 9092, ..Default::default() };
        self.answer(round, Ok(Answer::Coordinator(address)));
    }

    /// Waits for the next JoinGroup.
    pub(crate) fn join(&mut self) -> (u64, JoinGroupRequest) {
        while self.asks() == 0 {
            let at = self.core.deadline().expect("something is due");
            self.now = self.now.max(at);
            self.input(Input::Deadline);
        }
        match self.question() {
            (round, Question::Join(request)) => (round, request),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn join_answer(&mut self, round: u64, response: JoinGroupResponse) {
        self.answer(round, Ok(Answer::Joined { version: 9, response }));
    }

    pub(crate) fn join_error(&mut self, round: u64, error: ErrorCode) {
        self.join_answer(round, JoinGroupResponse { error, generation: -1, ..Default::default() });
    }

    pub(crate) fn sync(&mut self) -> (u64, SyncGroupRequest) {
        match self.question() {
            (round, Question::Sync(request)) => (round, request),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn sync_error(&mut self, round: u64, error: ErrorCode) {
        self.answer(round, Ok(Answer::Synced(SyncGroupResponse { error, ..Default::default() })));
    }

    /// To the SyncGroup of a follower `m` in `generation`.
    pub(crate) fn syncing(&mut self, generation: i32) -> u64 {
        if self.core.coordinator().is_none() {
            self.find();
        }
        let (round, _) = self.join();
        self.join_answer(round, follower(generation));
        self.sync().0
    }

    /// Stable with partitions 0 and 1, both at committed offset 10.
    pub(crate) fn stable(&mut self, generation: i32) {
        let round = self.syncing(generation);
        self.answer(round, Ok(Answer::Synced(assigned(&[0, 1]))));
        let (round, question) = self.question();
        assert!(matches!(question, Question::FetchOffsets(_)));
        self.answer(round, Ok(Answer::Offsets(offsets(&[(0, 10), (1, 10)]))));
        assert!(self.has(|effect| matches!(effect, Effect::StartWorkers { .. })));
        assert_eq!(self.state(), MemberState::Stable);
        self.effects.clear();
    }

    /// The arming that stands.
    pub(crate) fn armed(&mut self) -> (u64, HeartbeatRequest) {
        let armed = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::ArmHeartbeat { epoch, request, .. } => Some((*epoch, request.clone())),
            _ => None,
        });
        armed.expect("the heart is armed")
    }

    /// A beat of the present arming; the epoch is found by asking which one is heard.
    pub(crate) fn beat(&mut self, beat: Beat) {
        let epoch = self.core_epoch();
        self.input(Input::Beat { epoch, beat });
    }

    fn core_epoch(&self) -> u64 {
        (0..1000)
            .rev()
            .find(|epoch| {
                let mut probe = self.core.clone();
                let before = probe.last_good_heartbeat();
                let _ = probe.handle(
                    Input::Beat { epoch: *epoch, beat: Beat::Answered(ErrorCode::None) },
                    self.now + Duration::from_nanos(1),
                );
                probe.last_good_heartbeat() != before
            })
            .expect("an arming")
    }

    pub(crate) fn answered(&mut self, code: ErrorCode) {
        self.beat(Beat::Answered(code));
    }

    /// A good beat, if the heart is armed.
    pub(crate) fn answered_if_armed(&mut self) {
        if matches!(self.state(), MemberState::Stable | MemberState::Revoking | MemberState::PrepareLeaving) {
            self.answered(ErrorCode::None);
        }
    }

    pub(crate) fn kill_heart(&mut self) {
        let incarnation = self.incarnation;
        self.input(Input::HeartbeatExited { incarnation, exit: kohort_group::membership::ExitKind::Killed });
    }

    pub(crate) fn restart_heart(&mut self) {
        self.incarnation += 1;
        let incarnation = self.incarnation;
        self.input(Input::HeartbeatStarted { incarnation });
    }

    pub(crate) fn handled(&mut self, number: i32, position: i64) {
        let generation = self.core.generation();
        self.input(Input::Handled { generation, partition: partition(number), position, records: 1 });
    }

    /// Waits for the next OffsetCommit.
    pub(crate) fn commit(&mut self) -> (u64, OffsetCommitRequest) {
        while self.asks() == 0 {
            let at = self.core.deadline().expect("something is due");
            self.now = self.now.max(at);
            self.input(Input::Deadline);
        }
        match self.question() {
            (round, Question::CommitOffsets(request)) => (round, request),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn commit_answer(&mut self, round: u64, request: &OffsetCommitRequest, error: ErrorCode) {
        let topics = request.topics.iter().map(|topic| OffsetCommittedTopic {
            name: topic.name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|partition| OffsetCommittedPartition { partition: partition.partition, error })
                .collect(),
        });
        self.answer(round, Ok(Answer::Committed(OffsetCommitResponse { topics: topics.collect() })));
    }

    /// The drain's or release's round.
    pub(crate) fn order(&mut self) -> (u64, &'static str) {
        let found = self.effects.iter().find_map(|effect| match effect {
            Effect::DrainWorkers { round, .. } => Some((*round, "drain")),
            Effect::ReleaseWorkers { round, hook, .. } => {
                Some((*round, if *hook == kohort_group::membership::Hook::Lost { "lost" } else { "revoked" }))
            }
            _ => None,
        });
        let found = found.unwrap_or_else(|| panic!("no order in {:?}", self.effects));
        self.effects.retain(|effect| {
            !matches!(effect, Effect::DrainWorkers { round, .. } | Effect::ReleaseWorkers { round, .. } if *round == found.0)
        });
        found
    }

    pub(crate) fn drained(&mut self) {
        let (round, order) = self.order();
        assert_eq!(order, "drain");
        self.input(Input::Drained { round });
    }

    pub(crate) fn released(&mut self, expected: &str) {
        let (round, order) = self.order();
        assert_eq!(order, expected);
        self.input(Input::Released { round, aborted: Vec::new() });
    }

    pub(crate) fn left(&mut self, response: LeaveGroupResponse) {
        let (round, question) = self.question();
        assert!(matches!(question, Question::Leave(_)), "{question:?}");
        self.answer(round, Ok(Answer::Left(response)));
    }
}

pub(crate) fn node() -> Node {
    Node { id: 1, host: "broker".into(), port: 9092 }
}

/// Follower `m` of leader `l`.
pub(crate) fn follower(generation: i32) -> JoinGroupResponse {
    JoinGroupResponse {
        generation,
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        leader: "l".into(),
        member_id: "m".into(),
        ..Default::default()
    }
}

/// Leader `m`, alone.
pub(crate) fn leader(generation: i32) -> JoinGroupResponse {
    let subscription = Subscription { topics: vec![TOPIC.into()], ..Default::default() };
    let metadata = subscription.encode(1).unwrap();
    let member = JoinMember { member_id: "m".into(), group_instance_id: None, metadata };
    JoinGroupResponse { leader: "m".into(), members: vec![member], ..follower(generation) }
}

pub(crate) fn blob(partitions: &[i32]) -> Bytes {
    let partitions = partitions.iter().map(|number| partition(*number)).collect();
    Assignment { partitions, user_data: None }.encode(1).unwrap()
}

pub(crate) fn assigned(partitions: &[i32]) -> SyncGroupResponse {
    SyncGroupResponse {
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignment: blob(partitions),
        ..Default::default()
    }
}

pub(crate) fn counts(count: i32) -> Answer {
    Answer::PartitionCounts(BTreeMap::from([(TOPIC.to_string(), count)]))
}

pub(crate) fn offsets(list: &[(i32, i64)]) -> OffsetFetchResponse {
    offsets_with(&list.iter().map(|(number, offset)| (*number, *offset, ErrorCode::None)).collect::<Vec<_>>())
}

pub(crate) fn offsets_with(list: &[(i32, i64, ErrorCode)]) -> OffsetFetchResponse {
    let partitions = list
        .iter()
        .map(|(number, offset, error)| FetchedOffset {
            partition: *number,
            offset: *offset,
            leader_epoch: -1,
            metadata: None,
            error: *error,
        })
        .collect();
    let topics = vec![FetchedOffsetsTopic { name: TOPIC.into(), partitions }];
    OffsetFetchResponse {
        groups: vec![FetchedOffsets { group_id: "g".into(), error: ErrorCode::None, topics }],
    }
}
