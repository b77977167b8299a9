//! The simulated world: a coordinator, members with hearts and workers, a network that delays and loses.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::{Duration, Instant};

use kohort_group::Assignor;
use kohort_group::coordinator::{
    CoordinatorConfig, CoordinatorEffect, CoordinatorInput, GroupReply, GroupRequest, GroupState,
};
use kohort_group::membership::{
    Answer, Beat, ExitKind, Failure, GroupMembershipOperation, Question, TerminalCause,
};
use kohort_group::seed::Seeded;
use kohort_group::{
    Coordinator, CrashBound, Effect, Input, MemberState, Membership, MembershipConfig, Notice,
};
use kohort_protocol::messages::{CoordinatorAddress, HeartbeatRequest};
use kohort_protocol::{ErrorCode, TopicPartition};

const GROUP: &str = "g";
const TOPIC: &str = "t";
const PARTITIONS: i32 = 6;
const FAULTS_END: Duration = Duration::from_secs(40);
/// After the faults: the longest session, rebalance and back-off must have room.
const SETTLED_BY: Duration = Duration::from_secs(110);
const HEARTBEAT: Duration = Duration::from_millis(1000);

/// A defect planted on purpose, to see that the invariants can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    WorkersOutliveRelease,
    CommitPastWork,
    AssignTwice,
    SpeakAfterTheEnd,
    NeverHeal,
}

/// What happened in a run.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    pub(crate) generations: u64,
    pub(crate) commits: u64,
    pub(crate) rejoins_after_crash: u64,
    pub(crate) crash_loops: u64,
    pub(crate) closes: u64,
    pub(crate) lost_partitions: u64,
    pub(crate) moves: u64,
    pub(crate) gave_up: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.generations += other.generations;
        self.commits += other.commits;
        self.rejoins_after_crash += other.rejoins_after_crash;
        self.crash_loops += other.crash_loops;
        self.closes += other.closes;
        self.lost_partitions += other.lost_partitions;
        self.moves += other.moves;
        self.gave_up += other.gave_up;
    }
}

enum What {
    MemberTimer {
        member: usize,
    },
    CoordinatorTimer,
    /// A request reaches the coordinator.
    Arrive {
        call: u64,
        request: GroupRequest,
    },
    /// Something reaches a member; `life` guards against a successor in the same slot.
    Deliver {
        member: usize,
        life: u64,
        input: Input,
    },
    BeatDue {
        member: usize,
        life: u64,
        epoch: u64,
        /// One of those that come early; regular ones go on by themselves.
        early: bool,
    },
    WorkerTick {
        member: usize,
        life: u64,
        run: u64,
        partition: i32,
    },
    Fault,
    Birth {
        member: usize,
    },
}

struct Event {
    at: Instant,
    sequence: u64,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

struct Member {
    core: Membership,
    life: u64,
    ended: bool,
    incarnation: u64,
    heart_alive: bool,
    armed: Option<(u64, HeartbeatRequest)>,
    /// Numbers the workers; ticks of another are void.
    run: u64,
    working: BTreeMap<i32, Worker>,
    timer: Option<Instant>,
    crash_bound_trips: u32,
}

struct Worker {
    run: u64,
    generation: i32,
    position: i64,
    delivering: bool,
}

/// Who waits for the reply to a call.
enum Caller {
    Question { member: usize, life: u64, round: u64 },
    Beat { member: usize, life: u64, epoch: u64 },
}

pub(crate) struct World {
    seed: u64,
    sabotage: Sabotage,
    chance: Seeded,
    start: Instant,
    now: Instant,
    sequence: u64,
    queue: BinaryHeap<Event>,
    coordinator: Coordinator,
    coordinator_timer: Option<Instant>,
    members: Vec<Member>,
    calls: BTreeMap<u64, Caller>,
    next_call: u64,
    lives: u64,
    loss_percent: u64,
    /// The coordinator moves, and answers nobody until then.
    moving_until: Instant,
    moves: u64,
    max_delay: Duration,
    /// What the broker speaks: at 9 a static leader is told to skip the assignment, at 5 it cannot be.
    version: i16,
    /// What all members offer.
    assignors: Vec<Assignor>,
    /// Slots whose members are static, under the slot's own instance id.
    statics: BTreeSet<usize>,
    /// Per partition: how far any worker ever got.
    worked: BTreeMap<i32, i64>,
    committed: BTreeMap<i32, i64>,
    /// Who started a partition in a generation.
    owners: BTreeMap<(i32, i32), (usize, u64)>,
    tally: Tally,
    trace: bool,
}

type Checked<T = ()> = Result<T, String>;

impl World {
    pub(crate) fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut chance = Seeded::new(seed);
        let start = Instant::now();
        let size = 2 + chance.below(7) as usize;
        let config = CoordinatorConfig {
            initial_rebalance_delay: if chance.below(3) == 0 {
                Duration::from_millis(500)
            } else {
                Duration::ZERO
            },
            ..CoordinatorConfig::default()
        };
        let mut world = World {
            seed,
            sabotage,
            start,
            now: start,
            sequence: 0,
            queue: BinaryHeap::new(),
            coordinator: Coordinator::new(config, seed),
            coordinator_timer: None,
            members: Vec::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            lives: 0,
            loss_percent: chance.below(12),
            moving_until: start,
            moves: 0,
            max_delay: Duration::from_millis(1 + chance.below(400)),
            version: if chance.below(2) == 0 { 5 } else { 9 },
            assignors: match chance.below(4) {
                0 => vec![Assignor::Range, Assignor::RoundRobin],
                1 => vec![Assignor::Sticky],
                _ => vec![Assignor::CooperativeSticky],
            },
            statics: (0..size).filter(|_| chance.below(2) == 0).collect(),
            worked: BTreeMap::new(),
            committed: BTreeMap::new(),
            owners: BTreeMap::new(),
            tally: Tally::default(),
            trace: std::env::var_os("KOHORT_SIM_TRACE").is_some(),
            chance,
        };
        for member in 0..size {
            let member_core = world.newborn(member);
            world.members.push(member_core);
            let at = world.chance.up_to(Duration::from_secs(5));
            world.after(at, What::Birth { member });
        }
        for _ in 0..world.chance.below(12) {
            let at = Duration::from_secs(3) + world.chance.up_to(FAULTS_END - Duration::from_secs(3));
            world.after(at, What::Fault);
        }
        world
    }

    fn newborn(&mut self, slot: usize) -> Member {
        self.lives += 1;
        let mut config = MembershipConfig::new(GROUP, [TOPIC]);
        config.group_instance_id = self.statics.contains(&slot).then(|| format!("i{slot}"));
        config.assignors.clone_from(&self.assignors);
        config.session_timeout = Duration::from_secs(6);
        config.rebalance_timeout = Duration::from_secs(6 + self.chance.below(6));
        config.request_timeout = Duration::from_secs(2);
        config.session_timeout_padding = Duration::from_secs(2);
        config.commit_interval = Duration::from_secs(1);
        config.crash_rejoin_max_restarts = CrashBound::Max(3);
        config.crash_rejoin_window = Duration::from_secs(30);
        Member {
            core: Membership::new(config, self.seed ^ (self.lives << 32)),
            life: self.lives,
            ended: false,
            incarnation: 0,
            heart_alive: false,
            armed: None,
            run: 0,
            working: BTreeMap::new(),
            timer: None,
            crash_bound_trips: 0,
        }
    }

    fn after(&mut self, wait: Duration, what: What) {
        self.sequence += 1;
        self.queue.push(Event { at: self.now + wait, sequence: self.sequence, what });
    }

    fn faulty(&self) -> bool {
        self.sabotage == Sabotage::NeverHeal || self.now < self.start + FAULTS_END
    }

    fn lossy(&mut self) -> bool {
        let percent = if self.sabotage == Sabotage::NeverHeal { 60 } else { self.loss_percent };
        self.faulty() && self.chance.below(100) < percent
    }

    fn delay(&mut self) -> Duration {
        let max = if self.faulty() { self.max_delay } else { Duration::from_millis(5) };
        self.chance.up_to(max)
    }

    pub(crate) fn run(mut self) -> Result<Tally, String> {
        while let Some(event) = self.queue.pop() {
            if event.at > self.start + SETTLED_BY {
                break;
            }
            self.now = event.at;
            self.step(event.what)
                .map_err(|violation| format!("at {:?}: {violation}", self.now - self.start))?;
        }
        self.check_settled()?;
        Ok(self.tally)
    }

    fn step(&mut self, what: What) -> Checked {
        match what {
            What::Birth { member } => {
                self.deliver(member, Input::Start)?;
                self.start_heart(member)
            }
            What::MemberTimer { member } => {
                if self.members[member].timer == Some(self.now) {
                    self.members[member].timer = None;
                    self.deliver(member, Input::Deadline)?;
                }
                Ok(())
            }
            What::CoordinatorTimer => {
                if self.coordinator_timer == Some(self.now) {
                    self.coordinator_timer = None;
                    self.coordinate(CoordinatorInput::Deadline)?;
                }
                Ok(())
            }
            // While the coordinator moves, the broker that had it says so and knows nothing more.
            What::Arrive { call, .. } if self.now < self.moving_until => {
                self.refuse(call);
                Ok(())
            }
            What::Arrive { call, request } => self.coordinate(CoordinatorInput::Request {
                call,
                version: self.version.min(if matches!(request, GroupRequest::Join(_)) { 9 } else { 5 }),
                client_id: "sim".into(),
                client_host: "/sim".into(),
                request,
            }),
            What::Deliver { member, life, input } => {
                if self.members[member].life == life && !self.members[member].ended {
                    self.deliver(member, input)?;
                }
                Ok(())
            }
            What::BeatDue { member, life, epoch, early } => {
                self.beat(member, life, epoch, early);
                Ok(())
            }
            What::WorkerTick { member, life, run, partition } => self.work(member, life, run, partition),
            What::Fault => self.fault(),
        }
    }

    fn deliver(&mut self, index: usize, input: Input) -> Checked {
        if self.trace {
            eprintln!(
                "{:>10.3?} m{index} {:?} <- {input:?}",
                self.now - self.start,
                self.members[index].core.state()
            );
        }
        let was_final = self.members[index].core.state().is_final();
        let mut effects = self.members[index].core.handle(input, self.now);
        if was_final && self.sabotage == Sabotage::SpeakAfterTheEnd {
            effects.push(Effect::DisarmHeartbeat);
        }
        if was_final && !effects.is_empty() {
            return Err(format!("m{index} is over and yet not silent: {effects:?}"));
        }
        for effect in effects {
            self.perform(index, effect)?;
        }
        let member = &mut self.members[index];
        if member.core.state() == MemberState::PreparingRebalance && member.armed.is_some() {
            return Err(format!("m{index} beats while its JoinGroup is outstanding"));
        }
        if let Some(at) = member.core.deadline() {
            let at = at.max(self.now);
            if member.timer != Some(at) {
                member.timer = Some(at);
                let wait = at - self.now;
                self.after(wait, What::MemberTimer { member: index });
            }
        } else {
            member.timer = None;
        }
        Ok(())
    }

    fn perform(&mut self, index: usize, effect: Effect) -> Checked {
        if self.trace {
            eprintln!("{:>10.3?} m{index}   -> {effect:?}", self.now - self.start);
        }
        match effect {
            Effect::Ask { round, question, within, .. } => self.ask(index, round, question, within),
            Effect::ArmHeartbeat { epoch, request, .. } => {
                let life = self.members[index].life;
                self.members[index].armed = Some((epoch, request));
                self.after(HEARTBEAT, What::BeatDue { member: index, life, epoch, early: false });
                Ok(())
            }
            Effect::HastenHeartbeat { epoch } => {
                let life = self.members[index].life;
                for wait in [5, 15, 35, 75, 155, 315].map(Duration::from_millis) {
                    self.after(wait, What::BeatDue { member: index, life, epoch, early: true });
                }
                Ok(())
            }
            Effect::DisarmHeartbeat => {
                self.members[index].armed = None;
                Ok(())
            }
            Effect::RestartHeartbeat => self.start_heart(index),
            Effect::StartWorkers { generation, partitions } => {
                self.start_workers(index, generation, partitions)
            }
            Effect::DrainWorkers { round, partitions, within } => {
                for partition in partitions {
                    if let Some(worker) = self.members[index].working.get_mut(&partition.partition) {
                        worker.delivering = false;
                    }
                }
                // Now and then a handler does not come back in time.
                let wait = if self.faulty() && self.chance.below(20) == 0 {
                    within + Duration::from_secs(1)
                } else {
                    self.chance.up_to(within.min(Duration::from_millis(300)))
                };
                self.post(index, wait, Input::Drained { round });
                Ok(())
            }
            Effect::ReleaseWorkers { round, partitions, within, .. } => {
                let member = &mut self.members[index];
                if self.sabotage != Sabotage::WorkersOutliveRelease {
                    member.working.retain(|number, _| !partitions.iter().any(|one| one.partition == *number));
                }
                let wait = self.chance.up_to(within.min(Duration::from_millis(300)));
                self.post(index, wait, Input::Released { round, aborted: Vec::new() });
                Ok(())
            }
            Effect::Notice(notice) => {
                match notice {
                    Notice::HeartbeatCrash { .. } => self.tally.rejoins_after_crash += 1,
                    Notice::Lost(partitions) => self.tally.lost_partitions += partitions.len() as u64,
                    // What a cooperative member keeps, it handles in the new generation.
                    Notice::Assigned { generation, .. } => {
                        let member = &self.members[index];
                        let kept: Vec<i32> = member.working.keys().copied().collect();
                        for partition in kept {
                            if self.members[index]
                                .core
                                .assignment()
                                .contains(&TopicPartition::new(TOPIC, partition))
                            {
                                self.own(index, generation, partition)?;
                            }
                        }
                    }
                    _ => {}
                }
                Ok(())
            }
            Effect::Closed(_) => {
                self.tally.closes += 1;
                self.rebirth(index);
                Ok(())
            }
            Effect::Terminate(cause) => {
                if matches!(cause, TerminalCause::WorkersGaveUp { .. }) {
                    self.tally.gave_up += 1;
                    self.rebirth(index);
                    return Ok(());
                }
                if !matches!(cause, TerminalCause::CrashLoop { .. }) {
                    return Err(format!("m{index} ended for {cause:?}, which nothing here calls for"));
                }
                if self.members[index].crash_bound_trips < 4 {
                    return Err(format!(
                        "m{index} tripped after {} crashes",
                        self.members[index].crash_bound_trips
                    ));
                }
                self.tally.crash_loops += 1;
                self.rebirth(index);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The slot's member is over; a fresh one comes. Now and then the old one is poked: it must stay silent.
    fn rebirth(&mut self, index: usize) {
        for input in [
            Input::Deadline,
            Input::HeartbeatStarted { incarnation: 99 },
            Input::Beat { epoch: 1, beat: Beat::Answered(ErrorCode::IllegalGeneration) },
        ] {
            let effects = self.members[index].core.handle(input, self.now);
            let speaks = !effects.is_empty() || self.sabotage == Sabotage::SpeakAfterTheEnd;
            assert!(!speaks, "m{index} is over and yet not silent: {effects:?}");
        }
        let newborn = self.newborn(index);
        self.members[index] = newborn;
        self.members[index].ended = false;
        let wait = Duration::from_millis(200) + self.chance.up_to(Duration::from_secs(2));
        self.after(wait, What::Birth { member: index });
    }

    fn post(&mut self, index: usize, wait: Duration, input: Input) {
        let life = self.members[index].life;
        self.after(wait, What::Deliver { member: index, life, input });
    }

    fn start_heart(&mut self, index: usize) -> Checked {
        let member = &mut self.members[index];
        member.incarnation += 1;
        member.heart_alive = true;
        let incarnation = member.incarnation;
        self.deliver(index, Input::HeartbeatStarted { incarnation })
    }

    fn ask(&mut self, index: usize, round: u64, question: Question, within: Duration) -> Checked {
        let life = self.members[index].life;
        let answer = |answer| Input::Answered { round, answer };
        if self.lossy() {
            // Half of the losses show at once (a reset), half only at the deadline (silence).
            let wait = if self.chance.below(2) == 0 { self.delay() } else { within };
            self.post(index, wait, answer(Err(Failure::Network("lost".into()))));
            return Ok(());
        }
        let request: GroupRequest = match question {
            Question::FindCoordinator(_) => {
                let mut address =
                    CoordinatorAddress { node_id: 1, host: "sim".into(), port: 9092, ..Default::default() };
                if self.now < self.moving_until || (self.faulty() && self.chance.below(10) == 0) {
                    address.error = ErrorCode::CoordinatorNotAvailable;
                }
                let wait = self.delay();
                self.post(index, wait, answer(Ok(Answer::Coordinator(address))));
                return Ok(());
            }
            Question::PartitionCounts(topics) => {
                let counts = topics.into_iter().map(|topic| (topic, PARTITIONS)).collect();
                let wait = self.delay();
                self.post(index, wait, answer(Ok(Answer::PartitionCounts(counts))));
                return Ok(());
            }
            Question::Join(request) => {
                if !self.members[index].working.is_empty() && !self.members[index].core.is_cooperative() {
                    return Err(format!("m{index} joins with workers alive"));
                }
                request.into()
            }
            Question::Sync(mut request) => {
                if self.sabotage == Sabotage::AssignTwice && request.assignments.len() > 1 {
                    let first = request.assignments[0].assignment.clone();
                    for assignment in &mut request.assignments {
                        assignment.assignment = first.clone();
                    }
                }
                request.into()
            }
            Question::FetchOffsets(request) => request.into(),
            Question::CommitOffsets(mut request) => {
                if self.sabotage == Sabotage::CommitPastWork {
                    for partition in request.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                        partition.offset += 100;
                    }
                }
                request.into()
            }
            Question::Leave(request) => request.into(),
            other => return Err(format!("a question the world does not know: {other:?}")),
        };
        self.next_call += 1;
        let call = self.next_call;
        // Lost on the way back: the coordinator acts, the member hears nothing.
        if self.lossy() {
            self.post(index, within, answer(Err(Failure::Network("no answer".into()))));
        } else {
            self.calls.insert(call, Caller::Question { member: index, life, round });
            self.post(index, within, answer(Err(Failure::Network("timed out".into()))));
        }
        let wait = self.delay();
        self.after(wait, What::Arrive { call, request });
        Ok(())
    }

    fn beat(&mut self, index: usize, life: u64, epoch: u64, early: bool) {
        let member = &self.members[index];
        let Some((armed, request)) = &member.armed else { return };
        if member.life != life || *armed != epoch || !member.heart_alive {
            return;
        }
        let request = request.clone();
        if !early {
            self.after(HEARTBEAT, What::BeatDue { member: index, life, epoch, early });
        }
        if self.lossy() {
            let failure = Beat::Failed(Failure::Network("lost".into()));
            self.post(index, Duration::from_secs(2), Input::Beat { epoch, beat: failure });
            return;
        }
        self.next_call += 1;
        let call = self.next_call;
        self.calls.insert(call, Caller::Beat { member: index, life, epoch });
        let wait = self.delay();
        self.after(wait, What::Arrive { call, request: request.into() });
    }

    fn coordinate(&mut self, input: CoordinatorInput) -> Checked {
        let commit =
            matches!(&input, CoordinatorInput::Request { request: GroupRequest::OffsetCommit(_), .. });
        for effect in self.coordinator.handle(input, self.now) {
            match effect {
                CoordinatorEffect::Reply { call, reply } => self.reply(call, reply),
                CoordinatorEffect::Notice(notice) => {
                    if self.trace {
                        eprintln!("{:>10.3?} coordinator {notice:?}", self.now - self.start);
                    }
                    if matches!(
                        notice,
                        kohort_group::coordinator::CoordinatorNotice::GenerationStarted { .. }
                    ) {
                        self.tally.generations += 1;
                    }
                }
                _ => {}
            }
        }
        if commit {
            self.tally.commits += 1;
            self.check_commits()?;
        }
        if let Some(at) = self.coordinator.deadline() {
            let at = at.max(self.now);
            if self.coordinator_timer != Some(at) {
                self.coordinator_timer = Some(at);
                let wait = at - self.now;
                self.after(wait, What::CoordinatorTimer);
            }
        }
        Ok(())
    }

    fn reply(&mut self, call: u64, reply: GroupReply) {
        let Some(caller) = self.calls.remove(&call) else { return };
        let wait = self.delay();
        let (member, life, input) = match (caller, reply) {
            (Caller::Beat { member, life, epoch }, GroupReply::Heartbeat(response)) => {
                (member, life, Input::Beat { epoch, beat: Beat::Answered(response.error) })
            }
            (Caller::Question { member, life, round }, reply) => {
                let answer = match reply {
                    GroupReply::Join(response) => Answer::Joined { version: self.version, response },
                    GroupReply::Sync(response) => Answer::Synced(response),
                    GroupReply::Leave(response) => Answer::Left(response),
                    GroupReply::OffsetCommit(response) => Answer::Committed(response),
                    GroupReply::OffsetFetch(response) => Answer::Offsets(response),
                    other => panic!("a reply to no question: {other:?}"),
                };
                (member, life, Input::Answered { round, answer: Ok(answer) })
            }
            (Caller::Beat { .. }, reply) => panic!("a beat was answered by {reply:?}"),
        };
        if self.faulty() && self.chance.below(20) == 0 {
            // Delivered twice, and late: the second one belongs to no round any more.
            self.after(wait * 2, What::Deliver { member, life, input: input.clone() });
        }
        self.after(wait, What::Deliver { member, life, input });
    }

    /// NOT_COORDINATOR, whatever was asked.
    fn refuse(&mut self, call: u64) {
        let Some(caller) = self.calls.remove(&call) else { return };
        let wait = self.delay();
        let failure = Failure::Network("the coordinator moves".into());
        let (member, life, input) = match caller {
            Caller::Beat { member, life, epoch } => {
                (member, life, Input::Beat { epoch, beat: Beat::Answered(ErrorCode::NotCoordinator) })
            }
            Caller::Question { member, life, round } => {
                (member, life, Input::Answered { round, answer: Err(failure) })
            }
        };
        self.after(wait, What::Deliver { member, life, input });
    }

    /// What is parked is told that the coordinator moved; the next one loads the groups.
    fn move_coordinator(&mut self) -> Checked {
        self.tally.moves += 1;
        self.moves += 1;
        let before = self.coordinator.clone();
        for effect in self.coordinator.unload() {
            if let CoordinatorEffect::Reply { call, reply } = effect {
                self.reply(call, reply);
            }
        }
        let mut next = Coordinator::new(CoordinatorConfig::default(), self.seed ^ (self.moves << 48));
        let wait = self.chance.up_to(Duration::from_secs(3));
        self.moving_until = self.now + wait;
        next.load(&before, self.now + wait);
        self.coordinator = next;
        self.coordinator_timer = None;
        if let Some(at) = self.coordinator.deadline() {
            self.coordinator_timer = Some(at);
            self.after(at.saturating_duration_since(self.now), What::CoordinatorTimer);
        }
        Ok(())
    }

    fn start_workers(
        &mut self,
        index: usize,
        generation: i32,
        starts: Vec<kohort_group::membership::StartPosition>,
    ) -> Checked {
        let life = self.members[index].life;
        for start in starts {
            let partition = start.partition.partition;
            self.own(index, generation, partition)?;
            self.members[index].run += 1;
            let run = self.members[index].run;
            if self.members[index].working.contains_key(&partition) {
                return Err(format!("m{index} starts a second worker for {TOPIC}-{partition}"));
            }
            let position = start.committed.unwrap_or(0);
            let worker = Worker { run, generation, position, delivering: true };
            self.members[index].working.insert(partition, worker);
            if start.committed.is_none() {
                let partition = TopicPartition::new(TOPIC, partition);
                self.post(index, Duration::ZERO, Input::PositionReset { generation, partition, offset: 0 });
            }
            let wait = self.chance.up_to(Duration::from_millis(500));
            self.after(wait, What::WorkerTick { member: index, life, run, partition });
        }
        Ok(())
    }

    /// A partition is handled by one member of a generation only.
    fn own(&mut self, index: usize, generation: i32, partition: i32) -> Checked {
        let life = self.members[index].life;
        // A static member's next life takes over within the generation; its last one is gone by then.
        let owner = *self.owners.entry((generation, partition)).or_insert((index, life));
        let successor = owner.0 == index && self.statics.contains(&index);
        if owner != (index, life) && !successor {
            return Err(format!(
                "{TOPIC}-{partition} has two members in generation {generation}: m{} and m{index}",
                owner.0
            ));
        }
        Ok(())
    }

    fn work(&mut self, index: usize, life: u64, run: u64, partition: i32) -> Checked {
        let records = 1 + self.chance.below(20) as i64;
        let member = &mut self.members[index];
        if member.life != life {
            return Ok(());
        }
        let Some(worker) =
            member.working.get_mut(&partition).filter(|worker| worker.run == run && worker.delivering)
        else {
            return Ok(());
        };
        worker.position += records;
        let (position, generation) = (worker.position, worker.generation);
        let worked = self.worked.entry(partition).or_default();
        *worked = (*worked).max(position);
        let wait = Duration::from_millis(400) + self.chance.up_to(Duration::from_millis(600));
        self.after(wait, What::WorkerTick { member: index, life, run, partition });
        let partition = TopicPartition::new(TOPIC, partition);
        self.deliver(index, Input::Handled { generation, partition, position, records: records as u64 })
    }

    fn check_commits(&mut self) -> Checked {
        let Some(view) = self.coordinator.group(GROUP) else { return Ok(()) };
        for ((_, partition), offset) in view.offsets {
            let before = self.committed.insert(partition, offset.offset).unwrap_or(0);
            if offset.offset < before {
                return Err(format!(
                    "the commit of {TOPIC}-{partition} went back from {before} to {}",
                    offset.offset
                ));
            }
            let worked = self.worked.get(&partition).copied().unwrap_or(0);
            if offset.offset > worked {
                return Err(format!(
                    "{TOPIC}-{partition} is committed at {}, past the work at {worked}",
                    offset.offset
                ));
            }
        }
        Ok(())
    }

    fn fault(&mut self) -> Checked {
        let index = self.chance.below(self.members.len() as u64) as usize;
        match self.chance.below(13) {
            // The heart dies, now and then in a series.
            0..=5 => {
                if self.members[index].heart_alive {
                    self.crash_heart(index)?;
                }
                if self.chance.below(2) == 0 {
                    self.after(Duration::from_millis(300), What::Fault);
                }
                Ok(())
            }
            // The whole member vanishes; its timers and answers go with it.
            6..=7 => {
                let newborn = self.newborn(index);
                self.members[index] = newborn;
                let wait = Duration::from_millis(500) + self.chance.up_to(Duration::from_secs(3));
                self.after(wait, What::Birth { member: index });
                Ok(())
            }
            8..=9 => self.move_coordinator(),
            10 => {
                let cause = "a poison record".into();
                self.deliver(index, Input::WorkersGaveUp { partition: None, cause })
            }
            _ => {
                let operation = match self.chance.below(4) {
                    0 => GroupMembershipOperation::RemainInGroup,
                    1 => GroupMembershipOperation::LeaveGroup,
                    _ => GroupMembershipOperation::Default,
                };
                let deadline = self.now + self.chance.up_to(Duration::from_secs(5));
                self.deliver(index, Input::Close { operation, deadline })
            }
        }
    }

    /// Kills the heart; half of the time the new one, too, at once, up to the bound.
    fn crash_heart(&mut self, index: usize) -> Checked {
        let kills = if self.chance.below(4) == 0 { 4 } else { 1 };
        let life = self.members[index].life;
        for _ in 0..kills {
            let member = &mut self.members[index];
            if member.life != life || !member.heart_alive || member.core.is_ending() {
                break;
            }
            member.heart_alive = false;
            member.armed = None;
            member.crash_bound_trips += 1;
            let incarnation = member.incarnation;
            self.deliver(index, Input::HeartbeatExited { incarnation, exit: ExitKind::Killed })?;
        }
        Ok(())
    }

    /// The faults are over for long: everybody alive is in, and every partition has exactly one worker.
    fn check_settled(&self) -> Checked {
        let view = self.coordinator.group(GROUP).ok_or("did not settle: no group")?;
        if view.state != GroupState::Stable {
            return Err(format!("did not settle: the group is {:?}", view.state));
        }
        let mut seen = BTreeSet::new();
        for (index, member) in self.members.iter().enumerate() {
            if member.core.state() != MemberState::Stable || member.core.generation() != view.generation {
                return Err(format!(
                    "did not settle: m{index} is {} in generation {}, the group in {}",
                    member.core.state(),
                    member.core.generation(),
                    view.generation
                ));
            }
            for partition in member.working.keys() {
                if !seen.insert(*partition) {
                    return Err(format!("did not settle: two workers for {TOPIC}-{partition}"));
                }
            }
        }
        if seen.len() != PARTITIONS as usize {
            return Err(format!("did not settle: only {seen:?} have a worker"));
        }
        let ids: BTreeSet<_> = self.members.iter().map(|member| member.core.member_id()).collect();
        if ids.len() != self.members.len() || view.members.len() != ids.len() {
            return Err(format!("did not settle: {} members for {} ids", view.members.len(), ids.len()));
        }
        Ok(())
    }
}
