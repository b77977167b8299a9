//! The rows, their marks, and what was measured beside them. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::{CLOSE_TIMEOUT, Client, HEARTBEAT, SESSION, Strategy};

/// What is measured, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Row {
    /// First member: subscribe -> assigned
    First,
    /// Second member: join -> assigned
    Second,
    /// Pause of the partitions that stay with the first member meanwhile
    Pause,
    /// Graceful leave -> the other owns all
    Leave,
    /// Static restart -> has its partitions again
    Static,
    /// kill -9 -> the other owns all
    Kill,
    /// Close of an idle member
    Close,
    /// Close while the broker accepts and says nothing
    BlackHole,
}

impl Row {
    fn title(self) -> &'static str {
        match self {
            Row::First => "first member: subscribe → assigned",
            Row::Second => "second member: join → assigned",
            Row::Pause => "pause of partitions that stay",
            Row::Leave => "graceful leave → the other owns all",
            Row::Static => "static restart → has its partitions again",
            Row::Kill => "kill -9 → the other owns all",
            Row::Close => "close of an idle member",
            Row::BlackHole => "close in a black hole",
        }
    }
}

/// The whole of a row, or the part of it after the first member was told by its heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Whole,
    AfterTold,
}

/// Milliseconds that a row's median may take, and how that is said.
struct Mark {
    limit: f64,
    text: String,
}

/// Nothing waits that need not.
const AT_ONCE: f64 = 20.0;

fn mark(row: Row, strategy: Strategy, part: Part) -> Mark {
    let at_most = |limit: f64| Mark { limit, text: format!("≤ {limit:.0}") };
    let phase = HEARTBEAT.as_secs_f64() * 1e3;
    match (row, strategy, part) {
        (_, _, Part::AfterTold) | (Row::First | Row::Static, _, _) => at_most(AT_ONCE),
        (Row::Second | Row::Leave, _, _) => {
            Mark { limit: phase + AT_ONCE, text: format!("heartbeat phase (0–{phase:.0}) + {AT_ONCE:.0}") }
        }
        (Row::Pause, Strategy::Cooperative, _) => at_most(0.0),
        (Row::Pause, Strategy::Eager, _) => at_most(AT_ONCE),
        (Row::Kill, ..) => Mark {
            limit: SESSION.as_secs_f64() * 1e3 + phase + AT_ONCE,
            text: "session timeout + heartbeat phase".into(),
        },
        (Row::Close, ..) => at_most(30.0),
        (Row::BlackHole, ..) => {
            let timeout = CLOSE_TIMEOUT.as_secs_f64() * 1e3;
            Mark { limit: timeout + 30.0, text: format!("close timeout ({timeout:.0})") }
        }
    }
}

type Key = (Row, Strategy, Part);

/// What was measured: milliseconds by row and client, in the order of the rounds; and how often what should hold did.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    times: BTreeMap<Key, BTreeMap<Client, Vec<f64>>>,
    checks: BTreeMap<(&'static str, Client), (usize, usize)>,
}

impl Samples {
    /// Notes a span in microseconds.
    pub(crate) fn add(&mut self, row: Row, strategy: Strategy, part: Part, client: Client, micros: u64) {
        let times = self.times.entry((row, strategy, part)).or_default();
        times.entry(client).or_default().push(micros as f64 / 1e3);
    }

    pub(crate) fn check(&mut self, what: &'static str, client: Client, held: bool) {
        let (times, rounds) = self.checks.entry((what, client)).or_default();
        *times += usize::from(held);
        *rounds += 1;
    }

    /// The table in Markdown. `cut_off`: a client was not waited for beyond that.
    pub(crate) fn table(&self, cut_off: f64) -> String {
        let mut text = String::from(
            "| ms, median (min–max) | assignment | Kohort | librdkafka | Kohort / librdkafka | mark | |\n|---|---|---|---|---|---|---|\n",
        );
        for ((row, strategy, part), clients) in &self.times {
            let kohort = clients.get(&Client::Kohort).and_then(|times| Spread::of(times));
            let librdkafka = clients.get(&Client::Librdkafka).and_then(|times| Spread::of(times));
            let Some(kohort) = kohort else { continue };
            let Mark { limit, text: mark } = mark(*row, *strategy, *part);
            let title = match part {
                Part::Whole => row.title(),
                Part::AfterTold => "… of it, after the first member's heartbeat told it",
            };
            let verdict = if kohort.median <= limit { "met" } else { "**missed**" };
            let other = librdkafka.map_or("–".into(), |spread| spread.text(cut_off));
            let ratio = librdkafka.and_then(|other| ratio(kohort.median, other.median));
            let ratio = ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"));
            let ours = kohort.text(f64::INFINITY);
            let _ =
                writeln!(text, "| {title} | {strategy} | {ours} | {other} | {ratio} | {mark} | {verdict} |");
        }
        for ((what, client), (held, rounds)) in &self.checks {
            let _ = write!(text, "\n{client}: {what} in {held} of {rounds} rounds.");
        }
        text
    }
}

/// The middle and the ends of what was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(times: &[f64]) -> Option<Self> {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted[sorted.len() / 2];
        let median = if sorted.len() % 2 == 1 { upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 };
        Some(Self { median, min, max })
    }

    fn text(self, cut_off: f64) -> String {
        if self.median >= cut_off {
            return format!("> {cut_off:.0}, not waited for longer");
        }
        let number = |ms: f64| if ms > 0.0 && ms < 20.0 { format!("{ms:.1}") } else { format!("{ms:.0}") };
        format!("{} ({}–{})", number(self.median), number(self.min), number(self.max))
    }
}

/// How many times the other's; none where there is nothing to compare with.
fn ratio(ours: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| ours / other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_the_sorted() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[9.0, 1.0, 4.0]), Some(Spread { median: 4.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of(&[9.0, 1.0, 4.0, 6.0]), Some(Spread { median: 5.0, min: 1.0, max: 9.0 }));
    }

    #[test]
    fn nothing_has_no_ratio() {
        assert_eq!(ratio(5.0, 20.0), Some(0.25));
        assert_eq!(ratio(5.0, 0.0), None);
    }

    #[test]
    fn a_row_says_medians_the_ratio_and_whether_the_mark_is_met() {
        let mut samples = Samples::default();
        for (client, times) in [(Client::Kohort, [9_000, 30_000, 8_000]), (Client::Librdkafka, [36_000; 3])] {
            for micros in times {
                samples.add(Row::First, Strategy::Eager, Part::Whole, client, micros);
            }
        }
        samples.add(Row::Close, Strategy::Eager, Part::Whole, Client::Kohort, 31_000);
        samples.add(Row::Close, Strategy::Eager, Part::Whole, Client::Librdkafka, 8_000_000);
        samples.check("generation unchanged", Client::Kohort, true);
        samples.check("generation unchanged", Client::Kohort, false);
        let text = samples.table(8_000.0);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| first member: subscribe → assigned | eager | 9.0 (8.0–30) | 36 (36–36) | 0.25 | ≤ 20 | met |",
                "| close of an idle member | eager | 31 (31–31) | > 8000, not waited for longer | 0.00 | ≤ 30 | **missed** |",
                "",
                "Kohort: generation unchanged in 1 of 2 rounds.",
            ]
        );
    }
}
