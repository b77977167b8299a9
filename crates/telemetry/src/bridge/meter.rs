//! An event becomes metrics: a counter of its occurrences, histograms and gauges of its measurements. Labels
//! come from the closed label set only. Not an exporter: the process installs whichever recorder it likes.

use crate::event::Event;
use crate::label::Label;
use metrics::{Key, KeyName, Level, Metadata, SharedString, Unit};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

const METADATA: Metadata<'static> = Metadata::new("kohort", Level::INFO, None);
const COUNTER: &str = "total";

thread_local! {
    // Metric names are derived from static event names, so this fills once and saves an allocation per emit.
    static NAMES: RefCell<HashMap<(&'static str, &'static str), Arc<str>>> = RefCell::new(HashMap::new());
}

pub(crate) fn record<E: Event>(event: &E) {
    metrics::with_recorder(|recorder| {
        let mut labels: Vec<metrics::Label> = Vec::new();
        Event::labels(event, &mut |label: Label, value| {
            if labels.iter().all(|known| known.key() != label.as_str()) {
                labels.push(metrics::Label::new(label.as_str(), value.to_owned()));
            }
        });
        let name = Event::name(event);
        let key = |suffix| Key::from_parts(KeyName::from(metric_name(name, suffix)), labels.clone());
        recorder.register_counter(&key(COUNTER), &METADATA).increment(1);
        Event::measurements(event, &mut |measurement, value| match Shape::of(measurement) {
            Shape::Histogram(_) => {
                recorder.register_histogram(&key(suffix_of(measurement)), &METADATA).record(value)
            }
            Shape::Gauge => recorder.register_gauge(&key(suffix_of(measurement)), &METADATA).set(value),
        });
    });
}

enum Shape {
    Histogram(Unit),
    Gauge,
}

impl Shape {
    fn of(measurement: &str) -> Shape {
        if measurement.ends_with("_seconds") {
            Shape::Histogram(Unit::Seconds)
        } else if measurement.ends_with("_bytes") {
            Shape::Histogram(Unit::Bytes)
        } else {
            Shape::Gauge
        }
    }
}

fn suffix_of(measurement: &'static str) -> &'static str {
    if measurement == "duration_seconds" { "seconds" } else { measurement }
}

fn metric_name(event: &'static str, suffix: &'static str) -> SharedString {
    let name = NAMES.with_borrow_mut(|names| {
        Arc::clone(
            names
                .entry((event, suffix))
                .or_insert_with(|| format!("{}_{suffix}", event.replace('.', "_")).into()),
        )
    });
    SharedString::from_shared(name)
}

/// What an event means, for [`describe`].
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The event's name, as [`Event::name`] gives it.
    pub event: &'static str,
    /// One sentence, without the name.
    pub text: &'static str,
    /// The names of its measurements, as [`Event::measurements`] gives them.
    pub measurements: &'static [&'static str],
}

/// Describes the metrics of these events to the recorder that is installed now. Call it once, after the
/// recorder is installed and before the first event; without a recorder it does nothing.
pub fn describe(descriptions: &[Description]) {
    metrics::with_recorder(|recorder| {
        for description in descriptions {
            let name = |suffix| KeyName::from(metric_name(description.event, suffix));
            let text = || SharedString::const_str(description.text);
            recorder.describe_counter(name(COUNTER), Some(Unit::Count), text());
            for measurement in description.measurements {
                let metric = name(suffix_of(measurement));
                match Shape::of(measurement) {
                    Shape::Histogram(unit) => recorder.describe_histogram(metric, Some(unit), text()),
                    Shape::Gauge => recorder.describe_gauge(metric, None, text()),
                }
            }
        }
    });
}
