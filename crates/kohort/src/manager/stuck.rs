//! Handlers that do not come back. Hearts beat whatever they do, so somebody has to look.

use std::time::Duration;

use ractor::ActorRef;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{ManagerMessage, State, partitions};
use crate::error::TerminalReason;
use crate::event::MemberEvent;

/// One that cannot be aborted, because it blocks its thread, is told of no more often.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Has the manager look, ten times within `max_processing_time`.
pub(super) fn look(max_processing_time: Duration, manager: ActorRef<ManagerMessage>) -> JoinHandle<()> {
    let pause = (max_processing_time / 10).clamp(Duration::from_millis(50), Duration::from_secs(10));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(pause).await;
            if manager.cast(ManagerMessage::Look).is_err() {
                return;
            }
        }
    })
}

impl State {
    pub(super) fn look_for_stuck_workers(&mut self) -> Result<(), TerminalReason> {
        let limit = self.incarnation.config.max_processing_time;
        let now = Instant::now();
        let mut stuck = Vec::new();
        for (partition, slot) in self.incarnation.slots().iter() {
            if let Some(duration) = slot.in_hand().filter(|duration| *duration >= limit) {
                stuck.push((partition.clone(), slot.position().unwrap_or(-1), duration));
            }
        }
        self.told_stuck.retain(|_, at| now.saturating_duration_since(*at) < TOLD_EVERY);
        for (partition, offset, duration) in stuck {
            if self.told_stuck.contains_key(&partition) {
                continue;
            }
            self.told_stuck.insert(partition.clone(), now);
            let member = self.incarnation.name.clone();
            self.incarnation.emit(MemberEvent::WorkerStuck {
                member,
                partition: partition.clone(),
                offset,
                duration,
            });
            if let Some(partitions) = &self.partitions {
                partitions.give(partitions::Order::Abort { partition })?;
            }
        }
        Ok(())
    }
}
