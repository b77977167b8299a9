//! What an event is: the typed trait [`Event`] and its erased view for process-wide handlers. Not the way it
//! travels (see `hub`, `ring`, `registry`). Implemented by every crate that has something to tell.

use crate::label::Label;
use std::any::Any;
use std::fmt::{self, Display};
use std::sync::Arc;

/// A typed telemetry event.
///
/// The visitor methods are called once per bridge and emit, so they should only hand out what the event
/// already holds.
pub trait Event: Clone + Send + Sync + 'static {
    /// The dotted name, e.g. `kohort.member.rebalance`. Filters match on a prefix of it; metrics replace its
    /// dots by underscores.
    fn name(&self) -> &'static str;

    /// Numbers of this occurrence. The name ends in its unit (`duration_seconds`, `size_bytes`) or is a bare
    /// quantity. `duration_seconds` becomes the histogram `<event>_seconds`, any other `…_seconds` or `…_bytes`
    /// the histogram `<event>_<measurement>`, everything else the gauge `<event>_<measurement>`. Default: none.
    fn measurements(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        let _ = visit;
    }

    /// Labels of the metric series and of the trace event. Only bounded values belong here. Default: none.
    fn labels(&self, visit: &mut dyn FnMut(Label, &str)) {
        let _ = visit;
    }

    /// Unbounded values (ids, offsets, reasons): shown in traces, never a label. Default: none.
    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display)) {
        let _ = visit;
    }

    /// The level of the trace event. Default: `INFO`.
    fn level(&self) -> tracing::Level {
        tracing::Level::INFO
    }

    /// The event that tells a subscriber that it was too slow and `missed` events were dropped for it.
    /// It is made for that subscriber only and is never emitted.
    fn lagged(missed: u64) -> Self;
}

/// The object-safe view of an [`Event`], as process-wide handlers get it. Implemented for every `Event`.
pub trait ErasedEvent: Send + Sync + 'static {
    /// See [`Event::name`].
    fn name(&self) -> &'static str;
    /// See [`Event::measurements`].
    fn measurements(&self, visit: &mut dyn FnMut(&'static str, f64));
    /// See [`Event::labels`].
    fn labels(&self, visit: &mut dyn FnMut(Label, &str));
    /// See [`Event::values`].
    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display));
    /// See [`Event::level`].
    fn level(&self) -> tracing::Level;
    /// The concrete event, for `downcast_ref`.
    fn as_any(&self) -> &dyn Any;
}

impl<E: Event> ErasedEvent for E {
    fn name(&self) -> &'static str {
        Event::name(self)
    }

    fn measurements(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        Event::measurements(self, visit);
    }

    fn labels(&self, visit: &mut dyn FnMut(Label, &str)) {
        Event::labels(self, visit);
    }

    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display)) {
        Event::values(self, visit);
    }

    fn level(&self) -> tracing::Level {
        Event::level(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Any event of the process, shared: what a process-wide [`subscribe`](crate::subscribe) yields.
#[derive(Clone)]
pub struct AnyEvent(Arc<dyn ErasedEvent>);

impl AnyEvent {
    /// Wraps a typed event.
    pub fn new<E: Event>(event: E) -> AnyEvent {
        AnyEvent(Arc::new(event))
    }

    /// The typed event, if it is an `E`.
    pub fn downcast_ref<E: Event>(&self) -> Option<&E> {
        self.0.as_any().downcast_ref()
    }

    /// How many events this subscription lost, if this is the report of a lag.
    pub fn missed(&self) -> Option<u64> {
        self.downcast_ref::<Lagged>().map(|lag| lag.missed)
    }

    /// The erased view of the wrapped event.
    pub fn as_erased(&self) -> &dyn ErasedEvent {
        &*self.0
    }
}

impl fmt::Debug for AnyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct(self.0.name());
        self.0.labels(&mut |label, value| {
            out.field(label.as_str(), &value);
        });
        self.0.values(&mut |name, value| {
            out.field(name, &format_args!("{value}"));
        });
        self.0.measurements(&mut |name, value| {
            out.field(name, &value);
        });
        out.finish()
    }
}

impl Event for AnyEvent {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn measurements(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        self.0.measurements(visit);
    }

    fn labels(&self, visit: &mut dyn FnMut(Label, &str)) {
        self.0.labels(visit);
    }

    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display)) {
        self.0.values(visit);
    }

    fn level(&self) -> tracing::Level {
        self.0.level()
    }

    fn lagged(missed: u64) -> AnyEvent {
        AnyEvent::new(Lagged { missed })
    }
}

/// The lag report of a process-wide subscription, which has no event type of its own to express it.
#[derive(Clone, Debug)]
struct Lagged {
    missed: u64,
}

impl Event for Lagged {
    fn name(&self) -> &'static str {
        "kohort.telemetry.lagged"
    }

    fn measurements(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("missed", self.missed as f64);
    }

    fn level(&self) -> tracing::Level {
        tracing::Level::WARN
    }

    fn lagged(missed: u64) -> Lagged {
        Lagged { missed }
    }
}
