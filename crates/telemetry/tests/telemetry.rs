//! Emitting, subscribing and both bridges, seen from outside.

#![allow(clippy::unwrap_used)]

use futures_core::Stream;
use kohort_telemetry::{
    Description, ErasedEvent, Event, HandlerFailed, Hub, Label, attach, describe, detach, subscribe,
};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::fmt::Display;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// A test's own events: the name keeps tests apart, since handlers are process-wide.
#[derive(Clone, Debug, PartialEq)]
enum Probe {
    Beat { name: &'static str, number: u64, seconds: f64 },
    Lagged(u64),
}

fn beat(name: &'static str, number: u64) -> Probe {
    Probe::Beat { name, number, seconds: 0.5 }
}

impl Event for Probe {
    fn name(&self) -> &'static str {
        match self {
            Probe::Beat { name, .. } => name,
            Probe::Lagged(_) => "probe.lagged",
        }
    }

    fn measurements(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        if let Probe::Beat { seconds, number, .. } = self {
            visit("duration_seconds", *seconds);
            visit("size_bytes", 7.0);
            visit("number", *number as f64);
        }
    }

    fn labels(&self, visit: &mut dyn FnMut(Label, &str)) {
        visit(Label::Group, "g");
        visit(Label::Result, "ok");
    }

    fn values(&self, visit: &mut dyn FnMut(&'static str, &dyn Display)) {
        if let Probe::Beat { number, .. } = self {
            visit("member_id", &format_args!("m-{number}"));
        }
    }

    fn lagged(missed: u64) -> Probe {
        Probe::Lagged(missed)
    }
}

#[tokio::test]
async fn subscribers_get_every_event_in_order_and_the_end() {
    let hub = Hub::new();
    let other = hub.clone();
    let mut first = hub.subscribe(8);
    hub.emit(beat("order.one", 1));
    let mut second = hub.subscribe(8);
    other.emit(beat("order.one", 2));
    assert_eq!(first.next().await, Some(beat("order.one", 1)));
    assert_eq!(first.next().await, Some(beat("order.one", 2)));
    assert_eq!(second.try_next(), Some(beat("order.one", 2)));
    assert_eq!(second.try_next(), None);
    hub.emit(beat("order.one", 3));
    drop(hub);
    assert!(matches!(
        Pin::new(&mut first).poll_next(&mut Context::from_waker(Waker::noop())),
        Poll::Ready(Some(_))
    ));
    assert!(Pin::new(&mut first).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(other);
    assert_eq!(first.next().await, None);
    assert_eq!(second.next().await, Some(beat("order.one", 3)));
    assert_eq!(second.next().await, None);
    assert_eq!(second.next().await, None, "the end stays the end");
}

#[tokio::test]
async fn a_lag_is_reported_where_the_events_are_missing() {
    let hub = Hub::new();
    let mut events = hub.subscribe(2);
    for number in 1..=5 {
        hub.emit(beat("lag.one", number));
    }
    assert_eq!(events.next().await, Some(Probe::Lagged(3)));
    assert_eq!(events.next().await, Some(beat("lag.one", 4)));
    assert_eq!(events.next().await, Some(beat("lag.one", 5)));
    hub.emit(beat("lag.one", 6));
    assert_eq!(events.next().await, Some(beat("lag.one", 6)), "reported once");
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn an_emit_wakes_a_waiting_reader_and_so_does_the_end() {
    let hub = Hub::new();
    let mut events = hub.subscribe(4);
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut events).poll_next(&mut cx).is_pending());
    hub.emit(beat("wake.one", 1));
    assert!(woken.0.swap(false, Ordering::SeqCst));
    assert!(Pin::new(&mut events).poll_next(&mut cx).is_ready());
    assert!(Pin::new(&mut events).poll_next(&mut cx).is_pending());
    drop(hub);
    assert!(woken.0.load(Ordering::SeqCst));
}

#[test]
fn no_wake_up_is_lost_between_threads() {
    let hub = Hub::new();
    let mut events = hub.subscribe(100_000);
    let emitter = std::thread::spawn(move || {
        for number in 0..50_000 {
            hub.emit(beat("threads.one", number));
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut seen = 0;
    runtime.block_on(async {
        while events.next().await.is_some() {
            seen += 1
        }
    });
    emitter.join().unwrap();
    assert_eq!(seen, 50_000);
}

#[test]
fn handlers_see_what_their_filter_names_until_detached() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let id = attach("handlers.mine", move |event: &dyn ErasedEvent| {
        let probe = event.as_any().downcast_ref::<Probe>().cloned();
        sink.lock().unwrap().push((event.name(), probe));
    });
    let hub = Hub::new();
    hub.emit(beat("handlers.mine.a", 1));
    hub.emit(beat("handlers.other", 2));
    assert!(detach(id));
    assert!(!detach(id), "a second time there is nothing to detach");
    hub.emit(beat("handlers.mine.a", 3));
    assert_eq!(*seen.lock().unwrap(), [("handlers.mine.a", Some(beat("handlers.mine.a", 1)))]);
}

#[tokio::test]
async fn process_wide_subscriptions_see_every_hub_and_lag_too() {
    let mut events = subscribe("wide", 2);
    Hub::new().emit(beat("wide.a", 1));
    assert_eq!(events.next().await.unwrap().downcast_ref(), Some(&beat("wide.a", 1)));
    for number in 2..=4 {
        Hub::new().emit(beat("wide.b", number));
    }
    assert_eq!(events.next().await.unwrap().missed(), Some(1));
    let third = events.next().await.unwrap();
    assert_eq!(third.downcast_ref(), Some(&beat("wide.b", 3)));
    assert_eq!(
        format!("{third:?}"),
        r#"wide.b { group: "g", result: "ok", member_id: m-3, duration_seconds: 0.5, size_bytes: 7.0, number: 3.0 }"#
    );
}

#[test]
fn a_panicking_handler_is_removed_and_reported_and_hurts_nobody() {
    let mut reports = subscribe("kohort.telemetry.handler_failed", 8);
    let calls = Arc::new(Mutex::new(0));
    let count = Arc::clone(&calls);
    let id = attach("panicking", move |_: &dyn ErasedEvent| {
        *count.lock().unwrap() += 1;
        std::panic::panic_any("boom".to_owned());
    });
    let after = Arc::new(Mutex::new(0));
    let later = Arc::clone(&after);
    let well = attach("panicking", move |_: &dyn ErasedEvent| *later.lock().unwrap() += 1);
    let hub = Hub::new();
    hub.emit(beat("panicking.a", 1));
    hub.emit(beat("panicking.a", 2));
    assert_eq!(*calls.lock().unwrap(), 1);
    assert_eq!(*after.lock().unwrap(), 2, "the handler behind it still gets everything");
    assert!(!detach(id));
    assert!(detach(well));
    let report = reports.try_next().unwrap();
    let report = report.downcast_ref::<HandlerFailed>().unwrap();
    assert_eq!((report.handler, report.event, report.panic.as_str()), (id, "panicking.a", "boom"));
}

#[test]
fn a_handler_may_emit_attach_and_detach() {
    let hub = Hub::new();
    let inner = hub.clone();
    let mut nested = subscribe("nested.answer", 8);
    let id = attach("nested", move |event: &dyn ErasedEvent| {
        // Its own filter matches the answer as well: it must not be entered again.
        inner.emit(beat("nested.answer", 1));
        let temporary = attach("nested.never", |_: &dyn ErasedEvent| {});
        assert!(detach(temporary));
        let _ = event.name();
    });
    hub.emit(beat("nested.question", 1));
    assert!(detach(id));
    assert!(nested.try_next().is_some());
    assert!(nested.try_next().is_none());
}

/// Keeps every metric operation as text.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<String>>>);

struct Line(Ledger, String);

impl Line {
    fn write(&self, what: impl Display) {
        self.0.0.lock().unwrap().push(format!("{} {what}", self.1));
    }
}

impl CounterFn for Line {
    fn increment(&self, value: u64) {
        self.write(format_args!("+{value}"));
    }
    fn absolute(&self, value: u64) {
        self.write(value);
    }
}

impl GaugeFn for Line {
    fn increment(&self, value: f64) {
        self.write(format_args!("+{value}"));
    }
    fn decrement(&self, value: f64) {
        self.write(format_args!("-{value}"));
    }
    fn set(&self, value: f64) {
        self.write(format_args!("={value}"));
    }
}

impl HistogramFn for Line {
    fn record(&self, value: f64) {
        self.write(format_args!("~{value}"));
    }
}

impl Ledger {
    fn line(&self, key: &Key) -> Arc<Line> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Line(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn described(&self, kind: &str, key: &KeyName, unit: Option<Unit>) {
        let unit = unit.map(|unit| unit.as_str()).unwrap_or("-");
        self.0.lock().unwrap().push(format!("{kind} {} {unit}", key.as_str()));
    }
}

impl Recorder for Ledger {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.described("counter", &key, unit);
    }
    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.described("gauge", &key, unit);
    }
    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.described("histogram", &key, unit);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.line(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.line(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.line(key))
    }
}

#[test]
fn the_metrics_bridge_counts_and_measures_with_the_label_set_only() {
    let ledger = Ledger::default();
    metrics::with_local_recorder(&ledger, || {
        describe(&[Description {
            event: "kohort.probe.beat",
            text: "a beat",
            measurements: &["duration_seconds", "size_bytes", "number"],
        }]);
        Hub::new().emit(beat("kohort.probe.beat", 3));
    });
    assert_eq!(
        *ledger.0.lock().unwrap(),
        [
            "counter kohort_probe_beat_total count",
            "histogram kohort_probe_beat_seconds seconds",
            "histogram kohort_probe_beat_size_bytes bytes",
            "gauge kohort_probe_beat_number -",
            "kohort_probe_beat_total{group=g,result=ok} +1",
            "kohort_probe_beat_seconds{group=g,result=ok} ~0.5",
            "kohort_probe_beat_size_bytes{group=g,result=ok} ~7",
            "kohort_probe_beat_number{group=g,result=ok} =3",
        ]
    );
}

/// A tracing subscriber that keeps the fields of target `kohort`.
struct Capture {
    enabled: bool,
    lines: Arc<Mutex<Vec<String>>>,
}

struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?};"));
    }
}

impl tracing::Subscriber for Capture {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        self.enabled && metadata.target() == "kohort"
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(format!("{} ", event.metadata().level()));
        event.record(&mut text);
        self.lines.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn the_tracing_bridge_shows_labels_values_and_measurements() {
    for (enabled, expected) in [(false, 0), (true, 1)] {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let capture = Capture { enabled, lines: Arc::clone(&lines) };
        tracing::subscriber::with_default(capture, || Hub::new().emit(beat("kohort.probe.beat", 3)));
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), expected);
        if enabled {
            assert_eq!(
                lines[0],
                "INFO event=\"kohort.probe.beat\";group=\"g\";result=\"ok\";values=\"member_id=m-3\";\
                 measurements=\"duration_seconds=0.5 size_bytes=7 number=3\";"
            );
        }
    }
}
