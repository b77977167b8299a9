//! Three members of one group, on real actors, through seeded faults, rebalances and closes; then everything has to
//! settle. The pure simulation's sibling: fewer seeds, but workers, fetchers, connections and supervisors are real.
//!
//! `KOHORT_WORLDS=500` runs so many seeds, `KOHORT_WORLD=17` that one alone.

use std::collections::BTreeMap;

use kohort::{
    Assignor, CloseOptions, ConsumerGroup, ErrorCode, GroupMembershipOperation, Health, Member, MemberState,
};
use kohort_broker::{Broker, Fault};
use kohort_protocol::ApiKey;
use tokio::time::{Duration, Instant, sleep};

use crate::support::{GROUP, Seen, Slow, TOPIC, group, kill_child, millis, secs};

const PARTITIONS: i32 = 6;
const STEPS: u64 = 40;
/// Of `cargo test`.
const WORLDS: u64 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Slow answers, rebalances, closes and restarts: every record is handled once, unless a close says what it dropped.
    Orderly,
    /// Lost requests and answers, refusals, kills, broker restarts: every record is handled.
    Rough,
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn upto(&mut self, most: u64) -> Duration {
        millis(self.below(most))
    }
}

struct World {
    kind: Kind,
    chance: Chance,
    broker: Broker,
    groups: Vec<ConsumerGroup>,
    members: Vec<Member>,
    seen: Seen,
    produced: usize,
    /// Of closes that said so, and of what was cut short.
    dropped: usize,
}

impl World {
    async fn new(kind: Kind, seed: u64) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1);
        let broker = Broker::builder().in_memory().topic(TOPIC, PARTITIONS).seed(seed).start().await.unwrap();
        let (lists, is_static) = (chance.below(3), chance.below(2) == 0);
        let each = millis([0, 20, 150, 400][chance.below(4) as usize]);
        let seen = Seen::default();
        let make = |index: u64| {
            let assignors = match lists {
                0 => vec![Assignor::CooperativeSticky],
                1 => vec![Assignor::Range],
                // A group that changes over: eager members, and one that is cooperative already.
                _ if index == 0 => vec![Assignor::CooperativeSticky],
                _ => vec![Assignor::Range, Assignor::CooperativeSticky],
            };
            let builder =
                group(&broker).assignors(assignors).seed(seed * 31 + index).commit_interval(millis(700));
            let builder = if is_static { builder.group_instance_id(format!("i{index}")) } else { builder };
            let seen = seen.clone();
            builder.handler(move |_| Slow { seen: seen.clone(), each }).build().unwrap()
        };
        let groups: Vec<ConsumerGroup> = (0..3).map(make).collect();
        let mut members = Vec::new();
        for group in &groups {
            members.push(group.start().await.unwrap());
        }
        Self { kind, chance, broker, groups, members, seen, produced: 0, dropped: 0 }
    }

    async fn step(&mut self, step: u64) -> Result<(), String> {
        for _ in 0..self.chance.below(7) {
            let partition = self.chance.below(PARTITIONS as u64) as i32;
            // Refused while the broker starts again: then it does not count.
            if self.broker.produce_to(TOPIC, partition, Some(b"key"), Some(b"value")).await.is_ok() {
                self.produced += 1;
            }
        }
        let slow = self.chance.upto(2500);
        let at = self.chance.below(3) as usize;
        match self.chance.below(if self.kind == Kind::Orderly { 8 } else { 24 }) {
            0 => self.fault(ApiKey::JoinGroup, Fault::Delay(slow)),
            1 => self.fault(ApiKey::JoinGroup, Fault::DelayAnswer(slow)),
            2 => self.fault(ApiKey::SyncGroup, Fault::Delay(slow)),
            3 | 4 => self.fault(ApiKey::Heartbeat, Fault::Error(ErrorCode::RebalanceInProgress)),
            5 | 6 => self.restart_member(at).await?,
            7 => {}
            8 => self.fault(ApiKey::JoinGroup, Fault::Drop),
            9 => self.fault(ApiKey::JoinGroup, Fault::DropAnswer),
            10 => self.fault(ApiKey::SyncGroup, Fault::Drop),
            11 => self.fault(ApiKey::SyncGroup, Fault::Error(ErrorCode::RebalanceInProgress)),
            12 => self.fault(ApiKey::OffsetCommit, Fault::Error(ErrorCode::NotCoordinator)),
            13 => self.fault(ApiKey::OffsetCommit, Fault::Error(ErrorCode::IllegalGeneration)),
            14 => self.fault(ApiKey::OffsetCommit, Fault::DropAnswer),
            15 => self.fault(ApiKey::OffsetFetch, Fault::Disconnect),
            16 => self.fault(ApiKey::Heartbeat, Fault::Error(ErrorCode::UnknownMemberId)),
            17 => self.fault(ApiKey::Heartbeat, Fault::Drop),
            18 => self.fault(ApiKey::FindCoordinator, Fault::Error(ErrorCode::CoordinatorNotAvailable)),
            19 => self.fault(ApiKey::LeaveGroup, Fault::Error(ErrorCode::NotCoordinator)),
            20 => self.fault(ApiKey::JoinGroup, Fault::Error(ErrorCode::CoordinatorLoadInProgress)),
            21 => self.broker.restart().await.unwrap(),
            // Seldom enough for the crash bound.
            22 if step.is_multiple_of(4) => self.kill(at, "heartbeat").await,
            23 if step.is_multiple_of(8) => {
                self.kill(at, "manager").await;
                let _ = self.members[at].ended().await;
                self.members[at] = self.groups[at].start().await.unwrap();
            }
            _ => {}
        }
        sleep(self.chance.upto(3000)).await;
        Ok(())
    }

    fn fault(&self, api: ApiKey, fault: Fault) {
        self.broker.faults().on(api).times(1).inject(fault);
    }

    async fn kill(&self, at: usize, child: &str) {
        let children = self.members[at].which_children().await.unwrap_or_default();
        if children.iter().any(|one| one.id == child && one.cell.is_some()) {
            kill_child(&self.members[at], child).await;
        }
    }

    async fn restart_member(&mut self, at: usize) -> Result<(), String> {
        let operation = GroupMembershipOperation::ALL[self.chance.below(3) as usize];
        let limit = if self.kind == Kind::Orderly { secs(5) } else { self.chance.upto(3000) };
        let options = CloseOptions::timeout(limit).with_group_membership_operation(operation);
        let begun = Instant::now();
        let report = self.members[at].close(options).await;
        if begun.elapsed() > limit + secs(2) {
            return Err(format!("a close took {:?} of {limit:?}", begun.elapsed()));
        }
        self.dropped += report.dropped.len() + usize::from(report.forced);
        if self.chance.below(2) == 0 {
            sleep(self.chance.upto(4000)).await;
        }
        self.members[at] = self.groups[at].start().await.unwrap();
        Ok(())
    }

    /// The faults are over for long.
    async fn settled(&mut self) -> Result<(), String> {
        self.broker.faults().clear();
        sleep(secs(120)).await;
        let mut owners: BTreeMap<i32, usize> = BTreeMap::new();
        for member in &self.members {
            let status = member.status();
            if status.state != MemberState::Stable || !matches!(status.health, Health::Healthy) {
                return Err(format!("{} is {:?}, {:?}", status.member_id, status.state, status.health));
            }
            for at in status.assignment {
                *owners.entry(at.partition.partition).or_default() += 1;
            }
        }
        if owners.len() != PARTITIONS as usize || owners.values().any(|count| *count != 1) {
            return Err(format!("owners by partition: {owners:?}"));
        }
        for partition in 0..PARTITIONS {
            let end = self.broker.log_end_offset(TOPIC, partition).unwrap();
            let committed = self.broker.committed(GROUP, TOPIC, partition);
            if committed.unwrap_or(0) != end {
                return Err(format!("partition {partition} ends at {end}, committed is {committed:?}"));
            }
        }
        let counts = self.seen.counts();
        if counts.len() != self.produced {
            return Err(format!("{} of {} records were handled", counts.len(), self.produced));
        }
        let twice: Vec<_> = counts.iter().filter(|(_, times)| **times > 1).collect();
        if self.kind == Kind::Orderly && self.dropped == 0 && !twice.is_empty() {
            return Err(format!("handled again: {twice:?}"));
        }
        for member in &self.members {
            member.close(CloseOptions::timeout(secs(5))).await;
        }
        Ok(())
    }
}

async fn run(kind: Kind, seed: u64) -> Result<(), String> {
    let mut world = World::new(kind, seed).await;
    for step in 0..STEPS {
        world.step(step).await?;
    }
    world.settled().await
}

async fn all(kind: Kind, test: &str) {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("KOHORT_WORLD") {
        Some(seed) => seed..seed + 1,
        None => 0..number("KOHORT_WORLDS").unwrap_or(WORLDS),
    };
    let mut failed = 0;
    for seed in seeds {
        if let Err(what) = run(kind, seed).await {
            eprintln!("seed {seed}: {what}");
            eprintln!("  again: KOHORT_WORLD={seed} cargo test -p kohort --test member {test}");
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "worlds that failed");
}

#[tokio::test(start_paused = true)]
async fn in_an_orderly_world_every_record_is_handled_once() {
    all(Kind::Orderly, "in_an_orderly_world").await;
}

#[tokio::test(start_paused = true)]
async fn in_a_rough_world_everything_settles_and_no_record_is_lost() {
    all(Kind::Rough, "in_a_rough_world").await;
}
