//! The simulated world: virtual time, chance, and who is in it. What happens in it is in the other rooms: `member`
//! drives the members, `network` carries questions and beats to the coordinator of `broker`, `workers` handle
//! partitions, `faults` break things; `invariants` is what must hold meanwhile.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::{Duration, Instant};

use kohort_group::coordinator::{CoordinatorConfig, GroupRequest, GroupState};
use kohort_group::seed::Seeded;
use kohort_group::{Assignor, Coordinator, Input, MemberState, Membership};

use crate::invariants::{Checked, Invariant, Violation};
use crate::member::Member;
use crate::network::Caller;

pub(crate) const GROUP: &str = "g";
pub(crate) const TOPIC: &str = "t";
pub(crate) const PARTITIONS: i32 = 6;
const FAULTS_END: Duration = Duration::from_secs(40);
/// After the faults: the longest session, rebalance and back-off must have room.
const SETTLED_BY: Duration = Duration::from_secs(110);
/// Records that a partition handles between two commits, and to spare.
const COMMIT_LAG: i64 = 200;

/// What happened, by name. A world in which nothing happens keeps every invariant.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally(pub(crate) BTreeMap<&'static str, u64>);

impl Tally {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

pub(crate) enum What {
    MemberTimer {
        member: usize,
    },
    CoordinatorTimer,
    /// A request reaches the coordinator.
    Arrive {
        call: u64,
        request: GroupRequest,
    },
    /// Something reaches a member; `life` guards against a successor in the same place.
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
    WorkerRestart {
        member: usize,
        life: u64,
        run: u64,
        partition: i32,
    },
    Fault,
    Birth {
        member: usize,
        life: u64,
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

pub(crate) struct World {
    pub(crate) seed: u64,
    /// The invariant that this world breaks on purpose.
    plant: Option<Invariant>,
    pub(crate) chance: Seeded,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    sequence: u64,
    queue: BinaryHeap<Event>,
    pub(crate) coordinator: Coordinator,
    pub(crate) coordinator_timer: Option<Instant>,
    /// The incarnation in each slot; behind the slots, second incarnations of static members.
    pub(crate) members: Vec<Member>,
    /// Those that are over, by their life.
    pub(crate) graves: BTreeMap<u64, Membership>,
    pub(crate) calls: BTreeMap<u64, Caller>,
    pub(crate) next_call: u64,
    pub(crate) lives: u64,
    pub(crate) loss_percent: u64,
    /// The coordinator moves, and answers nobody until then.
    pub(crate) moving_until: Instant,
    pub(crate) moves: u64,
    pub(crate) max_delay: Duration,
    /// What the broker speaks: at 9 a static leader is told to skip the assignment, at 5 it cannot be.
    pub(crate) version: i16,
    /// What the first incarnation in a slot offers, and what those after it offer.
    pub(crate) offers: Vec<[Vec<Assignor>; 2]>,
    /// Slots whose members are static, under the slot's own instance id.
    pub(crate) statics: BTreeSet<usize>,
    /// Who has each instance id at the coordinator, and the member ids that lost theirs to another.
    pub(crate) instances: BTreeMap<String, String>,
    pub(crate) superseded: BTreeSet<String>,
    /// Per partition: how far any worker ever got.
    pub(crate) worked: BTreeMap<i32, i64>,
    pub(crate) committed: BTreeMap<i32, i64>,
    /// Who handles a partition in a generation.
    pub(crate) owners: BTreeMap<(i32, i32), usize>,
    pub(crate) tally: Tally,
    pub(crate) trace: bool,
}

impl World {
    pub(crate) fn new(seed: u64, plant: Option<Invariant>) -> Self {
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
            plant,
            start,
            now: start,
            sequence: 0,
            queue: BinaryHeap::new(),
            coordinator: Coordinator::new(config, seed),
            coordinator_timer: None,
            members: Vec::new(),
            graves: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            lives: 0,
            loss_percent: chance.below(12),
            moving_until: start,
            moves: 0,
            max_delay: Duration::from_millis(1 + chance.below(400)),
            version: if chance.below(2) == 0 { 5 } else { 9 },
            offers: offers(&mut chance, size),
            statics: (0..size).filter(|_| chance.below(2) == 0).collect(),
            instances: BTreeMap::new(),
            superseded: BTreeSet::new(),
            worked: BTreeMap::new(),
            committed: BTreeMap::new(),
            owners: BTreeMap::new(),
            tally: Tally::default(),
            trace: std::env::var_os("KOHORT_SIM_TRACE").is_some(),
            chance,
        };
        for slot in 0..size {
            let member = world.newborn(slot, 0);
            let life = member.life;
            world.members.push(member);
            let at = world.chance.up_to(Duration::from_secs(5));
            world.after(at, What::Birth { member: slot, life });
        }
        for _ in 0..world.chance.below(12) {
            let at = Duration::from_secs(3) + world.chance.up_to(FAULTS_END - Duration::from_secs(3));
            world.after(at, What::Fault);
        }
        world
    }

    pub(crate) fn plants(&self, invariant: Invariant) -> bool {
        self.plant == Some(invariant)
    }

    pub(crate) fn after(&mut self, wait: Duration, what: What) {
        self.sequence += 1;
        self.queue.push(Event { at: self.now + wait, sequence: self.sequence, what });
    }

    pub(crate) fn faulty(&self) -> bool {
        self.plants(Invariant::Settles) || self.now < self.start + FAULTS_END
    }

    /// Is there no assignor that all members offer? Then the group may refuse some of them.
    pub(crate) fn has_no_common_assignor(&self) -> bool {
        let mut lists = self.offers.iter().flatten();
        let Some(first) = lists.next() else { return true };
        let common = |one: &Assignor| self.offers.iter().flatten().all(|list| list.contains(one));
        !first.iter().any(common)
    }

    /// The incarnations that are not over.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.members.iter().enumerate().filter(|(_, member)| !member.over)
    }

    pub(crate) fn run(mut self) -> Result<Tally, Violation> {
        while let Some(event) = self.queue.pop() {
            if event.at > self.start + SETTLED_BY {
                break;
            }
            self.now = event.at;
            let checked = self.check_ends().and_then(|()| self.step(event.what));
            checked.map_err(|violation| Violation {
                detail: format!("at {:?}: {}", self.now - self.start, violation.detail),
                ..violation
            })?;
        }
        self.check_settled()?;
        Ok(self.tally)
    }

    fn step(&mut self, what: What) -> Checked {
        match what {
            What::Birth { member, life } => {
                if self.members[member].life == life {
                    self.deliver(member, Input::Start)?;
                    self.start_heart(member)?;
                }
                Ok(())
            }
            What::MemberTimer { member } => {
                if self.members[member].timer == Some(self.now) {
                    self.members[member].timer = None;
                    self.deliver(member, Input::Deadline)?;
                }
                Ok(())
            }
            What::CoordinatorTimer => self.coordinator_is_due(),
            What::Arrive { call, request } => self.arrive(call, request),
            What::Deliver { member, life, input } => {
                if self.members[member].life == life {
                    self.deliver(member, input)
                } else {
                    self.disturb(life, input)
                }
            }
            What::BeatDue { member, life, epoch, early } => self.beat(member, life, epoch, early),
            What::WorkerTick { member, life, run, partition } => self.work(member, life, run, partition),
            What::WorkerRestart { member, life, run, partition } => {
                self.restart_worker(member, life, run, partition)
            }
            What::Fault => self.fault(),
        }
    }

    /// The faults are over for long.
    fn check_settled(&self) -> Checked {
        let unsettled = Invariant::Settles;
        let Some(view) = self.coordinator.group(GROUP) else { return unsettled.broken("there is no group") };
        unsettled.holds(view.state == GroupState::Stable, || format!("the group is {:?}", view.state))?;
        let mut seen = BTreeSet::new();
        let mut ids = BTreeSet::new();
        let mut slots = BTreeSet::new();
        for (index, member) in self.live() {
            let stands = (member.core.state(), member.core.generation());
            unsettled.holds(stands == (MemberState::Stable, view.generation), || {
                format!(
                    "m{index} is {} in generation {}, the group in {}",
                    stands.0, stands.1, view.generation
                )
            })?;
            for (partition, worker) in &member.working {
                unsettled.holds(worker.alive, || format!("{TOPIC}-{partition} has a dead worker"))?;
                unsettled
                    .holds(seen.insert(*partition), || format!("two workers for {TOPIC}-{partition}"))?;
            }
            ids.insert(member.core.member_id());
            unsettled
                .holds(slots.insert(member.slot), || format!("two incarnations in slot {}", member.slot))?;
        }
        unsettled.holds(seen.len() == PARTITIONS as usize, || format!("only {seen:?} have a worker"))?;
        for (partition, worked) in &self.worked {
            let committed = self.committed.get(partition).copied().unwrap_or(0);
            unsettled.holds(committed + COMMIT_LAG >= *worked, || {
                format!("{TOPIC}-{partition} is committed at {committed} and handled up to {worked}")
            })?;
        }
        unsettled.holds(slots.len() == self.offers.len() || self.has_no_common_assignor(), || {
            format!("of {} members only {slots:?} live", self.offers.len())
        })?;
        unsettled.holds(ids.into_iter().eq(view.members.keys().map(String::as_str)), || {
            format!("the group knows others than those that live: {:?}", view.members.keys())
        })
    }
}

/// What the members of each slot offer, first and later.
fn offers(chance: &mut Seeded, size: usize) -> Vec<[Vec<Assignor>; 2]> {
    use Assignor::{CooperativeSticky as Cooperative, Range, RoundRobin, Sticky};
    let same = |first: &[Assignor], later: &[Assignor]| vec![[first.to_vec(), later.to_vec()]; size];
    let pick = |chance: &mut Seeded, lists: &[&[Assignor]]| {
        lists[chance.below(lists.len() as u64) as usize].to_vec()
    };
    match chance.below(10) {
        0 => same(&[Range, RoundRobin], &[Range, RoundRobin]),
        1 => same(&[Sticky], &[Sticky]),
        2..=4 => same(&[Cooperative], &[Cooperative]),
        // The change-over of a group (KIP-429), and back.
        5 => same(&[Range, Cooperative], &[Cooperative]),
        6 => same(&[Cooperative], &[Range, Cooperative]),
        // All are eager and have range in common.
        7 => {
            let lists: [&[Assignor]; 5] = [
                &[Range],
                &[Range, Cooperative],
                &[Cooperative, Range],
                &[RoundRobin, Range],
                &[Sticky, Range, Cooperative],
            ];
            (0..size).map(|_| [pick(chance, &lists), pick(chance, &lists)]).collect()
        }
        // Cooperative ones beside eager ones that offer the cooperative assignor too.
        8 => {
            let lists: [&[Assignor]; 4] =
                [&[Cooperative], &[Cooperative], &[Range, Cooperative], &[Cooperative, Sticky]];
            (0..size).map(|_| [pick(chance, &lists), pick(chance, &lists)]).collect()
        }
        // Nothing is common to all, though it may be to some: who comes too late is refused.
        _ => {
            let cycle: [&[Assignor]; 3] = [&[Range, RoundRobin], &[RoundRobin, Sticky], &[Sticky, Range]];
            let apart: [&[Assignor]; 2] = [&[Range, Sticky], &[Cooperative]];
            let lists: &[&[Assignor]] = if chance.below(2) == 0 { &cycle } else { &apart };
            let list = |chance: &mut Seeded| pick(chance, lists);
            (0..size)
                .map(|_| {
                    let list = list(chance);
                    [list.clone(), list]
                })
                .collect()
        }
    }
}
