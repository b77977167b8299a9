//! Every message in every version against `kafka-protocol`: what it encodes we decode alike, what we encode it
//! decodes alike.

#![allow(clippy::unwrap_used, reason = "a test fails by panic, in its own functions too")]

#[path = "sample/messages.rs"]
#[macro_use]
mod messages;
#[path = "sample/oracle.rs"]
mod oracle;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};
use kohort_protocol::messages::*;
use kohort_protocol::{ApiKey, DecodeError, DecodeErrorKind, EncodeError, Request, Response};
use proptest::prelude::*;

use messages::{Sample, Sampled};
use oracle::Oracle;

/// Both traits in one, so that one check serves requests and answers.
struct Codec<T> {
    encode: fn(&T, i16, &mut BytesMut) -> Result<(), EncodeError>,
    decode: fn(i16, Bytes) -> Result<T, DecodeError>,
}

fn check<T>(codec: &Codec<T>, api: ApiKey, version: i16, seed: u64)
where
    T: Oracle + Sampled + PartialEq + std::fmt::Debug,
{
    let mut g = Sample::new(seed);
    let plain = T::sample(&mut g, version);
    let mut buf = BytesMut::new();
    (codec.encode)(&plain, version, &mut buf).unwrap();
    let ours = buf.freeze();

    // An answer to ApiVersions with this error is version 0 whatever was asked for.
    let downgraded = api == ApiKey::ApiVersions && ours.starts_with(&[0, 35]);
    let on_the_wire = if downgraded { 0 } else { version };

    let mut rest = ours.clone();
    let mut kp = T::Kp::decode(&mut rest, on_the_wire).unwrap();
    assert!(rest.is_empty(), "{api} v{version} left {} bytes", rest.len());
    let decoded = (codec.decode)(version, ours.clone()).unwrap();
    assert_eq!(decoded, T::plain(&kp, on_the_wire), "{api} v{version} ours");
    if version == api.versions().max && !downgraded {
        assert_eq!(decoded, plain, "{api} v{version} loses something");
    }

    T::decorate(&mut kp, on_the_wire, &mut g);
    let mut theirs = BytesMut::new();
    kp.encode(&mut theirs, on_the_wire).unwrap();
    let decoded = (codec.decode)(version, theirs.freeze()).unwrap();
    assert_eq!(decoded, T::plain(&kp, on_the_wire), "{api} v{version} theirs");

    let mut again = BytesMut::new();
    (codec.encode)(&decoded, version, &mut again).unwrap();
    assert_eq!((codec.decode)(version, again.freeze()).unwrap(), decoded, "{api} v{version} round trip");
}

macro_rules! differential {
    ($($name:ident $api:ident $request:ident $response:ident,)*) => {
        $(
            mod $name {
                use super::*;

                proptest! {
                    #![proptest_config(ProptestConfig::with_cases(256))]

                    #[test]
                    fn requests(seed in any::<u64>()) {
                        let codec = Codec { encode: <$request as Request>::encode, decode: <$request as Request>::decode };
                        for version in ApiKey::$api.versions().min..=ApiKey::$api.versions().max {
                            check::<$request>(&codec, ApiKey::$api, version, seed);
                        }
                    }

                    #[test]
                    fn answers(seed in any::<u64>()) {
                        let codec = Codec { encode: <$response as Response>::encode, decode: <$response as Response>::decode };
                        for version in ApiKey::$api.versions().min..=ApiKey::$api.versions().max {
                            check::<$response>(&codec, ApiKey::$api, version, seed);
                        }
                    }
                }

                #[test]
                fn versions_outside_the_range_are_refused() {
                    let range = ApiKey::$api.versions();
                    for version in [range.min - 1, range.max + 1, i16::MIN, i16::MAX] {
                        let error = EncodeError::UnsupportedVersion { api: ApiKey::$api, version };
                        let request = $request::sample(&mut Sample::new(1), range.max);
                        assert_eq!(request.encode(version, &mut BytesMut::new()), Err(error));
                        let error = <$request as Request>::decode(version, Bytes::new()).unwrap_err();
                        assert_eq!(error.kind, DecodeErrorKind::UnsupportedVersion(version));
                        let error = <$response as Response>::decode(version, Bytes::new()).unwrap_err();
                        assert_eq!(error.kind, DecodeErrorKind::UnsupportedVersion(version));
                    }
                }
            }
        )*
    };
}

for_every_message!(differential);

fn encode<R: Request>(request: &R, version: i16) -> Result<Bytes, EncodeError> {
    let mut buf = BytesMut::new();
    request.encode(version, &mut buf)?;
    Ok(buf.freeze())
}

#[test]
fn an_instance_id_is_dropped_below_the_version_that_has_it() {
    let id = Some("instance".to_owned());
    let join = JoinGroupRequest { group_instance_id: id.clone(), ..Default::default() };
    for version in 0..=9 {
        let decoded = JoinGroupRequest::decode(version, encode(&join, version).unwrap()).unwrap();
        assert_eq!(decoded.group_instance_id, id.clone().filter(|_| version >= 5));
    }
    let commit = OffsetCommitRequest { group_instance_id: id.clone(), ..Default::default() };
    for version in 2..=9 {
        let decoded = OffsetCommitRequest::decode(version, encode(&commit, version).unwrap()).unwrap();
        assert_eq!(decoded.group_instance_id, id.clone().filter(|_| version >= 7));
    }
}

#[test]
fn what_would_change_the_meaning_is_refused() {
    let refused = |result: Result<Bytes, EncodeError>, name| match result {
        Err(EncodeError::NotInVersion { field, .. }) => assert_eq!(field, name),
        other => panic!("{other:?}"),
    };
    let two = FindCoordinatorRequest { key_type: 0, keys: vec!["a".into(), "b".into()] };
    refused(encode(&two, 3), "keys");
    assert!(encode(&two, 4).is_ok());
    let transaction = FindCoordinatorRequest { key_type: 1, keys: vec!["a".into()] };
    refused(encode(&transaction, 0), "key_type");
    let nobody = LeaveGroupRequest::default();
    refused(encode(&nobody, 2), "members");
    let all = OffsetFetchRequest {
        groups: vec![OffsetFetchGroup { group_id: "g".into(), topics: None }],
        require_stable: false,
    };
    refused(encode(&all, 1), "topics");
    assert!(encode(&all, 2).is_ok());
    refused(encode(&OffsetFetchRequest { require_stable: true, ..all.clone() }, 6), "require_stable");
    let none = MetadataRequest { topics: Some(Vec::new()), allow_auto_topic_creation: true };
    refused(encode(&none, 0), "topics");
    let long = HeartbeatRequest { group_id: "g".repeat(40_000), ..Default::default() };
    assert!(matches!(encode(&long, 0), Err(EncodeError::Refused { .. })));
    assert!(encode(&long, 4).is_ok());
}

#[test]
fn one_leaving_member_gets_its_error_below_version_3() {
    use kohort_protocol::ErrorCode;
    let member = LeftMember { error: ErrorCode::UnknownMemberId, ..Default::default() };
    let answer = LeaveGroupResponse { error: ErrorCode::None, members: vec![member] };
    let mut buf = BytesMut::new();
    answer.encode(2, &mut buf).unwrap();
    assert_eq!(LeaveGroupResponse::decode(2, buf.freeze()).unwrap().error, ErrorCode::UnknownMemberId);
}
