//! Produce, Fetch, ListOffsets, Metadata and CreateTopics over the wire.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/wire.rs"]
mod wire;

use std::time::Duration;

use bytes::Bytes;
use kohort_broker::{ApiKey, Broker, BrokerError, ErrorCode};
use kohort_client::{Client, ClientConfig, Producer, ProducerConfig, ProducerRecord, connector_fn};
use kohort_protocol::messages::*;
use kohort_protocol::records::{Compression, RecordBatchBuilder};
use tokio::time::Instant;
use wire::*;

async fn round_trip(broker: &Broker, config: ClientConfig) {
    let client = Client::new(config, Default::default());
    let mut producer = Producer::new(client, ProducerConfig::default());
    let record = |number: usize| ProducerRecord {
        topic: "orders".into(),
        key: Some(Bytes::from(format!("key-{number}"))),
        value: Some(Bytes::from(format!("value-{number}"))),
        ..ProducerRecord::default()
    };
    let sent = producer.send((0..100).map(record).collect()).await;
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    let mut values: Vec<String> = Vec::new();
    for partition in 0..2 {
        for record in broker.records("orders", partition).unwrap() {
            values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
        }
    }
    values.sort();
    let mut expected: Vec<String> = (0..100).map(|number| format!("value-{number}")).collect();
    expected.sort();
    assert_eq!(values, expected);
}

#[tokio::test]
async fn a_producer_round_trip_over_tcp() {
    let broker = Broker::builder().topic("orders", 2).start().await.unwrap();
    let servers = broker.bootstrap_servers().iter().map(|server| server.parse().unwrap()).collect();
    round_trip(&broker, ClientConfig::new(servers)).await;
}

#[tokio::test(start_paused = true)]
async fn a_producer_round_trip_in_memory() {
    let broker = in_memory().await;
    let memory = broker.memory();
    let servers = broker.bootstrap_servers().iter().map(|server| server.parse().unwrap()).collect();
    let mut config = ClientConfig::new(servers);
    config.connector = connector_fn(move |host, port| {
        let memory = memory.clone();
        async move { memory.connect(&host, port).await }
    });
    round_trip(&broker, config).await;
}

#[tokio::test(start_paused = true)]
async fn every_version_produces_and_fetches() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let mut offset = 0;
    for version in versions(ApiKey::Produce) {
        let answer = wire.call(&produce("orders", 0, -1, batch(&["a", "b"])), version).await;
        assert_eq!(produced(&answer), (ErrorCode::None, offset), "version {version}");
        offset += 2;
    }
    for version in versions(ApiKey::Fetch) {
        let answer = wire.call(&fetch("orders", 0, offset - 2, 0), version).await;
        let got = fetched(&answer);
        assert_eq!((got.error, got.high_watermark), (ErrorCode::None, offset), "version {version}");
        assert_eq!(values(&got.records), ["a", "b"], "version {version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_from_the_middle_of_a_batch_gets_the_whole_batch() {
    let broker = in_memory().await;
    broker.produce_batch("orders", 0, batch(&["a", "b", "c"])).await.unwrap();
    let mut wire = Wire::memory(&broker).await;
    let answer = wire.latest(&fetch("orders", 0, 1, 0)).await;
    assert_eq!(values(&fetched(&answer).records), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_parked_fetch_wakes_when_something_is_appended() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let begun = Instant::now();
    wire.send(&fetch("orders", 0, 0, 30_000), 12).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    broker.produce_to("orders", 1, None, Some(b"elsewhere")).await.unwrap();
    assert!(wire.is_quiet_for(Duration::from_secs(1)).await);
    broker.produce_to("orders", 0, None, Some(b"here")).await.unwrap();
    let answer: FetchResponse = wire.receive(12).await;
    assert_eq!(values(&fetched(&answer).records), ["here"]);
    assert_eq!(begun.elapsed(), Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn a_parked_fetch_is_answered_empty_when_its_time_is_over() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let begun = Instant::now();
    let answer = wire.latest(&fetch("orders", 0, 0, 500)).await;
    assert_eq!((fetched(&answer).error, fetched(&answer).records.len()), (ErrorCode::None, 0));
    assert!(begun.elapsed() >= Duration::from_millis(500) && begun.elapsed() < Duration::from_millis(510));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_waits_for_min_bytes() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let size = batch(&["value"]).len();
    let mut request = fetch("orders", 0, 0, 30_000);
    request.min_bytes = i32::try_from(2 * size).unwrap();
    wire.send(&request, 12).await;
    broker.produce_batch("orders", 0, batch(&["value"])).await.unwrap();
    assert!(wire.is_quiet_for(Duration::from_secs(1)).await);
    broker.produce_batch("orders", 0, batch(&["value"])).await.unwrap();
    let answer: FetchResponse = wire.receive(12).await;
    assert_eq!(fetched(&answer).records.len(), 2 * size);
}

#[tokio::test(start_paused = true)]
async fn limits_cut_between_batches_and_one_always_fits() {
    let broker = in_memory().await;
    for partition in [0, 0, 1] {
        broker.produce_batch("orders", partition, batch(&["value"])).await.unwrap();
    }
    let size = batch(&["value"]).len();
    let mut request = fetch("orders", 0, 0, 0);
    let mut second = request.topics[0].partitions[0].clone();
    second.partition = 1;
    request.topics[0].partitions.push(second);
    let mut wire = Wire::memory(&broker).await;
    for (max_bytes, expected) in [(1, [size, 0]), (2 * size, [2 * size, 0]), (1 << 20, [2 * size, size])] {
        request.max_bytes = i32::try_from(max_bytes).unwrap();
        let answer = wire.latest(&request).await;
        let sizes: Vec<usize> =
            answer.topics[0].partitions.iter().map(|partition| partition.records.len()).collect();
        assert_eq!(sizes, expected, "max_bytes {max_bytes}");
    }
}

#[tokio::test(start_paused = true)]
async fn offsets_outside_the_log_are_refused() {
    let broker = in_memory().await;
    for _ in 0..4 {
        broker.produce_batch("orders", 0, batch(&["a"])).await.unwrap();
    }
    broker.delete_records("orders", 0, 2).await.unwrap();
    assert_eq!(broker.log_start_offset("orders", 0), Some(2));
    let mut wire = Wire::memory(&broker).await;
    for (offset, error) in [
        (1, ErrorCode::OffsetOutOfRange),
        (2, ErrorCode::None),
        (4, ErrorCode::None),
        (5, ErrorCode::OffsetOutOfRange),
    ] {
        // A parked fetch would hang here: errors are answered at once.
        let wait = if error.is_error() { 60_000 } else { 0 };
        let answer = wire.latest(&fetch("orders", 0, offset, wait)).await;
        assert_eq!(fetched(&answer).error, error, "offset {offset}");
    }
    let begun = Instant::now();
    let answer = wire.latest(&fetch("nowhere", 0, 0, 60_000)).await;
    assert_eq!(fetched(&answer).error, ErrorCode::UnknownTopicOrPartition);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(matches!(
        broker.delete_records("orders", 0, 9).await,
        Err(BrokerError::OffsetOutOfRange { offset: 9, end: 4, .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn old_records_go_when_a_partition_is_full() {
    let size = batch(&["value"]).len();
    let builder = Broker::builder().in_memory().topic("orders", 1).max_partition_bytes(3 * size);
    let broker = builder.start().await.unwrap();
    for _ in 0..10 {
        broker.produce_batch("orders", 0, batch(&["value"])).await.unwrap();
    }
    assert_eq!(
        (broker.log_start_offset("orders", 0), broker.log_end_offset("orders", 0)),
        (Some(7), Some(10))
    );
    assert_eq!(broker.records("orders", 0).unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn offsets_are_listed_by_timestamp() {
    let broker = in_memory().await;
    // Timestamps 1000, 1001, 1002 each.
    broker.produce_batch("orders", 0, batch(&["a", "b", "c"])).await.unwrap();
    broker.produce_batch("orders", 0, batch(&["d"])).await.unwrap();
    let mut wire = Wire::memory(&broker).await;
    let ask = |timestamp| ListOffsetsRequest {
        isolation_level: 0,
        topics: vec![ListOffsetsTopic {
            name: "orders".into(),
            partitions: vec![ListOffsetsPartition { partition: 0, leader_epoch: -1, timestamp }],
        }],
    };
    for (timestamp, offset, found) in
        [(-1, 4, -1), (-2, 0, -1), (-3, 2, 1002), (0, 0, 1000), (1001, 1, 1001), (1003, -1, -1)]
    {
        let answer = wire.latest(&ask(timestamp)).await;
        let got = &answer.topics[0].partitions[0];
        assert_eq!((got.error, got.offset, got.timestamp), (ErrorCode::None, offset, found), "{timestamp}");
    }
    let answer = wire.latest(&ask(-9)).await;
    assert_eq!(answer.topics[0].partitions[0].error, ErrorCode::UnsupportedVersion);
}

#[tokio::test(start_paused = true)]
async fn x_11_batches_that_break_the_rules() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let good = batch(&["a"]);
    let changed = |place: usize, byte: u8| {
        let mut bytes = good.to_vec();
        bytes[place] = byte;
        Bytes::from(bytes)
    };
    let twice = Bytes::from([&good[..], &good[..]].concat());
    let nothing = RecordBatchBuilder::new(Compression::None).build().unwrap();
    let mut later = RecordBatchBuilder::new(Compression::None).base_offset(5);
    fill(&mut later, &["a"]);
    for (what, records, code) in [
        ("two batches", twice, ErrorCode::InvalidRecord),
        ("no batch", Bytes::new(), ErrorCode::InvalidRecord),
        ("no records", nothing, ErrorCode::InvalidRecord),
        ("base offset 5", later.build().unwrap(), ErrorCode::InvalidRecord),
        ("wrong CRC", changed(good.len() - 1, 0x7f), ErrorCode::CorruptMessage),
        ("magic 1", changed(16, 1), ErrorCode::CorruptMessage),
    ] {
        let answer = wire.latest(&produce("orders", 0, -1, records)).await;
        assert_eq!(produced(&answer), (code, -1), "{what}");
    }
    assert_eq!(broker.log_end_offset("orders", 0), Some(0));
}

#[tokio::test(start_paused = true)]
async fn x_12_sequences_of_an_idempotent_producer() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let init = InitProducerIdRequest { producer_id: -1, producer_epoch: -1, ..Default::default() };
    let given = wire.latest(&init).await;
    assert_eq!((given.error, given.producer_epoch), (ErrorCode::None, 0));
    let id = given.producer_id;
    let send = |epoch, sequence| {
        let mut builder = RecordBatchBuilder::new(Compression::None).producer(id, epoch, sequence);
        fill(&mut builder, &["a", "b"]);
        produce("orders", 0, -1, builder.build().unwrap())
    };
    for round in 0..7 {
        let answer = wire.latest(&send(1, round * 2)).await;
        assert_eq!(produced(&answer), (ErrorCode::None, i64::from(round) * 2));
    }
    for (what, epoch, sequence, expected) in [
        ("the last five are remembered", 1, 4, (ErrorCode::None, 4)),
        ("the newest too", 1, 12, (ErrorCode::None, 12)),
        ("an older one is not", 1, 2, (ErrorCode::OutOfOrderSequenceNumber, -1)),
        ("a gap", 1, 16, (ErrorCode::OutOfOrderSequenceNumber, -1)),
        ("a stale epoch", 0, 14, (ErrorCode::InvalidProducerEpoch, -1)),
    ] {
        let answer = wire.latest(&send(epoch, sequence)).await;
        assert_eq!(produced(&answer), expected, "{what}");
    }
    assert_eq!(broker.log_end_offset("orders", 0), Some(14));
}

#[tokio::test(start_paused = true)]
async fn x_13_a_leader_epoch_newer_than_the_brokers() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let mut request = fetch("orders", 0, 0, 60_000);
    request.topics[0].partitions[0].current_leader_epoch = 1;
    let answer = wire.latest(&request).await;
    assert_eq!(fetched(&answer).error, ErrorCode::UnknownLeaderEpoch);
}

#[tokio::test(start_paused = true)]
async fn fetch_sessions_are_not_given_out() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    for (id, epoch, error) in [
        (0, 0, ErrorCode::None),
        (0, 3, ErrorCode::InvalidFetchSessionEpoch),
        (5, 1, ErrorCode::FetchSessionIdNotFound),
    ] {
        let mut request = fetch("orders", 0, 0, 0);
        (request.session_id, request.session_epoch) = (id, epoch);
        let answer = wire.latest(&request).await;
        assert_eq!((answer.error, answer.session_id), (error, 0), "session {id} epoch {epoch}");
    }
}

#[tokio::test(start_paused = true)]
async fn topics_are_made_by_metadata_only_where_both_sides_want_it() {
    for (allowed, asked, error) in [
        (true, true, ErrorCode::None),
        (true, false, ErrorCode::UnknownTopicOrPartition),
        (false, true, ErrorCode::UnknownTopicOrPartition),
    ] {
        let builder = Broker::builder().in_memory().auto_create_topics(allowed).default_partitions(3);
        let broker = builder.start().await.unwrap();
        let mut wire = Wire::memory(&broker).await;
        let topics = Some(vec!["new".to_owned(), "not valid".to_owned()]);
        let answer = wire.latest(&MetadataRequest { topics, allow_auto_topic_creation: asked }).await;
        assert_eq!(answer.topics[0].error, error);
        assert_eq!(answer.topics[1].error, ErrorCode::InvalidTopicException);
        assert_eq!(broker.partitions("new"), error.is_none().then_some(3));
        assert_eq!((answer.brokers[0].host.as_str(), answer.brokers[0].port), ("memory", 9092));
    }
}

#[tokio::test(start_paused = true)]
async fn produce_makes_a_topic_only_where_that_is_allowed() {
    for (allowed, error) in [(true, ErrorCode::None), (false, ErrorCode::UnknownTopicOrPartition)] {
        let broker = Broker::builder().in_memory().auto_create_topics(allowed).start().await.unwrap();
        let mut wire = Wire::memory(&broker).await;
        let answer = wire.latest(&produce("new", 0, 1, batch(&["a"]))).await;
        assert_eq!(produced(&answer).0, error);
        let answer = wire.latest(&produce("not valid", 0, 1, batch(&["a"]))).await;
        assert_eq!(produced(&answer).0, ErrorCode::InvalidTopicException);
    }
}

#[tokio::test(start_paused = true)]
async fn topics_are_created_and_refused() {
    let broker = in_memory().await;
    let mut wire = Wire::memory(&broker).await;
    let topic = |name: &str, num_partitions, replication_factor| NewTopic {
        name: name.into(),
        num_partitions,
        replication_factor,
        ..NewTopic::default()
    };
    let request = |topics, validate_only| CreateTopicsRequest { topics, timeout_ms: 1000, validate_only };
    for (what, new, code) in [
        ("a good one", topic("a", 3, 1), ErrorCode::None),
        ("the broker's defaults", topic("b", -1, -1), ErrorCode::None),
        ("one that exists", topic("orders", 1, 1), ErrorCode::TopicAlreadyExists),
        ("a bad name", topic("a/b", 1, 1), ErrorCode::InvalidTopicException),
        ("no partitions", topic("c", 0, 1), ErrorCode::InvalidPartitions),
        ("far too many partitions", topic("c", i32::MAX, 1), ErrorCode::InvalidPartitions),
        ("too many replicas", topic("c", 1, 3), ErrorCode::InvalidReplicationFactor),
    ] {
        let dry = wire.latest(&request(vec![new.clone()], true)).await;
        assert_eq!(dry.topics[0].error, code, "{what}");
        let answer = wire.latest(&request(vec![new], false)).await;
        assert_eq!(answer.topics[0].error, code, "{what}");
        assert_eq!(answer.topics[0].error_message.is_some(), code.is_error(), "{what}");
    }
    let by_hand = NewTopic { assignments: vec![(1, vec![0]), (0, vec![0])], ..topic("hand", -1, -1) };
    let elsewhere = NewTopic { assignments: vec![(0, vec![7])], ..topic("elsewhere", -1, -1) };
    let twice = vec![topic("d", 1, 1), topic("d", 1, 1)];
    let answer = wire.latest(&request([vec![by_hand, elsewhere], twice].concat(), false)).await;
    let codes: Vec<ErrorCode> = answer.topics.iter().map(|topic| topic.error).collect();
    let expected = [
        ErrorCode::None,
        ErrorCode::InvalidReplicaAssignment,
        ErrorCode::InvalidRequest,
        ErrorCode::InvalidRequest,
    ];
    assert_eq!(codes, expected);
    assert_eq!(broker.topics(), ["a", "b", "hand", "orders"]);
    assert_eq!((broker.partitions("a"), broker.partitions("hand")), (Some(3), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn a_batch_larger_than_allowed_is_refused() {
    let broker =
        Broker::builder().in_memory().topic("orders", 1).max_message_bytes(100).start().await.unwrap();
    let mut wire = Wire::memory(&broker).await;
    let answer = wire.latest(&produce("orders", 0, 1, batch(&[&"x".repeat(200)]))).await;
    assert_eq!(produced(&answer), (ErrorCode::MessageTooLarge, -1));
}

#[tokio::test(start_paused = true)]
async fn keys_of_the_broker_and_of_the_client_meet_in_one_partition() {
    let broker = Broker::builder().in_memory().topic("orders", 12).start().await.unwrap();
    for number in 0..50 {
        let key = format!("key-{number}");
        let (partition, _) = broker.produce("orders", &key, "value").await.unwrap();
        assert_eq!(partition, kohort_client::partition_for_key(key.as_bytes(), 12));
    }
}
