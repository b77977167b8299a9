//! Capped exponential back-off with jitter, counted in attempts (Kafka: `retry.backoff.ms`,
//! `retry.backoff.max.ms`).

use std::time::Duration;

use crate::seed::Seeded;

/// How long to wait before attempt number n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BackoffConfig {
    /// The first wait. Default 100 ms.
    pub initial: Duration,
    /// No wait is longer, jitter aside. Default 5 s.
    pub max: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self { initial: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

/// Counts attempts and says how long to wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Backoff {
    config: BackoffConfig,
    attempt: u32,
}

impl Backoff {
    /// No attempt made yet.
    pub fn new(config: BackoffConfig) -> Self {
        Self { config, attempt: 0 }
    }

    /// Attempts since the last reset.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The wait before the next attempt: doubling, capped, with 20 % jitter to either side.
    pub fn next(&mut self, chance: &mut Seeded) -> Duration {
        let doubled =
            self.config.initial.saturating_mul(1u32.checked_shl(self.attempt.min(20)).unwrap_or(u32::MAX));
        self.attempt = self.attempt.saturating_add(1);
        let wait = doubled.min(self.config.max);
        wait * 4 / 5 + chance.up_to(wait * 2 / 5)
    }

    /// Success: the next wait is the first again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_within_twenty_percent() {
        let mut backoff = Backoff::new(BackoffConfig::default());
        let mut chance = Seeded::new(1);
        for expected in [100u64, 200, 400, 800, 1600, 3200, 5000, 5000, 5000] {
            let wait = backoff.next(&mut chance).as_millis() as u64;
            assert!((expected * 4 / 5..=expected * 6 / 5).contains(&wait), "{wait} for {expected}");
        }
        for _ in 0..100 {
            assert!(backoff.next(&mut chance) <= Duration::from_secs(6));
        }
        backoff.reset();
        assert!(backoff.next(&mut chance) <= Duration::from_millis(120));
    }
}
