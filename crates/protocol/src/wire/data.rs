//! Produce and Fetch on the wire. Record batches pass through as blobs: a decoded one is a slice of its frame, an
//! encoded one is copied once, into the frame.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as kp;
use kp::{BrokerId, ProducerId};
use kp::{fetch_request as f, fetch_response as fr};
use kp::{produce_request as p, produce_response as pr};

use super::{nullable_text, put, request, response, text, topic_name, transactional_id};
use crate::messages::*;
use crate::reader::min;
use crate::{ApiKey, DecodeError, EncodeError, ErrorCode, Request, Response};

impl Request for ProduceRequest {
    const API: ApiKey = ApiKey::Produce;
    type Response = ProduceResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let partition = |partition: &ProducePartition| {
                p::PartitionProduceData::default()
                    .with_index(partition.partition)
                    .with_records(partition.records.clone())
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    p::TopicProduceData::default()
                        .with_name(topic_name(&topic.name))
                        .with_partition_data(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(kp::ProduceRequest::default()
                .with_transactional_id(transactional_id(self.transactional_id.as_ref()))
                .with_acks(self.acks)
                .with_timeout_ms(self.timeout_ms)
                .with_topic_data(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let message = Self {
            transactional_id: r.nullable_string("transactional id")?,
            acks: r.i16("acks")?,
            timeout_ms: r.i32("timeout")?,
            topics: r.list("topics", min(6, 3), |r| {
                let topic = ProduceTopic {
                    name: r.string("topic")?,
                    partitions: r.list("partitions", min(8, 6), |r| {
                        let partition = ProducePartition {
                            partition: r.i32("partition")?,
                            records: r.nullable_bytes("records")?,
                        };
                        r.tagged_fields()?;
                        Ok(partition)
                    })?,
                };
                r.tagged_fields()?;
                Ok(topic)
            })?,
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Response for ProduceResponse {
    const API: ApiKey = ApiKey::Produce;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let partition = |partition: &ProducedPartition| {
                let error_message = partition.error_message.as_ref().filter(|_| version >= 8);
                pr::PartitionProduceResponse::default()
                    .with_index(partition.partition)
                    .with_error_code(partition.error.code())
                    .with_base_offset(partition.base_offset)
                    .with_log_append_time_ms(partition.log_append_time)
                    .with_log_start_offset(partition.log_start_offset)
                    .with_error_message(nullable_text(error_message))
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    pr::TopicProduceResponse::default()
                        .with_name(topic_name(&topic.name))
                        .with_partition_responses(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(kp::ProduceResponse::default().with_responses(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        let topics = r.list("topics", min(6, 3), |r| {
            let topic = ProducedTopic {
                name: r.string("topic")?,
                partitions: r.list("partitions", min(22, 33), |r| {
                    let mut partition = ProducedPartition {
                        partition: r.i32("partition")?,
                        error: r.error_code("partition's error code")?,
                        base_offset: r.i64("base offset")?,
                        log_append_time: r.i64("log append time")?,
                        log_start_offset: if version >= 5 { r.i64("log start offset")? } else { -1 },
                        error_message: None,
                    };
                    if version >= 8 {
                        for _ in 0..r.count("record errors", min(6, 6))? {
                            r.i32("batch index")?;
                            r.nullable_str("record's error message")?;
                            r.tagged_fields()?;
                        }
                        partition.error_message = r.nullable_string("error message")?;
                    }
                    r.tagged_fields()?;
                    Ok(partition)
                })?,
            };
            r.tagged_fields()?;
            Ok(topic)
        })?;
        r.i32("throttle time")?;
        r.tagged_fields()?;
        Ok(Self { topics })
    }
}

impl Request for FetchRequest {
    const API: ApiKey = ApiKey::Fetch;
    type Response = FetchResponse;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let partition = |partition: &FetchPartition| {
                f::FetchPartition::default()
                    .with_partition(partition.partition)
                    .with_current_leader_epoch(partition.current_leader_epoch)
                    .with_fetch_offset(partition.fetch_offset)
                    .with_log_start_offset(partition.log_start_offset)
                    .with_partition_max_bytes(partition.max_bytes)
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    f::FetchTopic::default()
                        .with_topic(topic_name(&topic.name))
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            let message = kp::FetchRequest::default()
                .with_replica_id(BrokerId(self.replica_id))
                .with_max_wait_ms(self.max_wait_ms)
                .with_min_bytes(self.min_bytes)
                .with_max_bytes(self.max_bytes)
                .with_isolation_level(self.isolation_level)
                .with_topics(topics)
                .with_rack_id(text(&self.rack_id));
            if version < 7 {
                return Ok(message);
            }
            let forgotten = self
                .forgotten
                .iter()
                .map(|topic| {
                    f::ForgottenTopic::default()
                        .with_topic(topic_name(&topic.name))
                        .with_partitions(topic.partitions.clone())
                })
                .collect();
            Ok(message
                .with_session_id(self.session_id)
                .with_session_epoch(self.session_epoch)
                .with_forgotten_topics_data(forgotten))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = request(Self::API, version, &body)?;
        let message = Self {
            replica_id: r.i32("replica id")?,
            max_wait_ms: r.i32("max wait")?,
            min_bytes: r.i32("min bytes")?,
            max_bytes: r.i32("max bytes")?,
            isolation_level: r.i8("isolation level")?,
            session_id: if version >= 7 { r.i32("session id")? } else { 0 },
            session_epoch: if version >= 7 { r.i32("session epoch")? } else { -1 },
            topics: r.list("topics", min(6, 3), |r| {
                let topic = FetchTopic {
                    name: r.string("topic")?,
                    partitions: r.list("partitions", min(16, 33), |r| {
                        let partition = r.i32("partition")?;
                        let current_leader_epoch =
                            if version >= 9 { r.i32("current leader epoch")? } else { -1 };
                        let fetch_offset = r.i64("fetch offset")?;
                        if version >= 12 {
                            r.i32("last fetched epoch")?;
                        }
                        let log_start_offset = if version >= 5 { r.i64("log start offset")? } else { -1 };
                        let max_bytes = r.i32("partition's max bytes")?;
                        r.tagged_fields()?;
                        Ok(FetchPartition {
                            partition,
                            current_leader_epoch,
                            fetch_offset,
                            log_start_offset,
                            max_bytes,
                        })
                    })?,
                };
                r.tagged_fields()?;
                Ok(topic)
            })?,
            forgotten: if version >= 7 {
                r.list("forgotten topics", min(6, 3), |r| {
                    let topic = ForgottenTopic {
                        name: r.string("forgotten topic")?,
                        partitions: r.i32_list("forgotten partitions")?,
                    };
                    r.tagged_fields()?;
                    Ok(topic)
                })?
            } else {
                Vec::new()
            },
            rack_id: if version >= 11 { r.string("rack id")? } else { String::new() },
        };
        r.tagged_fields()?;
        Ok(message)
    }
}

impl Response for FetchResponse {
    const API: ApiKey = ApiKey::Fetch;

    fn encode(&self, version: i16, buf: &mut BytesMut) -> Result<(), EncodeError> {
        put(Self::API, version, buf, || {
            let aborted = |transaction: &AbortedTransaction| {
                fr::AbortedTransaction::default()
                    .with_producer_id(ProducerId(transaction.producer_id))
                    .with_first_offset(transaction.first_offset)
            };
            let partition = |partition: &FetchedPartition| {
                let aborted = partition.aborted_transactions.iter().map(aborted).collect();
                let replica = if version >= 11 { partition.preferred_read_replica } else { -1 };
                fr::PartitionData::default()
                    .with_partition_index(partition.partition)
                    .with_error_code(partition.error.code())
                    .with_high_watermark(partition.high_watermark)
                    .with_last_stable_offset(partition.last_stable_offset)
                    .with_log_start_offset(partition.log_start_offset)
                    .with_aborted_transactions(Some(aborted))
                    .with_preferred_read_replica(BrokerId(replica))
                    .with_records(Some(partition.records.clone()))
            };
            let topics = self
                .topics
                .iter()
                .map(|topic| {
                    fr::FetchableTopicResponse::default()
                        .with_topic(topic_name(&topic.name))
                        .with_partitions(topic.partitions.iter().map(partition).collect())
                })
                .collect();
            Ok(kp::FetchResponse::default()
                .with_error_code(self.error.code())
                .with_session_id(if version >= 7 { self.session_id } else { 0 })
                .with_responses(topics))
        })
    }

    fn decode(version: i16, body: Bytes) -> Result<Self, DecodeError> {
        let mut r = response(Self::API, version, &body)?;
        r.i32("throttle time")?;
        let message = Self {
            error: if version >= 7 { r.error_code("error code")? } else { ErrorCode::None },
            session_id: if version >= 7 { r.i32("session id")? } else { 0 },
            topics: r.list("topics", min(6, 3), |r| {
                let topic = FetchedTopic {
                    name: r.string("topic")?,
                    partitions: r.list("partitions", min(30, 37), |r| {
                        let partition = FetchedPartition {
                            partition: r.i32("partition")?,
                            error: r.error_code("partition's error code")?,
                            high_watermark: r.i64("high watermark")?,
                            last_stable_offset: r.i64("last stable offset")?,
                            log_start_offset: if version >= 5 { r.i64("log start offset")? } else { -1 },
                            aborted_transactions: r
                                .nullable_list("aborted transactions", min(16, 17), |r| {
                                    let transaction = AbortedTransaction {
                                        producer_id: r.i64("producer id")?,
                                        first_offset: r.i64("first offset")?,
                                    };
                                    r.tagged_fields()?;
                                    Ok(transaction)
                                })?
                                .unwrap_or_default(),
                            preferred_read_replica: if version >= 11 {
                                r.i32("preferred read replica")?
                            } else {
                                -1
                            },
                            records: r.nullable_bytes("records")?.unwrap_or_default(),
                        };
                        r.tagged_fields()?;
                        Ok(partition)
                    })?,
                };
                r.tagged_fields()?;
                Ok(topic)
            })?,
        };
        r.tagged_fields()?;
        Ok(message)
    }
}
