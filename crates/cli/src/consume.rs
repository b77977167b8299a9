//! `kohort consume`: members of a group whose handler writes records to stdout.
//!
//! The members run under a supervisor that allows no restart: a member that ended for good ends the command,
//! which says why.

mod format;
mod output;

use std::time::Duration;

use kohort::supervisor::{Supervisor, SupervisorRef};
use kohort::{
    AutoOffsetReset, CloseOptions, ConfigError, ConsumerGroup, Context, CrashBound, Handler, MemberEvent,
    Record, TerminalReason,
};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::format::Format;
use self::output::{Ended, Output, Written};
use crate::exit::CliError;
use crate::signals::Stop;
use crate::style::Painter;
use crate::{narrate, style, units};

/// After the limit every worker that had one more record fails on purpose, until the close comes a moment
/// later: far from this often.
const RESTARTS_AT_THE_LIMIT: u32 = 100_000;
/// Nothing was reached, so nothing has to be given back.
const CLOSE_UNREACHED: Duration = Duration::from_millis(500);

/// Consume topics as members of a group, records to stdout
///
/// A record counts as handled, and is committed, once its line is out. Events go to stderr. Without a broker the
/// command says so and goes on trying. Ctrl-C or SIGTERM closes cleanly: what was handled is committed and the
/// group is left; a second signal ends at once.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Brokers to begin with, separated by commas (repeatable)
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    bootstrap_server: Vec<String>,
    /// The group
    #[arg(long)]
    group: String,
    /// A topic to subscribe to (repeatable)
    #[arg(long, required = true)]
    topic: Vec<String>,
    /// How records are shown. In JSON, bytes that are not UTF-8 are {"base64": "…"}
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// What stands between key and value in text
    #[arg(long, value_name = "TEXT", default_value = "\\t", value_parser = units::separator)]
    key_separator: String,
    /// Where to start without a committed offset
    #[arg(long, value_enum, default_value_t = StartAt::Latest)]
    from: StartAt,
    /// End after so many records, all members together; exactly these are committed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_messages: Option<u64>,
    /// How many members to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    members: usize,
    /// Be a static member with this group instance id; with several members, the prefix of ID-INDEX-consumer
    #[arg(long, value_name = "ID")]
    instance_id: Option<String>,
    /// A setting by its Kafka name, such as session.timeout.ms=10000 (repeatable); it wins over the options above
    #[arg(long, value_name = "KEY=VALUE", value_parser = units::property)]
    property: Vec<(String, String)>,
    /// How many heartbeat crashes within the window are survived in place: a number, or unlimited
    #[arg(long, value_name = "N", value_parser = units::bound)]
    crash_rejoin_max_restarts: Option<CrashBound>,
    /// The window in which heartbeat crashes count
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    crash_rejoin_window: Option<Duration>,
    /// Give up when no broker was reached in this time; without it the command tries forever
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    connect_timeout: Option<Duration>,
    /// How long the close at the end may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::duration)]
    close_timeout: Duration,
    /// Say nothing on stderr but errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum StartAt {
    Earliest,
    Latest,
    /// Leave such a partition alone and say so
    None,
}

/// Writes each record and waits until it is out.
struct Printer {
    output: Output,
    format: Format,
    separator: String,
}

/// The line was refused; its record stays unhandled.
#[derive(Debug, Error)]
#[error("nothing more is written")]
struct Refused;

impl Handler for Printer {
    type Error = Refused;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Refused> {
        let line = format::line(self.format, &self.separator, cx.partition(), &record);
        match self.output.write(line).await {
            Written::Out => Ok(()),
            Written::Refused => Err(Refused),
        }
    }
}

/// Why the consuming ends.
enum End {
    Asked,
    Output(Ended),
    Unreached(Duration, String),
    Terminal(TerminalReason),
}

pub(crate) async fn run(args: Args, stop: Stop) -> Result<(), CliError> {
    let (output, written) = Output::start(args.max_messages);
    let group = define(&args, output)?;
    let mut events = group.events();
    let app = Supervisor::one_for_one()
        .id("consume")
        .intensity(0, Duration::from_secs(1))
        .children(group.child_specs("member"))
        .start()
        .await?;
    let end = wait(&args, stop, written, &app, &mut events).await;
    let timeout = match &end {
        End::Unreached(..) => CLOSE_UNREACHED,
        _ => args.close_timeout,
    };
    let forced = close(&group, &app, timeout, &args, &mut events).await;
    match end {
        End::Terminal(reason) => Err(CliError::Terminal(reason)),
        End::Unreached(within, tried) => Err(CliError::NoBroker { within, tried }),
        End::Output(Ended::Failed(why)) => Err(CliError::Other(format!("writing to stdout: {why}"))),
        End::Output(Ended::Closed) => Err(CliError::ClosedOutput),
        End::Output(Ended::Limit) | End::Asked => match forced {
            Some(text) => Err(CliError::Forced(text)),
            None => Ok(()),
        },
    }
}

fn define(args: &Args, output: Output) -> Result<ConsumerGroup, ConfigError> {
    let (format, separator) = (args.format, args.key_separator.clone());
    let servers = args.bootstrap_server.iter().flat_map(|list| list.split(','));
    let mut builder = ConsumerGroup::builder(&args.group, &args.topic)
        .bootstrap_servers(servers)
        .members(args.members)
        .close_timeout(args.close_timeout)
        .auto_offset_reset(match args.from {
            StartAt::Earliest => AutoOffsetReset::Earliest,
            StartAt::Latest => AutoOffsetReset::Latest,
            StartAt::None => AutoOffsetReset::None,
        })
        .handler(move |_| Printer { output: output.clone(), format, separator: separator.clone() });
    if args.max_messages.is_some() {
        builder = builder.worker_max_restarts(RESTARTS_AT_THE_LIMIT, Duration::from_secs(30));
    }
    if let Some(bound) = args.crash_rejoin_max_restarts {
        builder = builder.crash_rejoin_max_restarts(bound);
    }
    if let Some(window) = args.crash_rejoin_window {
        builder = builder.crash_rejoin_window(window);
    }
    if let Some(id) = &args.instance_id {
        builder = builder.group_instance_id(id);
    }
    for (key, value) in &args.property {
        builder = builder.property(key, value);
    }
    builder.build()
}

async fn wait(
    args: &Args,
    mut stop: Stop,
    mut written: watch::Receiver<Option<Ended>>,
    app: &SupervisorRef,
    events: &mut kohort::MemberEvents,
) -> End {
    let mut reached = false;
    let mut tried = "no answer yet".to_owned();
    let patience = tokio::time::sleep(args.connect_timeout.unwrap_or(Duration::MAX));
    tokio::pin!(patience);
    loop {
        tokio::select! {
            () = stop.asked() => return End::Asked,
            Ok(ended) = written.wait_for(Option::is_some) => {
                if let Some(ended) = ended.clone() {
                    return End::Output(ended);
                }
            }
            () = &mut patience, if !reached && args.connect_timeout.is_some() => {
                return End::Unreached(args.connect_timeout.unwrap_or_default(), tried);
            }
            Some(event) = events.next() => {
                show(args, &event);
                match event {
                    MemberEvent::Reachable { .. } => reached = true,
                    MemberEvent::Unreachable { reason, .. } => tried = reason,
                    MemberEvent::Terminated { reason, .. } => return End::Terminal(reason),
                    _ => {}
                }
            }
            exit = app.ended() => {
                // A termination is an event first; this is for one that was missed.
                return End::Terminal(exit.find::<TerminalReason>().cloned().unwrap_or_else(|| {
                    TerminalReason::Crashed { what: exit.to_string() }
                }));
            }
        }
    }
}

/// Closes all members at once. The text says what was forced, if anything was.
async fn close(
    group: &ConsumerGroup,
    app: &SupervisorRef,
    timeout: Duration,
    args: &Args,
    events: &mut kohort::MemberEvents,
) -> Option<String> {
    let mut closing = JoinSet::new();
    for member in group.running() {
        closing.spawn(async move {
            let report = member.close(CloseOptions::timeout(timeout)).await;
            (member.name().clone(), report)
        });
    }
    let mut forced = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => {
                if !matches!(event, MemberEvent::WorkerRestarted { .. }) {
                    show(args, &event);
                }
            }
            closed = closing.join_next() => match closed {
                Some(Ok((name, report))) if report.forced => {
                    forced.push(format!("{name}: {}", narrate::closed(&report)));
                }
                Some(_) => {}
                None => break,
            }
        }
    }
    app.shutdown_within(Duration::from_secs(5)).await;
    while let Some(event) = events.try_next() {
        show(args, &event);
    }
    (!forced.is_empty()).then(|| forced.join("; "))
}

fn show(args: &Args, event: &MemberEvent) {
    // What keeps records from coming is an error, although the command goes on.
    let trouble = matches!(event, MemberEvent::Unreachable { .. } | MemberEvent::PartitionFailed { .. });
    if args.quiet && !trouble {
        return;
    }
    if let Some((paint, text)) = narrate::line(event) {
        let name = event.member().map(ToString::to_string).unwrap_or_default();
        style::say(&Painter::for_stderr().paint(paint, &format!("{name} {text}")));
    }
}
