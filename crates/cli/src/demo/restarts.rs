//! Restarts of static members (KIP-345), one after the other, as a deployment does: each is closed, which leaves its
//! place in the group, and started again by the application's supervisor, which takes the place back.

use std::time::Duration;

use kohort::{CloseOptions, MemberEvent, MemberName, TopicPartition};
use tokio::time::{Instant, sleep, timeout};

use super::{MEMBERS, Play, drill};
use crate::exit::CliError;
use crate::style::Paint;

/// Records flow between two restarts.
pub(super) const BETWEEN: Duration = Duration::from_millis(300);

/// What the restarts showed.
#[derive(Default)]
pub(super) struct Restarts {
    count: u32,
    slowest: Duration,
    /// Generations of the group, from before the first restart to behind the last.
    generations: (i32, i32),
    /// Partitions that members gave up though they were not restarted.
    revoked: usize,
    /// Members that came back with other partitions.
    moved: Vec<String>,
    /// Members whose close was forced.
    forced: Vec<String>,
}

/// Restarts every member in turn.
pub(super) async fn run(play: &Play<'_>) -> Result<Restarts, CliError> {
    drill::settle(play.group, MEMBERS, play.patience).await?;
    let before = generation(play);
    let mut restarts = Restarts { generations: (before, before), ..Restarts::default() };
    for member in play.group.running() {
        sleep(BETWEEN).await;
        restarts.restart(play, member.name()).await?;
        sleep(BETWEEN).await;
    }
    drill::settle(play.group, MEMBERS, play.patience).await?;
    restarts.generations.1 = generation(play);
    Ok(restarts)
}

fn generation(play: &Play<'_>) -> i32 {
    play.group.running().iter().map(|member| member.status().generation).max().unwrap_or(-1)
}

impl Restarts {
    async fn restart(&mut self, play: &Play<'_>, name: &MemberName) -> Result<(), CliError> {
        let mut events = play.group.events();
        let member = drill::member(play.group, name)?;
        let mut had: Vec<_> = member.status().assignment.into_iter().map(|at| at.partition).collect();
        had.sort();
        play.stage.say(Paint::Cyan, &format!("{name}  is stopped; a static member keeps its place"));
        if member.close(CloseOptions::timeout(play.patience)).await.forced {
            self.forced.push(format!("the close of {name} was forced"));
        }
        let stopped = Instant::now();
        let id = format!("orders-{}", name.index);
        let restarted = timeout(play.patience, play.app.restart_child(id)).await;
        match restarted {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(CliError::Other(format!("{name} was not started again: {error}"))),
            Err(_) => {
                return Err(CliError::Other(format!(
                    "{name} was not started again within {:?}",
                    play.patience
                )));
            }
        }
        let assigned = async {
            while let Some(event) = events.next().await {
                match event {
                    MemberEvent::Assigned { member, partitions, .. } if member == *name => {
                        return Some(partitions);
                    }
                    MemberEvent::Revoked { member, partitions } if member != *name => {
                        self.revoked += partitions.len();
                    }
                    _ => {}
                }
            }
            None
        };
        let Ok(Some(mut has)) = timeout(play.patience, assigned).await else {
            return Err(CliError::Other(format!(
                "{name} has no partitions again within {:?}",
                play.patience
            )));
        };
        has.sort();
        let took = stopped.elapsed();
        if has != had {
            self.moved.push(format!("{name} had {} and has {}", list(&had), list(&has)));
        }
        self.count += 1;
        self.slowest = self.slowest.max(took);
        let text =
            format!("{name}  has {} again, {:.1} ms after its start", list(&has), took.as_secs_f64() * 1e3);
        play.stage.say(Paint::Green, &text);
        Ok(())
    }

    /// Says what a static restart must not do.
    pub(super) fn check(&self, wrong: &mut Vec<String>) {
        let (before, after) = self.generations;
        if before != after {
            wrong.push(format!("the group rebalanced: generation {before} became {after}"));
        }
        if self.revoked > 0 {
            wrong.push(format!("members that ran on gave up {} partitions", self.revoked));
        }
        wrong.extend(self.moved.iter().chain(&self.forced).cloned());
    }

    pub(super) fn rows(&self) -> [(&'static str, String); 4] {
        [
            ("restarts", self.count.to_string()),
            ("slowest", format!("{:.1} ms", self.slowest.as_secs_f64() * 1e3)),
            ("generation", self.generations.1.to_string()),
            ("rebalances", (self.generations.1 - self.generations.0).to_string()),
        ]
    }
}

fn list(partitions: &[TopicPartition]) -> String {
    if partitions.is_empty() {
        return "no partitions".into();
    }
    partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
