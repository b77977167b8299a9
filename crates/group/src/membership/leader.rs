//! The leader's duties: the members' subscriptions, the assignment, the watch over the topics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kohort_protocol::consumer::{Assignment, Subscription};
use kohort_protocol::messages::{JoinMember, MemberAssignment};
use kohort_protocol::sticky::StickyUserData;
use kohort_protocol::{EncodeError, TopicPartition};

use super::join::BLOB_VERSION;
use super::{Answer, Effect, Effects, Failure, MemberState, Membership, Notice, Question, RejoinReason};
use crate::assignor::{Assignor, MemberSubscription};
use crate::verdict::Forget;

/// What a leader knows of the group it leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Leadership {
    members: Vec<MemberSubscription>,
    pub(super) topics: BTreeSet<String>,
    /// KIP-814: it leads, and the assignment stands as it is.
    pub(super) skip_assignment: bool,
    /// A cooperative assignment left out what moves: a join of those who give it back has to follow.
    pub(super) incomplete: bool,
    pub(super) counts: Option<BTreeMap<String, i32>>,
    pub(super) asked: Option<u64>,
    pub(super) watch_at: Option<Instant>,
}

impl Membership {
    pub(super) fn leadership_deadline(&self) -> Option<Instant> {
        let leadership = self.leadership.as_ref().filter(|_| self.state == MemberState::Stable)?;
        if leadership.asked.is_some() { None } else { leadership.watch_at }
    }

    /// The leader looks now and then whether topics grew.
    pub(super) fn advance_watch(&mut self, now: Instant, fx: &mut Effects) {
        let due = self.leadership_deadline().is_some_and(|at| at <= now);
        let Some(leadership) = self.leadership.as_ref().filter(|_| due) else { return };
        let question = Question::PartitionCounts(leadership.topics.iter().cloned().collect());
        let round = self.ask(None, question, self.config.request_timeout, fx);
        if let Some(leadership) = &mut self.leadership {
            leadership.asked = Some(round);
        }
    }

    /// Growth leads to a rebalance. A failure, a topic left out or a smaller count is a passing error.
    pub(super) fn on_watched_metadata(
        &mut self,
        answer: Result<Answer, Failure>,
        now: Instant,
        fx: &mut Effects,
    ) {
        let Some(leadership) = &mut self.leadership else { return };
        leadership.asked = None;
        leadership.watch_at = Some(now + self.config.metadata_max_age);
        let Ok(Answer::PartitionCounts(seen)) = answer else { return };
        let Some(known) = &leadership.counts else {
            leadership.counts = Some(seen);
            return;
        };
        if seen.iter().any(|(topic, count)| known.get(topic).is_none_or(|before| count > before)) {
            self.rejoin(RejoinReason::MetadataChanged, Forget::Nothing, now, fx);
        }
    }
}

impl Leadership {
    /// An unreadable subscription costs only the member that wrote it.
    pub(super) fn of(members: Vec<JoinMember>, skip_assignment: bool, fx: &mut Effects) -> Self {
        let mut topics = BTreeSet::new();
        let members = members
            .into_iter()
            .map(|member| {
                let subscription = Subscription::decode(&member.metadata).unwrap_or_else(|error| {
                    let (member_id, error) = (member.member_id.clone(), error.to_string());
                    fx.push(Effect::Notice(Notice::UnreadableBlob { member_id, error }));
                    Subscription::default()
                });
                let subscribed: BTreeSet<String> = subscription.topics.iter().cloned().collect();
                topics.extend(subscribed.iter().cloned());
                let (owned, generation) = claims(subscription);
                MemberSubscription {
                    member_id: member.member_id,
                    group_instance_id: member.group_instance_id,
                    topics: subscribed,
                    owned,
                    generation,
                }
            })
            .collect();
        Self {
            members,
            topics,
            skip_assignment,
            incomplete: false,
            counts: None,
            asked: None,
            watch_at: None,
        }
    }

    pub(super) fn assignments(&mut self, assignor: Assignor) -> Result<Vec<MemberAssignment>, EncodeError> {
        let empty = BTreeMap::new();
        let counts = self.counts.as_ref().unwrap_or(&empty);
        let shares = assignor.assign(&self.members, counts);
        let given: usize = shares.values().map(Vec::len).sum();
        let wanted: i32 = self.topics.iter().filter_map(|topic| counts.get(topic)).sum();
        self.incomplete = given < usize::try_from(wanted).unwrap_or(0);
        shares
            .into_iter()
            .map(|(member_id, partitions)| {
                let assignment = Assignment { partitions, user_data: None };
                Ok(MemberAssignment { member_id, assignment: assignment.encode(BLOB_VERSION)? })
            })
            .collect()
    }
}

/// What a member had: said in the subscription by cooperative members, in their user data by eager sticky ones.
/// User data that cannot be read, or belongs to another assignor, is no claim.
fn claims(subscription: Subscription) -> (Vec<TopicPartition>, i32) {
    if !subscription.owned_partitions.is_empty() {
        return (subscription.owned_partitions, subscription.generation);
    }
    match subscription.user_data.as_ref().map(StickyUserData::decode) {
        Some(Ok(data)) => (data.previous, data.generation),
        _ => (Vec::new(), subscription.generation),
    }
}
