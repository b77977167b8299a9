//! What strangers may send. The connection it came on is closed, nothing else happens.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/wire.rs"]
mod wire;

use std::time::Duration;

use bytes::Bytes;
use kohort_broker::{ApiKey, Broker, BrokerEvent, CloseReason, ErrorCode};
use kohort_protocol::messages::*;
use kohort_protocol::{RequestHeader, frame};
use wire::*;

/// Sends bytes on a connection of their own, waits for its end, and checks that nobody else felt it.
async fn is_cut_off(what: &str, bytes: &[u8]) -> CloseReason {
    let broker = Broker::builder().topic("orders", 2).max_frame_bytes(1 << 20).start().await.unwrap();
    let mut bystander = Wire::tcp(&broker).await;
    assert!(is_served(&mut bystander).await);
    let mut events = broker.events();
    let mut stranger = Wire::tcp(&broker).await;
    stranger.send_raw(bytes).await;
    stranger.closed().await;
    assert!(is_served(&mut bystander).await, "{what}: the bystander is served on its connection");
    let mut newcomer = Wire::tcp(&broker).await;
    assert!(is_served(&mut newcomer).await, "{what}: a newcomer is served");
    loop {
        match events.next().await.unwrap() {
            BrokerEvent::ConnectionClosed { reason, .. } => break reason,
            _ => continue,
        }
    }
}

fn request(api_key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&i32::try_from(10 + body.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(&api_key.to_be_bytes());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(&7i32.to_be_bytes());
    bytes.extend_from_slice(&(-1i16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[tokio::test]
async fn lengths_that_cannot_be() {
    for length in [i32::MAX, -1, i32::MIN, (1 << 20) + 1] {
        let reason = is_cut_off("length", &length.to_be_bytes()).await;
        assert!(matches!(reason, CloseReason::Frame(_)), "{length}: {reason:?}");
    }
    // "GET " read as a length.
    let reason = is_cut_off("http", b"GET / HTTP/1.1\r\n\r\n").await;
    assert!(matches!(reason, CloseReason::Frame(_)), "{reason:?}");
    let reason = is_cut_off("tls", &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await;
    assert!(matches!(reason, CloseReason::Frame(_)), "{reason:?}");
}

#[tokio::test]
async fn frames_that_are_too_short() {
    for body in [&b""[..], b"\0", b"\0\x12\0\0\0", b"\0\x0c\0\x04\0\0\0\x01\x7f\xff"] {
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        let reason = is_cut_off("short", &bytes).await;
        assert!(matches!(reason, CloseReason::Malformed(_)), "{body:?}: {reason:?}");
    }
}

#[tokio::test]
async fn x_06_unknown_requests_and_versions_close_the_connection() {
    for (key, version) in [(999, 0), (-1, 0), (ApiKey::Heartbeat.key(), 5), (ApiKey::Fetch.key(), 3)] {
        let reason = is_cut_off("unknown", &request(key, version, b"")).await;
        assert_eq!(reason, CloseReason::NotServed { key, version });
    }
    for api in ApiKey::ALL.iter().filter(|api| **api != ApiKey::ApiVersions) {
        let (key, version) = (api.key(), api.versions().max + 1);
        let reason = is_cut_off(api.name(), &request(key, version, b"")).await;
        assert_eq!(reason, CloseReason::NotServed { key, version }, "{api}");
    }
}

#[tokio::test]
async fn x_06_malformed_frames_close_the_connection() {
    // The lowest versions of these have no body that could be wrong.
    let without_body = [ApiKey::ApiVersions, ApiKey::ListGroups];
    for api in ApiKey::ALL.iter().filter(|api| !without_body.contains(api)) {
        let body = [0x7f; 40];
        let reason = is_cut_off(api.name(), &request(api.key(), api.versions().min, &body)).await;
        assert!(matches!(reason, CloseReason::Malformed(_)), "{api}: {reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn x_06_a_refused_produce_without_acks_closes_the_connection() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    wire.send(&produce("orders", 0, 0, batch(&["a"])), 9).await;
    wire.send(&produce("orders", 9, 0, batch(&["a"])), 9).await;
    wire.closed().await;
    assert_eq!(broker.log_end_offset("orders", 0), Some(1), "the good one is unanswered and there");
}

#[tokio::test(start_paused = true)]
async fn x_06_api_versions_of_an_unknown_version_is_answered_in_version_0() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    wire.send_raw(&request(ApiKey::ApiVersions.key(), 99, b"\x01\x01\0")).await;
    let (correlation, answer) =
        frame::decode_response::<ApiVersionsResponse>(wire.receive_raw().await, 0).unwrap();
    assert_eq!((correlation, answer.error), (7, ErrorCode::UnsupportedVersion));
    assert!(answer.apis.iter().any(|range| range.key == ApiKey::ApiVersions.key() && range.max == 3));
    assert!(answer.apis.len() >= 14);
}

#[tokio::test]
async fn a_frame_that_never_ends_costs_only_what_came() {
    let broker = Broker::start().await.unwrap();
    let mut strangers = Vec::new();
    for _ in 0..100 {
        let mut stranger = Wire::tcp(&broker).await;
        // 64 MiB are promised; were they made room for at once, this would take 6 GiB.
        stranger.send_raw(&(64u32 << 20).to_be_bytes()).await;
        stranger.send_raw(&[0; 1000]).await;
        strangers.push(stranger);
    }
    let mut newcomer = Wire::tcp(&broker).await;
    assert!(is_served(&mut newcomer).await);
}

#[tokio::test(start_paused = true)]
async fn a_request_in_pieces_is_served() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let beat = HeartbeatRequest { group_id: "nobody".into(), ..Default::default() };
    let bytes = frame::encode_request(&beat, 4, 1, Some("slow")).unwrap();
    for byte in bytes.iter() {
        wire.send_raw(&[*byte]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let answer = wire.receive_raw().await;
    let (_, answer) = frame::decode_response::<HeartbeatResponse>(answer, 4).unwrap();
    assert_eq!(answer.error, ErrorCode::UnknownMemberId);
}

#[tokio::test(start_paused = true)]
async fn many_requests_at_once_are_answered_in_order() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    for _ in 0..500 {
        wire.send(&HeartbeatRequest { group_id: "nobody".into(), ..Default::default() }, 4).await;
    }
    for _ in 0..500 {
        let answer: HeartbeatResponse = wire.receive(4).await;
        assert_eq!(answer.error, ErrorCode::UnknownMemberId);
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_request_and_a_large_answer_pass() {
    let broker = Broker::builder().in_memory().topic("orders", 1).start().await.unwrap();
    let mut wire = Wire::memory(&broker).await;
    let text = "x".repeat(900_000);
    let records = batch(&[&text]);
    // Longer than a pipe holds: send and receive at the same time as a client does.
    let answer = wire.latest(&produce("orders", 0, 1, records.clone())).await;
    assert_eq!(produced(&answer), (ErrorCode::None, 0));
    let answer = wire.latest(&fetch("orders", 0, 0, 0)).await;
    assert_eq!(fetched(&answer).records.len(), records.len());
    assert!(is_served(&mut wire).await);
}

#[tokio::test]
async fn the_number_of_connections_is_bounded() {
    let broker = Broker::builder().max_connections(3).start().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut wire = Wire::tcp(&broker).await;
        assert!(is_served(&mut wire).await);
        held.push(wire);
    }
    Wire::tcp(&broker).await.closed().await;
    held.pop();
    // The end of a connection is noticed in time, not at once.
    for _ in 0..100 {
        let mut wire = Wire::tcp(&broker).await;
        let beat = frame::encode_request(&HeartbeatRequest::default(), 4, 1, None).unwrap();
        wire.send_raw(&beat).await;
        if !wire.is_quiet_for(Duration::from_millis(50)).await {
            return;
        }
    }
    panic!("a place that was given back is never taken again");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_goes_away_while_its_request_is_held_is_noticed() {
    let broker = in_memory().await;
    let mut events = broker.events();
    let mut wire = Wire::memory(&broker).await;
    wire.send(&fetch("orders", 0, 0, i32::MAX), 12).await;
    assert!(wire.is_quiet_for(Duration::from_secs(1)).await);
    drop(wire);
    loop {
        if let BrokerEvent::ConnectionClosed { reason, .. } = events.next().await.unwrap() {
            assert_eq!(reason, CloseReason::Peer);
            break;
        }
    }
}

/// A small generator, so that a failing round can be run again by its number.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Valid requests with some bytes changed: whatever they mean now, nothing panics and others are served.
#[tokio::test(start_paused = true)]
async fn changed_requests_hurt_nobody() {
    let broker = in_memory().await;
    let mut bystander = Wire::memory(&broker).await;
    let mut events = broker.events();
    let members = vec![LeaveMember::default()];
    let nobody = JoinGroupResponse::default();
    let valid = [
        frame::encode_request(&produce("orders", 0, 1, batch(&["a", "b"])), 9, 1, Some("c")),
        frame::encode_request(&fetch("orders", 0, 0, 10), 12, 1, Some("c")),
        frame::encode_request(&join("g", ""), 9, 1, Some("c")),
        frame::encode_request(&sync("g", &nobody, &[("m", b"x")]), 5, 1, Some("c")),
        frame::encode_request(&heartbeat("g", &nobody), 4, 1, Some("c")),
        frame::encode_request(&LeaveGroupRequest { group_id: "g".into(), members }, 5, 1, Some("c")),
        frame::encode_request(&FindCoordinatorRequest { key_type: 0, keys: vec!["g".into()] }, 4, 1, None),
        frame::encode_request(&MetadataRequest { topics: None, ..Default::default() }, 9, 1, None),
        frame::encode_request(&ApiVersionsRequest::default(), 3, 1, None),
        frame::encode_request(&InitProducerIdRequest::default(), 4, 1, None),
    ]
    .map(Result::unwrap);
    for round in 1..=3000u64 {
        let mut chance = Chance(round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = valid[chance.below(valid.len())].to_vec();
        for _ in 0..=chance.below(4) {
            let place = 4 + chance.below(bytes.len() - 4);
            bytes[place] = chance.below(256) as u8;
        }
        let mut stranger = Wire::memory(&broker).await;
        // Either may be refused halfway.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stranger.stream, &bytes).await;
        stranger.is_quiet_for(Duration::from_millis(20)).await;
        assert!(is_served(&mut bystander).await, "round {round}");
        while let Some(event) = events.try_next() {
            if let BrokerEvent::ConnectionClosed { reason, .. } = event {
                assert_ne!(reason, CloseReason::Panicked, "round {round}");
            }
        }
    }
}

#[test]
fn the_requests_of_these_tests_are_what_they_say() {
    let bytes = request(12, 4, b"\0");
    let header = RequestHeader::decode(&mut Bytes::from(bytes).slice(4..)).unwrap();
    assert_eq!((header.api(), header.correlation_id, header.client_id), (Some(ApiKey::Heartbeat), 7, None));
}
