//! Record batches from outside the crate: round trips through every codec, the oracle, and hostile batches.

#![allow(clippy::unwrap_used, reason = "a test fails by panic, in its own functions too")]

#[path = "sample/messages.rs"]
mod messages;
#[path = "sample/mutate.rs"]
mod mutate;

use bytes::{Bytes, BytesMut};
use kafka_protocol::records as kp;
use kohort_protocol::records::{
    BatchHeader, Compression, ControlType, HEADER_LEN, OwnedHeader, OwnedRecord, RecordBatch,
    RecordBatchBuilder, RecordError, TimestampType, batches, control_batch, place, place_in, scan,
    validate_produced,
};
use proptest::prelude::*;

use messages::Sample;
use mutate::mutate;

const MAX: usize = 1 << 24;

fn record(g: &mut Sample, offset: i64) -> OwnedRecord {
    OwnedRecord {
        offset,
        timestamp: 1_700_000_000_000 + i64::from(g.i32()),
        key: g.maybe(|g| g.bytes()),
        value: g.maybe(|g| g.bytes()),
        headers: g.list(|g| OwnedHeader { key: g.string().into(), value: g.maybe(|g| g.bytes()) }),
    }
}

fn records(g: &mut Sample) -> Vec<OwnedRecord> {
    let count = 1 + g.below(40) as i64;
    (0..count).map(|offset| record(g, offset)).collect()
}

fn append(builder: &mut RecordBatchBuilder, record: &OwnedRecord) {
    let headers = record.headers.iter().map(|header| (&header.key[..], header.value.as_deref()));
    let before = builder.size();
    let estimate =
        RecordBatchBuilder::estimate(record.key.as_deref(), record.value.as_deref(), headers.clone());
    builder.append(record.timestamp, record.key.as_deref(), record.value.as_deref(), headers).unwrap();
    assert!(builder.size() - before <= estimate);
}

fn build(records: &[OwnedRecord], compression: Compression) -> Bytes {
    let mut builder = RecordBatchBuilder::new(compression);
    records.iter().for_each(|record| append(&mut builder, record));
    builder.build().unwrap()
}

fn reseal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_codec_round_trips(seed in any::<u64>()) {
        let mut g = Sample::new(seed);
        let records = records(&mut g);
        for codec in Compression::ALL {
            let bytes = build(&records, *codec);
            let batch = validate_produced(&bytes, MAX).unwrap();
            prop_assert_eq!(batch.len(), records.len());
            prop_assert_eq!(batch.header().attributes.compression().unwrap(), *codec);
            prop_assert_eq!(batch.iter().map(|record| record.to_owned()).collect::<Vec<_>>(), records.clone());
            let latest = records.iter().map(|record| record.timestamp).max().unwrap();
            prop_assert_eq!(batch.header().max_timestamp, latest);
            prop_assert_eq!(batch.next_offset(), records.len() as i64);
        }
    }

    /// kafka-protocol reads our batches and we read its.
    #[test]
    fn the_oracle_agrees(seed in any::<u64>()) {
        let mut g = Sample::new(seed);
        let records = records(&mut g);
        let mut bytes = build(&records, Compression::None);
        let set = kp::RecordBatchDecoder::decode(&mut bytes).unwrap();
        prop_assert_eq!(set.records.len(), records.len());
        for (theirs, ours) in set.records.iter().zip(&records) {
            prop_assert_eq!(&theirs.key, &ours.key);
            prop_assert_eq!(&theirs.value, &ours.value);
            prop_assert_eq!((theirs.offset, theirs.timestamp), (ours.offset, ours.timestamp));
        }
        let base = 1_000_000;
        let theirs = records.iter().map(|record| kp::Record {
            transactional: true,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: 5,
            producer_id: 77,
            producer_epoch: 3,
            timestamp_type: kp::TimestampType::Creation,
            offset: base + record.offset,
            sequence: 9 + record.offset as i32,
            timestamp: record.timestamp,
            key: record.key.clone(),
            value: record.value.clone(),
            headers: Default::default(),
        }).collect::<Vec<_>>();
        let options = kp::RecordEncodeOptions { version: 2, compression: kp::Compression::None };
        let mut buf = BytesMut::new();
        kp::RecordBatchEncoder::encode(&mut buf, &theirs, &options).unwrap();
        let bytes = buf.freeze();
        let mut read = Vec::new();
        for raw in batches(&bytes) {
            let batch = raw.unwrap().decode(MAX).unwrap();
            prop_assert!(batch.header().attributes.is_transactional() && !batch.is_control());
            prop_assert_eq!((batch.header().producer_id, batch.header().producer_epoch), (77, 3));
            read.extend(batch.iter().map(|record| (record.offset - base, record.timestamp, record.to_owned().value)));
        }
        let wrote = records.iter().map(|record| (record.offset, record.timestamp, record.value.clone()));
        prop_assert_eq!(read, wrote.collect::<Vec<_>>());
        prop_assert_eq!(scan(&bytes).unwrap().next_offset, Some(base + records.len() as i64));
    }

    /// Damage with a checksum that fits again: the checks behind the checksum have to hold.
    #[test]
    fn damaged_batches_are_values_or_errors(seed in any::<u64>()) {
        let mut g = Sample::new(seed);
        let records = records(&mut g);
        for codec in Compression::ALL {
            let bytes = build(&records, *codec);
            for _ in 0..16 {
                let mut damaged = mutate(&bytes, &mut g);
                if damaged.len() > HEADER_LEN {
                    damaged[16] = 2;
                    let length = damaged.len() as i32 - 12;
                    damaged[8..12].copy_from_slice(&length.to_be_bytes());
                    reseal(&mut damaged);
                }
                let damaged = Bytes::from(damaged);
                let _ = scan(&damaged);
                let _ = validate_produced(&damaged, 1 << 16);
                let _ = place(&damaged, 3, 1, Some(4));
                if let Ok(batch) = RecordBatch::decode(&damaged, 1 << 16) {
                    prop_assert_eq!(batch.iter().count(), batch.len());
                    for record in &batch {
                        prop_assert_eq!(record.headers().count(), record.headers().len());
                        let _ = record.to_owned();
                    }
                    let _ = batch.control_type();
                }
            }
        }
    }

    /// Wherever fetched bytes are cut, the whole batches before the cut are there and no error is.
    #[test]
    fn a_truncated_tail_ends_the_data(seed in any::<u64>()) {
        let mut g = Sample::new(seed);
        let first = build(&records(&mut g), Compression::None);
        let second = build(&records(&mut g), Compression::Lz4);
        let second = place(&second, 1000, 0, None).unwrap();
        let all = Bytes::from([&first[..], &second[..]].concat());
        for cut in 0..=all.len() {
            let data = all.slice(..cut);
            let whole = usize::from(cut >= first.len()) + usize::from(cut == all.len());
            let scan = scan(&data).unwrap();
            prop_assert_eq!(scan.batches, whole);
            let walked = batches(&data).collect::<Result<Vec<_>, _>>().unwrap();
            prop_assert_eq!(walked.len(), whole);
            prop_assert_eq!(scan.next_offset, walked.last().map(|raw| raw.header.next_offset()));
        }
    }
}

fn one() -> Bytes {
    build(
        &[OwnedRecord { timestamp: 5, value: Some(Bytes::from_static(b"v")), ..Default::default() }],
        Compression::None,
    )
}

fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = one().to_vec();
    change(&mut bytes);
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    reseal(&mut bytes);
    bytes.into()
}

#[test]
fn every_flipped_bit_under_the_checksum_is_noticed() {
    let bytes = one();
    for bit in 17 * 8..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = RecordBatch::decode(&flipped.into(), MAX).unwrap_err();
        let noticed = matches!(error, RecordError::CrcMismatch { .. } | RecordError::InvalidHeader { .. });
        assert!(noticed, "bit {bit}: {error}");
    }
}

#[test]
fn old_formats_are_unsupported_and_short_bytes_are_a_tail() {
    for magic in [0u8, 1, 3, 0xff] {
        let mut bytes = one().to_vec();
        bytes[16] = magic;
        let error = scan(&bytes).unwrap_err();
        assert_eq!(error, RecordError::UnsupportedMagic { magic: magic as i8, base_offset: 0 });
        // A message set of 0.10 is shorter than a header of today.
        bytes.truncate(30);
        assert_eq!(scan(&bytes).unwrap_err(), error);
    }
    assert_eq!(scan(&one()[..30]).unwrap().batches, 0);
}

#[test]
fn an_error_comes_after_the_batches_before_it() {
    let mut old = one().to_vec();
    old[16] = 1;
    let data = Bytes::from([&one()[..], &old[..]].concat());
    let mut walk = batches(&data);
    assert!(walk.next().unwrap().is_ok());
    assert!(matches!(walk.next(), Some(Err(RecordError::UnsupportedMagic { .. }))));
    assert!(walk.next().is_none());
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let invalid = |at: usize, bytes: &[u8], name: &str| {
        let mut batch = one().to_vec();
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        match BatchHeader::parse(&batch) {
            Err(RecordError::InvalidHeader { field, .. }) => assert_eq!(field, name),
            other => panic!("{name}: {other:?}"),
        }
    };
    invalid(8, &[0xff; 4], "length");
    invalid(8, &[0, 0, 0, 48], "length");
    invalid(0, &[0xff; 8], "base offset");
    invalid(23, &[0xff; 4], "last offset delta");
    invalid(0, &i64::MAX.to_be_bytes(), "last offset delta");
    invalid(57, &[0xff; 4], "record count");
    invalid(57, &[0x7f, 0xff, 0xff, 0xff], "record count");
}

#[test]
fn a_huge_record_count_is_refused() {
    let bytes = changed(|bytes| {
        bytes[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
        bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    });
    let error = RecordBatch::decode(&bytes, MAX).unwrap_err();
    assert!(matches!(error, RecordError::CountTooLarge { count: 0x7fff_ffff, .. }), "{error}");
}

#[test]
fn a_huge_or_negative_header_count_is_refused() {
    for count in [&[0xfe, 0xff, 0xff, 0xff, 0x0f][..], &[0x01], &[0x04], &[0xff, 0xff, 0xff, 0xff, 0x7f]] {
        let bytes = changed(|bytes| {
            bytes.pop();
            bytes.extend_from_slice(count);
            bytes[HEADER_LEN] = ((bytes.len() - HEADER_LEN - 1) * 2) as u8;
        });
        let error = RecordBatch::decode(&bytes, MAX).unwrap_err();
        assert!(matches!(error, RecordError::InvalidRecord { index: 0, .. }), "{count:?}: {error}");
    }
}

#[test]
fn records_that_cannot_be_are_refused() {
    let trailing = changed(|bytes| bytes.push(0));
    assert!(matches!(
        RecordBatch::decode(&trailing, MAX),
        Err(RecordError::TrailingBytes { remaining: 1, .. })
    ));
    let beyond = changed(|bytes| bytes[HEADER_LEN] = 0x7e);
    assert!(matches!(RecordBatch::decode(&beyond, MAX), Err(RecordError::InvalidRecord { .. })));
    let offset = changed(|bytes| bytes[HEADER_LEN + 3] = 2);
    assert!(matches!(RecordBatch::decode(&offset, MAX), Err(RecordError::InvalidRecord { .. })));
    let timestamp = changed(|bytes| {
        bytes[27..35].copy_from_slice(&i64::MAX.to_be_bytes());
        bytes[HEADER_LEN + 2] = 2;
    });
    assert!(matches!(RecordBatch::decode(&timestamp, MAX), Err(RecordError::InvalidRecord { .. })));
    let codec = changed(|bytes| bytes[22] = 7);
    assert_eq!(RecordBatch::decode(&codec, MAX).unwrap_err(), RecordError::UnknownCompression(7));
    for codec in 1..=4 {
        let lie = changed(|bytes| bytes[22] = codec);
        let error = RecordBatch::decode(&lie, MAX).unwrap_err();
        let refused = matches!(error, RecordError::Decompress { .. } | RecordError::CountTooLarge { .. });
        assert!(refused, "{codec}: {error}");
    }
}

#[test]
fn a_bomb_is_refused_by_every_codec() {
    let zeros = Bytes::from(vec![0u8; 8 << 20]);
    for codec in Compression::ALL {
        let bomb = build(&[OwnedRecord { value: Some(zeros.clone()), ..Default::default() }], *codec);
        let error = RecordBatch::decode(&bomb, 1 << 20).unwrap_err();
        assert_eq!(error, RecordError::DecompressedTooLarge { codec: *codec, max: 1 << 20 });
        assert!(RecordBatch::decode(&bomb, 16 << 20).is_ok());
    }
}

#[test]
fn compaction_leaves_gaps_and_empty_batches() {
    let mut builder = RecordBatchBuilder::new(Compression::Zstd);
    builder.skip_offsets(3);
    builder.append(1, Some(b"k"), None, []).unwrap();
    builder.skip_offsets(6);
    let batch = RecordBatch::decode(&builder.base_offset(100).build().unwrap(), MAX).unwrap();
    assert_eq!(batch.iter().map(|record| record.offset).collect::<Vec<_>>(), [103]);
    assert_eq!(batch.next_offset(), 110);

    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.skip_offsets(5);
    let empty = builder.base_offset(10).build().unwrap();
    let batch = RecordBatch::decode(&empty, MAX).unwrap();
    assert!(batch.is_empty());
    assert_eq!((batch.iter().count(), batch.next_offset()), (0, 15));
    // The compressed attribute outlives the records.
    let mut marked = empty.to_vec();
    marked[22] = 4;
    reseal(&mut marked);
    assert!(RecordBatch::decode(&marked.into(), MAX).unwrap().is_empty());
}

#[test]
fn headers_keep_order_and_duplicates() {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    let headers: [(&[u8], Option<&[u8]>); 3] = [(b"a", Some(b"1")), (b"b", None), (b"a", Some(b"2"))];
    builder.append(0, None, None, headers).unwrap();
    let batch = RecordBatch::decode(&builder.build().unwrap(), MAX).unwrap();
    let record = batch.iter().next().unwrap();
    let seen = record.headers().map(|header| (header.key, header.value)).collect::<Vec<_>>();
    assert_eq!(seen, headers);
    assert_eq!(record.headers().get("a").unwrap().value, Some(&b"2"[..]));
    assert!(record.headers().get("c").is_none());
}

#[test]
fn a_broker_accepts_one_whole_batch_only() {
    let bytes = one();
    assert!(validate_produced(&bytes, MAX).is_ok());
    let two = Bytes::from([&bytes[..], &bytes[..]].concat());
    assert!(matches!(validate_produced(&two, MAX), Err(RecordError::NotOneBatch { .. })));
    let short = bytes.slice(..bytes.len() - 1);
    assert!(matches!(validate_produced(&short, MAX), Err(RecordError::Truncated { .. })));
    assert!(matches!(validate_produced(&Bytes::new(), MAX), Err(RecordError::Truncated { .. })));
    let control = control_batch(ControlType::Commit, 1, 0, 0, 0).unwrap();
    assert_eq!(validate_produced(&control, MAX).unwrap_err(), RecordError::ControlBatch);
    let mut gap = RecordBatchBuilder::new(Compression::None);
    gap.skip_offsets(1);
    gap.append(0, None, None, []).unwrap();
    let gap = gap.build().unwrap();
    assert!(matches!(validate_produced(&gap, MAX), Err(RecordError::OffsetsNotContiguous { .. })));
    let empty = RecordBatchBuilder::new(Compression::None).build().unwrap();
    assert!(matches!(validate_produced(&empty, MAX), Err(RecordError::OffsetsNotContiguous { .. })));
}

#[test]
fn a_produced_batch_that_begins_behind_offset_0_was_accepted() {
    let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(5);
    builder.append(0, None, Some(b"value"), []).unwrap();
    let refused = validate_produced(&builder.build().unwrap(), MAX).unwrap_err();
    assert!(
        matches!(refused, RecordError::InvalidHeader { field: "base offset", value: 5, .. }),
        "{refused}"
    );
}

#[test]
fn placing_a_batch_keeps_its_checksum_until_the_time_changes() {
    let bytes = one();
    let placed = place(&bytes, 5_000, 7, None).unwrap();
    let batch = RecordBatch::decode(&placed, MAX).unwrap();
    assert_eq!((batch.header().base_offset, batch.header().partition_leader_epoch), (5_000, 7));
    assert_eq!(batch.header().crc, BatchHeader::parse(&bytes).unwrap().crc);
    assert_eq!(batch.iter().next().unwrap().timestamp, 5);

    let placed = place(&bytes, 5_000, 7, Some(99)).unwrap();
    let batch = RecordBatch::decode(&placed, MAX).unwrap();
    assert_eq!(batch.header().attributes.timestamp_type(), TimestampType::LogAppendTime);
    let record = batch.iter().next().unwrap();
    assert_eq!((record.offset, record.timestamp), (5_000, 99));

    let mut own = bytes.to_vec();
    assert!(place_in(&mut own, -1, 0, None).is_err());
    assert!(place_in(&mut own, i64::MAX, 0, None).is_err());
    assert_eq!(own, bytes);
}

#[test]
fn markers_say_how_a_transaction_ended() {
    for (control, code) in [(ControlType::Abort, 0), (ControlType::Commit, 1), (ControlType::Other(9), 9)] {
        let marker = control_batch(control, 12, 3, 1, 1_000).unwrap();
        let batch = RecordBatch::decode(&marker, MAX).unwrap();
        assert!(batch.is_control() && batch.header().attributes.is_transactional());
        assert_eq!((batch.control_type(), control.code()), (Some(control), code));
        assert_eq!((batch.header().producer_id, batch.header().base_sequence), (12, -1));
    }
    assert_eq!(RecordBatch::decode(&one(), MAX).unwrap().control_type(), None);
}

#[test]
fn producer_fields_are_written() {
    let mut builder = RecordBatchBuilder::new(Compression::Gzip).producer(4, 2, 17).transactional();
    assert!(builder.is_empty());
    builder.append(0, None, Some(b"x"), []).unwrap();
    assert_eq!(builder.len(), 1);
    let header = BatchHeader::parse(&builder.build().unwrap()).unwrap();
    assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (4, 2, 17));
    assert!(header.attributes.is_transactional());
}
