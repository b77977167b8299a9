//! Which partition a key goes to: as Kafka's own producer decides, so that foreign producers agree.

/// The partition of a key among `partitions`: murmur2, as in Kafka's default partitioner. 0 if there is none.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    if partitions <= 0 { 0 } else { (murmur2(key) & 0x7fff_ffff) as i32 % partitions }
}

/// MurmurHash2 with Kafka's seed.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut word = chunk.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        word = word.wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    let tail = chunks.remainder();
    if !tail.is_empty() {
        hash ^= tail.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that Kafka's own tests of `Utils.murmur2` expect.
    #[test]
    fn hashes_as_kafka_does() {
        for (text, hash) in [
            ("21", -973932308i32),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
        assert!((0..1000).all(|n: i32| (0..7).contains(&partition_for_key(&n.to_be_bytes(), 7))));
        assert_eq!(partition_for_key(b"x", 0), 0);
    }
}
