//! The heart: when it is armed, what a beat's outcome means, and the crash-rejoin bound.
//!
//! The heartbeat actor beats and reports; what follows is decided here. Reports carry the epoch of their
//! arming and exits their incarnation: those of another epoch or incarnation change nothing, terminal ones
//! included.

use std::time::Instant;

use kohort_protocol::ErrorCode;
use kohort_protocol::messages::HeartbeatRequest;

use super::{
    Beat, Effect, Effects, ExitKind, Failure, MemberState, Membership, Node, Notice, RejoinReason,
    TerminalCause,
};
use crate::crash_window::CrashVerdict;
use crate::verdict::{Forget, GroupApi, Verdict, verdict};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Heart {
    /// The living incarnation.
    incarnation: Option<u64>,
    /// A restart was asked for and neither came nor failed yet.
    restarting: bool,
    epoch: u64,
    armed: Option<Armed>,
    /// When the coordinator last proved that it counts this member in.
    pub(super) last_good: Option<Instant>,
    /// No rebalance ran then, by its own word: one that a beat tells of began after that.
    pub(super) undisturbed: Option<Instant>,
    /// When the last beat was answered; the next is sent after that.
    pub(super) answered: Option<Instant>,
    /// After a crash: when the rejoin follows.
    pub(super) rejoin_at: Option<Instant>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Armed {
    incarnation: u64,
    member_id: String,
    generation: i32,
    to: Node,
}

impl Heart {
    pub(super) fn started(&mut self, incarnation: u64) {
        if self.incarnation.is_none_or(|known| known < incarnation) {
            self.incarnation = Some(incarnation);
            self.restarting = false;
        }
    }
}

impl Membership {
    /// Makes the heart beat exactly while the coordinator is known and a generation stands that is not being
    /// left.
    pub(super) fn advance_heartbeat(&mut self, fx: &mut Effects) {
        let beating = self.is_counted_in();
        let wanted = match (&self.coordinator, self.heartbeat.incarnation) {
            (Some(to), Some(incarnation)) if beating => Some(Armed {
                incarnation,
                member_id: self.member_id.clone(),
                generation: self.generation,
                to: to.clone(),
            }),
            _ => None,
        };
        if wanted == self.heartbeat.armed {
            return;
        }
        self.heartbeat.epoch += 1;
        match &wanted {
            None => fx.push(Effect::DisarmHeartbeat),
            Some(armed) => fx.push(Effect::ArmHeartbeat {
                epoch: self.heartbeat.epoch,
                to: armed.to.clone(),
                request: HeartbeatRequest {
                    group_id: self.config.group_id.clone(),
                    generation: armed.generation,
                    member_id: armed.member_id.clone(),
                    group_instance_id: self.instance_id(),
                },
            }),
        }
        self.heartbeat.armed = wanted;
    }

    /// What moves in a cooperative rebalance is free for its next owner in the rebalance behind it, which is begun by the
    /// join of whoever gave it back. All others hear of that by a beat, and must not wait a whole interval for it.
    pub(super) fn hasten_heartbeat(&self, fx: &mut Effects) {
        if self.heartbeat.armed.is_some() {
            fx.push(Effect::HastenHeartbeat { epoch: self.heartbeat.epoch });
        }
    }

    /// Does a generation stand that is neither being left nor waited for? A cooperative member stays in its own
    /// until its JoinGroup is out.
    fn is_counted_in(&self) -> bool {
        let within = match self.state {
            MemberState::CompletingRebalance | MemberState::Stable | MemberState::Revoking => true,
            MemberState::PrepareLeaving => self.ending.as_ref().is_none_or(|ending| ending.may_beat()),
            MemberState::Unjoined => !self.owned.is_empty(),
            _ => false,
        };
        within && self.generation >= 0
    }

    /// A cooperative member with a JoinGroup out. If that was lost, its session may end meanwhile.
    pub(super) fn works_while_joining(&self) -> bool {
        self.state == MemberState::PreparingRebalance && !self.owned.is_empty() && self.generation >= 0
    }

    /// When the member fences itself unless a good heartbeat comes first. While its JoinGroup is out there are no
    /// beats, but a cooperative member works on, and commits that are taken show that it is counted in.
    pub(super) fn fence_deadline(&self) -> Option<Instant> {
        if self.is_counted_in() || self.works_while_joining() {
            self.heartbeat.last_good.map(|at| at + self.config.session_timeout)
        } else {
            None
        }
    }

    /// The outcome of a beat. 27 proves life as a good answer does.
    pub(super) fn on_beat(&mut self, epoch: u64, beat: Beat, now: Instant, fx: &mut Effects) {
        if epoch != self.heartbeat.epoch || self.heartbeat.armed.is_none() {
            return;
        }
        let code = match beat {
            Beat::Answered(code) => code,
            Beat::Failed(Failure::ClientDied(detail)) => {
                return self.terminate(TerminalCause::ClientDied { detail }, now, fx);
            }
            Beat::Failed(Failure::Unsupported(detail)) => {
                return self.terminate(TerminalCause::Unsupported { detail }, now, fx);
            }
            Beat::Failed(failure) => {
                return self.lose_coordinator(Some(GroupApi::Heartbeat), failure.to_string(), now, fx);
            }
            Beat::Panicked(what) => return self.terminate(TerminalCause::Crashed { what }, now, fx),
        };
        if matches!(code, ErrorCode::None | ErrorCode::RebalanceInProgress) {
            self.heartbeat.last_good = Some(now);
            self.lookup.backoff.reset();
        }
        // A good answer speaks of when it was given, which is some time between the one before it and now.
        let before = self.heartbeat.answered.replace(now);
        if code == ErrorCode::None {
            self.heartbeat.undisturbed = before;
        }
        match verdict(GroupApi::Heartbeat, code) {
            // A retry is the next beat.
            Verdict::Success
            | Verdict::Retry
            | Verdict::Surface
            | Verdict::Log
            | Verdict::JoinWithGivenId => {}
            Verdict::FindCoordinator => {
                self.lose_coordinator(Some(GroupApi::Heartbeat), code.to_string(), now, fx)
            }
            Verdict::Rejoin(forget) => self.rejoin(reason_of(forget), forget, now, fx),
            Verdict::Fenced => self.terminate(TerminalCause::FencedInstanceId, now, fx),
            Verdict::Unauthorized => self.terminate(TerminalCause::GroupAuthorizationFailed, now, fx),
            Verdict::Refused => self.refused(GroupApi::Heartbeat, code, String::new(), now, fx),
        }
    }

    /// The end of a heartbeat incarnation. One that is not the current, or that was stopped on purpose, is no
    /// crash.
    pub(super) fn on_heartbeat_exit(
        &mut self,
        incarnation: u64,
        exit: ExitKind,
        now: Instant,
        fx: &mut Effects,
    ) {
        if self.heartbeat.incarnation != Some(incarnation) || exit == ExitKind::Shutdown {
            return;
        }
        self.on_heartbeat_crash(exit, now, fx);
    }

    pub(super) fn on_heartbeat_crash(&mut self, exit: ExitKind, now: Instant, fx: &mut Effects) {
        self.heartbeat.incarnation = None;
        self.heartbeat.restarting = false;
        if self.heartbeat.armed.take().is_some() {
            // A beat that the dead heart had under way must not go out any more, behind a LeaveGroup say.
            self.heartbeat.epoch += 1;
            fx.push(Effect::DisarmHeartbeat);
        }
        if self.ending.is_some() {
            return;
        }
        match self.crashes.crash(now) {
            CrashVerdict::Tripped(crashes) => {
                self.heartbeat.rejoin_at = None;
                self.terminate(TerminalCause::CrashLoop { cause: exit, crashes }, now, fx);
            }
            CrashVerdict::Rejoin(crashes_in_window) => {
                fx.push(Effect::Notice(Notice::HeartbeatCrash { exit, crashes_in_window }));
                self.heartbeat.restarting = true;
                fx.push(Effect::RestartHeartbeat);
                // A rejoin that is under way already serves this crash too.
                if self.state == MemberState::Stable && self.heartbeat.rejoin_at.is_none() {
                    self.heartbeat.rejoin_at =
                        Some(now + self.chance.up_to(self.config.crash_rejoin_max_jitter));
                }
            }
        }
    }
}

/// What a rejoin is called that forgets so much.
pub(super) fn reason_of(forget: Forget) -> RejoinReason {
    match forget {
        Forget::Nothing => RejoinReason::RebalanceInProgress,
        Forget::Generation => RejoinReason::IllegalGeneration,
        Forget::Identity => RejoinReason::UnknownMemberId,
    }
}
