//! The process-wide side: handlers and subscriptions that see the events of every hub. Not a router: it knows
//! names only by their prefix. Called by every emit; attached to by applications and exporters.

use crate::event::{AnyEvent, ErasedEvent, Event};
use crate::hub;
use crate::ring::{EventStream, Ring};
use std::any::Any;
use std::cell::RefCell;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Which events a process-wide handler sees: those whose name starts with a prefix.
///
/// A prefix ends at a dot or at the end of the name: `kohort.member` matches `kohort.member.rebalance` and not
/// `kohort.memberships`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    prefix: String,
}

impl Filter {
    /// Every event.
    pub fn all() -> Filter {
        Filter::default()
    }

    /// Events named `prefix` or `prefix.…`. The empty prefix is every event.
    pub fn prefix(prefix: impl Into<String>) -> Filter {
        let mut prefix = prefix.into();
        prefix.truncate(prefix.trim_end_matches('.').len());
        Filter { prefix }
    }

    /// Whether an event of this name passes.
    pub fn matches(&self, name: &str) -> bool {
        match name.strip_prefix(self.prefix.as_str()) {
            Some(rest) => self.prefix.is_empty() || rest.is_empty() || rest.starts_with('.'),
            None => false,
        }
    }
}

impl From<&str> for Filter {
    fn from(prefix: &str) -> Filter {
        Filter::prefix(prefix)
    }
}

impl From<String> for Filter {
    fn from(prefix: String) -> Filter {
        Filter::prefix(prefix)
    }
}

/// Names an attached handler, for [`detach`]. Never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandlerId(u64);

impl Display for HandlerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

type Handler = Arc<dyn Fn(&dyn ErasedEvent) + Send + Sync>;

#[derive(Clone)]
enum Target {
    Handler(Handler),
    Ring(Arc<Ring<AnyEvent>>),
}

#[derive(Clone)]
struct Entry {
    id: HandlerId,
    filter: Filter,
    target: Target,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
static COUNT: AtomicUsize = AtomicUsize::new(0);
// A snapshot is taken per dispatch, so that handlers run without the lock and may emit, attach and detach.
static ENTRIES: RwLock<Option<Arc<[Entry]>>> = RwLock::new(None);

thread_local! {
    static RUNNING: RefCell<Vec<HandlerId>> = const { RefCell::new(Vec::new()) };
}

/// Attaches a handler to the events of every hub in the process that pass `filter`.
///
/// The handler runs on the emitter's thread, so it should be quick and must not block. It may emit, attach and
/// detach; it does not see events that it emits itself. When it panics, the emitter goes on, the handler is
/// removed and [`HandlerFailed`] is emitted.
pub fn attach(
    filter: impl Into<Filter>,
    handler: impl Fn(&dyn ErasedEvent) + Send + Sync + 'static,
) -> HandlerId {
    insert(filter.into(), Target::Handler(Arc::new(handler)))
}

/// Removes a handler; false when it is not attached (any more). An emit that is under way on another thread
/// may still call it once.
pub fn detach(id: HandlerId) -> bool {
    edit(|entries| {
        let before = entries.len();
        entries.retain(|entry| entry.id != id);
        entries.len() != before
    })
}

/// Subscribes to the events of every hub in the process that pass `filter`. `capacity` is the number of events
/// kept for a slow reader (at least one). A lag shows as [`AnyEvent::missed`]. The stream never ends by itself.
pub fn subscribe(filter: impl Into<Filter>, capacity: usize) -> EventStream<AnyEvent> {
    let ring = Ring::new(capacity);
    insert(filter.into(), Target::Ring(Arc::clone(&ring)));
    EventStream::new(ring)
}

fn insert(filter: Filter, target: Target) -> HandlerId {
    let id = HandlerId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
    edit(|entries| entries.push(Entry { id, filter, target }));
    id
}

fn edit<T>(change: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
    let mut slot = ENTRIES.write().unwrap_or_else(PoisonError::into_inner);
    let mut entries = slot.as_deref().map(<[Entry]>::to_vec).unwrap_or_default();
    let result = change(&mut entries);
    COUNT.store(entries.len(), Ordering::Release);
    let old = slot.replace(entries.into());
    drop(slot);
    // A removed handler's captures are foreign code to drop: not under the lock.
    drop(old);
    result
}

pub(crate) fn dispatch<E: Event>(event: E) {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let snapshot = ENTRIES.read().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(entries) = snapshot else { return };
    let name = Event::name(&event);
    let mut shared: Option<AnyEvent> = None;
    for entry in entries.iter().filter(|entry| entry.filter.matches(name)) {
        match &entry.target {
            Target::Ring(ring) => {
                let any = shared.get_or_insert_with(|| AnyEvent::new(event.clone()));
                if !ring.push(any.clone()) {
                    detach(entry.id);
                }
            }
            Target::Handler(handler) => run(entry.id, handler, &event),
        }
    }
}

fn run(id: HandlerId, handler: &Handler, event: &dyn ErasedEvent) {
    let entered = RUNNING.with_borrow_mut(|running| {
        let fresh = !running.contains(&id);
        if fresh {
            running.push(id);
        }
        fresh
    });
    if !entered {
        return;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| handler(event)));
    RUNNING.with_borrow_mut(|running| running.retain(|other| *other != id));
    if let Err(payload) = outcome {
        let removed = detach(id);
        let panic = panic_text(&*payload);
        // A payload's drop can panic too; its memory is the smaller loss.
        std::mem::forget(payload);
        if removed {
            hub::publish(HandlerFailed { handler: id, event: event.name(), panic });
        }
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without text".to_owned()
    }
}

/// `kohort.telemetry.handler_failed`: a process-wide handler panicked and was removed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerFailed {
    /// The handler that was removed.
    pub handler: HandlerId,
    /// The name of the event it was given.
    pub event: &'static str,
    /// The text of the panic.
    pub panic: String,
}

impl Event for HandlerFailed {
    fn name(&self) -> &'static str {
        "kohort.telemetry.handler_failed"
    }

    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display)) {
        visit("handler", &self.handler);
        visit("event", &self.event);
        visit("panic", &self.panic);
    }

    fn level(&self) -> tracing::Level {
        tracing::Level::ERROR
    }

    fn lagged(missed: u64) -> HandlerFailed {
        HandlerFailed { handler: HandlerId(0), event: "lagged", panic: format!("{missed} reports missed") }
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;

    #[test]
    fn a_prefix_ends_at_a_dot() {
        assert!(Filter::all().matches("kohort.member.joined"));
        assert!(Filter::prefix("kohort.member").matches("kohort.member.joined"));
        assert!(Filter::prefix("kohort.member.").matches("kohort.member.joined"));
        assert!(Filter::prefix("kohort.member.joined").matches("kohort.member.joined"));
        assert!(!Filter::prefix("kohort.mem").matches("kohort.member.joined"));
        assert!(!Filter::prefix("kohort.client").matches("kohort.member.joined"));
    }
}
