//! OffsetCommit and OffsetFetch. Whether a topic exists is for whoever knows topics: unknown ones are taken
//! out before a commit gets here.

use std::collections::BTreeMap;
use std::time::Instant;

use kohort_protocol::ErrorCode;
use kohort_protocol::messages::{
    FetchedOffset, FetchedOffsets, FetchedOffsetsTopic, OffsetCommitRequest, OffsetCommitResponse,
    OffsetCommittedPartition, OffsetCommittedTopic, OffsetFetchGroup, OffsetFetchRequest,
    OffsetFetchResponse,
};

use super::group::{CommittedOffset, Group, GroupState};
use super::io::reply;
use super::{Coordinator, CoordinatorEffects};

impl Coordinator {
    pub(super) fn offset_commit(
        &mut self,
        call: u64,
        version: i16,
        request: OffsetCommitRequest,
        now: Instant,
        fx: &mut CoordinatorEffects,
    ) {
        let refusal = match self.groups.get(&*request.group_id) {
            // A commit from outside makes a simple group; one from a generation nobody knows is stale.
            None if request.generation < 0 => None,
            None if version >= 9 => Some(ErrorCode::GroupIdNotFound),
            None => Some(ErrorCode::IllegalGeneration),
            Some(group) => check_commit(group, &request).err(),
        };
        let limit = self.config.max_offset_metadata;
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in topic.partitions {
                let metadata = partition.metadata.unwrap_or_default();
                let too_large =
                    || (metadata.chars().count() > limit).then_some(ErrorCode::OffsetMetadataTooLarge);
                let error = refusal.or_else(too_large).unwrap_or_default();
                if error.is_none() {
                    let (offset, leader_epoch) = (partition.offset, partition.leader_epoch);
                    self.group_or_new(&request.group_id).offsets.insert(
                        (topic.name.clone(), partition.partition),
                        CommittedOffset { offset, leader_epoch, metadata },
                    );
                }
                partitions.push(OffsetCommittedPartition { partition: partition.partition, error });
            }
            topics.push(OffsetCommittedTopic { name: topic.name, partitions });
        }
        if refusal.is_none() {
            self.retain_offsets(&request.group_id, now);
            self.extend_session(&request.group_id, &request.member_id, now);
        }
        reply(fx, call, OffsetCommitResponse { topics });
    }

    pub(super) fn offset_fetch(
        &mut self,
        call: u64,
        request: OffsetFetchRequest,
        fx: &mut CoordinatorEffects,
    ) {
        let groups =
            request.groups.into_iter().map(|asked| fetch(self.groups.get(&*asked.group_id), asked)).collect();
        reply(fx, call, OffsetFetchResponse { groups });
    }
}

fn check_commit(group: &Group, request: &OffsetCommitRequest) -> Result<(), ErrorCode> {
    if request.generation < 0 && group.state == GroupState::Empty {
        return Ok(());
    }
    group.check_member(&request.member_id, request.group_instance_id.as_deref())?;
    if request.generation != group.generation {
        return Err(ErrorCode::IllegalGeneration);
    }
    if group.state == GroupState::CompletingRebalance {
        return Err(ErrorCode::RebalanceInProgress);
    }
    Ok(())
}

fn fetch(group: Option<&Group>, asked: OffsetFetchGroup) -> FetchedOffsets {
    let answer = |partition: i32, offset: Option<&CommittedOffset>| FetchedOffset {
        partition,
        offset: offset.map_or(-1, |offset| offset.offset),
        leader_epoch: offset.map_or(-1, |offset| offset.leader_epoch),
        metadata: Some(offset.map(|offset| offset.metadata.clone()).unwrap_or_default()),
        error: ErrorCode::None,
    };
    let topics = match asked.topics {
        Some(topics) => topics
            .into_iter()
            .map(|topic| {
                let partitions = topic.partitions.iter().map(|partition| {
                    let key = (topic.name.clone(), *partition);
                    answer(*partition, group.and_then(|group| group.offsets.get(&key)))
                });
                FetchedOffsetsTopic { partitions: partitions.collect(), name: topic.name.clone() }
            })
            .collect(),
        None => {
            let mut all: BTreeMap<&str, Vec<FetchedOffset>> = BTreeMap::new();
            for ((topic, partition), offset) in group.iter().flat_map(|group| &group.offsets) {
                all.entry(topic).or_default().push(answer(*partition, Some(offset)));
            }
            all.into_iter()
                .map(|(name, partitions)| FetchedOffsetsTopic { name: name.to_owned(), partitions })
                .collect()
        }
    };
    FetchedOffsets { group_id: asked.group_id, error: ErrorCode::None, topics }
}
