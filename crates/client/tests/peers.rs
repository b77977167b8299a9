//! The client against peers that misbehave, and against a broker that comes and goes. Paused clock, memory
//! transport.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kohort_broker::Broker;
use kohort_client::{
    Address, Client, ClientConfig, ClientError, Connector, Producer, ProducerConfig, ProducerRecord,
    connector_fn,
};
use kohort_protocol::frame::encode_response;
use kohort_protocol::messages::{ApiVersionsResponse, HeartbeatRequest, HeartbeatResponse};
use kohort_protocol::{ApiKey, ApiVersions, ErrorCode};
use kohort_telemetry::Hub;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn address() -> Address {
    Address::new("peer", 9092)
}

fn client(connector: Arc<dyn Connector>) -> Client {
    let mut config = ClientConfig::new(vec![address()]);
    config.connector = connector;
    config.max_frame_bytes = 1 << 20;
    Client::new(config, Hub::new())
}

async fn request(stream: &mut DuplexStream) -> Option<(i32, Bytes)> {
    let length = stream.read_i32().await.ok()?;
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await.ok()?;
    let correlation = i32::from_be_bytes(body[4..8].try_into().unwrap());
    Some((correlation, body.into()))
}

/// A peer that shakes hands, then answers each request with the next of these: bytes as they are, or silence.
fn scripted(answers: impl IntoIterator<Item = Option<Vec<u8>>>) -> (Arc<dyn Connector>, Arc<AtomicUsize>) {
    let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let connector = connector_fn(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        let answers = answers.clone();
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let (correlation, _) = request(&mut theirs).await?;
            let apis = ApiVersions::spoken().to_ranges();
            let hello = ApiVersionsResponse { error: ErrorCode::None, apis };
            theirs.write_all(&encode_response(&hello, 3, correlation).unwrap()).await.ok()?;
            while request(&mut theirs).await.is_some() {
                let answer = answers.lock().unwrap().pop_front()?;
                match answer {
                    Some(bytes) => theirs.write_all(&bytes).await.ok()?,
                    None => std::future::pending().await,
                }
            }
            Some(())
        });
        async move { Ok(ours) }
    });
    (connector, connections)
}

async fn heartbeat(client: &Client) -> Result<HeartbeatResponse, ClientError> {
    client.call(&address(), &HeartbeatRequest::default(), SECOND * 5).await
}

fn good(correlation: i32) -> Option<Vec<u8>> {
    Some(encode_response(&HeartbeatResponse::default(), 4, correlation).unwrap().to_vec())
}

#[tokio::test(start_paused = true)]
async fn answers_that_cannot_be_are_typed_errors_and_cost_only_their_connection() {
    let truncated = good(2).unwrap()[..6].to_vec();
    let huge = i32::MAX.to_be_bytes().to_vec();
    let negative = (-1i32).to_be_bytes().to_vec();
    let just_over = ((1 << 20) + 1i32).to_be_bytes().to_vec();
    let garbage = [8i32.to_be_bytes().to_vec(), 2i32.to_be_bytes().to_vec(), vec![0xff; 4]].concat();
    let (connector, connections) = scripted([
        Some(huge),
        Some(negative),
        Some(just_over),
        Some(garbage),
        good(77),
        Some(truncated),
        None,
        good(2),
        good(3),
    ]);
    let client = client(connector);
    for expected in ["malformed", "malformed", "malformed", "malformed", "malformed"] {
        let error = heartbeat(&client).await.unwrap_err();
        assert_eq!(error.kind(), expected, "{error}");
        assert!(error.is_retriable());
        assert!(error.to_string().contains("peer:9092"), "{error}");
    }
    assert!(matches!(heartbeat(&client).await, Err(ClientError::Timeout { .. })), "a frame that never ends");
    let begun = Instant::now();
    let error = heartbeat(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { api: ApiKey::Heartbeat, .. }), "{error}");
    assert_eq!(begun.elapsed(), SECOND * 5, "D-32: every request has a deadline");
    assert_eq!(connections.load(Ordering::SeqCst), 7, "a spoiled connection is never used again");
    heartbeat(&client).await.unwrap();
    heartbeat(&client).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 8, "a good one is");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_spoils_its_connection() {
    let (connector, connections) = scripted([None, good(2)]);
    let client = client(connector);
    let dropped = tokio::time::timeout(SECOND, heartbeat(&client)).await;
    assert!(dropped.is_err());
    heartbeat(&client).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_closed_while_idle_is_replaced() {
    let (connector, connections) = scripted([good(2)]);
    let client = client(connector);
    heartbeat(&client).await.unwrap();
    // The script is at its end: the peer hangs up at the next request on a new connection, not on the old one.
    tokio::time::sleep(SECOND).await;
    assert!(heartbeat(&client).await.is_err());
    assert!(connections.load(Ordering::SeqCst) <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_refuses_is_tried_again_at_a_capped_doubling_pace() {
    let tries = Arc::new(Mutex::new(Vec::new()));
    let seen = tries.clone();
    let client = client(connector_fn(move |_, _| {
        seen.lock().unwrap().push(Instant::now());
        async move { Err::<DuplexStream, _>(std::io::ErrorKind::ConnectionRefused.into()) }
    }));
    let begun = Instant::now();
    while begun.elapsed() < SECOND * 60 {
        let error = client.call(&address(), &HeartbeatRequest::default(), SECOND * 30).await.unwrap_err();
        assert!(matches!(&error, ClientError::Connect { .. }), "{error}");
    }
    let tries = tries.lock().unwrap();
    let waits: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits[0] >= Duration::from_millis(80) && waits[0] <= Duration::from_millis(121), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= SECOND * 6), "{waits:?}");
    assert!((14..30).contains(&tries.len()), "{} tries in a minute", tries.len());
}

#[tokio::test(start_paused = true)]
async fn no_broker_says_what_was_tried() {
    let mut config = ClientConfig::new(vec![Address::new("one", 1), Address::new("two", 2)]);
    config.connector =
        connector_fn(
            |_, _| async move { Err::<DuplexStream, _>(std::io::ErrorKind::ConnectionRefused.into()) },
        );
    let client = Client::new(config, Hub::new());
    let error = client.metadata(&[], false, SECOND).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("one:1") && text.contains("two:2") && text.contains("refused"), "{text}");
    assert!(error.is_retriable());
}

/// D-33: a name that now resolves to another broker.
#[tokio::test(start_paused = true)]
async fn d_33_bootstrap_names_are_asked_anew_when_every_known_address_fails() {
    let old = Broker::builder().in_memory().topic("t", 1).start().await.unwrap();
    let new = Broker::builder().in_memory().topic("t", 1).start().await.unwrap();
    let resolves_to = Arc::new(Mutex::new(old.memory()));
    let (name, old_memory) = (resolves_to.clone(), old.memory());
    let mut config = ClientConfig::new(vec![Address::new("bootstrap", 9092)]);
    config.connector = connector_fn(move |host: String, port| {
        // The old broker advertised itself as `memory`; only the bootstrap name moves.
        let target = if host == "bootstrap" { name.lock().unwrap().clone() } else { old_memory.clone() };
        async move { target.connect("memory", port).await }
    });
    let client = Client::new(config, Hub::new());
    client.metadata(&["t".into()], false, SECOND).await.unwrap();
    assert_eq!(client.cluster().brokers().len(), 1);
    *resolves_to.lock().unwrap() = new.memory();
    old.stop().await;
    client.metadata(&["t".into()], false, SECOND).await.unwrap();
    assert_eq!(client.cluster().partition_count("t"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_producer_neither_loses_nor_repeats_when_answers_are_lost() {
    let broker = Broker::builder().in_memory().topic("t", 3).start().await.unwrap();
    let memory = broker.memory();
    let mut config = ClientConfig::new(vec![Address::new("memory", 9092)]);
    config.connector = connector_fn(move |host: String, port| {
        let memory = memory.clone();
        async move { memory.connect(&host, port).await }
    });
    let mut settings = ProducerConfig::default();
    settings.batch_bytes = 500;
    let mut producer = Producer::new(Client::new(config, Hub::new()), settings);
    let records = |round: usize| {
        (0..100)
            .map(|n| ProducerRecord {
                topic: "t".into(),
                key: Some(Bytes::from(format!("key-{n}"))),
                value: Some(Bytes::from(format!("{}", round * 100 + n))),
                ..ProducerRecord::default()
            })
            .collect::<Vec<_>>()
    };
    for round in 0..5 {
        // Written, but the answer is lost; then refused for a moment; then a lost connection.
        broker.faults().on(ApiKey::Produce).times(1).drop_answer();
        broker.faults().on(ApiKey::Produce).times(1).error(ErrorCode::NotLeaderOrFollower);
        broker.faults().on(ApiKey::Produce).times(1).disconnect_after();
        let results = producer.send(records(round)).await;
        assert!(results.iter().all(Result::is_ok), "{:?}", results.iter().find(|result| result.is_err()));
        broker.faults().clear();
    }
    let mut values: Vec<u64> = (0..3)
        .flat_map(|partition| broker.records("t", partition).unwrap())
        .map(|record| std::str::from_utf8(&record.value.unwrap()).unwrap().parse().unwrap())
        .collect();
    for partition in 0..3 {
        let in_order: Vec<u64> = broker
            .records("t", partition)
            .unwrap()
            .into_iter()
            .map(|record| std::str::from_utf8(&record.value.unwrap()).unwrap().parse().unwrap())
            .collect();
        assert!(in_order.is_sorted(), "records of a partition stand in the order they were sent");
    }
    values.sort();
    assert_eq!(values, (0..500).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_broker_refuses_has_its_own_error() {
    let broker = Broker::builder().in_memory().auto_create_topics(false).topic("t", 1).start().await.unwrap();
    let memory = broker.memory();
    let mut config = ClientConfig::new(vec![Address::new("memory", 9092)]);
    config.connector = connector_fn(move |host: String, port| {
        let memory = memory.clone();
        async move { memory.connect(&host, port).await }
    });
    let mut settings = ProducerConfig::default();
    settings.delivery_timeout = SECOND * 3;
    let mut producer = Producer::new(Client::new(config, Hub::new()), settings);
    let record = |topic: &str, partition| ProducerRecord {
        topic: topic.into(),
        partition,
        value: Some(Bytes::from_static(b"v")),
        ..ProducerRecord::default()
    };
    let results = producer.send(vec![record("t", None), record("absent", None), record("t", Some(9))]).await;
    assert!(results[0].is_ok());
    assert!(results[1].as_ref().unwrap_err().to_string().contains("absent"), "{:?}", results[1]);
    assert!(results[2].as_ref().unwrap_err().to_string().contains("1 partitions"), "{:?}", results[2]);
}
