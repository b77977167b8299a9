//! Chance as an input: a small seeded generator (SplitMix64). Not for secrets.
//!
//! The cores keep one each, so that a run can be repeated from its seed and their state stays comparable.

use std::time::Duration;

/// A seeded generator of the SplitMix64 kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seeded(u64);

impl Seeded {
    /// A generator that repeats itself for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// A duration from zero up to and including `max`, in steps of a microsecond.
    pub fn up_to(&mut self, max: Duration) -> Duration {
        let micros = u64::try_from(max.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.below(micros.saturating_add(1)))
    }

    /// Sixteen bytes in the usual dashed notation of a version 4 UUID.
    pub fn uuid(&mut self) -> String {
        let (a, b) = (self.next_u64(), self.next_u64());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | ((b >> 48) & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_ids_look_like_uuids() {
        let (mut a, mut b) = (Seeded::new(7), Seeded::new(7));
        for _ in 0..100 {
            assert_eq!(a.next_u64(), b.next_u64());
            assert!(a.up_to(Duration::from_millis(3)) <= Duration::from_millis(3));
            b.up_to(Duration::from_millis(3));
        }
        let id = a.uuid();
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'4');
    }
}
