//! Scripted faults: what a test wants to go wrong, by request. They are looked up when a request was read and
//! before anything is done with it; `connection` performs them. Rules are tried in the order in which they were
//! made, the first that fits is taken: a rule that lets two requests pass, followed by one that refuses, is a
//! script.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kohort_protocol::{ApiKey, ErrorCode};

use crate::journal::RequestSeen;

/// What is done with a request instead of serving it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Serve it: shields requests from the rules behind.
    Pass,
    /// Answer this code without acting.
    Error(ErrorCode),
    /// Wait, then serve it.
    Delay(Duration),
    /// Serve it, then hold back the answer.
    DelayAnswer(Duration),
    /// Neither act nor answer; the connection stays and later requests are served.
    Drop,
    /// Serve it, then lose the answer; the connection stays.
    DropAnswer,
    /// Close the connection without acting.
    Disconnect,
    /// Serve it, then close the connection instead of answering.
    DisconnectAfter,
    /// Answer nothing on this connection any more, as if the network had become a black hole. Bytes are still
    /// taken.
    Silence,
}

impl Fault {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Fault::Pass => "pass",
            Fault::Error(_) => "error",
            Fault::Delay(_) => "delay",
            Fault::DelayAnswer(_) => "delay_answer",
            Fault::Drop => "drop",
            Fault::DropAnswer => "drop_answer",
            Fault::Disconnect => "disconnect",
            Fault::DisconnectAfter => "disconnect_after",
            Fault::Silence => "silence",
        }
    }
}

type Predicate = Arc<dyn Fn(&RequestSeen) -> bool + Send + Sync>;

struct Rule {
    id: u64,
    api: Option<ApiKey>,
    conditions: Vec<Predicate>,
    /// Requests that the rule is still good for; `None`: until cleared.
    remaining: Option<u64>,
    fault: Fault,
    hits: Arc<AtomicU64>,
}

impl Rule {
    fn fits(&self, seen: &RequestSeen) -> bool {
        self.api.is_none_or(|api| api == seen.api) && self.conditions.iter().all(|fits| fits(seen))
    }
}

#[derive(Default)]
struct Inner {
    /// Read without the lock, so that a broker without faults pays one load for a request.
    count: AtomicUsize,
    next_id: AtomicU64,
    rules: Mutex<Vec<Rule>>,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Rule>)) {
        let mut rules = self.lock();
        change(&mut rules);
        self.count.store(rules.len(), Ordering::Release);
    }
}

/// The faults of a broker. Cheap to clone; clones share the rules. Rules outlive a stop and a restart.
///
/// ```
/// # async fn script(broker: &kohort_broker::Broker) {
/// use kohort_broker::{ApiKey, ErrorCode};
///
/// let moved = broker.faults().on(ApiKey::Heartbeat).group("orders").times(3).error(ErrorCode::NotCoordinator);
/// // …
/// assert!(moved.hits() <= 3);
/// broker.faults().clear();
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Faults {
    inner: Arc<Inner>,
}

impl Faults {
    /// A fault for requests of this kind.
    #[must_use = "say what is to happen"]
    pub fn on(&self, api: ApiKey) -> FaultBuilder {
        FaultBuilder { inner: self.inner.clone(), api: Some(api), conditions: Vec::new(), times: None }
    }

    /// A fault for every request.
    #[must_use = "say what is to happen"]
    pub fn on_any(&self) -> FaultBuilder {
        FaultBuilder { inner: self.inner.clone(), api: None, conditions: Vec::new(), times: None }
    }

    /// Removes all rules. What already happened stays: a silent connection stays silent.
    pub fn clear(&self) {
        self.inner.change(Vec::clear);
    }

    /// The fault for this request; counts it.
    pub(crate) fn take(&self, seen: &RequestSeen) -> Option<Fault> {
        if self.inner.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut taken = None;
        self.inner.change(|rules| {
            let Some(place) = rules.iter().position(|rule| rule.fits(seen)) else { return };
            let Some(rule) = rules.get_mut(place) else { return };
            rule.hits.fetch_add(1, Ordering::Relaxed);
            taken = Some(rule.fault);
            if let Some(remaining) = &mut rule.remaining {
                *remaining = remaining.saturating_sub(1);
                if *remaining == 0 {
                    rules.remove(place);
                }
            }
        });
        taken
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("rules", &self.inner.count.load(Ordering::Relaxed)).finish()
    }
}

/// A rule in the making; ends with what is to happen.
#[must_use = "say what is to happen"]
pub struct FaultBuilder {
    inner: Arc<Inner>,
    api: Option<ApiKey>,
    conditions: Vec<Predicate>,
    times: Option<u64>,
}

impl FaultBuilder {
    /// Only for the next `n` requests that fit; without this until cleared.
    pub fn times(mut self, n: u64) -> Self {
        self.times = Some(n);
        self
    }

    /// Only for requests that fit. The predicate runs under a lock: it must not use this broker's faults.
    pub fn when(mut self, fits: impl Fn(&RequestSeen) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Arc::new(fits));
        self
    }

    /// Only for requests to this node.
    pub fn node(self, node: i32) -> Self {
        self.when(move |seen| seen.node == node)
    }

    /// Only for this client id.
    pub fn client_id(self, client_id: impl Into<String>) -> Self {
        let client_id = client_id.into();
        self.when(move |seen| *seen.client_id == *client_id)
    }

    /// Only for this group.
    pub fn group(self, group_id: impl Into<String>) -> Self {
        let group_id = group_id.into();
        self.when(move |seen| seen.group_id.as_ref() == Some(&group_id))
    }

    /// Only for this member id.
    pub fn member(self, member_id: impl Into<String>) -> Self {
        let member_id = member_id.into();
        self.when(move |seen| seen.member_id.as_ref() == Some(&member_id))
    }

    /// See [`Fault::Pass`].
    pub fn pass(self) -> FaultRule {
        self.inject(Fault::Pass)
    }

    /// See [`Fault::Error`].
    pub fn error(self, code: ErrorCode) -> FaultRule {
        self.inject(Fault::Error(code))
    }

    /// See [`Fault::Delay`].
    pub fn delay(self, wait: Duration) -> FaultRule {
        self.inject(Fault::Delay(wait))
    }

    /// See [`Fault::DelayAnswer`].
    pub fn delay_answer(self, wait: Duration) -> FaultRule {
        self.inject(Fault::DelayAnswer(wait))
    }

    /// See [`Fault::Drop`].
    pub fn drop(self) -> FaultRule {
        self.inject(Fault::Drop)
    }

    /// See [`Fault::DropAnswer`].
    pub fn drop_answer(self) -> FaultRule {
        self.inject(Fault::DropAnswer)
    }

    /// See [`Fault::Disconnect`].
    pub fn disconnect(self) -> FaultRule {
        self.inject(Fault::Disconnect)
    }

    /// See [`Fault::DisconnectAfter`].
    pub fn disconnect_after(self) -> FaultRule {
        self.inject(Fault::DisconnectAfter)
    }

    /// See [`Fault::Silence`].
    pub fn silence(self) -> FaultRule {
        self.inject(Fault::Silence)
    }

    /// This fault.
    pub fn inject(self, fault: Fault) -> FaultRule {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let hits = Arc::new(AtomicU64::new(0));
        let made = FaultRule { inner: self.inner.clone(), id, hits: hits.clone() };
        if self.times != Some(0) {
            let (api, conditions, remaining) = (self.api, self.conditions, self.times);
            self.inner.change(|rules| rules.push(Rule { id, api, conditions, remaining, fault, hits }));
        }
        made
    }
}

impl fmt::Debug for FaultBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultBuilder")
            .field("api", &self.api)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// A rule that was made. Dropping this does not remove it.
#[derive(Clone)]
pub struct FaultRule {
    inner: Arc<Inner>,
    id: u64,
    hits: Arc<AtomicU64>,
}

impl FaultRule {
    /// How many requests it met.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Removes this rule.
    pub fn clear(&self) {
        self.inner.change(|rules| rules.retain(|rule| rule.id != self.id));
    }
}

impl fmt::Debug for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultRule").field("id", &self.id).field("hits", &self.hits()).finish()
    }
}
