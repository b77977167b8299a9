//! The leader's duties: the members' subscriptions, the assignment, the watch over the topics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kohort_protocol::TopicPartition;
use kohort_protocol::consumer::{Assignment, Subscription};
use kohort_protocol::messages::{JoinMember, MemberAssignment};
use kohort_protocol::sticky::StickyUserData;

use super::join::BLOB_VERSION;
use super::{
    Answer, Effect, Effects, Failure, MemberState, Membership, MembershipConfig, Notice, Question,
    RejoinReason,
};
use crate::assignor::{self, Assignor, MemberSubscription};
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
    /// Topics that were missing the last time it looked: missing again, they are gone.
    missing: BTreeSet<String>,
    /// How often it has looked for the counts of this generation.
    looks: u8,
    pub(super) asked: Option<u64>,
    pub(super) watch_at: Option<Instant>,
}

/// A topic that is missing so often in a row is left out of the assignment. Fewer may be a passing error, and to
/// leave it out then would take its partitions from everybody.
const LOOKS: u8 = 3;

impl Membership {
    pub(super) fn leadership_deadline(&self) -> Option<Instant> {
        let leadership = self.leadership.as_ref().filter(|_| self.state == MemberState::Stable)?;
        if leadership.asked.is_some() { None } else { leadership.watch_at }
    }

    pub(super) fn on_leader_metadata(
        &mut self,
        counts: BTreeMap<String, i32>,
        now: Instant,
        fx: &mut Effects,
    ) {
        let Some(leadership) = &mut self.leadership else { return };
        let missing = leadership.topics.iter().filter(|topic| !counts.contains_key(*topic));
        let missing: Vec<String> = missing.cloned().collect();
        leadership.looks += 1;
        if let Some(topic) = missing.first()
            && leadership.looks < LOOKS
        {
            let reason = format!("the topic {topic} could not be looked up");
            return self.pace(None, reason, now, fx);
        }
        leadership.counts = Some(counts);
        fx.extend(missing.into_iter().map(|topic| Effect::Notice(Notice::MissingTopic { topic })));
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

    /// Growth leads to a rebalance, and so does a topic that stays away. A failure, a topic left out or a smaller count is a passing error.
    pub(super) fn on_watched_metadata(
        &mut self,
        answer: Result<Answer, Failure>,
        now: Instant,
        fx: &mut Effects,
    ) {
        let Some(leadership) = &mut self.leadership else { return };
        leadership.asked = None;
        leadership.watch_at = Some(now + leadership.wait(&self.config).max(self.config.backoff.initial));
        let Ok(Answer::PartitionCounts(seen)) = answer else { return };
        let Some(known) = &leadership.counts else {
            leadership.counts = Some(seen);
            leadership.watch_at = Some(now + leadership.wait(&self.config));
            return;
        };
        let absent: BTreeSet<String> =
            known.keys().filter(|topic| !seen.contains_key(*topic)).cloned().collect();
        let gone = absent.intersection(&leadership.missing).next().is_some();
        let grown = seen.iter().any(|(topic, count)| known.get(topic).is_none_or(|before| count > before));
        leadership.missing = absent;
        if grown || gone {
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
            missing: BTreeSet::new(),
            looks: 0,
            asked: None,
            watch_at: None,
        }
    }

    /// Until it looks again. Without an assignment of its own it has nothing to compare with: it looks at once.
    /// A topic that it could not look up may only have had a passing error: it looks soon.
    pub(super) fn wait(&self, config: &MembershipConfig) -> Duration {
        match &self.counts {
            None => Duration::ZERO,
            Some(counts) if self.topics.iter().all(|topic| counts.contains_key(topic)) => {
                config.metadata_max_age
            }
            Some(_) => config.backoff.max.min(config.metadata_max_age),
        }
    }

    pub(super) fn assignments(&mut self, assignor: &Assignor) -> Result<Vec<MemberAssignment>, String> {
        let empty = BTreeMap::new();
        let counts = self.counts.as_ref().unwrap_or(&empty);
        let shares = assignor.assign(&self.members, counts);
        if let Some(fault) = assignor::fault(&self.members, counts, &shares) {
            return Err(format!("the assignor {} is broken: {fault}", assignor.name()));
        }
        let given: usize = shares.values().map(Vec::len).sum();
        let wanted: i32 = self.topics.iter().filter_map(|topic| counts.get(topic)).sum();
        self.incomplete = assignor.is_cooperative() && given < usize::try_from(wanted).unwrap_or(0);
        shares
            .into_iter()
            .map(|(member_id, partitions)| {
                let assignment = Assignment { partitions, user_data: None };
                let assignment = assignment.encode(BLOB_VERSION).map_err(|error| error.to_string())?;
                Ok(MemberAssignment { member_id, assignment })
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
