//! Where partitions start: their committed offsets. An error is never taken for "no offset".

use std::collections::BTreeMap;
use std::time::Instant;

use kohort_protocol::messages::{
    OffsetFetchGroup, OffsetFetchRequest, OffsetFetchResponse, OffsetFetchTopic,
};
use kohort_protocol::{ErrorCode, TopicPartition};

use super::heartbeat::reason_of;
use super::join::Open;
use super::{Effect, Effects, Membership, Notice, Question, StartPosition, TerminalCause};
use crate::verdict::{GroupApi, Verdict, verdict};

impl Membership {
    pub(super) fn advance_offsets(&mut self, now: Instant, fx: &mut Effects) {
        if self.awaiting_offsets.is_empty()
            || self.open.is_some()
            || self.not_before.is_some_and(|at| at > now)
        {
            return;
        }
        let Some(to) = self.coordinator.clone() else { return };
        self.not_before = None;
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for partition in &self.awaiting_offsets {
            topics.entry(&partition.topic).or_default().push(partition.partition);
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| OffsetFetchTopic { name: name.to_owned(), partitions });
        let group =
            OffsetFetchGroup { group_id: self.config.group_id.clone(), topics: Some(topics.collect()) };
        let request = OffsetFetchRequest { groups: vec![group], require_stable: true };
        let round = self.ask(Some(to), Question::FetchOffsets(request), self.config.request_timeout, fx);
        self.open = Some((round, Open::Offsets));
    }

    pub(super) fn on_offsets(&mut self, response: OffsetFetchResponse, now: Instant, fx: &mut Effects) {
        let Some(group) = response.groups.into_iter().next() else {
            return self.pace(Some(GroupApi::OffsetFetch), "an answer without the group".into(), now, fx);
        };
        if group.error.is_error() {
            return self.on_offsets_error(group.error, now, fx);
        }
        let mut starts = Vec::new();
        let mut worst = None;
        for topic in group.topics {
            for fetched in topic.partitions {
                let partition = TopicPartition::new(topic.name.as_str(), fetched.partition);
                if !self.awaiting_offsets.contains(&partition) {
                    continue;
                }
                match verdict(GroupApi::OffsetFetch, fetched.error) {
                    Verdict::Success => {
                        self.awaiting_offsets.remove(&partition);
                        let committed = (fetched.offset >= 0).then_some(fetched.offset);
                        if let Some(offset) = committed {
                            self.ledger.start(partition.clone(), offset);
                        }
                        starts.push(StartPosition { partition, committed });
                    }
                    Verdict::Surface => {
                        self.awaiting_offsets.remove(&partition);
                        fx.push(Effect::Notice(Notice::PartitionFailed { partition, error: fetched.error }));
                    }
                    _ => worst = Some(fetched.error),
                }
            }
        }
        if !starts.is_empty() {
            if self.owned.is_empty() {
                self.workers_since = self.generation;
            }
            self.owned.extend(starts.iter().map(|start| start.partition.clone()));
            fx.push(Effect::StartWorkers { generation: self.generation, partitions: starts });
        }
        if let Some(code) = worst {
            self.on_offsets_error(code, now, fx);
        } else if self.awaiting_offsets.is_empty() {
            self.joining.reset();
        } else {
            self.pace(Some(GroupApi::OffsetFetch), "an answer without all partitions".into(), now, fx);
        }
    }

    fn on_offsets_error(&mut self, code: ErrorCode, now: Instant, fx: &mut Effects) {
        let api = GroupApi::OffsetFetch;
        match verdict(api, code) {
            Verdict::FindCoordinator => self.lose_coordinator(Some(api), code.to_string(), now, fx),
            Verdict::Rejoin(forget) => {
                self.rejoin(reason_of(forget), forget, now, fx);
                self.pace_after_first(api, code, now, fx);
            }
            Verdict::Fenced => self.terminate(TerminalCause::FencedInstanceId, now, fx),
            Verdict::Unauthorized => self.terminate(TerminalCause::GroupAuthorizationFailed, now, fx),
            Verdict::Refused => self.refused(api, code, String::new(), now, fx),
            // An error is never taken for "no offset": the partition waits until its offset is known.
            _ => self.pace(Some(api), code.to_string(), now, fx),
        }
    }
}
