//! An answer that names a partition twice acknowledges one batch, not a second that was never sent.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use kohort_broker::Broker;
use kohort_client::{Address, Client, ClientConfig, Producer, ProducerConfig, ProducerRecord, connector_fn};
use kohort_protocol::ApiKey;
use kohort_protocol::frame::{decode_response, encode_response};
use kohort_protocol::messages::ProduceResponse;
use kohort_telemetry::Hub;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream};

async fn frame(from: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = from.read_i32().await.ok()?;
    let mut body = vec![0; usize::try_from(length).ok()?];
    from.read_exact(&mut body).await.ok()?;
    Some(body)
}

/// Passes everything on, but lists each partition of a Produce answer twice.
async fn repeat(mut client: DuplexStream, mut broker: DuplexStream) -> Option<()> {
    loop {
        let request = frame(&mut client).await?;
        broker.write_i32(i32::try_from(request.len()).ok()?).await.ok()?;
        broker.write_all(&request).await.ok()?;
        let answer = frame(&mut broker).await?;
        let (api, version) =
            (i16::from_be_bytes([request[0], request[1]]), i16::from_be_bytes([request[2], request[3]]));
        if api == ApiKey::Produce.key() {
            let (correlation, mut answer) =
                decode_response::<ProduceResponse>(answer.into(), version).unwrap();
            for topic in &mut answer.topics {
                topic.partitions.extend(topic.partitions.clone());
            }
            client.write_all(&encode_response(&answer, version, correlation).unwrap()).await.ok()?;
        } else {
            client.write_i32(i32::try_from(answer.len()).ok()?).await.ok()?;
            client.write_all(&answer).await.ok()?;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_named_twice_in_a_produce_answer_acknowledges_nothing_unsent() {
    let broker = Broker::builder().in_memory().topic("t", 1).start().await.unwrap();
    let memory = broker.memory();
    let server: Address = broker.bootstrap_servers()[0].parse().unwrap();
    let mut config = ClientConfig::new(vec![server]);
    config.connector = connector_fn(move |host, port| {
        let memory = memory.clone();
        async move {
            let theirs = memory.connect(&host, port).await?;
            let (ours, mine) = tokio::io::duplex(1 << 16);
            tokio::spawn(repeat(mine, theirs));
            Ok(ours)
        }
    });
    let mut settings = ProducerConfig::default();
    settings.batch_bytes = 100;
    let mut producer = Producer::new(Client::new(config, Hub::new()), settings);
    let records = (0..4).map(|n| ProducerRecord {
        topic: "t".into(),
        partition: Some(0),
        timestamp: None,
        key: None,
        value: Some(Bytes::from(vec![n; 90])),
        headers: Vec::new(),
    });
    let sent = producer.send(records.collect()).await;
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    assert_eq!(broker.records("t", 0).unwrap().len(), 4);
}
