//! Events of members as lines for people. What is routine (beats, commits, single requests) is left out.

use kohort::{CloseReport, LeaveOutcome, MemberEvent, TopicPartition};

use crate::style::Paint;

/// The line for an event, if it is worth one.
pub(crate) fn line(event: &MemberEvent) -> Option<(Paint, String)> {
    use MemberEvent as E;
    Some(match event {
        E::Unreachable { reason, .. } => (
            Paint::Red,
            format!(
                "cannot reach the cluster: {reason}; still trying. Check --bootstrap-server, that the broker runs, and that its advertised listeners can be reached from here"
            ),
        ),
        E::Reachable { coordinator, .. } => (Paint::Green, format!("coordinator found at {coordinator}")),
        E::Retrying { api, reason, attempt, wait, .. } if *attempt > 1 => {
            (Paint::Dim, format!("{api} is tried again in {wait:.1?}: {reason}"))
        }
        E::Join { generation, leader, .. } => {
            let role = if *leader { " as leader" } else { "" };
            (Paint::Dim, format!("joined generation {generation}{role}"))
        }
        E::Rebalance { kind, generation, .. } => {
            (Paint::Yellow, format!("leaves generation {generation}: {kind}"))
        }
        E::HeartbeatCrash { exit, crashes_in_window, .. } => (
            Paint::Yellow,
            format!("heartbeat crashed ({exit}), {crashes_in_window} in the window; rejoins in place"),
        ),
        E::Terminated { class, reason, .. } => (Paint::Red, format!("terminated [{class}]: {reason}")),
        E::Assigned { partitions, generation, .. } => {
            (Paint::Green, format!("generation {generation}: assigned {}", list(partitions)))
        }
        E::Revoked { partitions, .. } => (Paint::Dim, format!("gave back {}", list(partitions))),
        E::Lost { partitions, .. } => (Paint::Yellow, format!("lost {}", list(partitions))),
        E::CommitFailed { reason, retriable, .. } => {
            let next = if *retriable { "; it is tried again" } else { "" };
            (Paint::Yellow, format!("a commit failed: {reason}{next}"))
        }
        E::OffsetReset { partition, from, to, policy, .. } => {
            let why = match from {
                Some(from) => format!("offset {from} is gone"),
                None => "no offset committed".to_owned(),
            };
            (Paint::Dim, format!("{partition}: {why}; starts at {to} ({policy})"))
        }
        E::PartitionFailed { partition, reason, .. } => (Paint::Yellow, format!("{partition}: {reason}")),
        E::WorkerRestarted { partition, failures, wait, .. } => (
            Paint::Yellow,
            format!("{partition}: the handler failed ({failures} in a row), again in {wait:.1?}"),
        ),
        E::UnreadableBlob { member_id, reason, .. } => {
            (Paint::Yellow, format!("what {member_id} sent is unreadable: {reason}"))
        }
        E::MissingTopic { topic, .. } => (
            Paint::Yellow,
            format!("there is no topic {topic}, or it cannot be looked up; assigned without it"),
        ),
        E::RebalanceStorm { generations, .. } => {
            (Paint::Yellow, format!("rebalance storm: {generations} generations within 60 s"))
        }
        E::Closed { report, .. } => (Paint::Dim, format!("closed: {}", closed(report))),
        E::Lagged { missed } => (Paint::Dim, format!("{missed} events were not shown")),
        _ => return None,
    })
}

/// What a close did, in a few words.
pub(crate) fn closed(report: &CloseReport) -> String {
    let mut text = match &report.leave {
        LeaveOutcome::Left => "left the group".to_owned(),
        LeaveOutcome::NotSent => "no LeaveGroup was sent".to_owned(),
        LeaveOutcome::Unconfirmed(why) => format!("the leave is not confirmed: {why}"),
    };
    if !report.dropped.is_empty() {
        text += &format!("; work on {} is handled again by whoever gets it", list(&report.dropped));
    }
    if report.forced {
        text += "; forced";
    }
    text
}

fn list(partitions: &[TopicPartition]) -> String {
    const SHOWN: usize = 8;
    if partitions.is_empty() {
        return "nothing".into();
    }
    let names: Vec<String> = partitions.iter().take(SHOWN).map(ToString::to_string).collect();
    match partitions.len().saturating_sub(SHOWN) {
        0 => names.join(" "),
        more => format!("{} and {more} more", names.join(" ")),
    }
}
