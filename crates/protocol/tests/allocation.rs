//! What decoding may allocate: an answer or a blob at most 32 × its bytes + 64 KiB, whatever the bytes say. One test
//! only, so that nothing else allocates meanwhile.

#![allow(clippy::unwrap_used, reason = "a test fails by panic, in its own functions too")]

#[path = "sample/messages.rs"]
#[macro_use]
mod messages;
#[path = "sample/mutate.rs"]
mod mutate;

use std::alloc::System;

use bytes::{BufMut, Bytes, BytesMut};
use kohort_protocol::messages::*;
use kohort_protocol::records::{Compression, RecordBatch, RecordBatchBuilder};
use kohort_protocol::{AnyRequest, AnyResponse, ApiKey, Assignment, Response, Subscription};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use messages::{Sample, Sampled};
use mutate::mutate;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes allocated while `work` runs, growth included.
fn allocated<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let region = Region::new(ALLOCATOR);
    let done = work();
    (region.change().bytes_allocated, done)
}

const SLACK: usize = 64 << 10;

fn check_answer(api: ApiKey, version: i16, frame: Bytes) {
    let length = frame.len();
    let (bytes, _decoded) = allocated(|| AnyResponse::decode(api, version, frame));
    assert!(bytes <= 32 * length + SLACK, "{api} v{version}: {bytes} bytes for a frame of {length}");
}

/// A frame that is all `byte`, large enough that the slack does not hide the factor.
fn check_monotone(api: ApiKey, version: i16) {
    for byte in [0u8, 1, 2, 3, 0x7f, 0x80, 0xff] {
        check_answer(api, version, vec![byte; 40_000].into());
        // A list whose count is the most that the check lets pass, with nothing sensible behind it.
        for at in 0..24 {
            let mut frame = vec![byte; 40_000];
            frame[at..at + 4].copy_from_slice(&[0, 0, 0x1a, 0]);
            check_answer(api, version, frame.into());
        }
    }
}

macro_rules! all_answers {
    ($($name:ident $api:ident $request:ident $response:ident,)*) => {
        fn answers(g: &mut Sample) {
            $(
                for version in ApiKey::$api.versions().min..=ApiKey::$api.versions().max {
                    check_monotone(ApiKey::$api, version);
                    for _ in 0..12 {
                        let mut buf = BytesMut::new();
                        $response::sample(g, version).encode(version, &mut buf).unwrap();
                        check_answer(ApiKey::$api, version, buf.clone().freeze());
                        for _ in 0..16 {
                            let mut frame = mutate(&buf, g);
                            if g.bool() {
                                frame.resize(frame.len() + 10_000, 0);
                            }
                            check_answer(ApiKey::$api, version, frame.into());
                        }
                    }
                }
            )*
        }
    };
}

for_every_message!(all_answers);

/// The densest honest lists: as many of the smallest elements as the frame holds.
fn densest() {
    // Throttle time, error, generation, protocol name, leader, member id of version 6.
    let mut join = BytesMut::from(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1][..]);
    let members = 16_000u32;
    put_unsigned(&mut join, members + 1);
    for _ in 0..members {
        join.put_slice(&[1, 0, 1, 0]);
    }
    join.put_u8(0);
    let decoded = JoinGroupResponse::decode(6, join.clone().freeze()).unwrap();
    assert_eq!(decoded.members.len(), members as usize);
    check_answer(ApiKey::JoinGroup, 6, join.freeze());

    let mut offsets = BytesMut::new();
    offsets.put_i32(0);
    put_unsigned(&mut offsets, 10_001);
    for _ in 0..10_000 {
        offsets.put_slice(&[1, 1, 0, 0, 0]);
    }
    offsets.put_u8(0);
    check_answer(ApiKey::OffsetFetch, 8, offsets.freeze());
}

fn put_unsigned(buf: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        buf.put_u8((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    buf.put_u8(value as u8);
}

/// Requests have no promise of their own; a broker must still not be blown up by one.
fn requests(g: &mut Sample) {
    for api in ApiKey::ALL {
        for version in api.versions().min..=api.versions().max {
            for byte in [0u8, 1, 2, 0x7f, 0xff] {
                let mut frame = vec![byte; 40_000];
                let at = g.below(24);
                frame[at..at + 4].copy_from_slice(&[0, 0, 0x1a, 0]);
                let (bytes, _decoded) = allocated(|| AnyRequest::decode(*api, version, frame.into()));
                assert!(bytes <= 40 * 40_000 + SLACK, "{api} v{version}: {bytes}");
            }
        }
    }
}

fn blobs(g: &mut Sample) {
    for _ in 0..2_000 {
        let mut blob = vec![0, g.below(4) as u8];
        let byte = [0u8, 0, 1, 0xff][g.below(4)];
        blob.resize(2 + g.below(20_000), byte);
        let damaged = Bytes::from(mutate(&blob, g));
        let length = damaged.len();
        let (bytes, _decoded) = allocated(|| Subscription::decode(&damaged));
        assert!(bytes <= 32 * length + SLACK, "subscription: {bytes} for {length}");
        let (bytes, _decoded) = allocated(|| Assignment::decode(&damaged));
        assert!(bytes <= 32 * length + SLACK, "assignment: {bytes} for {length}");
    }
}

/// A small batch that decompresses to 64 MiB is stopped at the cap, not after it.
fn bombs() {
    const CAP: usize = 1 << 20;
    let zeros = vec![0u8; 64 << 20];
    for codec in Compression::ALL.iter().filter(|codec| **codec != Compression::None) {
        let mut builder = RecordBatchBuilder::new(*codec);
        builder.append(0, None, Some(&zeros), []).unwrap();
        let bomb = builder.build().unwrap();
        let (bytes, decoded) = allocated(|| RecordBatch::decode(&bomb, CAP));
        assert!(decoded.is_err());
        // The cap, its growth, and the codec's own buffers.
        assert!(bytes <= 4 * CAP + (16 << 20), "{codec}: {bytes}");
    }
}

#[test]
fn decoding_allocates_within_bounds() {
    let mut g = Sample::new(20_240_601);
    answers(&mut g);
    densest();
    requests(&mut g);
    blobs(&mut g);
    bombs();
}
