//! What a supervisor tells: its telemetry events. Emitted by the actor only.

use crate::error::ChildStartError;
use crate::id::ChildId;
use crate::reason::ExitReason;
use crate::spec::ChildKind;
use kohort_telemetry::{Description, Event, Label};
use ractor::ActorId;
use std::fmt::Display;
use std::time::Duration;

/// A telemetry event of a supervisor, named `kohort.supervisor.…`. Ids are values, never labels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SupervisorEvent {
    /// `child_started`: a child runs.
    ChildStarted {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child.
        child: ChildId,
        /// Worker or supervisor.
        kind: ChildKind,
        /// Which start of this child it was, from 1.
        incarnation: u64,
    },
    /// `child_start_failed`: a child did not start.
    ChildStartFailed {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child.
        child: ChildId,
        /// Worker or supervisor.
        kind: ChildKind,
        /// The incarnation that failed.
        incarnation: u64,
        /// Why.
        error: ChildStartError,
    },
    /// `child_exited`: a child ended, asked or not.
    ChildExited {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child.
        child: ChildId,
        /// Worker or supervisor.
        kind: ChildKind,
        /// The incarnation that ended.
        incarnation: u64,
        /// Why.
        reason: ExitReason,
    },
    /// `child_restarted`: a child runs again, by decision of its supervisor. Follows its `child_started`.
    ChildRestarted {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child.
        child: ChildId,
        /// Worker or supervisor.
        kind: ChildKind,
        /// The new incarnation.
        incarnation: u64,
    },
    /// `restart_delayed`: a child's restart waits for its back-off.
    RestartDelayed {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child.
        child: ChildId,
        /// Worker or supervisor.
        kind: ChildKind,
        /// The incarnation to come.
        incarnation: u64,
        /// How long it waits.
        delay: Duration,
    },
    /// `intensity_reached`: too many restarts; the supervisor stops its children and exits.
    IntensityReached {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child whose exit was one too many.
        child: ChildId,
        /// Restarts allowed within the period.
        max: u32,
        /// The period.
        period: Duration,
        /// That exit.
        reason: ExitReason,
    },
    /// `unkillable`: a child is alive after a kill; the supervisor stops the others and exits.
    Unkillable {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The child.
        child: ChildId,
    },
    /// `unknown_exit`: a linked actor that is no child ended; nothing was done about it.
    UnknownExit {
        /// The supervisor's id.
        supervisor: ChildId,
        /// The actor.
        actor: ActorId,
        /// Why.
        reason: ExitReason,
    },
    /// `shutdown`: every child is down and the supervisor ends.
    Shutdown {
        /// The supervisor's id.
        supervisor: ChildId,
        /// What it ends with.
        reason: ExitReason,
    },
    /// `lagged`: this subscriber was too slow and lost events.
    Lagged {
        /// How many.
        missed: u64,
    },
}

impl SupervisorEvent {
    /// What to tell a metrics recorder with [`kohort_telemetry::describe`].
    pub const DESCRIPTIONS: &'static [Description] = &[
        describe("kohort.supervisor.child_started", "Children that were started"),
        describe("kohort.supervisor.child_start_failed", "Starts of children that failed"),
        describe("kohort.supervisor.child_exited", "Children that ended, asked or not"),
        describe("kohort.supervisor.child_restarted", "Children that were restarted by their supervisor"),
        describe("kohort.supervisor.restart_delayed", "Restarts that waited for a back-off"),
        describe("kohort.supervisor.intensity_reached", "Supervisors that gave up restarting"),
        describe("kohort.supervisor.unkillable", "Children that survived being killed"),
        describe("kohort.supervisor.unknown_exit", "Exits of linked actors that are no children"),
        describe("kohort.supervisor.shutdown", "Supervisors that ended"),
    ];
}

const fn describe(event: &'static str, text: &'static str) -> Description {
    Description { event, text, measurements: &[] }
}

impl Event for SupervisorEvent {
    fn name(&self) -> &'static str {
        match self {
            SupervisorEvent::ChildStarted { .. } => "kohort.supervisor.child_started",
            SupervisorEvent::ChildStartFailed { .. } => "kohort.supervisor.child_start_failed",
            SupervisorEvent::ChildExited { .. } => "kohort.supervisor.child_exited",
            SupervisorEvent::ChildRestarted { .. } => "kohort.supervisor.child_restarted",
            SupervisorEvent::RestartDelayed { .. } => "kohort.supervisor.restart_delayed",
            SupervisorEvent::IntensityReached { .. } => "kohort.supervisor.intensity_reached",
            SupervisorEvent::Unkillable { .. } => "kohort.supervisor.unkillable",
            SupervisorEvent::UnknownExit { .. } => "kohort.supervisor.unknown_exit",
            SupervisorEvent::Shutdown { .. } => "kohort.supervisor.shutdown",
            SupervisorEvent::Lagged { .. } => "kohort.supervisor.lagged",
        }
    }

    fn labels(&self, visit: &mut dyn FnMut(Label, &str)) {
        use SupervisorEvent::*;
        if let ChildStarted { kind, .. }
        | ChildStartFailed { kind, .. }
        | ChildExited { kind, .. }
        | ChildRestarted { kind, .. }
        | RestartDelayed { kind, .. } = self
        {
            visit(Label::Kind, kind.as_str());
        }
        if let ChildExited { reason, .. }
        | IntensityReached { reason, .. }
        | UnknownExit { reason, .. }
        | Shutdown { reason, .. } = self
        {
            visit(Label::Class, reason.class());
        }
    }

    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display)) {
        use SupervisorEvent::*;
        match self {
            ChildStarted { supervisor, child, incarnation, .. }
            | ChildRestarted { supervisor, child, incarnation, .. } => {
                visit("supervisor", supervisor);
                visit("child", child);
                visit("incarnation", incarnation);
            }
            ChildStartFailed { supervisor, child, incarnation, error, .. } => {
                visit("supervisor", supervisor);
                visit("child", child);
                visit("incarnation", incarnation);
                visit("error", error);
            }
            ChildExited { supervisor, child, incarnation, reason, .. } => {
                visit("supervisor", supervisor);
                visit("child", child);
                visit("incarnation", incarnation);
                visit("reason", reason);
            }
            RestartDelayed { supervisor, child, incarnation, delay, .. } => {
                visit("supervisor", supervisor);
                visit("child", child);
                visit("incarnation", incarnation);
                visit("delay", &format_args!("{delay:?}"));
            }
            IntensityReached { supervisor, child, max, period, reason } => {
                visit("supervisor", supervisor);
                visit("child", child);
                visit("max", max);
                visit("period", &format_args!("{period:?}"));
                visit("reason", reason);
            }
            Unkillable { supervisor, child } => {
                visit("supervisor", supervisor);
                visit("child", child);
            }
            UnknownExit { supervisor, actor, reason } => {
                visit("supervisor", supervisor);
                visit("actor", actor);
                visit("reason", reason);
            }
            Shutdown { supervisor, reason } => {
                visit("supervisor", supervisor);
                visit("reason", reason);
            }
            Lagged { missed } => visit("missed", missed),
        }
    }

    fn level(&self) -> tracing::Level {
        use SupervisorEvent::*;
        match self {
            ChildStarted { .. } | Shutdown { reason: ExitReason::Shutdown | ExitReason::Normal, .. } => {
                tracing::Level::DEBUG
            }
            ChildExited { reason, .. } if !reason.is_abnormal() => tracing::Level::DEBUG,
            ChildRestarted { .. } | RestartDelayed { .. } => tracing::Level::INFO,
            ChildExited { .. } | ChildStartFailed { .. } | UnknownExit { .. } | Lagged { .. } => {
                tracing::Level::WARN
            }
            IntensityReached { .. } | Unkillable { .. } | Shutdown { .. } => tracing::Level::ERROR,
        }
    }

    fn lagged(missed: u64) -> SupervisorEvent {
        SupervisorEvent::Lagged { missed }
    }
}
