//! A member and its driver: feeds the core, performs what it wants, and sees to its end and to what comes after.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kohort_group::membership::{Answer, Beat, ExitKind, Failure, Notice, Question, TerminalCause};
use kohort_group::verdict::GroupApi;
use kohort_group::{CrashBound, Effect, Input, Membership, MembershipConfig};
use kohort_protocol::messages::HeartbeatRequest;
use kohort_protocol::{ErrorCode, TopicPartition};

use crate::invariants::{Checked, Invariant};
use crate::workers::Worker;
use crate::world::{GROUP, TOPIC, What, World};

const HEARTBEAT: Duration = Duration::from_secs(1);
const CRASH_BOUND: u32 = 3;
const CRASH_WINDOW: Duration = Duration::from_secs(30);
const TERMINAL_TIMEOUT: Duration = Duration::from_secs(5);

/// One incarnation.
pub(crate) struct Member {
    pub(crate) core: Membership,
    pub(crate) life: u64,
    /// Incarnations of one slot follow each other; a static slot may for a while have two, of one instance id.
    pub(crate) slot: usize,
    /// Ended, and nobody comes in its stead.
    pub(crate) over: bool,
    incarnation: u64,
    pub(crate) heart_alive: bool,
    pub(crate) armed: Option<(u64, HeartbeatRequest)>,
    /// The round of the JoinGroup that is outstanding.
    joining: Option<u64>,
    /// A LeaveGroup went out.
    leaving: bool,
    /// Numbers the workers; ticks of another are void.
    pub(crate) run: u64,
    pub(crate) working: BTreeMap<i32, Worker>,
    /// A partition whose records kill every worker.
    pub(crate) poisoned: Option<i32>,
    pub(crate) timer: Option<Instant>,
    crashes: Vec<Instant>,
    /// The ends that the world called for.
    closing: bool,
    gave_up: bool,
    /// When its end is to be over.
    ends_by: Option<Instant>,
}

impl Member {
    fn crashes_within(&self, now: Instant) -> usize {
        self.crashes.iter().filter(|at| now - **at <= CRASH_WINDOW).count()
    }
}

impl World {
    /// A fresh incarnation for a slot; `before` is how many it had.
    pub(crate) fn newborn(&mut self, slot: usize, before: usize) -> Member {
        self.lives += 1;
        let mut config = MembershipConfig::new(GROUP, [TOPIC]);
        config.group_instance_id = self.statics.contains(&slot).then(|| format!("i{slot}"));
        config.assignors.clone_from(&self.offers[slot][before.min(1)]);
        config.session_timeout = Duration::from_secs(6);
        config.rebalance_timeout = Duration::from_secs(6 + self.chance.below(6));
        config.request_timeout = Duration::from_secs(2);
        config.session_timeout_padding = Duration::from_secs(2);
        config.commit_interval = Duration::from_secs(1);
        config.terminal_timeout = TERMINAL_TIMEOUT;
        let mut bound = CRASH_BOUND;
        if self.plants(Invariant::CrashBoundNotEarly) {
            bound -= 1;
        }
        if self.plants(Invariant::CrashBoundNotLate) {
            bound += 1;
        }
        config.crash_rejoin_max_restarts = CrashBound::Max(bound);
        config.crash_rejoin_window = CRASH_WINDOW;
        Member {
            core: Membership::new(config, self.seed ^ (self.lives << 32)),
            life: self.lives,
            slot,
            over: false,
            incarnation: 0,
            heart_alive: false,
            armed: None,
            joining: None,
            leaving: false,
            run: 0,
            working: BTreeMap::new(),
            poisoned: None,
            timer: None,
            crashes: Vec::new(),
            closing: false,
            gave_up: false,
            ends_by: None,
        }
    }

    pub(crate) fn deliver(&mut self, index: usize, input: Input) -> Checked {
        if self.trace {
            let at = self.now - self.start;
            eprintln!("{at:>10.3?} m{index} {:?} <- {input:?}", self.members[index].core.state());
        }
        let member = &mut self.members[index];
        let life = member.life;
        match &input {
            Input::Answered { round, .. } if member.joining == Some(*round) => member.joining = None,
            // The shorter of two closes counts; an end for another reason has its own time.
            Input::Close { deadline, .. } if member.closing || !member.core.is_ending() => {
                let earlier = member.ends_by.unwrap_or(*deadline).min(*deadline);
                (member.closing, member.ends_by) = (true, Some(earlier.max(self.now)));
            }
            Input::WorkersGaveUp { .. } if !member.core.is_ending() => member.gave_up = true,
            _ => {}
        }
        let called_for = matches!(input, Input::Close { .. } | Input::WorkersGaveUp { .. });
        let fenced = matches!(&input, Input::Beat { epoch, beat: Beat::Answered(ErrorCode::FencedInstanceId) }
            if member.armed.as_ref().is_some_and(|(armed, _)| armed == epoch));
        let due = matches!(input, Input::Deadline);
        let input = self.tampered(index, input);
        let heard = input.is_some();
        let effects = input.map(|input| self.members[index].core.handle(input, self.now));
        let idle = effects.as_ref().is_some_and(Vec::is_empty);
        for effect in effects.into_iter().flatten() {
            self.perform(index, life, effect)?;
        }
        let spins = self.plants(Invariant::TimersMoveOn);
        let member = &mut self.members[index];
        if member.life != life {
            return Ok(());
        }
        let again = member.core.deadline().map(|at| if spins { self.now } else { at });
        Invariant::TimersMoveOn.holds(!(due && idle && again.is_some_and(|at| at <= self.now)), || {
            format!("m{index} is due again at once, in {:?}", member.core.state())
        })?;
        let ends = member.core.is_ending();
        if ends && member.ends_by.is_none() {
            member.ends_by = Some(self.now + TERMINAL_TIMEOUT);
        }
        // A deadline that a planted violation keeps back must not be due again and again at one instant.
        if let Some(at) = member.core.deadline().filter(|_| heard) {
            let at = at.max(self.now);
            if member.timer != Some(at) {
                member.timer = Some(at);
                let wait = at - self.now;
                self.after(wait, What::MemberTimer { member: index });
            }
        } else {
            member.timer = None;
        }
        Invariant::EndsWhenCalledFor
            .holds(ends || !called_for, || format!("m{index} was called to its end and goes on"))?;
        Invariant::FencedEnds.holds(ends || !fenced, || format!("m{index} was fenced and goes on"))?;
        let crashes = self.members[index].crashes_within(self.now);
        Invariant::CrashBoundNotLate.holds(ends || crashes <= CRASH_BOUND as usize, || {
            format!("m{index} goes on after {crashes} crashes in {CRASH_WINDOW:?}")
        })?;
        self.check_heart(index)?;
        self.check_member_id(index)
    }

    /// A planted violation that a core could only show if it were broken: the world hands it something else.
    fn tampered(&self, index: usize, input: Input) -> Option<Input> {
        match input {
            Input::Close { .. } | Input::WorkersGaveUp { .. }
                if self.plants(Invariant::EndsWhenCalledFor) =>
            {
                None
            }
            Input::Beat { epoch, beat: Beat::Answered(ErrorCode::FencedInstanceId) }
                if self.plants(Invariant::FencedEnds) =>
            {
                Some(Input::Beat { epoch, beat: Beat::Answered(ErrorCode::None) })
            }
            Input::Deadline if self.plants(Invariant::EndsInTime) && self.members[index].core.is_ending() => {
                None
            }
            Input::Beat { epoch, beat: Beat::Answered(_) }
                if self.plants(Invariant::EndsOnlyForACause) && self.members[index].life == 2 =>
            {
                Some(Input::Beat { epoch, beat: Beat::Answered(ErrorCode::GroupAuthorizationFailed) })
            }
            Input::Answered { round, answer: Ok(Answer::Joined { version, mut response }) }
                if self.plants(Invariant::OneLivePerMemberId) =>
            {
                let others = self.live().filter(|(other, _)| *other != index);
                let mut ids = others.map(|(_, other)| other.core.member_id()).filter(|id| !id.is_empty());
                if let Some(id) = ids.next() {
                    id.clone_into(&mut response.member_id);
                }
                Some(Input::Answered { round, answer: Ok(Answer::Joined { version, response }) })
            }
            input => Some(input),
        }
    }

    fn perform(&mut self, index: usize, life: u64, effect: Effect) -> Checked {
        if self.trace {
            eprintln!("{:>10.3?} m{index}   -> {effect:?}", self.now - self.start);
        }
        let member = &mut self.members[index];
        if member.life != life {
            return Invariant::SilentAfterTheEnd
                .broken(format!("m{index} goes on behind its end: {effect:?}"));
        }
        match effect {
            Effect::Ask { round, question, within, .. } => {
                match &question {
                    Question::Join(_) => member.joining = Some(round),
                    Question::Leave(_) => member.leaving = true,
                    _ => {}
                }
                self.ask(index, round, question, within)
            }
            Effect::ArmHeartbeat { epoch, request, .. } => {
                member.armed = Some((epoch, request));
                self.after(HEARTBEAT, What::BeatDue { member: index, life, epoch, early: false });
                Ok(())
            }
            Effect::HastenHeartbeat { epoch } => {
                for wait in [5, 15, 35, 75, 155, 315].map(Duration::from_millis) {
                    self.after(wait, What::BeatDue { member: index, life, epoch, early: true });
                }
                Ok(())
            }
            Effect::DisarmHeartbeat => {
                let deaf = self.plants(Invariant::NoBeatInAJoin)
                    || self.plants(Invariant::NoBeatAfterTheLeave)
                        && self.members[index].core.state() == kohort_group::MemberState::Leaving;
                if !deaf {
                    self.members[index].armed = None;
                }
                Ok(())
            }
            Effect::RestartHeartbeat => self.start_heart(index),
            Effect::StartWorkers { generation, partitions } => {
                if self.plants(Invariant::OneWorkerPerPartition) {
                    self.start_workers(index, generation, partitions.clone())?;
                }
                self.start_workers(index, generation, partitions)
            }
            Effect::DrainWorkers { round, partitions, within } => {
                self.drain_workers(index, &partitions);
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
                self.release_workers(index, &partitions);
                let wait = self.chance.up_to(within.min(Duration::from_millis(300)));
                self.post(index, wait, Input::Released { round, aborted: Vec::new() });
                Ok(())
            }
            Effect::Notice(notice) => self.heed(index, notice),
            Effect::Closed(_) => {
                self.tally.count("closes");
                self.bury(index)?;
                self.rebirth(index);
                Ok(())
            }
            Effect::Terminate(cause) => self.terminated(index, cause),
            _ => Ok(()),
        }
    }

    fn heed(&mut self, index: usize, notice: Notice) -> Checked {
        match notice {
            Notice::HeartbeatCrash { .. } => self.tally.count("rejoins after a crash"),
            Notice::Lost(_) => self.tally.count("losses"),
            // What a cooperative member keeps, it handles in the new generation.
            Notice::Assigned { generation, .. } => {
                let member = &self.members[index];
                let kept: Vec<i32> = member
                    .working
                    .keys()
                    .copied()
                    .filter(|number| member.core.assignment().contains(&TopicPartition::new(TOPIC, *number)))
                    .collect();
                for partition in kept {
                    self.own(index, generation, partition)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A member ended for good. Was there a cause, and does another come?
    fn terminated(&mut self, index: usize, cause: TerminalCause) -> Checked {
        let member = &self.members[index];
        let slot = member.slot;
        let called_for = match &cause {
            TerminalCause::WorkersGaveUp { .. } => member.gave_up,
            TerminalCause::CrashLoop { crashes, .. } => {
                // At the crash that tripped it, which is the last one that counts.
                let counted = member.crashes.last().map_or(0, |last| member.crashes_within(*last));
                let bound = CRASH_BOUND as usize;
                Invariant::CrashBoundNotEarly.holds(counted > bound, || {
                    format!("m{index} tripped after {counted} crashes, it says {crashes}")
                })?;
                true
            }
            TerminalCause::FencedInstanceId => {
                self.statics.contains(&slot)
                    && self.live().any(|(other, member)| other != index && member.slot == slot)
            }
            TerminalCause::Refused { api: GroupApi::JoinGroup, code, .. } => {
                *code == ErrorCode::InconsistentGroupProtocol && self.has_no_common_assignor()
            }
            _ => false,
        };
        Invariant::EndsOnlyForACause
            .holds(called_for, || format!("m{index} ended for {cause:?}, which nothing here calls for"))?;
        self.bury(index)?;
        match cause {
            TerminalCause::WorkersGaveUp { .. } => self.tally.count("workers gave up"),
            TerminalCause::CrashLoop { .. } => self.tally.count("crash loops"),
            TerminalCause::FencedInstanceId => self.tally.count("fenced"),
            _ => self.tally.count("refused"),
        }
        // Its successor is there already, or it would be refused again.
        if matches!(cause, TerminalCause::FencedInstanceId | TerminalCause::Refused { .. }) {
            self.members[index].over = true;
        } else {
            self.rebirth(index);
        }
        Ok(())
    }

    /// What is over stays in reach of what was on its way to it.
    fn bury(&mut self, index: usize) -> Checked {
        let member = &mut self.members[index];
        let life = member.life;
        let waits = member.core.deadline().is_some() || member.armed.is_some();
        Invariant::SilentAfterTheEnd
            .holds(!waits, || format!("m{index} is over and its heart or timer runs on"))?;
        self.graves.insert(life, member.core.clone());
        self.lives += 1;
        let member = &mut self.members[index];
        (member.life, member.timer, member.ends_by) = (self.lives, None, None);
        member.working.clear();
        for input in [
            Input::Deadline,
            Input::HeartbeatStarted { incarnation: 99 },
            Input::HeartbeatExited { incarnation: 99, exit: ExitKind::Killed },
            Input::Beat { epoch: 1, beat: Beat::Answered(ErrorCode::IllegalGeneration) },
        ] {
            self.disturb(life, input)?;
        }
        Ok(())
    }

    /// Something reaches an incarnation that is over; one that crashed is not there at all.
    pub(crate) fn disturb(&mut self, life: u64, input: Input) -> Checked {
        let speaks = self.plants(Invariant::SilentAfterTheEnd);
        let Some(core) = self.graves.get_mut(&life) else { return Ok(()) };
        self.tally.count("late deliveries");
        let mut effects = core.handle(input.clone(), self.now);
        if speaks && matches!(input, Input::Answered { .. }) {
            effects.push(Effect::DisarmHeartbeat);
        }
        Invariant::SilentAfterTheEnd.holds(effects.is_empty() && core.deadline().is_none(), || {
            format!("life {life} is over and answers {input:?} by {effects:?}")
        })
    }

    /// A fresh incarnation comes in the place of one that is over.
    pub(crate) fn rebirth(&mut self, index: usize) {
        let slot = self.members[index].slot;
        let newborn = self.newborn(slot, 1);
        let life = newborn.life;
        self.members[index] = newborn;
        let wait = Duration::from_millis(500) + self.chance.up_to(Duration::from_secs(3));
        self.after(wait, What::Birth { member: index, life });
    }

    pub(crate) fn post(&mut self, index: usize, wait: Duration, input: Input) {
        let life = self.members[index].life;
        self.after(wait, What::Deliver { member: index, life, input });
    }

    pub(crate) fn start_heart(&mut self, index: usize) -> Checked {
        let member = &mut self.members[index];
        member.incarnation += 1;
        member.heart_alive = true;
        let incarnation = member.incarnation;
        self.deliver(index, Input::HeartbeatStarted { incarnation })
    }

    /// Kills the heart.
    pub(crate) fn stop_heart(&mut self, index: usize) -> Checked {
        let member = &mut self.members[index];
        member.heart_alive = false;
        member.armed = None;
        if !member.core.is_ending() {
            member.crashes.push(self.now);
        }
        let incarnation = member.incarnation;
        self.deliver(index, Input::HeartbeatExited { incarnation, exit: ExitKind::Killed })
    }

    pub(crate) fn beat(&mut self, index: usize, life: u64, epoch: u64, early: bool) -> Checked {
        let member = &self.members[index];
        let Some((armed, request)) = &member.armed else { return Ok(()) };
        if member.life != life || *armed != epoch || !member.heart_alive {
            return Ok(());
        }
        let request = request.clone();
        self.check_heart(index)?;
        if !early {
            self.after(HEARTBEAT, What::BeatDue { member: index, life, epoch, early });
        }
        if self.lossy() {
            let failure = Beat::Failed(Failure::Network("lost".into()));
            self.post(index, Duration::from_secs(2), Input::Beat { epoch, beat: failure });
        } else {
            self.send_beat(index, epoch, request);
        }
        Ok(())
    }

    /// By what went out, not by what the core thinks.
    fn check_heart(&self, index: usize) -> Checked {
        let member = &self.members[index];
        let beats = member.armed.is_some();
        let joining = member.joining.is_some();
        Invariant::NoBeatInAJoin
            .holds(!beats || !joining, || format!("m{index} beats while its JoinGroup is outstanding"))?;
        Invariant::NoBeatAfterTheLeave
            .holds(!beats || !member.leaving, || format!("m{index} beats behind its LeaveGroup"))
    }

    fn check_member_id(&self, index: usize) -> Checked {
        let id = self.members[index].core.member_id();
        if id.is_empty() {
            return Ok(());
        }
        let twin = self.live().find(|(other, member)| *other != index && member.core.member_id() == id);
        Invariant::OneLivePerMemberId.holds(twin.is_none(), || {
            format!("m{index} and m{} both live as {id}", twin.map_or(0, |(at, _)| at))
        })
    }

    pub(crate) fn check_ends(&self) -> Checked {
        let late = self.live().find(|(_, member)| member.ends_by.is_some_and(|by| by < self.now));
        Invariant::EndsInTime.holds(late.is_none(), || {
            let (index, member) = late.expect("there is one");
            format!("m{index} is still {} though its time is over", member.core.state())
        })
    }
}
