//! Reading and writing the primitives inside a record: zigzag variable-length integers. Used by the record reader
//! and the batch builder; messages have their own reader in [`crate::reader`].

/// A place in borrowed bytes. Every read is `None` when the bytes do not hold it, and the place is then undefined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// A zigzag integer of at most 32 bits.
    #[inline]
    pub(super) fn varint(&mut self) -> Option<i32> {
        // Most integers of a record are below 64 and take one byte.
        let first = self.u8()?;
        if first < 0x80 {
            return Some(unzigzag_32(u32::from(first)));
        }
        let mut value = u32::from(first & 0x7f);
        for shift in [7u32, 14, 21, 28] {
            let byte = self.u8()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(unzigzag_32(value));
            }
        }
        None
    }

    /// A zigzag integer of at most 64 bits.
    #[inline]
    pub(super) fn varlong(&mut self) -> Option<i64> {
        let mut value: u64 = 0;
        for shift in (0..=63).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        None
    }

    /// Bytes with a length in front; the inner `None` is null.
    #[inline]
    pub(super) fn nullable_bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            length => self.take(usize::try_from(length).ok()?).map(Some),
        }
    }
}

#[inline]
fn unzigzag_32(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

fn put_unsigned(buf: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buf.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    buf.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Appends a zigzag integer.
pub(super) fn put_varlong(buf: &mut Vec<u8>, value: i64) {
    put_unsigned(buf, zigzag(value));
}

/// The bytes that a zigzag integer takes.
pub(super) fn varlong_len(value: i64) -> usize {
    let bits = 64 - zigzag(value).leading_zeros();
    (bits.max(1) as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip() {
        let edges =
            [0i64, 1, -1, 63, 64, -64, -65, 8191, 8192, i32::MAX.into(), i32::MIN.into(), i64::MAX, i64::MIN];
        for value in edges {
            let mut buf = Vec::new();
            put_varlong(&mut buf, value);
            assert_eq!(buf.len(), varlong_len(value), "{value}");
            assert_eq!(Cursor::new(&buf).varlong(), Some(value));
            assert_eq!(Cursor::new(&buf).varint(), i32::try_from(value).ok(), "{value}");
        }
    }

    #[test]
    fn overlong_integers_are_refused() {
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint(), None);
        assert_eq!(Cursor::new(&[0x80; 16]).varint(), None);
        assert_eq!(Cursor::new(&[0x80; 16]).varlong(), None);
        assert_eq!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).varlong(),
            None
        );
        assert_eq!(Cursor::new(&[0x80]).varint(), None);
        assert_eq!(Cursor::new(&[0x03]).nullable_bytes(), None);
    }
}
