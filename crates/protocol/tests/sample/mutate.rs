//! Damage to frames, as a hostile or broken peer could send them.

use crate::messages::Sample;

/// What a count or a length is blown up to: huge, negative, just beyond any frame.
const HUGE: [[u8; 4]; 6] = [
    [0x7f, 0xff, 0xff, 0xff],
    [0xff, 0xff, 0xff, 0xff],
    [0x80, 0, 0, 0],
    [0x00, 0x7f, 0xff, 0xff],
    [0xff, 0xff, 0xff, 0x0f],
    [0, 0, 0x7f, 0xff],
];

/// Damages `frame` in one to three ways: bits flipped, cut off, counts blown up, pieces copied about, bytes inserted.
pub(crate) fn mutate(frame: &[u8], g: &mut Sample) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    for _ in 0..1 + g.below(3) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = g.below(bytes.len());
        match g.below(7) {
            0 | 1 => bytes[at] ^= 1 << g.below(8),
            2 => bytes.truncate(at),
            3 | 4 => {
                let huge = HUGE[g.below(HUGE.len())];
                for (place, byte) in bytes[at..].iter_mut().zip(huge) {
                    *place = byte;
                }
            }
            5 => {
                let from = g.below(bytes.len());
                let to = from + g.below(bytes.len() - from).min(16);
                let piece = bytes[from..to].to_vec();
                for (place, byte) in bytes[at..].iter_mut().zip(piece) {
                    *place = byte;
                }
            }
            _ => {
                let piece = g.bytes();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}
