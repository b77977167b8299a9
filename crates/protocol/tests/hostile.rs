//! Hostile bytes: damaged frames of every message, and the attacks by name. Whatever comes, the answer is a value or
//! a typed error, never a panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panic, in its own functions too")]

#[path = "sample/messages.rs"]
#[macro_use]
mod messages;
#[path = "sample/mutate.rs"]
mod mutate;

use bytes::{BufMut, Bytes, BytesMut};
use kohort_protocol::messages::*;
use kohort_protocol::{
    AnyRequest, AnyResponse, ApiKey, Assignment, DecodeError, DecodeErrorKind, Request, RequestHeader,
    Response, Subscription, TopicPartition, frame,
};
use proptest::prelude::*;

use messages::{Sample, Sampled};
use mutate::mutate;

fn body_of_request<R: Request>(request: &R, version: i16) -> Bytes {
    let mut buf = BytesMut::new();
    request.encode(version, &mut buf).unwrap();
    buf.freeze()
}

fn body_of_answer<R: Response>(answer: &R, version: i16) -> Bytes {
    let mut buf = BytesMut::new();
    answer.encode(version, &mut buf).unwrap();
    buf.freeze()
}

macro_rules! damaged {
    ($($name:ident $api:ident $request:ident $response:ident,)*) => {
        $(
            proptest! {
                #![proptest_config(ProptestConfig::with_cases(400))]

                #[test]
                fn $name(seed in any::<u64>()) {
                    let mut g = Sample::new(seed);
                    for version in ApiKey::$api.versions().min..=ApiKey::$api.versions().max {
                        let request = body_of_request(&$request::sample(&mut g, version), version);
                        let answer = body_of_answer(&$response::sample(&mut g, version), version);
                        for _ in 0..8 {
                            let _ = AnyRequest::decode(ApiKey::$api, version, mutate(&request, &mut g).into());
                            let _ = AnyResponse::decode(ApiKey::$api, version, mutate(&answer, &mut g).into());
                        }
                        for end in 0..answer.len().min(64) {
                            let _ = AnyResponse::decode(ApiKey::$api, version, answer.slice(..end));
                        }
                    }
                }
            }
        )*
    };
}

for_every_message!(damaged);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn bytes_out_of_nowhere(api in 0..20usize, version in 0..13i16, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let api = ApiKey::ALL[api];
        let _ = AnyRequest::decode(api, version, bytes.clone());
        let _ = AnyResponse::decode(api, version, bytes.clone());
        let _ = RequestHeader::decode(&mut bytes.clone());
        let _ = frame::decode_response_header(&mut bytes.clone(), api, version);
        let _ = Subscription::decode(&bytes);
        let _ = Assignment::decode(&bytes);
    }

    #[test]
    fn damaged_blobs(seed in any::<u64>()) {
        let mut g = Sample::new(seed);
        let subscription = Subscription {
            topics: g.list(|g| g.string()),
            user_data: g.maybe(|g| g.bytes()),
            owned_partitions: partitions(&mut g),
            generation: g.i32(),
            rack_id: g.maybe(|g| g.string()),
        };
        let assignment = Assignment { partitions: partitions(&mut g), user_data: g.maybe(|g| g.bytes()) };
        for version in 0..=3 {
            let blob = subscription.encode(version).unwrap();
            for _ in 0..8 {
                let _ = Subscription::decode(&mutate(&blob, &mut g).into());
            }
            let blob = assignment.encode(version).unwrap();
            prop_assert_eq!(Assignment::decode(&blob).unwrap(), assignment.clone());
            for _ in 0..8 {
                let _ = Assignment::decode(&mutate(&blob, &mut g).into());
            }
        }
        prop_assert_eq!(Subscription::decode(&subscription.encode(3).unwrap()).unwrap(), subscription);
    }
}

fn partitions(g: &mut Sample) -> Vec<TopicPartition> {
    g.list(|g| TopicPartition::new(["a", "b"][g.below(2)], g.i32()))
}

fn count_of<T: std::fmt::Debug>(result: Result<T, DecodeError>) -> &'static str {
    let error = result.unwrap_err();
    assert!(matches!(error.kind, DecodeErrorKind::CountTooLarge { .. }), "{error}");
    error.field
}

#[test]
fn a_huge_member_count_in_a_join_answer() {
    let mut bytes = body_of_answer(&JoinGroupResponse::default(), 5).to_vec();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    assert_eq!(count_of(JoinGroupResponse::decode(5, bytes.into())), "members");
    let mut bytes = body_of_answer(&JoinGroupResponse::default(), 9).to_vec();
    let at = bytes.len() - 2;
    bytes.splice(at..at + 1, [0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(count_of(JoinGroupResponse::decode(9, bytes.into())), "members");
}

#[test]
fn huge_counts_in_a_fetch_answer() {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    frame.put_i32(i32::MAX);
    assert_eq!(count_of(FetchResponse::decode(4, frame.clone().freeze())), "topics");
    frame.truncate(4);
    frame.put_i32(1);
    frame.put_i16(1);
    frame.put_u8(b't');
    frame.put_i32(1_000_000_000);
    assert_eq!(count_of(FetchResponse::decode(4, frame.clone().freeze())), "partitions");
    frame.truncate(4 + 4 + 3);
    frame.put_i32(1);
    frame.put_slice(&[0; 22]);
    frame.put_i32(100_000_000);
    frame.put_i32(0);
    assert_eq!(count_of(FetchResponse::decode(4, frame.freeze())), "aborted transactions");
}

#[test]
fn a_records_length_beyond_the_frame() {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    frame.put_i32(1);
    frame.put_i16(0);
    frame.put_i32(1);
    frame.put_slice(&[0; 22]);
    frame.put_i32(-1);
    frame.put_i32(i32::MAX);
    let error = FetchResponse::decode(4, frame.freeze()).unwrap_err();
    assert_eq!((error.field, error.offset), ("records", 40));
    assert!(matches!(error.kind, DecodeErrorKind::Truncated { .. }), "{error}");
}

#[test]
fn huge_counts_in_a_metadata_answer() {
    let mut frame = BytesMut::new();
    frame.put_i32(i32::MAX);
    assert_eq!(count_of(MetadataResponse::decode(0, frame.clone().freeze())), "brokers");
    frame.clear();
    frame.put_i32(0);
    frame.put_i32(i32::MAX);
    assert_eq!(count_of(MetadataResponse::decode(0, frame.freeze())), "topics");
}

#[test]
fn huge_counts_in_the_blobs_of_other_members() {
    for version in [0i16, 1, 3, 99] {
        let mut blob = BytesMut::new();
        blob.put_i16(version);
        blob.put_i32(i32::MAX);
        assert_eq!(count_of(Subscription::decode(&blob.clone().freeze())), "topics");
        assert_eq!(count_of(Assignment::decode(&blob.freeze())), "assigned partitions");
        let mut blob = BytesMut::new();
        blob.put_i16(version);
        blob.put_i32(1);
        blob.put_i16(1);
        blob.put_u8(b't');
        blob.put_i32(500_000_000);
        assert_eq!(count_of(Assignment::decode(&blob.freeze())), "partitions");
    }
    let mut blob = BytesMut::new();
    blob.put_i16(-1);
    assert!(Subscription::decode(&blob.clone().freeze()).is_err());
    assert!(Assignment::decode(&blob.freeze()).is_err());
    assert!(Subscription::decode(&Bytes::new()).is_err());
}

#[test]
fn blobs_of_newer_versions_are_read_as_far_as_they_are_known() {
    let subscription = Subscription {
        topics: vec!["a".into(), "b".into()],
        user_data: Some(Bytes::from_static(b"x")),
        owned_partitions: vec![
            TopicPartition::new("a", 1),
            TopicPartition::new("a", 0),
            TopicPartition::new("b", 2),
        ],
        generation: 7,
        rack_id: Some("r".into()),
    };
    for version in 0..=3i16 {
        let mut blob = subscription.encode(version).unwrap().to_vec();
        blob.extend_from_slice(b"more");
        let decoded = Subscription::decode(&blob.into()).unwrap();
        assert_eq!(decoded.topics, subscription.topics);
        assert_eq!(decoded.owned_partitions.len(), if version >= 1 { 3 } else { 0 });
        assert_eq!(decoded.generation, if version >= 2 { 7 } else { -1 });
        assert_eq!(decoded.rack_id.is_some(), version >= 3);
    }
    let mut newer = subscription.encode(3).unwrap().to_vec();
    newer[1] = 9;
    newer.extend_from_slice(&[1, 2, 3]);
    assert_eq!(Subscription::decode(&newer.into()).unwrap(), subscription);
    assert!(subscription.encode(4).is_err());
    assert!(subscription.encode(-1).is_err());
}

#[test]
fn an_empty_assignment_blob_assigns_nothing() {
    assert_eq!(Assignment::decode(&Bytes::new()).unwrap(), Assignment::default());
}

#[test]
fn a_varint_of_ones_is_refused() {
    let error = SyncGroupResponse::decode(4, Bytes::from_static(&[0xff; 32])).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::VarintOverflow);
}

/// A broker that does not know the version asked for answers in version 0.
#[test]
fn a_downgraded_answer_to_api_versions() {
    use kohort_protocol::ErrorCode;
    let answer = ApiVersionsResponse {
        error: ErrorCode::UnsupportedVersion,
        apis: vec![ApiVersionRange { key: 18, min: 0, max: 2 }],
    };
    let frame = frame::encode_response(&answer, 3, 1).unwrap().slice(4..);
    assert_eq!(frame.len(), 4 + 2 + 4 + 6);
    assert_eq!(frame::decode_response(frame, 3), Ok((1, answer)));
}
