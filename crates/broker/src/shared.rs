//! The state of all nodes behind one lock, the calls that wait for its replies, and its one timer. Connections ask here;
//! `server` keeps the timer; the `Broker` handle looks in. Nothing is awaited and no foreign code runs under the
//! lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kohort_protocol::{AnyRequest, ApiKey};
use kohort_telemetry::Hub;
use tokio::sync::{Notify, oneshot};

use crate::event::BrokerEvent;
use crate::faults::Faults;
use crate::journal::Journal;
use crate::node::{Advertised, Caller, Node, Outcome, Reply};
use crate::settings::Settings;

/// Tokio's clock, which tests can pause, as the pure parts want it.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[derive(Debug)]
struct Core {
    node: Node,
    /// Who waits for the reply to a call, and the node that was asked.
    waiting: HashMap<u64, (i32, oneshot::Sender<Reply>)>,
    last_call: u64,
    /// What the timer sleeps until.
    armed: Option<Instant>,
}

/// What all parts of a broker share.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Rung when the timer must wake earlier than it thinks.
    pub(crate) timer: Notify,
    pub(crate) events: Hub<BrokerEvent>,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    pub(crate) max_frame_bytes: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_versions: BTreeMap<ApiKey, i16>,
    /// How many nodes there are, running or not.
    pub(crate) nodes: usize,
    /// The number of the last connection.
    pub(crate) last_connection: AtomicU64,
    /// Nodes that run.
    pub(crate) running: AtomicUsize,
}

/// What one asks.
pub(crate) struct Question<'a> {
    /// Id of the node asked.
    pub(crate) node: i32,
    pub(crate) version: i16,
    pub(crate) client_id: &'a str,
    pub(crate) client_host: &'a str,
    pub(crate) advertised: &'a Advertised,
    pub(crate) request: AnyRequest,
}

/// The reply, or the promise of one.
#[allow(clippy::large_enum_variant, reason = "made, moved once and taken apart")]
pub(crate) enum Asked {
    Now(Reply),
    Parked(ParkedCall),
}

/// A call whose reply comes later. Dropping it tells the node that nobody waits any more.
pub(crate) struct ParkedCall {
    shared: Arc<Shared>,
    call: u64,
    reply: oneshot::Receiver<Reply>,
}

impl ParkedCall {
    /// The reply; `None` if there never will be one, which is so when a member repeats a request that waits.
    pub(crate) async fn reply(&mut self) -> Option<Reply> {
        (&mut self.reply).await.ok()
    }
}

impl Drop for ParkedCall {
    fn drop(&mut self) {
        let mut core = self.shared.lock();
        core.waiting.remove(&self.call);
        core.node.forget(self.call);
    }
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            timer: Notify::new(),
            events: Hub::new(),
            faults: Faults::default(),
            journal: Journal::new(settings.journal),
            max_frame_bytes: settings.max_frame_bytes,
            max_connections: settings.max_connections,
            max_versions: settings.max_versions.clone(),
            nodes: settings.nodes,
            last_connection: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            core: Mutex::new(Core {
                node: Node::new(settings),
                waiting: HashMap::new(),
                last_call: 0,
                armed: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the node.
    pub(crate) fn view<T>(&self, look: impl FnOnce(&Node) -> T) -> T {
        look(&self.lock().node)
    }

    /// Changes the node, delivers the replies that this sets free, and tells what happened.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Node, &mut Outcome) -> T) -> T {
        let mut out = Outcome::default();
        let mut core = self.lock();
        let result = change(&mut core.node, &mut out);
        let ring = core.deliver(out.replies, None).1;
        drop(core);
        self.tell(out.events, ring);
        result
    }

    /// Hands one request to the node.
    pub(crate) fn ask(self: &Arc<Self>, question: Question<'_>) -> Asked {
        let mut out = Outcome::default();
        let mut core = self.lock();
        core.last_call = core.last_call.saturating_add(1);
        let call = core.last_call;
        let from = Caller {
            call,
            node: question.node,
            version: question.version,
            client_id: question.client_id,
            client_host: question.client_host,
            advertised: question.advertised,
        };
        core.node.handle(&from, question.request, now(), &mut out);
        let (own, ring) = core.deliver(out.replies, Some(call));
        let asked = match own {
            Some(reply) => Asked::Now(reply),
            None => {
                let (sender, reply) = oneshot::channel();
                core.waiting.insert(call, (question.node, sender));
                Asked::Parked(ParkedCall { shared: self.clone(), call, reply })
            }
        };
        drop(core);
        self.tell(out.events, ring);
        asked
    }

    /// Does what is due.
    pub(crate) fn on_deadline(&self) {
        self.change(|node, out| node.on_deadline(now(), out));
    }

    /// When the timer must wake. From now on whoever moves that earlier rings.
    pub(crate) fn arm(&self) -> Option<Instant> {
        let mut core = self.lock();
        core.armed = core.node.deadline();
        core.armed
    }

    /// Forgets the calls that are parked on a node: the connections they came from are gone.
    pub(crate) fn cut(&self, node: i32) {
        let mut core = self.lock();
        let (gone, left) =
            std::mem::take(&mut core.waiting).into_iter().partition(|(_, (at, _))| *at == node);
        core.waiting = left;
        let gone: HashMap<u64, (i32, oneshot::Sender<Reply>)> = gone;
        for call in gone.keys() {
            core.node.forget(*call);
        }
        drop(core);
        // Their wakers are foreign code.
        drop(gone);
        // The timer may have been this node's to keep.
        self.timer.notify_one();
    }

    fn tell(&self, events: Vec<BrokerEvent>, ring: bool) {
        if ring {
            self.timer.notify_one();
        }
        for event in events {
            self.events.emit(event);
        }
    }
}

impl Core {
    /// Gives each reply to whoever waits for it. Returns the reply to `own`, and whether the timer must be rung.
    fn deliver(&mut self, replies: Vec<(u64, Reply)>, own: Option<u64>) -> (Option<Reply>, bool) {
        let mut mine = None;
        for (call, reply) in replies {
            if Some(call) == own {
                mine = Some(reply);
            } else if let Some((_, waiting)) = self.waiting.remove(&call) {
                // The connection may just have ended.
                let _ = waiting.send(reply);
            }
        }
        let ring = match (self.node.deadline(), self.armed) {
            (Some(next), Some(armed)) => next < armed,
            (next, armed) => next.is_some() && armed.is_none(),
        };
        (mine, ring)
    }
}
