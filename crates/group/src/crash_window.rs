//! The crash-rejoin bound: how many heartbeat crashes a member survives in place.
//!
//! A pure sliding window, as OTP counts restart intensity: push now, keep what is no older than the window,
//! trip when more than the maximum are left. A successful rejoin never clears it; only age does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// `crash_rejoin_max_restarts`: how many crashes within the window are survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashBound {
    /// So many; the next one trips. 0 trips at the first.
    Max(u32),
    /// Never trips.
    Unlimited,
}

/// 10, as KafkaEx has it.
impl Default for CrashBound {
    fn default() -> Self {
        CrashBound::Max(10)
    }
}

impl From<u32> for CrashBound {
    fn from(max: u32) -> Self {
        CrashBound::Max(max)
    }
}

/// What a crash means for the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashVerdict {
    /// Rejoin in place; so many crashes are in the window, this one included.
    Rejoin(u32),
    /// The bound is exceeded; so many crashes were in the window, this one included.
    Tripped(u32),
}

/// With `Unlimited` nothing bounds the count, so the list itself is bounded: the newest are kept.
const UNLIMITED_KEPT: usize = 1024;

/// The crashes of the last `crash_rejoin_window`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CrashWindow {
    bound: CrashBound,
    window: Duration,
    crashes: VecDeque<Instant>,
}

impl CrashWindow {
    /// An empty window.
    pub fn new(bound: CrashBound, window: Duration) -> Self {
        Self { bound, window, crashes: VecDeque::new() }
    }

    /// Counts a crash at `now` and says what follows. `now` must not go backwards.
    pub fn crash(&mut self, now: Instant) -> CrashVerdict {
        self.crashes.push_back(now);
        self.prune(now);
        if self.crashes.len() > UNLIMITED_KEPT && self.bound == CrashBound::Unlimited {
            self.crashes.pop_front();
        }
        let count = u32::try_from(self.crashes.len()).unwrap_or(u32::MAX);
        match self.bound {
            CrashBound::Max(max) if count > max => CrashVerdict::Tripped(count),
            _ => CrashVerdict::Rejoin(count),
        }
    }

    /// Crashes no older than the window at `now`.
    pub fn count(&self, now: Instant) -> u32 {
        let within =
            self.crashes.iter().filter(|at| now.saturating_duration_since(**at) <= self.window).count();
        u32::try_from(within).unwrap_or(u32::MAX)
    }

    /// The bound this window counts against.
    pub fn bound(&self) -> CrashBound {
        self.bound
    }

    fn prune(&mut self, now: Instant) {
        while self.crashes.front().is_some_and(|at| now.saturating_duration_since(*at) > self.window) {
            self.crashes.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(max: u32) -> (CrashWindow, Instant) {
        (CrashWindow::new(CrashBound::Max(max), Duration::from_secs(30)), Instant::now())
    }

    #[test]
    fn c_crash_01_the_tripping_crash_is_itself_counted_and_max_0_trips_at_the_first() {
        let (mut crashes, t) = window(3);
        for n in 1..=3 {
            assert_eq!(crashes.crash(t), CrashVerdict::Rejoin(n));
        }
        assert_eq!(crashes.crash(t), CrashVerdict::Tripped(4));
        let (mut none, t) = window(0);
        assert_eq!(none.crash(t), CrashVerdict::Tripped(1));
    }

    #[test]
    fn c_crash_02_does_not_trip_at_the_bound() {
        let (mut crashes, t) = window(3);
        crashes.crash(t);
        crashes.crash(t);
        assert_eq!(crashes.crash(t + Duration::from_secs(30)), CrashVerdict::Rejoin(3));
    }

    #[test]
    fn c_crash_03_crashes_age_out_one_by_one() {
        let (mut crashes, t) = window(3);
        let s = Duration::from_secs;
        for n in 0..100 {
            assert!(matches!(crashes.crash(t + s(11 * n)), CrashVerdict::Rejoin(1..=3)));
        }
        let (mut crashes, t) = window(3);
        for _ in 0..3 {
            crashes.crash(t);
        }
        assert_eq!(
            crashes.count(t + s(30)),
            3,
            "no older than the window: still inside at exactly its length"
        );
        assert_eq!(crashes.crash(t + s(30)), CrashVerdict::Tripped(4));
        let (mut crashes, t) = window(3);
        for _ in 0..3 {
            crashes.crash(t);
        }
        assert_eq!(crashes.crash(t + s(30) + Duration::from_nanos(1)), CrashVerdict::Rejoin(1));
    }

    #[test]
    fn c_crash_04_unlimited_never_trips_and_stays_small() {
        let mut crashes = CrashWindow::new(CrashBound::Unlimited, Duration::from_secs(30));
        let t = Instant::now();
        for _ in 0..10_000 {
            assert!(matches!(crashes.crash(t), CrashVerdict::Rejoin(_)));
        }
        assert_eq!(crashes.count(t), UNLIMITED_KEPT as u32);
    }
}
