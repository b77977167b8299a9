//! The children as the plan sees them: one by one, and in order with what is asked of all of them (who is alive,
//! whose time comes next) kept up to date, so that an exit costs the same among ten thousand as among ten.

use super::delay::Delay;
use crate::id::ChildId;
use crate::reason::ExitReason;
use crate::spec::{ChildKind, ChildSpec, Restart, Shutdown};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

/// Names a child for as long as its spec exists; an id can be used again after it was deleted, a key cannot.
/// Keys grow, so their order is the start order.
pub(crate) type Key = u64;

/// Why a start is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `start_child`: a failure removes the spec.
    New,
    /// `restart_child`: a failure leaves it down.
    Request,
    /// A restart of this child alone: a failure is retried.
    Restart,
    /// A restart of several children: a failure begins the group again.
    Group,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Down,
    /// `stop`: stop it when it has started.
    Starting {
        purpose: Purpose,
        stop: bool,
    },
    Running,
    Stopping,
    /// It survived a kill. It counts as gone, and nothing takes its place.
    Lost,
}

impl State {
    pub(crate) fn has_actor(self) -> bool {
        matches!(self, State::Running | State::Stopping | State::Lost)
    }

    fn is_alive(self) -> bool {
        !matches!(self, State::Down | State::Lost)
    }
}

/// What a child that is down waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Nothing,
    /// A retry of its restart is in the mailbox.
    Retry,
    /// It is restarted when its back-off is over, at its `until`.
    Delay,
}

#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) key: Key,
    pub(crate) id: ChildId,
    pub(crate) restart: Restart,
    pub(crate) shutdown: Shutdown,
    pub(crate) kind: ChildKind,
    pub(crate) significant: bool,
    /// Of the latest start; 0 before the first.
    pub(crate) incarnation: u64,
    /// When its latest start succeeded.
    pub(crate) since: Option<Instant>,
    /// Why its latest incarnation ended, or its latest start failed.
    pub(crate) last_exit: Option<ExitReason>,
    pub(super) pending: Pending,
    pub(super) delay: Option<Box<Delay>>,
    /// The harsher step was taken: it was killed, or its start cancelled.
    pub(super) killed: bool,
    pub(super) start_token: Option<u64>,
    pub(super) stop_tokens: Vec<u64>,
    // Set only by `Children`, which keeps its books by them.
    state: State,
    until: Option<Instant>,
}

impl Child {
    fn new(key: Key, spec: &ChildSpec) -> Child {
        Child {
            key,
            id: spec.id.clone(),
            restart: spec.restart.clone(),
            shutdown: spec.effective_shutdown(),
            kind: spec.kind,
            significant: spec.significant,
            incarnation: 0,
            since: None,
            last_exit: None,
            pending: Pending::Nothing,
            delay: spec.backoff.as_deref().map(|backoff| Box::new(Delay::new(*backoff, &spec.id))),
            killed: false,
            start_token: None,
            stop_tokens: Vec::new(),
            state: State::Down,
            until: None,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// When the next, harsher step of its stop is due, or the end of its back-off.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }
}

/// All children of one supervisor.
#[derive(Default)]
pub(crate) struct Children {
    // Boxed: a map keeps room for more than it holds.
    all: BTreeMap<Key, Box<Child>>,
    ids: HashMap<ChildId, Key>,
    /// Invariant: the keys of the children whose state is neither down nor lost.
    alive: BTreeSet<Key>,
    /// Invariant: `(until, key)` of every child that has an `until`.
    due: BTreeSet<(Instant, Key)>,
    last_key: Key,
}

impl Children {
    pub(super) fn add(&mut self, spec: &ChildSpec) -> Key {
        self.last_key += 1;
        let key = self.last_key;
        self.ids.insert(spec.id.clone(), key);
        self.all.insert(key, Box::new(Child::new(key, spec)));
        key
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.set_until(key, None);
        self.alive.remove(&key);
        if let Some(child) = self.all.remove(&key) {
            self.ids.remove(&child.id);
        }
    }

    /// The children, in start order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Child> {
        self.all.values().map(|child| &**child)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Child> {
        self.all.get(&key).map(|child| &**child)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Child> {
        self.all.get_mut(&key).map(|child| &mut **child)
    }

    pub(crate) fn by_id(&self, id: &ChildId) -> Option<&Child> {
        self.get(*self.ids.get(id)?)
    }

    /// The keys from this one on.
    pub(super) fn keys_from(&self, key: Key) -> BTreeSet<Key> {
        self.all.range(key..).map(|(key, _)| *key).collect()
    }

    /// Children to stop, in start order.
    pub(super) fn alive(&self) -> impl DoubleEndedIterator<Item = Key> + '_ {
        self.alive.iter().copied()
    }

    /// A new state. A child that runs, is down or lost waits for no time any more.
    pub(super) fn set(&mut self, key: Key, state: State) {
        if matches!(state, State::Down | State::Running | State::Lost) {
            self.set_until(key, None);
        }
        let Some(child) = self.all.get_mut(&key) else { return };
        child.state = state;
        if state.is_alive() {
            self.alive.insert(key);
        } else {
            self.alive.remove(&key);
        }
    }

    pub(super) fn set_until(&mut self, key: Key, until: Option<Instant>) {
        let Some(child) = self.all.get_mut(&key) else { return };
        if let Some(before) = std::mem::replace(&mut child.until, until) {
            self.due.remove(&(before, key));
        }
        if let Some(until) = until {
            self.due.insert((until, key));
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn due(&self, now: Instant) -> Vec<Key> {
        self.due.range(..=(now, Key::MAX)).map(|(_, key)| *key).collect()
    }

    /// Nothing that is down comes back.
    pub(super) fn resign(&mut self) {
        let mut delayed = Vec::new();
        for child in self.all.values_mut() {
            if std::mem::replace(&mut child.pending, Pending::Nothing) == Pending::Delay {
                delayed.push(child.key);
            }
        }
        for key in delayed {
            self.set_until(key, None);
        }
    }
}
