//! The broker's side of the world: the coordinator, its moves and restarts, and what is checked of its answers.

use std::time::Duration;

use kohort_group::Coordinator;
use kohort_group::coordinator::{
    CoordinatorConfig, CoordinatorEffect, CoordinatorInput, CoordinatorNotice, GroupReply, GroupRequest,
};

use crate::invariants::{Checked, Invariant};
use crate::world::{GROUP, TOPIC, What, World};

impl World {
    pub(crate) fn coordinator_is_due(&mut self) -> Checked {
        if self.coordinator_timer == Some(self.now) {
            self.coordinator_timer = None;
            self.coordinate(CoordinatorInput::Deadline)?;
        }
        Ok(())
    }

    pub(crate) fn arrive(&mut self, call: u64, request: GroupRequest) -> Checked {
        // While the coordinator moves, the broker that had it says so and knows nothing more.
        if self.now < self.moving_until {
            self.refuse(call);
            return Ok(());
        }
        let newest = if matches!(request, GroupRequest::Join(_)) { 9 } else { 5 };
        self.coordinate(CoordinatorInput::Request {
            call,
            version: self.version.min(newest),
            client_id: "sim".into(),
            client_host: "/sim".into(),
            request,
        })
    }

    fn coordinate(&mut self, input: CoordinatorInput) -> Checked {
        let (commit, join) = match &input {
            CoordinatorInput::Request { request, .. } => (
                matches!(request, GroupRequest::OffsetCommit(_)),
                matches!(request, GroupRequest::Join(_) | GroupRequest::Leave(_)),
            ),
            _ => (false, true),
        };
        let effects = self.coordinator.handle(input, self.now);
        if join {
            self.check_instances()?;
        }
        for effect in effects {
            match effect {
                CoordinatorEffect::Reply { call, reply } => self.reply(call, reply)?,
                CoordinatorEffect::Notice(notice) => {
                    if self.trace {
                        eprintln!("{:>10.3?} coordinator {notice:?}", self.now - self.start);
                    }
                    if matches!(notice, CoordinatorNotice::GenerationStarted { .. }) {
                        self.tally.count("generations");
                    }
                }
                _ => {}
            }
        }
        if commit {
            self.tally.count("commits");
            self.check_commits()?;
        }
        self.arm_coordinator();
        Ok(())
    }

    fn arm_coordinator(&mut self) {
        if let Some(at) = self.coordinator.deadline() {
            let at = at.max(self.now);
            if self.coordinator_timer != Some(at) {
                self.coordinator_timer = Some(at);
                self.after(at - self.now, What::CoordinatorTimer);
            }
        }
    }

    /// What is parked is told that the coordinator moved; the next one loads the groups.
    pub(crate) fn move_coordinator(&mut self) -> Checked {
        self.tally.count("moves");
        let before = self.coordinator.clone();
        for effect in self.coordinator.unload() {
            if let CoordinatorEffect::Reply { call, reply } = effect {
                self.reply(call, reply)?;
            }
        }
        self.load_coordinator(&before);
        Ok(())
    }

    /// What is parked is gone with the connections; the same node loads the groups again.
    pub(crate) fn restart_coordinator(&mut self) {
        self.tally.count("coordinator restarts");
        let before = self.coordinator.clone();
        self.disconnect();
        self.load_coordinator(&before);
    }

    fn load_coordinator(&mut self, before: &Coordinator) {
        self.moves += 1;
        let mut next = Coordinator::new(CoordinatorConfig::default(), self.seed ^ (self.moves << 48));
        let wait = self.chance.up_to(Duration::from_secs(3));
        self.moving_until = self.now + wait;
        next.load(before, self.now + wait);
        self.coordinator = next;
        self.coordinator_timer = None;
        self.arm_coordinator();
    }

    fn check_commits(&mut self) -> Checked {
        let Some(view) = self.coordinator.group(GROUP) else { return Ok(()) };
        for ((_, partition), offset) in view.offsets {
            let offset = offset.offset;
            let before = self.committed.insert(partition, offset).unwrap_or(0);
            Invariant::CommitsGoForward.holds(offset >= before, || {
                format!("the commit of {TOPIC}-{partition} went back from {before} to {offset}")
            })?;
            let worked = self.worked.get(&partition).copied().unwrap_or(0);
            Invariant::CommitsStayBehindTheWork.holds(offset <= worked, || {
                format!("{TOPIC}-{partition} is committed at {offset}, past the work at {worked}")
            })?;
        }
        Ok(())
    }

    /// Who has the instance ids now? Whoever lost one to another is superseded.
    fn check_instances(&mut self) -> Checked {
        let mut seen = std::collections::BTreeMap::new();
        let view = self.coordinator.group(GROUP);
        for (member_id, member) in view.into_iter().flat_map(|view| view.members) {
            let Some(instance) = member.group_instance_id else { continue };
            if self.plants(Invariant::OneMemberPerInstance) {
                seen.insert(instance.clone(), "another".to_owned());
            }
            let twin = seen.insert(instance.clone(), member_id.clone());
            Invariant::OneMemberPerInstance.holds(twin.is_none(), || {
                format!("{instance} is both {member_id} and {}", twin.unwrap_or_default())
            })?;
        }
        for (instance, member_id) in &seen {
            if let Some(before) = self.instances.get(instance).filter(|before| *before != member_id) {
                self.superseded.insert(before.clone());
            }
        }
        self.instances.extend(seen);
        Ok(())
    }

    /// Checks what the coordinator answers somebody who asked as this member.
    pub(crate) fn check_superseded(&self, member_id: &str, reply: &GroupReply) -> Checked {
        if !self.superseded.contains(member_id) {
            return Ok(());
        }
        let accepted = match reply {
            GroupReply::Join(response) => response.error.is_none(),
            GroupReply::Sync(response) => response.error.is_none(),
            GroupReply::Heartbeat(response) => response.error.is_none(),
            GroupReply::Leave(response) => {
                response.error.is_none() && response.members.iter().any(|member| member.error.is_none())
            }
            GroupReply::OffsetCommit(response) => response
                .topics
                .iter()
                .flat_map(|topic| &topic.partitions)
                .any(|partition| partition.error.is_none()),
            _ => false,
        };
        Invariant::SupersededIsRefused
            .holds(!accepted, || format!("{member_id} was superseded and is answered {reply:?}"))
    }
}
