//! The bounded reader that every message decoder of this crate is written with. It is not for records, whose
//! decoder in [`crate::records`] borrows instead.
//!
//! What it promises: no panic on any input; a list allocates only what its count would fill, after the count was
//! checked against `remaining / minimum element size`; strings allocate their own length, after the check that the
//! bytes are there; blobs are slices of the frame.

use bytes::Bytes;

use crate::error::{DecodeError, DecodeErrorKind, What};

/// Reads fields one after another from a frame, in the classic or in the flexible (KIP-482) format.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a Bytes,
    position: usize,
    flexible: bool,
    what: What,
}

/// The fewest bytes that an element of a list takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minimum {
    /// In the classic format.
    pub classic: usize,
    /// In the flexible format, its tagged fields included.
    pub flexible: usize,
}

/// Both formats' minimum.
pub(crate) const fn min(classic: usize, flexible: usize) -> Minimum {
    Minimum { classic, flexible }
}

type Result<T> = std::result::Result<T, DecodeError>;

macro_rules! fixed {
    ($($name:ident $type:ty, $size:literal;)*) => {
        $(
            #[doc = concat!("Reads a big-endian `", stringify!($type), "`.")]
            pub fn $name(&mut self, field: &'static str) -> Result<$type> {
                Ok(<$type>::from_be_bytes(self.array_of::<$size>(field)?))
            }
        )*
    };
}

impl<'a> Reader<'a> {
    /// Reads from the first byte of `bytes`; `what` names the message in errors.
    pub fn new(bytes: &'a Bytes, what: What, flexible: bool) -> Self {
        Self { bytes, position: 0, flexible, what }
    }

    /// Bytes that were not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    /// Bytes that were read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// An error about `field` at the current position.
    pub fn error(&self, field: &'static str, kind: DecodeErrorKind) -> DecodeError {
        DecodeError { what: self.what, field, offset: self.position, kind }
    }

    fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8]> {
        let end = self.position.checked_add(length);
        match end.and_then(|end| self.bytes.get(self.position..end).map(|taken| (taken, end))) {
            Some((taken, end)) => {
                self.position = end;
                Ok(taken)
            }
            None => {
                let remaining = self.remaining();
                Err(self.error(field, DecodeErrorKind::Truncated { needed: length, remaining }))
            }
        }
    }

    fn array_of<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        match rest.first_chunk::<N>() {
            Some(taken) => {
                self.position = self.position.saturating_add(N);
                Ok(*taken)
            }
            None => Err(self.error(field, DecodeErrorKind::Truncated { needed: N, remaining: rest.len() })),
        }
    }

    fixed! {
        i8 i8, 1;
        i16 i16, 2;
        i32 i32, 4;
        i64 i64, 8;
        u32 u32, 4;
    }

    /// Reads a boolean: any byte but 0 is true.
    pub fn bool(&mut self, field: &'static str) -> Result<bool> {
        Ok(self.i8(field)? != 0)
    }

    /// Reads a UUID as its 16 bytes.
    pub fn uuid(&mut self, field: &'static str) -> Result<[u8; 16]> {
        self.array_of::<16>(field)
    }

    /// Reads an error code.
    pub fn error_code(&mut self, field: &'static str) -> Result<crate::ErrorCode> {
        Ok(crate::ErrorCode::from(self.i16(field)?))
    }

    /// Reads an unsigned variable-length integer of at most 32 bits.
    pub fn unsigned_varint(&mut self, field: &'static str) -> Result<u32> {
        let start = self.position;
        let mut value: u32 = 0;
        for shift in [0u32, 7, 14, 21, 28] {
            let [byte] = self.array_of::<1>(field)?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0x0f {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.position = start;
        Err(self.error(field, DecodeErrorKind::VarintOverflow))
    }

    /// Reads the length of a string, blob or list; `None` is null.
    fn length(&mut self, field: &'static str, wide: bool) -> Result<Option<usize>> {
        if self.flexible {
            let encoded = self.unsigned_varint(field)?;
            return Ok(encoded.checked_sub(1).map(|length| length as usize));
        }
        let length = if wide { self.i32(field)? } else { i32::from(self.i16(field)?) };
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(self.error(field, DecodeErrorKind::InvalidLength(i64::from(length)))),
        }
    }

    /// Runs `read`; an error is placed where the field starts, and so is the reader.
    fn whole<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let start = self.position;
        read(self).map_err(|error| {
            self.position = start;
            DecodeError { offset: start, ..error }
        })
    }

    /// Reads a string that may be null, without a copy.
    pub fn nullable_str(&mut self, field: &'static str) -> Result<Option<&'a str>> {
        self.whole(|r| {
            let Some(length) = r.length(field, false)? else { return Ok(None) };
            let bytes = r.take(length, field)?;
            std::str::from_utf8(bytes).map(Some).map_err(|_| r.error(field, DecodeErrorKind::NotUtf8))
        })
    }

    /// Reads a string, without a copy.
    pub fn str(&mut self, field: &'static str) -> Result<&'a str> {
        self.whole(|r| match r.nullable_str(field)? {
            Some(text) => Ok(text),
            None => Err(r.error(field, DecodeErrorKind::UnexpectedNull)),
        })
    }

    /// Reads a string that may be null.
    pub fn nullable_string(&mut self, field: &'static str) -> Result<Option<String>> {
        Ok(self.nullable_str(field)?.map(str::to_owned))
    }

    /// Reads a string.
    pub fn string(&mut self, field: &'static str) -> Result<String> {
        Ok(self.str(field)?.to_owned())
    }

    /// Reads a blob that may be null, as a slice of the frame.
    pub fn nullable_bytes(&mut self, field: &'static str) -> Result<Option<Bytes>> {
        self.whole(|r| {
            let Some(length) = r.length(field, true)? else { return Ok(None) };
            let start = r.position;
            r.take(length, field)?;
            Ok(Some(r.bytes.slice(start..r.position)))
        })
    }

    /// Reads a blob, as a slice of the frame.
    pub fn bytes(&mut self, field: &'static str) -> Result<Bytes> {
        self.whole(|r| match r.nullable_bytes(field)? {
            Some(bytes) => Ok(bytes),
            None => Err(r.error(field, DecodeErrorKind::UnexpectedNull)),
        })
    }

    /// Reads the count of a list that may be null, and checks that its elements can be there.
    pub fn nullable_count(&mut self, field: &'static str, minimum: Minimum) -> Result<Option<usize>> {
        self.whole(|r| {
            let Some(count) = r.length(field, true)? else { return Ok(None) };
            let minimum = if r.flexible { minimum.flexible } else { minimum.classic }.max(1);
            let remaining = r.remaining();
            if count > remaining / minimum {
                return Err(r.error(field, DecodeErrorKind::CountTooLarge { count, minimum, remaining }));
            }
            Ok(Some(count))
        })
    }

    /// Reads the count of a list, and checks that its elements can be there.
    pub fn count(&mut self, field: &'static str, minimum: Minimum) -> Result<usize> {
        self.whole(|r| match r.nullable_count(field, minimum)? {
            Some(count) => Ok(count),
            None => Err(r.error(field, DecodeErrorKind::UnexpectedNull)),
        })
    }

    /// Reads a list that may be null.
    pub fn nullable_list<T>(
        &mut self,
        field: &'static str,
        minimum: Minimum,
        element: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        match self.nullable_count(field, minimum)? {
            Some(count) => self.elements(count, element).map(Some),
            None => Ok(None),
        }
    }

    /// Reads a list.
    pub fn list<T>(
        &mut self,
        field: &'static str,
        minimum: Minimum,
        element: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.count(field, minimum)?;
        self.elements(count, element)
    }

    fn elements<T>(
        &mut self,
        count: usize,
        mut element: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(list)
    }

    /// Reads a list of `i32`.
    pub fn i32_list(&mut self, field: &'static str) -> Result<Vec<i32>> {
        self.list(field, min(4, 4), |r| r.i32(field))
    }

    /// Reads a list of strings.
    pub fn string_list(&mut self, field: &'static str) -> Result<Vec<String>> {
        self.list(field, min(2, 1), |r| r.string(field))
    }

    /// Skips the tagged fields that end every structure of the flexible format; does nothing in the classic one.
    pub fn tagged_fields(&mut self) -> Result<()> {
        const FIELD: &str = "tagged fields";
        if !self.flexible {
            return Ok(());
        }
        let count = self.unsigned_varint(FIELD)? as usize;
        let remaining = self.remaining();
        if count > remaining / 2 {
            return Err(self.error(FIELD, DecodeErrorKind::CountTooLarge { count, minimum: 2, remaining }));
        }
        for _ in 0..count {
            self.unsigned_varint(FIELD)?;
            let length = self.unsigned_varint(FIELD)? as usize;
            self.take(length, FIELD)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: What = What::Subscription;

    fn kind<T: std::fmt::Debug>(result: Result<T>) -> DecodeErrorKind {
        result.unwrap_err().kind
    }

    #[test]
    fn a_varint_may_not_exceed_32_bits() {
        let largest = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(Reader::new(&largest, WHAT, true).unsigned_varint("x"), Ok(u32::MAX));
        for bad in [&[0xff, 0xff, 0xff, 0xff, 0x1f][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]] {
            let bytes = Bytes::from_static(bad);
            let error = kind(Reader::new(&bytes, WHAT, true).unsigned_varint("x"));
            assert_eq!(error, DecodeErrorKind::VarintOverflow);
        }
    }

    #[test]
    fn a_count_is_checked_before_anything_is_allocated() {
        let bytes = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1]);
        let error = Reader::new(&bytes, WHAT, false).i32_list("partitions").unwrap_err();
        assert_eq!(error.offset, 0);
        assert!(matches!(error.kind, DecodeErrorKind::CountTooLarge { count: 0x7fff_ffff, .. }), "{error}");
        let bytes = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1]);
        let error = kind(Reader::new(&bytes, WHAT, true).string_list("topics"));
        assert!(matches!(error, DecodeErrorKind::CountTooLarge { count: 0xffff_fffe, .. }));
    }

    #[test]
    fn lengths_nulls_and_text_are_checked() {
        let bytes = Bytes::from_static(&[0xff, 0xfe]);
        assert_eq!(kind(Reader::new(&bytes, WHAT, false).string("s")), DecodeErrorKind::InvalidLength(-2));
        let bytes = Bytes::from_static(&[0xff, 0xff]);
        assert_eq!(kind(Reader::new(&bytes, WHAT, false).string("s")), DecodeErrorKind::UnexpectedNull);
        assert_eq!(Reader::new(&bytes, WHAT, false).nullable_string("s"), Ok(None));
        let bytes = Bytes::from_static(&[0, 2, 0xc3, 0x28]);
        assert_eq!(kind(Reader::new(&bytes, WHAT, false).string("s")), DecodeErrorKind::NotUtf8);
        let bytes = Bytes::from_static(&[0, 9, b'a']);
        let truncated = DecodeErrorKind::Truncated { needed: 9, remaining: 1 };
        assert_eq!(kind(Reader::new(&bytes, WHAT, false).string("s")), truncated);
    }

    #[test]
    fn tagged_fields_are_skipped() {
        let bytes = Bytes::from_static(&[2, 0, 1, 9, 7, 2, 8, 8, 0, 5]);
        let mut reader = Reader::new(&bytes, WHAT, true);
        reader.tagged_fields().unwrap();
        assert_eq!(reader.i16("next"), Ok(5));
        let bytes = Bytes::from_static(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        let error = kind(Reader::new(&bytes, WHAT, true).tagged_fields());
        assert!(matches!(error, DecodeErrorKind::Truncated { .. }));
    }
}
