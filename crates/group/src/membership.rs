//! A member's side of the classic group protocol, as a pure state machine.
//!
//! # Driving it
//! Feed every happening to [`Membership::handle`] with the time it is, perform the [`Effects`] it returns in
//! their order, and keep one timer for [`Membership::deadline`], at which [`Input::Deadline`] is due. `now`
//! must not go backwards. Every question carries a *round*; an answer to another round is dropped.
//!
//! # How it thinks
//! An input changes what is known (`join`, `commit`, `heartbeat`, `handover`, `ending`); then `advance` asks
//! whatever the state still lacks: a coordinator, a join, offsets, a commit. So a coordinator found again, a
//! timer or a late answer all lead through the same door.

mod commit;
pub mod config;
mod ending;
mod handover;
mod heartbeat;
pub mod io;
mod join;
mod leader;
mod lookup;
mod offset_fetch;
mod pattern;
pub mod state;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kohort_protocol::{ErrorCode, TopicPartition};

pub use self::config::MembershipConfig;
pub use self::io::{
    Answer, Beat, CloseReport, Effect, Effects, ExitKind, Failure, GroupMembershipOperation, Hook, Input,
    LeaveOutcome, Node, Notice, Question, RejoinReason, StartPosition, TerminalCause,
};
pub use self::state::{MemberState, TRANSITIONS};

use crate::backoff::Backoff;
use crate::crash_window::CrashWindow;
use crate::offsets::Ledger;
use crate::seed::Seeded;
use crate::verdict::Forget;

/// A member of one group, from its start to its end. See the module for how to drive it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Membership {
    config: MembershipConfig,
    chance: Seeded,
    state: MemberState,
    started: bool,
    rounds: u64,

    /// Kept over a coordinator move and a lost generation; forgotten on UNKNOWN_MEMBER_ID only.
    member_id: String,
    /// −1 when the member has none.
    generation: i32,
    /// Invariant: the assignor chosen by the coordinator while `generation` stands.
    protocol_name: Option<String>,
    /// The broker is too old for static membership.
    downgraded: bool,

    coordinator: Option<Node>,
    lookup: lookup::Lookup,
    /// The one group question that is open besides lookups, commits and the metadata watch.
    open: Option<(u64, join::Open)>,
    /// A static member's JoinGroup that a rejoin overtook, and the id it named: FENCED_INSTANCE_ID still counts.
    overtaken_join: Option<(u64, String)>,
    joining: Backoff,
    /// No group question before this.
    not_before: Option<Instant>,
    /// What a pattern matched; the topics of the configuration without one.
    subscription: pattern::Matched,
    leadership: Option<leader::Leadership>,
    /// The leader of this generation is this member's own predecessor (KIP-814 came after).
    succeeds_leader: bool,
    /// Until when the join that completes a cooperative assignment is waited for.
    complete_by: Option<Instant>,
    storm: join::Storm,

    assignment: BTreeSet<TopicPartition>,
    /// Partitions of the assignment whose committed offset is not known yet.
    awaiting_offsets: BTreeSet<TopicPartition>,
    /// Partitions that have a worker. Between two generations only a cooperative member has any.
    owned: BTreeSet<TopicPartition>,
    /// The generation that the oldest of these workers was started in: what older ones report is dropped.
    workers_since: i32,
    /// The last assignment and its generation, for the eager sticky assignor.
    previous: (Vec<TopicPartition>, i32),

    ledger: Ledger,
    committing: commit::Committing,

    heartbeat: heartbeat::Heart,
    crashes: CrashWindow,

    handover: Option<handover::Handover>,
    ending: Option<ending::Ending>,
}

impl Membership {
    /// A membership that has not started. The same seed gives the same jitter.
    pub fn new(config: MembershipConfig, seed: u64) -> Self {
        Self {
            chance: Seeded::new(seed),
            state: MemberState::Unjoined,
            started: false,
            rounds: 0,
            member_id: String::new(),
            generation: -1,
            protocol_name: None,
            downgraded: false,
            coordinator: None,
            lookup: lookup::Lookup::new(config.backoff),
            open: None,
            overtaken_join: None,
            joining: Backoff::new(config.backoff),
            not_before: None,
            subscription: pattern::Matched::new(&config),
            leadership: None,
            succeeds_leader: false,
            complete_by: None,
            storm: join::Storm::default(),
            assignment: BTreeSet::new(),
            awaiting_offsets: BTreeSet::new(),
            owned: BTreeSet::new(),
            workers_since: -1,
            previous: (Vec::new(), -1),
            ledger: Ledger::new(),
            committing: commit::Committing::new(config.backoff),
            heartbeat: heartbeat::Heart::default(),
            crashes: CrashWindow::new(config.crash_rejoin_max_restarts, config.crash_rejoin_window),
            handover: None,
            ending: None,
            config,
        }
    }

    /// Takes one input at `now` and says what to do, in order.
    #[must_use]
    pub fn handle(&mut self, input: Input, now: Instant) -> Effects {
        let mut fx = Effects::new();
        if self.state.is_final() {
            if let (Input::Close { .. }, MemberState::Left) = (&input, self.state) {
                fx.push(Effect::Closed(CloseReport::default()));
            }
            return fx;
        }
        match input {
            Input::Start => self.started = true,
            Input::Deadline => self.on_deadline(now, &mut fx),
            Input::Answered { round, answer } => self.on_answer(round, answer, now, &mut fx),
            Input::HeartbeatStarted { incarnation } => self.heartbeat.started(incarnation),
            Input::HeartbeatExited { incarnation, exit } => {
                self.on_heartbeat_exit(incarnation, exit, now, &mut fx)
            }
            Input::HeartbeatStartFailed { error } => {
                self.on_heartbeat_crash(ExitKind::StartFailed(error), now, &mut fx);
            }
            Input::Beat { epoch, beat } => self.on_beat(epoch, beat, now, &mut fx),
            Input::Drained { round } => self.on_drained(round, now, &mut fx),
            Input::Released { round, aborted } => self.on_released(round, aborted, now, &mut fx),
            Input::Handled { generation, partition, position, records } => {
                if self.counts_worker(generation) {
                    self.ledger.handled(&partition, position, records);
                }
            }
            Input::PositionReset { generation, partition, offset } => {
                if self.counts_worker(generation) {
                    self.ledger.reset(partition, offset);
                }
            }
            Input::Commit => self.on_commit_asked(),
            Input::WorkersGaveUp { partition, cause } => {
                self.terminate(TerminalCause::WorkersGaveUp { partition, cause }, now, &mut fx);
            }
            Input::Close { operation, deadline } => self.on_close(operation, deadline, now, &mut fx),
        }
        self.advance(now, &mut fx);
        fx
    }

    /// When [`Input::Deadline`] is due next; `None` while nothing waits for time.
    pub fn deadline(&self) -> Option<Instant> {
        if self.state.is_final() {
            return None;
        }
        [
            self.lookup_deadline(),
            self.not_before,
            self.leadership_deadline(),
            self.pattern_deadline(),
            self.complete_by.filter(|_| self.state == MemberState::Stable),
            self.commit_deadline(),
            self.heartbeat.rejoin_at,
            self.fence_deadline(),
            self.handover.as_ref().map(|handover| handover.deadline),
            self.ending.as_ref().and_then(|ending| ending.timer()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Where the member stands.
    pub fn state(&self) -> MemberState {
        self.state
    }

    /// The member id, empty before the coordinator gave one.
    pub fn member_id(&self) -> &str {
        &self.member_id
    }

    /// The group instance id, while the member is static: none is configured for a dynamic one, and an old broker
    /// makes a static one dynamic.
    pub fn instance_id(&self) -> Option<String> {
        if self.downgraded { None } else { self.config.group_instance_id.clone() }
    }

    /// The generation, −1 outside of one.
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// The coordinator, if known.
    pub fn coordinator(&self) -> Option<&Node> {
        self.coordinator.as_ref()
    }

    /// The partitions assigned in this generation.
    pub fn assignment(&self) -> &BTreeSet<TopicPartition> {
        &self.assignment
    }

    /// Are all assignors offered cooperative? Only then does the member keep partitions through a rebalance.
    pub fn is_cooperative(&self) -> bool {
        !self.config.assignors.is_empty()
            && self.config.assignors.iter().all(|assignor| assignor.is_cooperative())
    }

    /// Is a worker that was started in this generation still one of ours?
    pub fn counts_worker(&self, generation: i32) -> bool {
        !self.owned.is_empty() && generation >= self.workers_since
    }

    /// The committed offset of an assigned partition, if known.
    pub fn committed(&self, partition: &TopicPartition) -> Option<i64> {
        self.ledger.committed(partition)
    }

    /// The last offset of an assigned partition that the coordinator refused for good, and with what.
    pub fn refused_commit(&self, partition: &TopicPartition) -> Option<(i64, ErrorCode)> {
        self.ledger.refused(partition)
    }

    /// When the coordinator last proved that it counts this member in.
    pub fn last_good_heartbeat(&self) -> Option<Instant> {
        self.heartbeat.last_good
    }

    /// Heartbeat crashes in the window at `now`.
    pub fn crashes_in_window(&self, now: Instant) -> u32 {
        self.crashes.count(now)
    }

    /// The crashes in the window, to be counted at any time.
    pub fn crash_window(&self) -> &CrashWindow {
        &self.crashes
    }

    /// Is the member closing, or ending for a terminal reason?
    pub fn is_ending(&self) -> bool {
        self.ending.is_some() || self.state.is_final()
    }

    fn on_deadline(&mut self, now: Instant, fx: &mut Effects) {
        if self.ending.as_ref().and_then(|ending| ending.timer()).is_some_and(|at| at <= now) {
            self.on_ending_deadline(fx);
            return;
        }
        if self.fence_deadline().is_some_and(|at| at <= now) {
            self.rejoin(RejoinReason::SessionExpired, Forget::Generation, now, fx);
        }
        if self.handover.as_ref().is_some_and(|handover| handover.deadline <= now) {
            self.on_handover_deadline(now, fx);
        }
        if self.heartbeat.rejoin_at.is_some_and(|at| at <= now) {
            self.rejoin(RejoinReason::HeartbeatCrash, Forget::Nothing, now, fx);
        }
        if self.state == MemberState::Stable && self.complete_by.is_some_and(|at| at <= now) {
            self.rejoin(RejoinReason::AssignmentIncomplete, Forget::Nothing, now, fx);
        }
        if self.not_before.is_some_and(|at| at <= now) {
            self.not_before = None;
        }
    }

    /// An answer finds its question by its round; whatever belongs to another round is dropped here.
    fn on_answer(&mut self, round: u64, answer: Result<Answer, Failure>, now: Instant, fx: &mut Effects) {
        if self.lookup.asked == Some(round) {
            self.lookup.asked = None;
            self.on_coordinator(answer, now, fx);
        } else if self.committing.asked_in(round) {
            self.on_committed(answer, now, fx);
        } else if self.leadership.as_ref().is_some_and(|leadership| leadership.asked == Some(round)) {
            self.on_watched_metadata(answer, now, fx);
        } else if self.subscription.asked == Some(round) {
            self.on_matching_topics(answer, now, fx);
        } else if let Some((_, open)) = self.open.take_if(|(asked, _)| *asked == round) {
            self.on_group_answer(open, answer, now, fx);
        } else if let Some((_, named)) = self.overtaken_join.take_if(|(asked, _)| *asked == round) {
            self.on_overtaken_join(&named, answer, now, fx);
        }
    }

    /// Asks whatever the state still lacks. Idempotent: called after every input.
    fn advance(&mut self, now: Instant, fx: &mut Effects) {
        if !self.started || self.state.is_final() {
            return;
        }
        self.advance_lookup(now, fx);
        match self.state {
            MemberState::Unjoined if !self.subscription.known => self.advance_pattern(now, fx),
            MemberState::Unjoined => {
                self.advance_commit(now, fx);
                self.advance_join(now, fx);
            }
            MemberState::CompletingRebalance => self.advance_sync(now, fx),
            MemberState::Stable => {
                self.advance_offsets(now, fx);
                self.advance_commit(now, fx);
                self.advance_watch(now, fx);
                self.advance_pattern(now, fx);
            }
            MemberState::Revoking | MemberState::PrepareLeaving => self.advance_handover(now, fx),
            MemberState::Leaving => self.advance_leave(now, fx),
            MemberState::PreparingRebalance => self.advance_commit(now, fx),
            MemberState::Left | MemberState::Fatal => {}
        }
        self.advance_heartbeat(fx);
    }

    /// The only place where the state changes.
    fn to(&mut self, next: MemberState, fx: &mut Effects) {
        debug_assert!(self.state.may_become(next), "{} may not become {next}", self.state);
        fx.push(Effect::Notice(Notice::State { from: self.state, to: next }));
        self.state = next;
        // The heart follows the state at once, so that no beat is armed when a JoinGroup or LeaveGroup goes out.
        self.advance_heartbeat(fx);
    }

    fn ask(&mut self, to: Option<Node>, question: Question, within: Duration, fx: &mut Effects) -> u64 {
        self.rounds += 1;
        fx.push(Effect::Ask { round: self.rounds, to, question, within });
        self.rounds
    }

    /// Gives up the generation and joins again: hands partitions over first if there are any.
    fn rejoin(&mut self, reason: RejoinReason, forget: Forget, now: Instant, fx: &mut Effects) {
        self.heartbeat.rejoin_at = None;
        self.complete_by = None;
        let identity_gone = forget != Forget::Nothing;
        if self.ending.is_some() {
            if identity_gone {
                self.forget(forget);
                self.lose_while_ending(now, fx);
            }
            return;
        }
        match self.state {
            MemberState::Revoking => {
                if identity_gone {
                    self.forget(forget);
                    self.lose_handover(now, fx);
                }
                return;
            }
            MemberState::Stable => {
                fx.push(Effect::Notice(Notice::Rebalance { reason, generation: self.generation }));
            }
            _ if identity_gone && self.works_while_joining() => {
                fx.push(Effect::Notice(Notice::Rebalance { reason, generation: self.generation }));
            }
            MemberState::Unjoined | MemberState::PreparingRebalance | MemberState::CompletingRebalance => {}
            _ => return,
        }
        if let Some((round, join::Open::Join)) = self.open.take()
            && self.instance_id().is_some()
        {
            self.overtaken_join = Some((round, self.member_id.clone()));
        }
        self.forget(forget);
        self.leadership = None;
        self.awaiting_offsets.clear();
        // KIP-429: a cooperative member works on through a rebalance, unless its identity is gone.
        let keeps = self.is_cooperative() && !identity_gone;
        if !keeps && !self.owned.is_empty() {
            self.to(MemberState::Revoking, fx);
            let all = self.owned.clone();
            self.begin_handover(all, now, self.handover_timeout(now), identity_gone, fx);
            return;
        }
        if !keeps {
            self.give_up_assignment(if identity_gone { Hook::Lost } else { Hook::Revoked }, fx);
        }
        if self.state != MemberState::Unjoined {
            self.to(MemberState::Unjoined, fx);
        }
    }

    fn forget(&mut self, forget: Forget) {
        match forget {
            Forget::Nothing => {}
            Forget::Generation => self.generation = -1,
            Forget::Identity => {
                self.generation = -1;
                self.member_id.clear();
            }
        }
    }

    /// A cooperative member has given these back and keeps the rest.
    fn give_up(&mut self, partitions: &BTreeSet<TopicPartition>, fx: &mut Effects) {
        for partition in partitions {
            self.owned.remove(partition);
            self.assignment.remove(partition);
            self.ledger.remove(partition);
        }
        fx.push(Effect::Notice(Notice::Revoked(partitions.iter().cloned().collect())));
    }

    /// The assignment is over, and what is owned with it: cooperative members may own what is not assigned to them
    /// any more. Says so once.
    fn give_up_assignment(&mut self, hook: Hook, fx: &mut Effects) {
        let mut partitions = std::mem::take(&mut self.assignment);
        partitions.append(&mut self.owned);
        self.ledger.clear();
        self.committing.forget();
        self.awaiting_offsets.clear();
        let partitions: Vec<_> = partitions.into_iter().collect();
        if !partitions.is_empty() {
            fx.push(Effect::Notice(match hook {
                Hook::Revoked => Notice::Revoked(partitions),
                Hook::Lost => Notice::Lost(partitions),
            }));
        }
    }
}
