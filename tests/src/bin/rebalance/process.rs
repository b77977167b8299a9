//! A member process as the measurement sees it: its lines so far, and what can be read out of them.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;

use crate::Failed;
use crate::line::{Event, Line, now};

/// No step of a round takes longer, the session timeout included.
const LIMIT: Duration = Duration::from_secs(20);

/// Killed when it is dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    input: ChildStdin,
    lines: watch::Receiver<Vec<Line>>,
}

impl Process {
    /// Starts it; with `trace` its lines are shown as they come.
    pub(crate) fn start(name: &str, mut command: Command, trace: bool) -> Result<Self, Failed> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failed::Start { what: name.to_owned(), error })?;
        let gone = || Failed::Ended { who: name.to_owned() };
        let input = child.stdin.take().ok_or_else(gone)?;
        let mut output = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
        let (said, lines) = watch::channel(Vec::new());
        let who = name.to_owned();
        tokio::spawn(async move {
            while let Ok(Some(text)) = output.next_line().await {
                match text.parse::<Line>() {
                    Ok(line) => {
                        if trace {
                            let (seconds, micros) = (line.at / 1_000_000 % 1000, line.at % 1_000_000);
                            eprintln!("{seconds:3}.{micros:06} {who}: {}", line.event);
                        }
                        said.send_modify(|lines| lines.push(line));
                    }
                    Err(error) => eprintln!("{who}: {error}"),
                }
            }
        });
        Ok(Self { name: name.to_owned(), child, input, lines })
    }

    /// Waits until `find` finds something in the lines.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        find: impl Fn(&[Line]) -> Option<T>,
    ) -> Result<T, Failed> {
        let mut found = None;
        let waiting = self.lines.wait_for(|lines| {
            found = find(lines);
            found.is_some()
        });
        match tokio::time::timeout(LIMIT, waiting).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(Failed::Ended { who: self.name.clone() }),
            Err(_) => return Err(Failed::Late { who: self.name.clone(), what: what.to_owned() }),
        }
        found.ok_or_else(|| Failed::Ended { who: self.name.clone() })
    }

    /// When it first owned so many partitions, not before `since`.
    pub(crate) async fn owns(&mut self, count: usize, since: u64) -> Result<u64, Failed> {
        self.until(&format!("to own {count} partitions"), |lines| owned_at(lines, count, since)).await
    }

    /// When it said this, not before `since`.
    pub(crate) async fn says(&mut self, event: Event, since: u64) -> Result<u64, Failed> {
        self.until(&format!("to say {event}"), |lines| said_at(lines, &event, since)).await
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.borrow().clone()
    }

    pub(crate) async fn ask(&mut self, command: &str) -> Result<(), Failed> {
        let sent = self.input.write_all(format!("{command}\n").as_bytes()).await;
        sent.map_err(|_| Failed::Ended { who: self.name.clone() })
    }

    /// Waits for its end after a close.
    pub(crate) async fn ended(mut self) -> Result<(), Failed> {
        match tokio::time::timeout(LIMIT, self.child.wait()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Failed::Late { who: self.name.clone(), what: "to end".to_owned() }),
        }
    }

    /// `kill -9`; when it was sent.
    pub(crate) async fn kill(mut self) -> Result<u64, Failed> {
        let at = now();
        // It can only have ended by itself.
        self.child.kill().await.map_err(|_| Failed::Ended { who: self.name.clone() })?;
        Ok(at)
    }
}

/// When an event was said first, not before `since`.
pub(crate) fn said_at(lines: &[Line], event: &Event, since: u64) -> Option<u64> {
    lines.iter().find(|line| line.at >= since && line.event == *event).map(|line| line.at)
}

/// The partitions owned after these lines.
pub(crate) fn owned(lines: &[Line]) -> BTreeSet<i32> {
    let mut owned = BTreeSet::new();
    lines.iter().for_each(|line| apply(&mut owned, line));
    owned
}

fn apply(owned: &mut BTreeSet<i32>, line: &Line) {
    match &line.event {
        Event::Assigned { partitions, .. } => owned.extend(partitions),
        Event::Revoked { partitions } => owned.retain(|one| !partitions.contains(one)),
        _ => {}
    }
}

/// When so many partitions were owned first, not before `since`.
pub(crate) fn owned_at(lines: &[Line], count: usize, since: u64) -> Option<u64> {
    let mut owned = BTreeSet::new();
    lines.iter().find_map(|line| {
        apply(&mut owned, line);
        (owned.len() == count && line.at >= since).then_some(line.at)
    })
}

/// How long, within these lines, a partition that was owned before and after was not: the longest of all, from the
/// first that went to the last that came again; nothing if none went.
pub(crate) fn pause(lines: &[Line], since: u64) -> u64 {
    let before = owned(&lines.iter().take_while(|line| line.at < since).cloned().collect::<Vec<_>>());
    let kept: BTreeSet<i32> = owned(lines).intersection(&before).copied().collect();
    let moves = |partitions: &[i32]| partitions.iter().any(|one| kept.contains(one));
    let (mut went, mut came) = (None, None);
    for line in lines.iter().filter(|line| line.at >= since) {
        match &line.event {
            Event::Revoked { partitions } if moves(partitions) => went = went.or(Some(line.at)),
            Event::Assigned { partitions, .. } if moves(partitions) => came = Some(line.at),
            _ => {}
        }
    }
    went.zip(came).map_or(0, |(went, came)| came.saturating_sub(went))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(at: u64, partitions: &[i32]) -> Line {
        Line { at, event: Event::Assigned { generation: None, partitions: partitions.to_vec() } }
    }

    fn revoked(at: u64, partitions: &[i32]) -> Line {
        Line { at, event: Event::Revoked { partitions: partitions.to_vec() } }
    }

    #[test]
    fn ownership_is_the_sum_of_what_came_and_went() {
        let lines = [assigned(1, &[0, 1]), assigned(2, &[2]), revoked(5, &[0, 1, 2]), assigned(7, &[0, 3])];
        assert_eq!(owned(&lines), BTreeSet::from([0, 3]));
        assert_eq!(owned_at(&lines, 2, 0), Some(1));
        assert_eq!(owned_at(&lines, 2, 2), Some(7));
        assert_eq!(owned_at(&lines, 4, 0), None);
    }

    #[test]
    fn only_partitions_that_stay_pause() {
        let eager = [
            assigned(1, &[0, 1, 2]),
            revoked(10, &[0]),
            revoked(12, &[1, 2]),
            assigned(15, &[0]),
            assigned(19, &[1]),
        ];
        assert_eq!(pause(&eager, 5), 9);
        let cooperative = [assigned(1, &[0, 1, 2]), revoked(10, &[2])];
        assert_eq!(pause(&cooperative, 5), 0);
    }
}
