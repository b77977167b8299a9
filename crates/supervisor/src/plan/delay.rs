//! Delayed restart: how long a child with a [`Backoff`] waits. Pure: its chance comes from a seed.

use crate::id::ChildId;
use crate::spec::Backoff;
use std::time::{Duration, Instant};

/// The back-off of one child under way.
#[derive(Debug)]
pub(super) struct Delay {
    backoff: Backoff,
    tries: u32,
    chance: u64,
}

impl Delay {
    pub(super) fn new(backoff: Backoff, id: &ChildId) -> Delay {
        // FNV-1a: siblings with the same seed do not move in step.
        let hash = id.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Delay { backoff, tries: 0, chance: backoff.seed ^ hash }
    }

    /// It ran from `since` to `now`: long enough, and the next delay is the initial one again.
    pub(super) fn ran(&mut self, since: Option<Instant>, now: Instant) {
        let healthy = self.backoff.reset_after.unwrap_or(self.backoff.max);
        if since.is_some_and(|since| now.saturating_duration_since(since) >= healthy) {
            self.tries = 0;
        }
    }

    /// How long to wait before this try.
    pub(super) fn next(&mut self) -> Duration {
        let factor = 2_u32.checked_pow(self.tries).unwrap_or(u32::MAX);
        self.tries = self.tries.saturating_add(1);
        let full = self.backoff.initial.saturating_mul(factor).min(self.backoff.max);
        full - full.mul_f64(self.backoff.jitter * self.roll())
    }

    /// Of [0, 1): splitmix64.
    fn roll(&mut self) -> f64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_doubles_to_its_cap_and_begins_again_after_a_healthy_period() {
        let backoff = Backoff::new(SECOND, 5 * SECOND).reset_after(30 * SECOND);
        let mut delay = Delay::new(backoff, &"a".into());
        assert_eq!([1, 2, 4, 5, 5].map(|secs| secs * SECOND), [(); 5].map(|()| delay.next()));
        let since = Instant::now();
        delay.ran(Some(since), since + 29 * SECOND);
        assert_eq!(delay.next(), 5 * SECOND);
        delay.ran(Some(since), since + 30 * SECOND);
        assert_eq!(delay.next(), SECOND);
        for _ in 0..100 {
            assert!(delay.next() <= 5 * SECOND, "no overflow");
        }
    }

    #[test]
    fn jitter_takes_away_at_most_its_share_and_follows_the_seed() {
        let delays = |seed, id: &str| {
            let mut delay = Delay::new(Backoff::new(SECOND, SECOND).jitter(0.5, seed), &id.into());
            [(); 64].map(|()| delay.next())
        };
        assert!(delays(7, "a").iter().all(|delay| (SECOND / 2..=SECOND).contains(delay)));
        assert_eq!(delays(7, "a"), delays(7, "a"));
        assert_ne!(delays(7, "a"), delays(8, "a"));
        assert_ne!(delays(7, "a"), delays(7, "b"));
    }
}
