//! What a member process says: a line for each event, with a time that all processes of the machine share.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970: a monotonic clock cannot be compared across processes.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// An event and when it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: u64,
    pub(crate) event: Event,
}

/// What can happen to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its process waits for a word to begin.
    Ready,
    /// It is about to be made.
    Subscribe,
    /// Partitions came; the generation, where the client tells it.
    Assigned { generation: Option<i32>, partitions: Vec<i32> },
    /// Partitions went, given back or lost.
    Revoked { partitions: Vec<i32> },
    /// A heartbeat was answered with REBALANCE_IN_PROGRESS.
    Told,
    /// It begins to close.
    Closing,
    /// It is closed.
    Closed,
    /// Anything else, for the trace.
    Note(String),
}

/// A line that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of a member: {0:?}")]
pub(crate) struct NotALine(String);

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.event)
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |partitions: &[i32]| match partitions {
            [] => "-".to_owned(),
            some => some.iter().map(i32::to_string).collect::<Vec<_>>().join(","),
        };
        match self {
            Event::Ready => f.write_str("ready"),
            Event::Subscribe => f.write_str("subscribe"),
            Event::Assigned { generation: Some(generation), partitions } => {
                write!(f, "assigned {generation} {}", listed(partitions))
            }
            Event::Assigned { generation: None, partitions } => {
                write!(f, "assigned - {}", listed(partitions))
            }
            Event::Revoked { partitions } => write!(f, "revoked {}", listed(partitions)),
            Event::Told => f.write_str("told"),
            Event::Closing => f.write_str("closing"),
            Event::Closed => f.write_str("closed"),
            Event::Note(text) => write!(f, "note {text}"),
        }
    }
}

impl FromStr for Line {
    type Err = NotALine;

    fn from_str(text: &str) -> Result<Self, NotALine> {
        parse(text).ok_or_else(|| NotALine(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Line> {
    let (at, rest) = text.split_once(' ')?;
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let event = match (word, rest) {
        ("ready", "") => Event::Ready,
        ("subscribe", "") => Event::Subscribe,
        ("assigned", rest) => {
            let (generation, partitions) = rest.split_once(' ')?;
            let generation = match generation {
                "-" => None,
                number => Some(number.parse().ok()?),
            };
            Event::Assigned { generation, partitions: list(partitions)? }
        }
        ("revoked", partitions) => Event::Revoked { partitions: list(partitions)? },
        ("told", "") => Event::Told,
        ("closing", "") => Event::Closing,
        ("closed", "") => Event::Closed,
        ("note", text) => Event::Note(text.to_owned()),
        _ => return None,
    };
    Some(Line { at: at.parse().ok()?, event })
}

fn list(text: &str) -> Option<Vec<i32>> {
    match text {
        "-" => Some(Vec::new()),
        some => some.split(',').map(|number| number.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for event in [
            Event::Ready,
            Event::Subscribe,
            Event::Assigned { generation: Some(7), partitions: vec![0, 11] },
            Event::Assigned { generation: None, partitions: Vec::new() },
            Event::Revoked { partitions: vec![3] },
            Event::Told,
            Event::Closing,
            Event::Closed,
            Event::Note("join 1.2ms of generation 3".into()),
        ] {
            let line = Line { at: 1_700_000_000_000_000, event };
            assert_eq!(line.to_string().parse(), Ok(line));
        }
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for text in
            ["", "12", "soon closed", "12 assigned 3", "12 assigned x 1", "12 revoked 1;2", "12 opened"]
        {
            assert_eq!(text.parse::<Line>(), Err(NotALine(text.into())));
        }
    }
}
