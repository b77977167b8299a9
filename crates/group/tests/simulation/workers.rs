//! Workers: they handle partitions from where these start, report how far they are, die and are restarted.

use std::time::Duration;

use kohort_group::Input;
use kohort_group::membership::StartPosition;
use kohort_protocol::TopicPartition;

use crate::invariants::{Checked, Invariant};
use crate::world::{TOPIC, What, World};

/// So often a partition's worker is restarted before its supervisor gives up.
const RESTARTS: u32 = 3;

pub(crate) struct Worker {
    run: u64,
    generation: i32,
    /// How far the partition is handled. It outlives a worker's death, as the slot of a real one does.
    position: i64,
    delivering: bool,
    pub(crate) alive: bool,
    deaths: u32,
}

impl World {
    pub(crate) fn start_workers(
        &mut self,
        index: usize,
        generation: i32,
        starts: Vec<StartPosition>,
    ) -> Checked {
        for start in starts {
            let partition = start.partition.partition;
            self.own(index, generation, partition)?;
            let second = self.members[index].working.contains_key(&partition);
            Invariant::OneWorkerPerPartition
                .holds(!second, || format!("m{index} starts a second worker for {TOPIC}-{partition}"))?;
            let mut position = start.committed.unwrap_or(0);
            if self.plants(Invariant::NothingIsSkipped) {
                position += 100;
            }
            let worker = Worker { run: 0, generation, position, delivering: true, alive: true, deaths: 0 };
            self.members[index].working.insert(partition, worker);
            if start.committed.is_none() {
                let partition = TopicPartition::new(TOPIC, partition);
                self.post(index, Duration::ZERO, Input::PositionReset { generation, partition, offset: 0 });
            }
            self.run_worker(index, partition)?;
        }
        Ok(())
    }

    /// A worker begins at its partition's position.
    fn run_worker(&mut self, index: usize, partition: i32) -> Checked {
        let wait = self.chance.up_to(Duration::from_millis(500));
        let worked = self.worked.get(&partition).copied().unwrap_or(0);
        let member = &mut self.members[index];
        let Some(worker) = member.working.get_mut(&partition) else { return Ok(()) };
        member.run += 1;
        (worker.run, worker.alive) = (member.run, true);
        let (life, run, position) = (member.life, worker.run, worker.position);
        Invariant::NothingIsSkipped.holds(position <= worked, || {
            format!("m{index} starts {TOPIC}-{partition} at {position}, handled up to {worked}")
        })?;
        self.after(wait, What::WorkerTick { member: index, life, run, partition });
        Ok(())
    }

    /// A partition is handled by one member of a generation. A static member's successor takes over within it.
    pub(crate) fn own(&mut self, index: usize, generation: i32, partition: i32) -> Checked {
        let owner = *self.owners.entry((generation, partition)).or_insert(index);
        let slot = |index: usize| self.members[index].slot;
        let successor = slot(owner) == slot(index) && self.statics.contains(&slot(index));
        Invariant::OneMemberPerPartition.holds(owner == index || successor, || {
            format!("{TOPIC}-{partition} has two members in generation {generation}: m{owner} and m{index}")
        })
    }

    pub(crate) fn work(&mut self, index: usize, life: u64, run: u64, partition: i32) -> Checked {
        let records = 1 + self.chance.below(20) as i64;
        let member = &mut self.members[index];
        let Some(worker) = member.working.get_mut(&partition).filter(|worker| worker.run == run) else {
            return Ok(());
        };
        if member.life != life || !worker.delivering || !worker.alive {
            return Ok(());
        }
        if member.poisoned == Some(partition) {
            return self.kill_worker(index, partition);
        }
        worker.position += records;
        let (position, generation) = (worker.position, worker.generation);
        let worked = self.worked.entry(partition).or_default();
        *worked = (*worked).max(position);
        let wait = Duration::from_millis(400) + self.chance.up_to(Duration::from_millis(600));
        self.after(wait, What::WorkerTick { member: index, life, run, partition });
        let partition = TopicPartition::new(TOPIC, partition);
        self.deliver(index, Input::Handled { generation, partition, position, records: records as u64 })
    }

    /// A worker dies in the middle of its records. It is restarted, or its member is told that this was too often.
    pub(crate) fn kill_worker(&mut self, index: usize, partition: i32) -> Checked {
        let wait = self.chance.up_to(Duration::from_millis(500));
        let member = &mut self.members[index];
        let life = member.life;
        let Some(worker) = member.working.get_mut(&partition).filter(|worker| worker.alive) else {
            return Ok(());
        };
        (worker.alive, worker.deaths) = (false, worker.deaths + 1);
        let run = worker.run;
        if worker.deaths > RESTARTS {
            let partition = Some(TopicPartition::new(TOPIC, partition));
            return self.deliver(index, Input::WorkersGaveUp { partition, cause: "a poison record".into() });
        }
        self.tally.count("worker crashes");
        self.after(wait, What::WorkerRestart { member: index, life, run, partition });
        Ok(())
    }

    pub(crate) fn restart_worker(&mut self, index: usize, life: u64, run: u64, partition: i32) -> Checked {
        let member = &self.members[index];
        let dead = |worker: &&Worker| worker.run == run && !worker.alive;
        // Given back meanwhile: the next owner's worker is none of this one's concern.
        if member.life != life || member.working.get(&partition).filter(dead).is_none() {
            return Ok(());
        }
        self.run_worker(index, partition)
    }

    pub(crate) fn drain_workers(&mut self, index: usize, partitions: &[TopicPartition]) {
        for partition in partitions {
            if let Some(worker) = self.members[index].working.get_mut(&partition.partition) {
                worker.delivering = false;
            }
        }
    }

    pub(crate) fn release_workers(&mut self, index: usize, partitions: &[TopicPartition]) {
        if self.plants(Invariant::NoWorkersAcrossAJoin) {
            return;
        }
        let released = |number: i32| partitions.iter().any(|one| one.partition == number);
        self.members[index].working.retain(|number, _| !released(*number));
    }
}
