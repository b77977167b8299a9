//! Which broker coordinates the group: the search, its pace, and the loss of what was found.

use std::time::Instant;

use kohort_protocol::messages::FindCoordinatorRequest;

use super::{
    Answer, Effect, Effects, Failure, MemberState, Membership, Node, Notice, Question, TerminalCause,
};
use crate::backoff::{Backoff, BackoffConfig};
use crate::verdict::{GroupApi, Verdict, verdict};

/// The search for the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lookup {
    pub(super) asked: Option<u64>,
    not_before: Option<Instant>,
    /// Reset by a good answer of the coordinator, not by finding it: one that is found and refuses again is
    /// asked for at a slower and slower pace.
    pub(super) backoff: Backoff,
}

impl Lookup {
    pub(super) fn new(backoff: BackoffConfig) -> Self {
        Self { asked: None, not_before: None, backoff: Backoff::new(backoff) }
    }

    /// The next one is due now, and those after it are paced from the first back-off on.
    pub(super) fn start_over(&mut self) {
        self.not_before = None;
        self.backoff.reset();
    }
}

impl Membership {
    fn lookup_wanted(&self) -> bool {
        self.coordinator.is_none()
            && self.lookup.asked.is_none()
            && match self.state {
                MemberState::Unjoined
                | MemberState::CompletingRebalance
                | MemberState::Stable
                | MemberState::Revoking
                | MemberState::Leaving => true,
                // For a last commit, which only a generation can make.
                MemberState::PrepareLeaving => self.generation >= 0 && self.ledger.is_dirty(),
                _ => false,
            }
    }

    pub(super) fn lookup_deadline(&self) -> Option<Instant> {
        if self.started && self.lookup_wanted() { self.lookup.not_before } else { None }
    }

    pub(super) fn advance_lookup(&mut self, now: Instant, fx: &mut Effects) {
        if !self.lookup_wanted() || self.lookup.not_before.is_some_and(|at| at > now) {
            return;
        }
        self.lookup.not_before = None;
        let request = FindCoordinatorRequest { key_type: 0, keys: vec![self.config.group_id.clone()] };
        let within = self.config.request_timeout;
        self.lookup.asked = Some(self.ask(None, Question::FindCoordinator(request), within, fx));
    }

    pub(super) fn on_coordinator(&mut self, answer: Result<Answer, Failure>, now: Instant, fx: &mut Effects) {
        let api = GroupApi::FindCoordinator;
        let address = match answer {
            Ok(Answer::Coordinator(address)) => address,
            Ok(_) => return self.lookup_again("an answer to another request".into(), now, fx),
            Err(failure) => {
                if let Some(reason) = self.passing(failure, now, fx) {
                    if self.state == MemberState::Leaving {
                        return self.leave_in_vain(reason, now, fx);
                    }
                    self.lookup_again(reason, now, fx);
                }
                return;
            }
        };
        match verdict(api, address.error) {
            Verdict::Success if address.host.is_empty() || !(1..=65535).contains(&address.port) => {
                self.lookup_again(
                    format!("an unusable address: {:?} port {}", address.host, address.port),
                    now,
                    fx,
                );
            }
            Verdict::Success => {
                let node = Node { id: address.node_id, host: address.host, port: address.port };
                fx.push(Effect::Notice(Notice::CoordinatorFound(node.clone())));
                self.coordinator = Some(node);
            }
            Verdict::Unauthorized => self.terminate(TerminalCause::GroupAuthorizationFailed, now, fx),
            Verdict::Refused => {
                let detail = address.error_message.unwrap_or_default();
                self.refused(api, address.error, detail, now, fx);
            }
            _ => self.lookup_again(address.error.to_string(), now, fx),
        }
    }

    pub(super) fn lookup_again(&mut self, reason: String, now: Instant, fx: &mut Effects) {
        let wait = self.lookup.backoff.next(&mut self.chance);
        self.lookup.not_before = Some(now + wait);
        fx.push(Effect::Notice(Notice::Retrying {
            api: Some(GroupApi::FindCoordinator),
            reason,
            attempt: self.lookup.backoff.attempt(),
            wait,
        }));
    }

    /// The coordinator moved, or does not answer: look for it again. Membership and generation stay.
    pub(super) fn lose_coordinator(
        &mut self,
        api: Option<GroupApi>,
        reason: String,
        now: Instant,
        fx: &mut Effects,
    ) {
        if self.coordinator.take().is_none() {
            return;
        }
        let wait = self.lookup.backoff.next(&mut self.chance);
        self.lookup.not_before = Some(now + wait);
        let attempt = self.lookup.backoff.attempt();
        fx.push(Effect::Notice(Notice::Retrying { api, reason, attempt, wait }));
    }
}
