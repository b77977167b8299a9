//! What goes wrong: hearts, workers and whole members die, the coordinator moves or restarts, members are closed, a
//! second process comes under a static member's name.

use std::time::Duration;

use kohort_group::Input;
use kohort_group::membership::GroupMembershipOperation;

use crate::invariants::Checked;
use crate::world::{What, World};

impl World {
    pub(crate) fn fault(&mut self) -> Checked {
        let live: Vec<usize> = self.live().map(|(index, _)| index).collect();
        if live.is_empty() || !self.faulty() {
            return Ok(());
        }
        let index = live[self.chance.below(live.len() as u64) as usize];
        match self.chance.below(20) {
            0..=6 => {
                if self.members[index].heart_alive {
                    self.crash_heart(index)?;
                }
                // Now and then in a series.
                if self.chance.below(2) == 0 {
                    self.after(Duration::from_millis(300), What::Fault);
                }
                Ok(())
            }
            7..=9 => {
                self.crash_manager(index);
                Ok(())
            }
            10..=11 => self.move_coordinator(),
            12 => {
                self.restart_coordinator();
                Ok(())
            }
            13..=14 => self.crash_worker(index),
            15..=16 => {
                self.usurp(index);
                Ok(())
            }
            _ => self.close(index),
        }
    }

    /// Kills the heart; now and then each new one too, at once, until the bound is over.
    fn crash_heart(&mut self, index: usize) -> Checked {
        let kills = if self.chance.below(4) == 0 { 4 } else { 1 };
        let life = self.members[index].life;
        for _ in 0..kills {
            let member = &self.members[index];
            if member.life != life || !member.heart_alive || member.core.is_ending() {
                break;
            }
            self.stop_heart(index)?;
        }
        Ok(())
    }

    /// The whole incarnation vanishes without a word, timers and answers with it; a fresh one comes.
    fn crash_manager(&mut self, index: usize) {
        let is_static = self.statics.contains(&self.members[index].slot);
        self.tally.count(if is_static { "static manager crashes" } else { "dynamic manager crashes" });
        self.rebirth(index);
    }

    /// A worker dies once, or whenever it is restarted.
    fn crash_worker(&mut self, index: usize) -> Checked {
        let working: Vec<i32> = self.members[index].working.keys().copied().collect();
        if working.is_empty() {
            return Ok(());
        }
        let partition = working[self.chance.below(working.len() as u64) as usize];
        if self.chance.below(2) == 0 {
            self.members[index].poisoned = Some(partition);
        }
        self.kill_worker(index, partition)
    }

    /// Another process starts under the same instance id while this one lives.
    fn usurp(&mut self, index: usize) {
        let slot = self.members[index].slot;
        let rivals = self.live().filter(|(_, member)| member.slot == slot).count();
        if !self.statics.contains(&slot) || rivals > 1 {
            return;
        }
        self.tally.count("second incarnations");
        let usurper = self.newborn(slot, 1);
        let (member, life) = (self.members.len(), usurper.life);
        self.members.push(usurper);
        let wait = self.chance.up_to(Duration::from_secs(1));
        self.after(wait, What::Birth { member, life });
    }

    fn close(&mut self, index: usize) -> Checked {
        let operation = match self.chance.below(4) {
            0 => GroupMembershipOperation::RemainInGroup,
            1 => GroupMembershipOperation::LeaveGroup,
            _ => GroupMembershipOperation::Default,
        };
        self.tally.count(match operation {
            GroupMembershipOperation::Default => "default closes",
            GroupMembershipOperation::LeaveGroup => "leaving closes",
            GroupMembershipOperation::RemainInGroup => "remaining closes",
        });
        // Now and then there is no time at all.
        let time = Duration::from_secs(if self.chance.below(5) == 0 { 0 } else { 5 });
        let deadline = self.now + self.chance.up_to(time);
        self.deliver(index, Input::Close { operation, deadline })
    }
}
