//! What must hold in every world, all of it in one place. A violation names its invariant, and a world can be told
//! to break one: `planted_violations_are_caught` does so for each of them, so a new one needs its planted violation
//! (`World::plants`) and a line in `docs/testing.md`.

use std::fmt;

macro_rules! invariants {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// See the module.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Invariant { $($(#[doc = $text])* $name,)* }

        impl Invariant {
            /// Each of them.
            pub(crate) const ALL: &'static [Invariant] = &[$(Invariant::$name,)*];
        }
    };
}

invariants! {
    /// A partition is handled by one member of a generation. A static member's successor takes over within it.
    OneMemberPerPartition,
    /// A member has one worker for a partition.
    OneWorkerPerPartition,
    /// An eager member joins without workers.
    NoWorkersAcrossAJoin,
    /// A committed offset never goes back.
    CommitsGoForward,
    /// Nothing is committed that was not handled.
    CommitsStayBehindTheWork,
    /// A worker starts, or starts again, where nothing before it is left unhandled.
    NothingIsSkipped,
    /// A member that is over says nothing, does nothing, waits for nothing, whatever reaches it.
    SilentAfterTheEnd,
    /// No heart beats while a JoinGroup is outstanding.
    NoBeatInAJoin,
    /// No heart beats once a LeaveGroup is out.
    NoBeatAfterTheLeave,
    /// The crash bound trips at no fewer crashes within the window than it says.
    CrashBoundNotEarly,
    /// The crash bound trips at no more crashes within the window than it says.
    CrashBoundNotLate,
    /// Two live incarnations never hold one member id.
    OneLivePerMemberId,
    /// A group instance id has one member in the group.
    OneMemberPerInstance,
    /// The coordinator accepts nothing more of an incarnation once another took its instance id.
    SupersededIsRefused,
    /// An incarnation that is told of its successor ends.
    FencedEnds,
    /// A member ends only for what the world gave it cause for; refused, only where no assignor is common to all.
    EndsOnlyForACause,
    /// A member ends when it is closed, or when its workers gave up.
    EndsWhenCalledFor,
    /// A deadline that comes leads to something, or to a later one: a driver would spin otherwise.
    TimersMoveOn,
    /// An end is over by its deadline.
    EndsInTime,
    /// When the faults are over everybody alive is in, every partition has exactly one worker, and commits follow.
    Settles,
}

/// An invariant that did not hold, and how it showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.detail)
    }
}

pub(crate) type Checked<T = ()> = Result<T, Violation>;

impl Invariant {
    /// It does not hold.
    pub(crate) fn broken<T>(self, detail: impl Into<String>) -> Checked<T> {
        Err(Violation { invariant: self, detail: detail.into() })
    }

    pub(crate) fn holds(self, condition: bool, detail: impl FnOnce() -> String) -> Checked {
        if condition { Ok(()) } else { self.broken(detail()) }
    }
}
