//! A Kohort member in a process of its own: says what its handlers and its events tell, joins and closes when it is asked to.

use std::convert::Infallible;
use std::io::{BufRead, Write};
use std::time::Duration;

use kohort::{Assignor, AutoOffsetReset, CloseOptions, ConsumerGroup, Context, Handler, MemberEvent, Record};
use tokio::sync::mpsc;

use crate::line::{Event, Line, now};
use crate::{Failed, Strategy};

/// Who the member is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Membership {
    bootstrap: String,
    group: String,
    topic: String,
    strategy: Strategy,
    group_instance_id: Option<String>,
}

/// One write for a line, at once: what is measured is when.
fn say(event: Event) {
    let line = Line { at: now(), event }.to_string() + "\n";
    // Whoever measures may be gone; then there is nobody to tell.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

/// Tells of its partition. The hooks run where an application's would: after the start offset is known.
struct Telling;

impl Handler for Telling {
    type Error = Infallible;

    async fn handle(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), Infallible> {
        Ok(())
    }

    async fn assigned(&mut self, cx: &mut Context) -> Result<(), Infallible> {
        let partitions = vec![cx.partition().partition];
        say(Event::Assigned { generation: Some(cx.generation()), partitions });
        Ok(())
    }

    async fn revoked(&mut self, cx: &mut Context) -> Result<(), Infallible> {
        say(Event::Revoked { partitions: vec![cx.partition().partition] });
        Ok(())
    }

    async fn lost(&mut self, cx: &mut Context) -> Result<(), Infallible> {
        self.revoked(cx).await
    }
}

/// Runs until it is asked to close, or until its input ends.
pub(crate) async fn run(membership: Membership) -> Result<(), Failed> {
    let Membership { bootstrap, group, topic, strategy, group_instance_id } = membership;
    let mut asked = listen();
    say(Event::Ready);
    let Some(Asked::Subscribe) = asked.recv().await else { return Ok(()) };
    say(Event::Subscribe);
    let mut builder = ConsumerGroup::builder(group, [topic])
        .bootstrap_servers([bootstrap])
        .session_timeout(Duration::from_secs(6))
        .heartbeat_interval(Duration::from_millis(500))
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .assignors([match strategy {
            Strategy::Eager => Assignor::Range,
            Strategy::Cooperative => Assignor::CooperativeSticky,
        }])
        .handler(|_| Telling);
    if let Some(id) = group_instance_id {
        builder = builder.group_instance_id(id);
    }
    let group = builder.build()?;
    let mut events = group.events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            tell(&event);
        }
    });
    let member = group.start().await?;
    let Some(Asked::Close(options)) = asked.recv().await else { return Ok(()) };
    say(Event::Closing);
    let report = member.close(options).await;
    say(Event::Closed);
    say(Event::Note(format!("close {:?} forced={}", report.leave, report.forced)));
    Ok(())
}

enum Asked {
    Subscribe,
    Close(CloseOptions),
}

/// The commands `subscribe`, `close` and `close MILLISECONDS` on the input. Its end drops the sender: nobody measures
/// any more.
fn listen() -> mpsc::UnboundedReceiver<Asked> {
    let (ask, asked) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let mut words = line.split_whitespace();
            let command = match (words.next(), words.next().map(str::parse)) {
                (Some("subscribe"), None) => Asked::Subscribe,
                (Some("close"), None) => Asked::Close(CloseOptions::default()),
                (Some("close"), Some(Ok(timeout))) => {
                    Asked::Close(CloseOptions::timeout(Duration::from_millis(timeout)))
                }
                _ => continue,
            };
            let _ = ask.send(command);
        }
    });
    asked
}

fn tell(event: &MemberEvent) {
    say(Event::Note(match event {
        MemberEvent::Heartbeat { result: "rebalance_in_progress", .. } => return say(Event::Told),
        MemberEvent::Heartbeat { duration, result, .. } => format!("heartbeat {result} {duration:.1?}"),
        MemberEvent::StateChanged { from, to, .. } => format!("{from} -> {to}"),
        MemberEvent::Reachable { coordinator, .. } => format!("coordinator {coordinator}"),
        MemberEvent::Join { duration, generation, leader, .. } => {
            format!("join {duration:.1?} generation={generation} leader={leader}")
        }
        MemberEvent::Sync { duration, .. } => format!("sync {duration:.1?}"),
        MemberEvent::Rebalance { kind, .. } => format!("rebalance {kind}"),
        MemberEvent::Retrying { api, reason, wait, .. } => format!("retrying {api} in {wait:.1?}: {reason}"),
        MemberEvent::Terminated { reason, .. } => format!("terminated {reason}"),
        MemberEvent::Assigned { partitions, .. } => format!("assignment +{}", partitions.len()),
        MemberEvent::Revoked { partitions, .. } => format!("assignment -{}", partitions.len()),
        _ => return,
    }));
}
