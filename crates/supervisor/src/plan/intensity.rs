//! Restart intensity as OTP's `add_restart` counts it: a pure sliding window. No success resets it.

use super::Key;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub(super) struct Intensity {
    pub(super) max: u32,
    pub(super) period: Duration,
    /// Invariant: in the order of time.
    restarts: VecDeque<(Instant, Key)>,
}

impl Intensity {
    pub(super) fn new(max: u32, period: Duration) -> Intensity {
        Intensity { max, period, restarts: VecDeque::new() }
    }

    /// Pushes now, keeps what is no older than the period, and says whether the count is within the maximum.
    pub(super) fn admit(&mut self, key: Key, now: Instant) -> bool {
        self.restarts.push_back((now, key));
        while self.restarts.front().is_some_and(|(then, _)| !self.is_within(*then, now)) {
            self.restarts.pop_front();
        }
        self.restarts.len() <= self.max as usize
    }

    /// Whose restarts are in the window now.
    pub(super) fn window(&self, now: Instant) -> impl Iterator<Item = Key> + '_ {
        self.restarts.iter().filter(move |(then, _)| self.is_within(*then, now)).map(|(_, key)| *key)
    }

    fn is_within(&self, then: Instant, now: Instant) -> bool {
        now.saturating_duration_since(then) <= self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edge_of_the_window_still_counts() {
        let zero = Instant::now();
        let second = Duration::from_secs(1);
        let mut intensity = Intensity::new(2, 5 * second);
        assert!(intensity.admit(1, zero));
        assert!(intensity.admit(1, zero + second));
        assert!(!intensity.admit(1, zero + 5 * second), "now - t == period is inside");
        let mut intensity = Intensity::new(2, 5 * second);
        assert!(intensity.admit(1, zero));
        assert!(intensity.admit(1, zero + second));
        assert!(intensity.admit(1, zero + 5 * second + Duration::from_nanos(1)));
        assert!(!Intensity::new(0, second).admit(1, zero));
    }
}
