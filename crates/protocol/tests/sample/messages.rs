//! Plausible random messages for the integration tests, from a seed. No test stands here; the test files include it.

#![allow(dead_code)]

use bytes::Bytes;
use kohort_protocol::ErrorCode;
use kohort_protocol::messages::*;

/// A seeded source of plausible values (SplitMix64).
pub(crate) struct Sample {
    state: u64,
    /// Every third seed gives the smallest elements that there are, so that no honest list is taken for a lie.
    smallest: bool,
}

impl Sample {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, smallest: seed.is_multiple_of(3) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub(crate) fn bool(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(crate) fn i64(&mut self) -> i64 {
        match self.below(5) {
            0 => -1,
            1 => self.below(100) as i64,
            2 => i64::MAX,
            3 => i64::MIN,
            _ => self.next() as i64,
        }
    }

    pub(crate) fn i32(&mut self) -> i32 {
        self.i64() as i32
    }

    pub(crate) fn i16(&mut self) -> i16 {
        self.i64() as i16
    }

    pub(crate) fn i8(&mut self) -> i8 {
        self.below(2) as i8
    }

    pub(crate) fn error(&mut self) -> ErrorCode {
        match self.below(3) {
            0 => ErrorCode::None,
            1 => ErrorCode::ALL[self.below(ErrorCode::ALL.len())],
            _ => ErrorCode::from(self.i16()),
        }
    }

    pub(crate) fn string(&mut self) -> String {
        let length = match self.below(12) {
            _ if self.smallest => 0,
            0 => 200,
            _ => self.below(12),
        };
        (0..length).map(|_| ['a', 'Z', '-', '0', 'ü', '語'][self.below(6)]).collect()
    }

    pub(crate) fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.bool() && !self.smallest { Some(value(self)) } else { None }
    }

    pub(crate) fn bytes(&mut self) -> Bytes {
        let length = match self.below(8) {
            _ if self.smallest => 0,
            0 => 300,
            _ => self.below(20),
        };
        (0..length).map(|_| self.next() as u8).collect::<Vec<u8>>().into()
    }

    pub(crate) fn list<T>(&mut self, element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let length = if self.smallest && self.bool() { 0 } else { self.below(4) };
        self.exactly(length, element)
    }

    pub(crate) fn exactly<T>(&mut self, length: usize, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..length).map(|_| element(self)).collect()
    }

    pub(crate) fn i32s(&mut self) -> Vec<i32> {
        self.list(|g| g.i32())
    }
}

/// A message that a peer of this version could send.
pub(crate) trait Sampled: Sized {
    fn sample(g: &mut Sample, version: i16) -> Self;
}

macro_rules! sampled {
    ($($name:ident |$g:ident, $version:ident| { $($field:ident: $value:expr,)* })*) => {
        $(
            impl Sampled for $name {
                fn sample($g: &mut Sample, $version: i16) -> Self {
                    let _ = $version;
                    $(let $field = $value;)*
                    $name { $($field,)* }
                }
            }
        )*
    };
}

sampled! {
    ApiVersionsRequest |g, v| {
        client_software_name: if v >= 3 { g.string() } else { String::new() },
        client_software_version: if v >= 3 { g.string() } else { String::new() },
    }
    ApiVersionsResponse |g, v| {
        error: g.error(),
        apis: g.list(|g| ApiVersionRange { key: g.i16(), min: g.i16(), max: g.i16() }),
    }
    MetadataRequest |g, v| {
        topics: if v == 0 && g.bool() { Some(vec![g.string()]) } else if v == 0 { None } else { g.maybe(|g| g.list(|g| g.string())) },
        allow_auto_topic_creation: g.bool(),
    }
    MetadataResponse |g, v| {
        brokers: g.list(|g| BrokerAddress { node_id: g.i32(), host: g.string(), port: g.i32() }),
        cluster_id: g.maybe(|g| g.string()),
        controller_id: g.i32(),
        topics: g.list(|g| TopicMetadata {
            error: g.error(),
            name: g.string(),
            is_internal: g.bool(),
            partitions: g.list(|g| PartitionMetadata {
                error: g.error(),
                partition: g.i32(),
                leader: g.i32(),
                leader_epoch: g.i32(),
                replicas: g.i32s(),
                isr: g.i32s(),
            }),
        }),
    }
    FindCoordinatorRequest |g, v| {
        key_type: if v >= 1 { g.i8() } else { 0 },
        keys: if v >= 4 { g.list(|g| g.string()) } else { vec![g.string()] },
    }
    FindCoordinatorResponse |g, v| {
        coordinators: {
            let length = if v >= 4 { g.below(4) } else { 1 };
            g.exactly(length, |g| CoordinatorAddress {
                key: g.string(),
                node_id: g.i32(),
                host: g.string(),
                port: g.i32(),
                error: g.error(),
                error_message: g.maybe(|g| g.string()),
            })
        },
    }
    CreateTopicsRequest |g, v| {
        topics: g.list(|g| NewTopic {
            name: g.string(),
            num_partitions: g.i32(),
            replication_factor: g.i16(),
            assignments: g.list(|g| (g.i32(), g.i32s())),
            configs: g.list(|g| (g.string(), g.maybe(|g| g.string()))),
        }),
        timeout_ms: g.i32(),
        validate_only: g.bool(),
    }
    CreateTopicsResponse |g, v| {
        topics: g.list(|g| CreatedTopic {
            name: g.string(),
            error: g.error(),
            error_message: g.maybe(|g| g.string()),
            num_partitions: g.i32(),
            replication_factor: g.i16(),
        }),
    }
    InitProducerIdRequest |g, v| {
        transactional_id: g.maybe(|g| g.string()),
        transaction_timeout_ms: g.i32(),
        producer_id: g.i64(),
        producer_epoch: g.i16(),
    }
    InitProducerIdResponse |g, v| {
        error: g.error(),
        producer_id: g.i64(),
        producer_epoch: g.i16(),
    }
    ProduceRequest |g, v| {
        transactional_id: g.maybe(|g| g.string()),
        acks: g.i16(),
        timeout_ms: g.i32(),
        topics: g.list(|g| ProduceTopic {
            name: g.string(),
            partitions: g.list(|g| ProducePartition { partition: g.i32(), records: g.maybe(|g| g.bytes()) }),
        }),
    }
    ProduceResponse |g, v| {
        topics: g.list(|g| ProducedTopic {
            name: g.string(),
            partitions: g.list(|g| ProducedPartition {
                partition: g.i32(),
                error: g.error(),
                base_offset: g.i64(),
                log_append_time: g.i64(),
                log_start_offset: g.i64(),
                error_message: g.maybe(|g| g.string()),
            }),
        }),
    }
    FetchRequest |g, v| {
        replica_id: g.i32(),
        max_wait_ms: g.i32(),
        min_bytes: g.i32(),
        max_bytes: g.i32(),
        isolation_level: g.i8(),
        session_id: g.i32(),
        session_epoch: g.i32(),
        topics: g.list(|g| FetchTopic {
            name: g.string(),
            partitions: g.list(|g| FetchPartition {
                partition: g.i32(),
                current_leader_epoch: g.i32(),
                fetch_offset: g.i64(),
                log_start_offset: g.i64(),
                max_bytes: g.i32(),
            }),
        }),
        forgotten: g.list(|g| ForgottenTopic { name: g.string(), partitions: g.i32s() }),
        rack_id: g.string(),
    }
    FetchResponse |g, v| {
        error: g.error(),
        session_id: g.i32(),
        topics: g.list(|g| FetchedTopic {
            name: g.string(),
            partitions: g.list(|g| FetchedPartition {
                partition: g.i32(),
                error: g.error(),
                high_watermark: g.i64(),
                last_stable_offset: g.i64(),
                log_start_offset: g.i64(),
                aborted_transactions: g.list(|g| AbortedTransaction {
                    producer_id: g.i64(),
                    first_offset: g.i64(),
                }),
                preferred_read_replica: g.i32(),
                records: g.bytes(),
            }),
        }),
    }
    JoinGroupRequest |g, v| {
        group_id: g.string(),
        session_timeout_ms: g.i32(),
        rebalance_timeout_ms: g.i32(),
        member_id: g.string(),
        group_instance_id: g.maybe(|g| g.string()),
        protocol_type: g.string(),
        protocols: g.list(|g| JoinProtocol { name: g.string(), metadata: g.bytes() }),
        reason: g.maybe(|g| g.string()),
    }
    JoinGroupResponse |g, v| {
        error: g.error(),
        generation: g.i32(),
        protocol_type: g.maybe(|g| g.string()),
        protocol_name: g.maybe(|g| g.string()),
        leader: g.string(),
        skip_assignment: g.bool(),
        member_id: g.string(),
        members: g.list(|g| JoinMember {
            member_id: g.string(),
            group_instance_id: g.maybe(|g| g.string()),
            metadata: g.bytes(),
        }),
    }
    SyncGroupRequest |g, v| {
        group_id: g.string(),
        generation: g.i32(),
        member_id: g.string(),
        group_instance_id: g.maybe(|g| g.string()),
        protocol_type: g.maybe(|g| g.string()),
        protocol_name: g.maybe(|g| g.string()),
        assignments: g.list(|g| MemberAssignment { member_id: g.string(), assignment: g.bytes() }),
    }
    SyncGroupResponse |g, v| {
        error: g.error(),
        protocol_type: g.maybe(|g| g.string()),
        protocol_name: g.maybe(|g| g.string()),
        assignment: g.bytes(),
    }
    HeartbeatRequest |g, v| {
        group_id: g.string(),
        generation: g.i32(),
        member_id: g.string(),
        group_instance_id: g.maybe(|g| g.string()),
    }
    HeartbeatResponse |g, v| {
        error: g.error(),
    }
    LeaveGroupRequest |g, v| {
        group_id: g.string(),
        members: {
            let length = if v >= 3 { g.below(4) } else { 1 };
            g.exactly(length, |g| LeaveMember {
                member_id: g.string(),
                group_instance_id: g.maybe(|g| g.string()),
                reason: g.maybe(|g| g.string()),
            })
        },
    }
    LeaveGroupResponse |g, v| {
        error: g.error(),
        members: g.list(|g| LeftMember {
            member_id: g.string(),
            group_instance_id: g.maybe(|g| g.string()),
            error: g.error(),
        }),
    }
    OffsetCommitRequest |g, v| {
        group_id: g.string(),
        generation: g.i32(),
        member_id: g.string(),
        group_instance_id: g.maybe(|g| g.string()),
        topics: g.list(|g| OffsetCommitTopic {
            name: g.string(),
            partitions: g.list(|g| OffsetCommitPartition {
                partition: g.i32(),
                offset: g.i64(),
                leader_epoch: g.i32(),
                metadata: g.maybe(|g| g.string()),
            }),
        }),
    }
    OffsetCommitResponse |g, v| {
        topics: g.list(|g| OffsetCommittedTopic {
            name: g.string(),
            partitions: g.list(|g| OffsetCommittedPartition { partition: g.i32(), error: g.error() }),
        }),
    }
    OffsetFetchRequest |g, v| {
        groups: {
            let length = if v >= 8 { g.below(4) } else { 1 };
            g.exactly(length, |g| {
                let mut topics =
                    g.maybe(|g| g.list(|g| OffsetFetchTopic { name: g.string(), partitions: g.i32s() }));
                if v < 2 {
                    topics = Some(topics.unwrap_or_default());
                }
                OffsetFetchGroup { group_id: g.string(), topics }
            })
        },
        require_stable: v >= 7 && g.bool(),
    }
    OffsetFetchResponse |g, v| {
        groups: {
            let length = if v >= 8 { g.below(4) } else { 1 };
            g.exactly(length, |g| FetchedOffsets {
                group_id: g.string(),
                error: g.error(),
                topics: g.list(|g| FetchedOffsetsTopic {
                    name: g.string(),
                    partitions: g.list(|g| FetchedOffset {
                        partition: g.i32(),
                        offset: g.i64(),
                        leader_epoch: g.i32(),
                        metadata: g.maybe(|g| g.string()),
                        error: g.error(),
                    }),
                }),
            })
        },
    }
    ListOffsetsRequest |g, v| {
        isolation_level: g.i8(),
        topics: g.list(|g| ListOffsetsTopic {
            name: g.string(),
            partitions: g.list(|g| ListOffsetsPartition {
                partition: g.i32(),
                leader_epoch: g.i32(),
                timestamp: g.i64(),
            }),
        }),
    }
    ListOffsetsResponse |g, v| {
        topics: g.list(|g| ListedOffsetsTopic {
            name: g.string(),
            partitions: g.list(|g| ListedOffset {
                partition: g.i32(),
                error: g.error(),
                timestamp: g.i64(),
                offset: g.i64(),
                leader_epoch: g.i32(),
            }),
        }),
    }
    DescribeGroupsRequest |g, v| {
        groups: g.list(|g| g.string()),
    }
    DescribeGroupsResponse |g, v| {
        groups: g.list(|g| DescribedGroup {
            error: g.error(),
            error_message: g.maybe(|g| g.string()),
            group_id: g.string(),
            state: g.string(),
            protocol_type: g.string(),
            protocol_name: g.string(),
            members: g.list(|g| DescribedMember {
                member_id: g.string(),
                group_instance_id: g.maybe(|g| g.string()),
                client_id: g.string(),
                client_host: g.string(),
                metadata: g.bytes(),
                assignment: g.bytes(),
            }),
        }),
    }
    ListGroupsRequest |g, v| {
        states: if v >= 4 { g.list(|g| g.string()) } else { Vec::new() },
        types: if v >= 5 { g.list(|g| g.string()) } else { Vec::new() },
    }
    ListGroupsResponse |g, v| {
        error: g.error(),
        groups: g.list(|g| ListedGroup {
            group_id: g.string(),
            protocol_type: g.string(),
            state: g.string(),
            group_type: g.string(),
        }),
    }
    DeleteGroupsRequest |g, v| {
        groups: g.list(|g| g.string()),
    }
    DeleteGroupsResponse |g, v| {
        groups: g.list(|g| DeletedGroup { group_id: g.string(), error: g.error() }),
    }
    OffsetDeleteRequest |g, v| {
        group_id: g.string(),
        topics: g.list(|g| OffsetDeleteTopic { name: g.string(), partitions: g.i32s() }),
    }
    OffsetDeleteResponse |g, v| {
        error: g.error(),
        topics: g.list(|g| OffsetDeletedTopic {
            name: g.string(),
            partitions: g.list(|g| (g.i32(), g.error())),
        }),
    }
    DeleteTopicsRequest |g, v| {
        topics: g.list(|g| g.string()),
        timeout_ms: g.i32(),
    }
    DeleteTopicsResponse |g, v| {
        topics: g.list(|g| DeletedTopic {
            name: g.string(),
            error: g.error(),
            error_message: g.maybe(|g| g.string()),
        }),
    }
    CreatePartitionsRequest |g, v| {
        topics: g.list(|g| MorePartitions {
            name: g.string(),
            count: g.i32(),
            assignments: g.maybe(|g| g.list(|g| g.i32s())),
        }),
        timeout_ms: g.i32(),
        validate_only: g.bool(),
    }
    CreatePartitionsResponse |g, v| {
        topics: g.list(|g| CreatedPartitions {
            name: g.string(),
            error: g.error(),
            error_message: g.maybe(|g| g.string()),
        }),
    }
}

/// Calls a macro with every request and its answer.
#[macro_export]
macro_rules! for_every_message {
    ($do:ident) => {
        $do! {
            produce Produce ProduceRequest ProduceResponse,
            fetch Fetch FetchRequest FetchResponse,
            list_offsets ListOffsets ListOffsetsRequest ListOffsetsResponse,
            metadata Metadata MetadataRequest MetadataResponse,
            offset_commit OffsetCommit OffsetCommitRequest OffsetCommitResponse,
            offset_fetch OffsetFetch OffsetFetchRequest OffsetFetchResponse,
            find_coordinator FindCoordinator FindCoordinatorRequest FindCoordinatorResponse,
            join_group JoinGroup JoinGroupRequest JoinGroupResponse,
            heartbeat Heartbeat HeartbeatRequest HeartbeatResponse,
            leave_group LeaveGroup LeaveGroupRequest LeaveGroupResponse,
            sync_group SyncGroup SyncGroupRequest SyncGroupResponse,
            describe_groups DescribeGroups DescribeGroupsRequest DescribeGroupsResponse,
            list_groups ListGroups ListGroupsRequest ListGroupsResponse,
            api_versions ApiVersions ApiVersionsRequest ApiVersionsResponse,
            create_topics CreateTopics CreateTopicsRequest CreateTopicsResponse,
            delete_topics DeleteTopics DeleteTopicsRequest DeleteTopicsResponse,
            init_producer_id InitProducerId InitProducerIdRequest InitProducerIdResponse,
            create_partitions CreatePartitions CreatePartitionsRequest CreatePartitionsResponse,
            delete_groups DeleteGroups DeleteGroupsRequest DeleteGroupsResponse,
            offset_delete OffsetDelete OffsetDeleteRequest OffsetDeleteResponse,
        }
    };
}
