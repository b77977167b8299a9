//! The drill: kills the heartbeat of one member again and again, until the crash bound trips and the
//! application's supervisor starts the member afresh.

use std::collections::BTreeSet;
use std::time::Duration;

use kohort::{
    ConsumerGroup, MemberEvent, MemberEvents, MemberName, MemberRef, MemberState, TerminalClass,
    TerminalReason,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::show::Stage;
use crate::exit::CliError;
use crate::narrate;
use crate::style::Paint;

/// Between two looks at a member.
const LOOK: Duration = Duration::from_millis(20);
/// From a settled group to the next kill.
pub(super) const BETWEEN_KILLS: Duration = Duration::from_millis(300);

/// What the drill found.
#[derive(Default, Debug, Clone)]
pub(super) struct Found {
    pub(super) kills: u32,
    /// Crashes after which the same incarnation was stable again.
    pub(super) rejoins: u32,
    pub(super) terminations: Vec<TerminalClass>,
    /// Generations that members joined.
    pub(super) rebalances: usize,
    /// The member that was started afresh is in the group.
    pub(super) fresh: bool,
}

impl Found {
    /// Says what is not as the bound wants it.
    pub(super) fn check(&self, max: u32, window: Duration, wrong: &mut Vec<String>) {
        if self.rejoins != max {
            wrong.push(format!("{} rejoins in place instead of {max}", self.rejoins));
        }
        if self.terminations != [TerminalClass::CrashLoop] {
            let classes: Vec<&str> = self.terminations.iter().map(|class| class.as_str()).collect();
            wrong.push(format!(
                "terminations were [{}] instead of [crash_loop]; is the window of {window:?} long enough for {} crashes?",
                classes.join(", "),
                max.saturating_add(1)
            ));
        } else if !self.fresh {
            wrong.push("the terminated member was not started afresh".to_owned());
        }
    }

    pub(super) fn rows(&self) -> [(&'static str, String); 3] {
        [
            ("rejoins", self.rejoins.to_string()),
            ("terminations", self.terminations.len().to_string()),
            ("rebalances", self.rebalances.to_string()),
        ]
    }
}

/// What the watcher of the events counts; the drill waits on it.
#[derive(Default, Clone, Debug)]
pub(super) struct Counts {
    /// Crashes of the victim that were survived so far.
    crashes: u32,
    terminations: Vec<TerminalClass>,
    generations: BTreeSet<i32>,
    /// How often the victim became stable. Its generation says less: a member that rejoins with the id it had
    /// and is not the leader is given the generation that stands.
    stable: u32,
    stable_at_termination: u32,
}

/// Shows events and counts them, until the group is gone.
pub(super) async fn watch(
    mut events: MemberEvents,
    victim: MemberName,
    max: u32,
    stage: Stage,
    tell: watch::Sender<Counts>,
) {
    while let Some(event) = events.next().await {
        if let (Some((paint, text)), true) = (narrate::line(&event), is_shown(&event)) {
            let name = event.member().map(ToString::to_string).unwrap_or_default();
            stage.say(paint, &format!("{name}  {text}"));
        }
        match event {
            MemberEvent::HeartbeatCrash { member, crashes_in_window, .. } if member == victim => {
                stage.window(crashes_in_window, max);
                tell.send_modify(|counts| counts.crashes += 1);
            }
            MemberEvent::Terminated { class, reason, .. } => {
                if let TerminalReason::CrashLoop { crashes, .. } = reason {
                    stage.window(crashes, max);
                }
                tell.send_modify(|counts| {
                    counts.terminations.push(class);
                    counts.stable_at_termination = counts.stable;
                });
            }
            MemberEvent::StateChanged { member, to: MemberState::Stable, .. } if member == victim => {
                tell.send_modify(|counts| counts.stable += 1);
            }
            MemberEvent::Join { generation, .. } => tell.send_modify(|counts| {
                counts.generations.insert(generation);
            }),
            _ => {}
        }
    }
}

/// The others would drown what matters here.
fn is_shown(event: &MemberEvent) -> bool {
    !matches!(event, MemberEvent::OffsetReset { .. } | MemberEvent::Join { .. } | MemberEvent::Revoked { .. })
}

/// Runs the drill against the first member. `patience` is how long one step may take.
pub(super) async fn run(
    group: &ConsumerGroup,
    victim: &MemberName,
    max: u32,
    patience: Duration,
    stage: &Stage,
    counts: &mut watch::Receiver<Counts>,
) -> Result<Found, CliError> {
    let mut found = Found::default();
    let all = group.running().len();
    settle(group, all, patience).await?;
    while found.kills <= max {
        let member = member(group, victim)?;
        // Records flow between two crashes, so that each comes in the middle of work.
        sleep(BETWEEN_KILLS).await;
        let stable = counts.borrow().stable;
        found.kills += 1;
        let of = u64::from(max) + 1;
        stage.say(Paint::Cyan, &format!("{victim}  its heartbeat is killed ({} of {of})", found.kills));
        kill_heartbeat(&member, patience).await?;
        let kills = found.kills;
        let seen = counts.wait_for(|counts| !counts.terminations.is_empty() || counts.crashes >= kills);
        let terminated = match timeout(patience, seen).await {
            Ok(Ok(counts)) => !counts.terminations.is_empty(),
            _ => {
                return Err(CliError::Other(format!(
                    "{victim} did not notice that its heartbeat was killed"
                )));
            }
        };
        if terminated {
            break;
        }
        again(counts, stable, victim, patience).await?;
        settle(group, all, patience).await?;
        found.rejoins += 1;
        stage.say(Paint::Green, &format!("{victim}  stable again, in place, after crash {}", found.kills));
    }
    if !counts.borrow().terminations.is_empty() {
        let before = counts.borrow().stable_at_termination;
        again(counts, before, victim, patience).await?;
        settle(group, all, patience).await?;
        found.fresh = true;
        stage.say(
            Paint::Green,
            &format!("{victim}  started fresh by the application's supervisor, window empty"),
        );
    }
    Ok(found)
}

/// Waits until the victim became stable once more than `before`.
async fn again(
    counts: &mut watch::Receiver<Counts>,
    before: u32,
    victim: &MemberName,
    patience: Duration,
) -> Result<(), CliError> {
    match timeout(patience, counts.wait_for(|counts| counts.stable > before)).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(CliError::Other(format!("{victim} was not stable again within {patience:?}"))),
    }
}

/// Waits until so many members are stable in one generation.
pub(super) async fn settle(group: &ConsumerGroup, all: usize, patience: Duration) -> Result<(), CliError> {
    let deadline = Instant::now() + patience;
    loop {
        let running = group.running();
        let states: Vec<_> = running.iter().map(|member| member.status()).collect();
        let generation = states.first().map_or(-1, |status| status.generation);
        let together = states
            .iter()
            .all(|status| status.state == MemberState::Stable && status.generation == generation);
        if together && states.len() == all {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let states: Vec<String> = running
                .iter()
                .map(|member| {
                    let status = member.status();
                    format!("{} {} ({:?})", member.name(), status.state, status.health)
                })
                .collect();
            let text = format!("the group did not settle within {patience:?}: {}", states.join(", "));
            return Err(CliError::Other(text));
        }
        sleep(LOOK).await;
    }
}

pub(super) fn member(group: &ConsumerGroup, name: &MemberName) -> Result<MemberRef, CliError> {
    let mut running = group.running().into_iter();
    running
        .find(|member| member.name() == name)
        .ok_or_else(|| CliError::Other(format!("{name} does not run")))
}

async fn kill_heartbeat(member: &MemberRef, patience: Duration) -> Result<(), CliError> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        let children = member.which_children().await.unwrap_or_default();
        let heartbeat = children.into_iter().find(|child| child.id == "heartbeat");
        if let Some(cell) = heartbeat.and_then(|heartbeat| heartbeat.cell) {
            cell.kill();
            return Ok(());
        }
        sleep(LOOK).await;
    }
    Err(CliError::Other(format!("{} has no heartbeat to kill", member.name())))
}

impl Counts {
    pub(super) fn add_to(&self, found: &mut Found) {
        found.terminations.clone_from(&self.terminations);
        found.rebalances = self.generations.len();
    }
}
