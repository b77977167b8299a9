//! An event becomes a `tracing` event of target `kohort`. Not a span and not a log format: field names are the
//! closed label set plus `event`, `values` and `measurements`, because tracing wants them known at compile time.

use crate::event::Event;
use crate::label::Label;
use std::fmt::Write;
use tracing::Level;

macro_rules! at {
    ($level:expr, $event:expr) => {
        if tracing::enabled!(target: "kohort", $level) {
            let fields = Fields::of($event);
            tracing::event!(
                target: "kohort",
                $level,
                event = Event::name($event),
                group = fields.label(Label::Group),
                topic = fields.label(Label::Topic),
                partition = fields.label(Label::Partition),
                api = fields.label(Label::Api),
                class = fields.label(Label::Class),
                kind = fields.label(Label::Kind),
                result = fields.label(Label::Result),
                values = fields.text(&fields.values),
                measurements = fields.text(&fields.measurements),
            );
        }
    };
}

pub(crate) fn record<E: Event>(event: &E) {
    match Event::level(event) {
        Level::ERROR => at!(Level::ERROR, event),
        Level::WARN => at!(Level::WARN, event),
        Level::INFO => at!(Level::INFO, event),
        Level::DEBUG => at!(Level::DEBUG, event),
        Level::TRACE => at!(Level::TRACE, event),
    }
}

#[derive(Default)]
struct Fields {
    labels: [Option<String>; Label::ALL.len()],
    values: String,
    measurements: String,
}

impl Fields {
    fn of<E: Event>(event: &E) -> Fields {
        let mut fields = Fields::default();
        Event::labels(event, &mut |label, value| fields.labels[label as usize] = Some(value.to_owned()));
        let values = &mut fields.values;
        Event::values(event, &mut |name, value| {
            separate(values);
            // Writing to a String fails only if the value's own Display does; the name alone is kept then.
            let _ = write!(values, "{name}={value}");
        });
        let measurements = &mut fields.measurements;
        Event::measurements(event, &mut |name, value| {
            separate(measurements);
            let _ = write!(measurements, "{name}={value}");
        });
        fields
    }

    fn label(&self, label: Label) -> Option<&str> {
        self.labels[label as usize].as_deref()
    }

    fn text<'a>(&self, text: &'a str) -> Option<&'a str> {
        (!text.is_empty()).then_some(text)
    }
}

fn separate(text: &mut String) {
    if !text.is_empty() {
        text.push(' ');
    }
}
