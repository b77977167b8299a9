//! The topics a member subscribes to: those of its configuration, or whatever matches a pattern, looked up before
//! the first join and then now and again.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Answer, Effects, Failure, MemberState, Membership, MembershipConfig, Question, RejoinReason};
use crate::verdict::Forget;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Matched {
    pub(super) topics: BTreeSet<String>,
    /// False until the pattern was looked up once.
    pub(super) known: bool,
    pub(super) asked: Option<u64>,
    /// When to look again; `None` without a pattern.
    look_at: Option<Instant>,
    /// Topics that were missing the last time: missing again, they are gone.
    missing: BTreeSet<String>,
}

impl Matched {
    pub(super) fn new(config: &MembershipConfig) -> Self {
        let topics = config.topics.iter().cloned().collect();
        Self { topics, known: config.pattern.is_none(), asked: None, look_at: None, missing: BTreeSet::new() }
    }
}

impl Membership {
    pub(super) fn pattern_deadline(&self) -> Option<Instant> {
        let looks = matches!(self.state, MemberState::Stable) || !self.subscription.known;
        self.subscription.look_at.filter(|_| looks && self.subscription.asked.is_none())
    }

    /// Looks the pattern up, when it is time.
    pub(super) fn advance_pattern(&mut self, now: Instant, fx: &mut Effects) {
        let Some(pattern) = self.config.pattern.clone() else { return };
        if self.subscription.asked.is_some() || self.subscription.look_at.is_some_and(|at| at > now) {
            return;
        }
        let round = self.ask(None, Question::MatchingTopics(pattern), self.config.request_timeout, fx);
        self.subscription.asked = Some(round);
    }

    /// A topic that appears is subscribed to at once; one that disappears only when it stays away, so that a
    /// passing error of the cluster costs no rebalance.
    pub(super) fn on_matching_topics(
        &mut self,
        answer: Result<Answer, Failure>,
        now: Instant,
        fx: &mut Effects,
    ) {
        self.subscription.asked = None;
        let seen = match answer {
            Ok(Answer::MatchingTopics(seen)) => seen,
            Ok(_) => return self.look_again("an answer to another request".into(), now, fx),
            Err(failure) => {
                if let Some(reason) = self.passing(failure, now, fx) {
                    self.look_again(reason, now, fx);
                }
                return;
            }
        };
        self.subscription.look_at = Some(now + self.config.metadata_max_age);
        let absent: BTreeSet<String> = self.subscription.topics.difference(&seen).cloned().collect();
        let gone: BTreeSet<String> = absent.intersection(&self.subscription.missing).cloned().collect();
        let new = seen.difference(&self.subscription.topics).next().is_some();
        let first = !std::mem::replace(&mut self.subscription.known, true);
        if first || new || !gone.is_empty() {
            self.subscription.topics.retain(|topic| !gone.contains(topic));
            self.subscription.topics.extend(seen);
            if !first {
                self.rejoin(RejoinReason::MetadataChanged, Forget::Nothing, now, fx);
            }
        }
        self.subscription.missing = absent;
    }

    /// Before the first join there is nothing to work on meanwhile: then it waits a back-off, not a whole age.
    fn look_again(&mut self, reason: String, now: Instant, fx: &mut Effects) {
        let wait = if self.subscription.known {
            self.config.metadata_max_age
        } else {
            self.pace(None, reason, now, fx);
            self.not_before.take().map(|at| at.saturating_duration_since(now)).unwrap_or_default()
        };
        self.subscription.look_at = Some(now + wait);
    }
}
