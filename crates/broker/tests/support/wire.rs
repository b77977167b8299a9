//! A client that is no more than frames, so that tests can say exactly what goes over the wire.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use bytes::Bytes;
use kohort_broker::Broker;
use kohort_protocol::messages::*;
use kohort_protocol::records::{Compression, RecordBatchBuilder};
use kohort_protocol::{ApiKey, ErrorCode, Request, Response, frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) struct Wire {
    pub(crate) stream: Box<dyn Stream>,
    sent: i32,
    received: i32,
}

impl Wire {
    pub(crate) async fn memory(broker: &Broker) -> Self {
        let stream = broker.memory().connect("memory", 9092).await.unwrap();
        Self { stream: Box::new(stream), sent: 0, received: 0 }
    }

    /// To one of several nodes.
    pub(crate) async fn node(broker: &Broker, node: i32) -> Self {
        Self::over(broker.memory().connect("memory", 9092 + node as u16).await.unwrap())
    }

    pub(crate) fn over(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), sent: 0, received: 0 }
    }

    pub(crate) async fn tcp(broker: &Broker) -> Self {
        let stream = tokio::net::TcpStream::connect(broker.address().unwrap()).await.unwrap();
        Self { stream: Box::new(stream), sent: 0, received: 0 }
    }

    /// Sends a request; the answers come in the same order.
    pub(crate) async fn send<R: Request>(&mut self, request: &R, version: i16) {
        self.sent += 1;
        let bytes = frame::encode_request(request, version, self.sent, Some("wire")).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn receive<R: Response>(&mut self, version: i16) -> R {
        let (correlation, answer) = frame::decode_response(self.receive_raw().await, version).unwrap();
        self.received += 1;
        assert_eq!(correlation, self.received, "answers come in the order of the requests");
        answer
    }

    pub(crate) async fn receive_raw(&mut self) -> Bytes {
        let length = self.stream.read_u32().await.unwrap();
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body).await.unwrap();
        body.into()
    }

    pub(crate) async fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        self.send(request, version).await;
        self.receive(version).await
    }

    /// The highest version.
    pub(crate) async fn latest<R: Request>(&mut self, request: &R) -> R::Response {
        self.call(request, R::API.versions().max).await
    }

    /// True if nothing comes within `wait` and the connection stays.
    pub(crate) async fn is_quiet_for(&mut self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.stream.read_u8()).await.is_err()
    }

    /// Waits until the broker closes the connection; nothing may come before.
    pub(crate) async fn closed(&mut self) {
        let mut rest = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(20), self.stream.read_to_end(&mut rest)).await;
        // A reset is as good as an end.
        let _ = end.expect("the connection must be closed");
        assert_eq!(rest, b"", "nothing comes before the end");
    }
}

pub(crate) fn batch(values: &[&str]) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    fill(&mut builder, values);
    builder.build().unwrap()
}

pub(crate) fn fill(builder: &mut RecordBatchBuilder, values: &[&str]) {
    for (index, value) in values.iter().enumerate() {
        builder.append(1000 + index as i64, Some(b"key"), Some(value.as_bytes()), []).unwrap();
    }
}

pub(crate) fn produce(topic: &str, partition: i32, acks: i16, records: Bytes) -> ProduceRequest {
    let partitions = vec![ProducePartition { partition, records: Some(records) }];
    let topics = vec![ProduceTopic { name: topic.into(), partitions }];
    ProduceRequest { transactional_id: None, acks, timeout_ms: 1000, topics }
}

pub(crate) fn produced(answer: &ProduceResponse) -> (ErrorCode, i64) {
    let partition = &answer.topics[0].partitions[0];
    (partition.error, partition.base_offset)
}

pub(crate) fn fetch(topic: &str, partition: i32, offset: i64, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition {
        partition,
        current_leader_epoch: -1,
        fetch_offset: offset,
        log_start_offset: -1,
        max_bytes: 1 << 20,
    };
    FetchRequest {
        replica_id: -1,
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 1 << 24,
        session_epoch: -1,
        topics: vec![FetchTopic { name: topic.into(), partitions: vec![partition] }],
        ..FetchRequest::default()
    }
}

pub(crate) fn fetched(answer: &FetchResponse) -> &FetchedPartition {
    &answer.topics[0].partitions[0]
}

pub(crate) fn values(records: &Bytes) -> Vec<String> {
    let mut values = Vec::new();
    for batch in kohort_protocol::records::batches(records) {
        for record in &batch.unwrap().decode(1 << 20).unwrap() {
            values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
        }
    }
    values
}

pub(crate) fn join(group: &str, member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 30_000,
        member_id: member_id.into(),
        group_instance_id: None,
        protocol_type: "consumer".into(),
        protocols: vec![JoinProtocol { name: "range".into(), metadata: Bytes::from_static(b"topics") }],
        reason: None,
    }
}

pub(crate) fn sync(
    group: &str,
    joined: &JoinGroupResponse,
    assignments: &[(&str, &'static [u8])],
) -> SyncGroupRequest {
    SyncGroupRequest {
        group_id: group.into(),
        generation: joined.generation,
        member_id: joined.member_id.clone(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: assignments
            .iter()
            .map(|(member_id, bytes)| MemberAssignment {
                member_id: (*member_id).into(),
                assignment: Bytes::from_static(bytes),
            })
            .collect(),
        ..SyncGroupRequest::default()
    }
}

pub(crate) fn heartbeat(group: &str, joined: &JoinGroupResponse) -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: group.into(),
        generation: joined.generation,
        member_id: joined.member_id.clone(),
        group_instance_id: None,
    }
}

/// The only member of a stable group.
pub(crate) async fn alone(wire: &mut Wire, group: &str) -> JoinGroupResponse {
    let first = wire.latest(&join(group, "")).await;
    assert_eq!(first.error, ErrorCode::MemberIdRequired);
    let joined = wire.latest(&join(group, &first.member_id)).await;
    assert_eq!(joined.error, ErrorCode::None);
    let synced = wire.latest(&sync(group, &joined, &[(&joined.member_id, b"all")])).await;
    assert_eq!((synced.error, &synced.assignment[..]), (ErrorCode::None, &b"all"[..]));
    joined
}

pub(crate) async fn in_memory() -> Broker {
    Broker::builder().in_memory().topic("orders", 2).seed(7).start().await.unwrap()
}

/// A heartbeat that says no more than whether the broker is alive.
pub(crate) async fn is_served(wire: &mut Wire) -> bool {
    let beat = HeartbeatRequest { group_id: "nobody".into(), ..Default::default() };
    wire.latest(&beat).await.error == ErrorCode::UnknownMemberId
}

pub(crate) fn versions(api: ApiKey) -> std::ops::RangeInclusive<i16> {
    api.versions().min..=api.versions().max
}
