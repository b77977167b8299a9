//! Which partition a key belongs to, as Kafka's own producers choose it. Called by `Broker::produce`, so that keys
//! land where a client would put them.

/// The partition of `key` among `count`, by Kafka's murmur2.
pub(crate) fn partition_for_key(key: &[u8], count: usize) -> usize {
    let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
    ((murmur2(key) & 0x7fff_ffff) % count) as usize
}

fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c_u32 ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let word: [u8; 4] = chunk.try_into().unwrap_or_default();
        let mut k = u32::from_le_bytes(word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of Kafka's own test of this hash.
    #[test]
    fn murmur2_is_kafkas() {
        for (text, hash) in
            [("21", -973_932_308), ("foobar", -790_332_482), ("a-little-bit-long-string", -985_981_536)]
        {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn keys_go_where_the_client_puts_them() {
        for key in ["", "a", "ab", "abc", "abcd", "orders-17"] {
            let ours = partition_for_key(key.as_bytes(), 12);
            assert_eq!(
                i32::try_from(ours).unwrap(),
                kohort_client::partition_for_key(key.as_bytes(), 12),
                "{key}"
            );
        }
    }
}
