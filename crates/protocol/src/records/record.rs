//! Records as they are borrowed from a checked batch, and their owned copies.

use std::iter::FusedIterator;

use bytes::Bytes;

use super::cursor::Cursor;
use super::header::{BatchHeader, TimestampType};

/// One record, borrowed from its batch.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The record's offset in its partition.
    pub offset: i64,
    /// Milliseconds since the epoch, −1 if it has none.
    pub timestamp: i64,
    /// The key, if there is one.
    pub key: Option<&'a [u8]>,
    /// The value; none is a tombstone to compaction.
    pub value: Option<&'a [u8]>,
    headers: Headers<'a>,
}

impl<'a> Record<'a> {
    /// The headers in their order, duplicates included; they are parsed as they are asked for.
    pub fn headers(&self) -> Headers<'a> {
        self.headers
    }

    /// Bytes of key and value.
    pub fn payload_len(&self) -> usize {
        let key = self.key.map_or(0, <[u8]>::len);
        key.saturating_add(self.value.map_or(0, <[u8]>::len))
    }

    /// Copies the record, so that keeping it does not keep the whole fetched buffer.
    pub fn to_owned(&self) -> OwnedRecord {
        OwnedRecord {
            offset: self.offset,
            timestamp: self.timestamp,
            key: self.key.map(Bytes::copy_from_slice),
            value: self.value.map(Bytes::copy_from_slice),
            headers: self.headers.map(|header| header.to_owned()).collect(),
        }
    }
}

/// A copy of a [`Record`] that keeps nothing else alive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OwnedRecord {
    /// The record's offset in its partition.
    pub offset: i64,
    /// Milliseconds since the epoch, −1 if it has none.
    pub timestamp: i64,
    /// The key, if there is one.
    pub key: Option<Bytes>,
    /// The value; none is a tombstone to compaction.
    pub value: Option<Bytes>,
    /// The headers in their order, duplicates included.
    pub headers: Vec<OwnedHeader>,
}

/// One header of a record, borrowed. Kafka says that keys are UTF-8; that is not checked here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, if there is one.
    pub value: Option<&'a [u8]>,
}

impl Header<'_> {
    /// Copies the header.
    pub fn to_owned(&self) -> OwnedHeader {
        OwnedHeader { key: Bytes::copy_from_slice(self.key), value: self.value.map(Bytes::copy_from_slice) }
    }
}

/// A copy of a [`Header`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OwnedHeader {
    /// The key.
    pub key: Bytes,
    /// The value, if there is one.
    pub value: Option<Bytes>,
}

/// The headers of one record.
#[derive(Debug, Clone, Copy)]
pub struct Headers<'a> {
    rest: Cursor<'a>,
    remaining: usize,
}

impl<'a> Headers<'a> {
    /// How many headers are left.
    pub fn len(&self) -> usize {
        self.remaining
    }

    /// True if no header is left.
    pub fn is_empty(&self) -> bool {
        self.remaining == 0
    }

    /// The last header with this key, as Kafka's own `lastHeader` finds it.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Header<'a>> {
        let key = key.as_ref();
        (*self).filter(|header| header.key == key).fold(None, |_, header| Some(header))
    }
}

fn header<'a>(cursor: &mut Cursor<'a>) -> Option<Header<'a>> {
    Some(Header { key: cursor.nullable_bytes()??, value: cursor.nullable_bytes()? })
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        // The batch was checked, so that every header is there.
        header(&mut self.rest)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Headers<'_> {}
impl FusedIterator for Headers<'_> {}

/// A record before its offset and timestamp are made absolute.
pub(super) struct Parsed<'a> {
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Headers<'a>,
}

#[inline]
fn parse<'a>(cursor: &mut Cursor<'a>) -> Result<Parsed<'a>, &'static str> {
    let length = cursor.varint().ok_or("its length is not readable")?;
    let length = usize::try_from(length).map_err(|_| "its length is negative")?;
    let mut record = Cursor::new(cursor.take(length).ok_or("it is longer than the batch")?);
    record.u8().ok_or("its attributes are missing")?;
    let timestamp_delta = record.varlong().ok_or("its timestamp is not readable")?;
    let offset_delta = record.varint().ok_or("its offset is not readable")?;
    let key = record.nullable_bytes().ok_or("its key is longer than the record")?;
    let value = record.nullable_bytes().ok_or("its value is longer than the record")?;
    let headers = record.varint().ok_or("its header count is not readable")?;
    let headers = usize::try_from(headers).map_err(|_| "its header count is negative")?;
    Ok(Parsed {
        timestamp_delta,
        offset_delta,
        key,
        value,
        headers: Headers { rest: record, remaining: headers },
    })
}

/// A record's fewest bytes: length, attributes, two deltas, key, value, header count.
pub(super) const MIN_RECORD_LEN: usize = 7;
/// A header's fewest bytes: the lengths of its key and its value.
const MIN_HEADER_LEN: usize = 2;

/// Checks that `data` holds exactly the records that the header promises. Returns what is wrong with which record.
pub(super) fn check(header: &BatchHeader, data: &[u8]) -> Result<usize, (usize, &'static str)> {
    let mut cursor = Cursor::new(data);
    let mut lowest = 0;
    for index in 0..usize::try_from(header.record_count).unwrap_or(0) {
        let record = parse(&mut cursor).map_err(|reason| (index, reason))?;
        if record.offset_delta < lowest || record.offset_delta > header.last_offset_delta {
            return Err((index, "its offset is out of order"));
        }
        lowest = record.offset_delta.saturating_add(1);
        if header.base_timestamp.checked_add(record.timestamp_delta).is_none() {
            return Err((index, "its timestamp is out of range"));
        }
        check_headers(record.headers).map_err(|reason| (index, reason))?;
    }
    Ok(cursor.rest().len())
}

fn check_headers(headers: Headers<'_>) -> Result<(), &'static str> {
    let mut rest = headers.rest;
    if headers.remaining > rest.rest().len() / MIN_HEADER_LEN {
        return Err("it has more headers than bytes for them");
    }
    for _ in 0..headers.remaining {
        header(&mut rest).ok_or("a header is not readable")?;
    }
    if rest.rest().is_empty() { Ok(()) } else { Err("bytes follow its last header") }
}

/// The records of a checked batch, in the order of their offsets.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    cursor: Cursor<'a>,
    remaining: usize,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
}

impl<'a> Records<'a> {
    pub(super) fn new(header: &BatchHeader, data: &'a [u8]) -> Self {
        let append_time = match header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => Some(header.max_timestamp),
            TimestampType::CreateTime => None,
        };
        Self {
            cursor: Cursor::new(data),
            remaining: usize::try_from(header.record_count).unwrap_or(0),
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            append_time,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        // The batch was checked, so that every record is there.
        let parsed = parse(&mut self.cursor).ok()?;
        Some(Record {
            offset: self.base_offset.saturating_add(i64::from(parsed.offset_delta)),
            timestamp: match self.append_time {
                Some(time) => time,
                None => self.base_timestamp.saturating_add(parsed.timestamp_delta),
            },
            key: parsed.key,
            value: parsed.value,
            headers: parsed.headers,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Records<'_> {}
impl FusedIterator for Records<'_> {}
