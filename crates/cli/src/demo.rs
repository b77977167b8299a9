//! `kohort demo`: broker, producer and a supervised group in one process, a member whose heartbeat is killed
//! until its crash bound trips, or static members that are restarted one after the other, and a check that no
//! record was lost.

mod drill;
mod ledger;
mod restarts;
mod show;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use kohort::supervisor::{Supervisor, SupervisorRef};
use kohort::telemetry::Hub;
use kohort::{AutoOffsetReset, CloseOptions, ConsumerGroup, MemberName};
use kohort_broker::Broker;
use kohort_client::{Client, ClientConfig, Producer, ProducerConfig, ProducerRecord};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::drill::{Counts, Found};
use self::ledger::{Books, Clerk, Seen};
use self::restarts::Restarts;
use self::show::Stage;
use self::source::Source;
use crate::exit::CliError;
use crate::signals::Stop;
use crate::style::Paint;
use crate::units;

const TOPIC: &str = "orders";
const GROUP: &str = "orders-service";
const MEMBERS: usize = 2;
const SESSION: Duration = Duration::from_secs(6);
/// Between two batches while the drill runs.
const TICK: Duration = Duration::from_millis(20);
/// Records in one call of the producer.
const LOAD: usize = 2_000;

/// Show a supervised group at work: crashes survived in place, a crash bound that trips, nothing lost
///
/// Starts an embedded broker, a supervisor with two members of one group under it, and a producer. While records
/// flow it kills the heartbeat of one member until the crash bound trips, sees the supervisor start that member
/// afresh, and checks that every record was handled. The exit code is 0 only if nothing was lost and the bound
/// behaved as configured.
///
/// With --static both members have a group instance id (KIP-345), and each is stopped and started again while records
/// flow: it has its partitions back at once, and nobody rebalances.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Produce the lines of this file (key, TAB, value) instead of made-up orders
    #[arg(long, value_name = "PATH")]
    input: Option<PathBuf>,
    /// How many orders to make up
    #[arg(long, value_name = "N", default_value_t = 20_000, conflicts_with = "input")]
    records: u64,
    /// Partitions of the topic
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(i32).range(1..=1000))]
    partitions: i32,
    /// Restart static members instead of killing hearts: same partitions, same generation, no rebalance
    #[arg(
        long = "static",
        conflicts_with_all = ["crash_rejoin_max_restarts", "crash_rejoin_window", "crash_rejoin_max_jitter"]
    )]
    is_static: bool,
    /// How many heartbeat crashes within the window are survived in place
    #[arg(long, value_name = "N", default_value_t = 3)]
    crash_rejoin_max_restarts: u32,
    /// The window in which heartbeat crashes count
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::duration)]
    crash_rejoin_window: Duration,
    /// The longest pause before a rejoin
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = units::duration)]
    crash_rejoin_max_jitter: Duration,
    /// How often members beat; the session timeout is 6 s
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = units::duration)]
    heartbeat_interval: Duration,
}

/// What was acknowledged.
#[derive(Default)]
struct Produced {
    seen: Seen,
    count: u64,
}

pub(crate) async fn run(args: Args, mut stop: Stop) -> Result<(), CliError> {
    let stage = Stage::new();
    let source = Source::open(args.input.as_deref(), args.records)?;
    let broker = Broker::builder()
        .listen("127.0.0.1:0")
        .topic(TOPIC, args.partitions)
        .start()
        .await
        .map_err(|error| CliError::Other(error.to_string()))?;
    let books = Books::default();
    let group = define(&args, &broker, books.clone())?;
    stage.title(&format!(
        "Kohort: {MEMBERS} members of {GROUP} on {} partitions of {TOPIC}, broker on {}",
        args.partitions,
        broker.bootstrap_servers().join(",")
    ));
    let victim = MemberName { group: GROUP.into(), index: 1 };
    let (tell, counts) = watch::channel(Counts::default());
    tokio::spawn(drill::watch(
        group.events(),
        victim.clone(),
        args.crash_rejoin_max_restarts,
        stage.clone(),
        tell,
    ));
    let app = Supervisor::one_for_one()
        .id("application")
        .intensity(5, Duration::from_secs(60))
        .children(group.child_specs("orders"))
        .start()
        .await?;
    let patience =
        SESSION + args.crash_rejoin_max_jitter + args.heartbeat_interval * 4 + Duration::from_secs(10);
    let play = Play { broker: &broker, group: &group, app: &app, books: &books, stage: &stage, patience };
    let ended = tokio::select! {
        ended = play.act(&args, &victim, source, counts.clone()) => Some(ended),
        () = stop.asked() => None,
    };
    if ended.is_some()
        && let Ok(tree) = app.snapshot().await
    {
        stage.tree(&tree.to_string());
    }
    let forced = close(&group, &app).await;
    broker.stop().await;
    let Some(ended) = ended else {
        stage.say(Paint::Yellow, "stopped before the end; nothing was checked");
        return stage.outcome();
    };
    let (produced, mut seen) = ended?;
    if let Shown::Drill(found) = &mut seen {
        counts.borrow().add_to(found);
    }
    conclude(&args, &stage, &produced, &seen, &books, forced)
}

fn define(args: &Args, broker: &Broker, books: Books) -> Result<ConsumerGroup, CliError> {
    let mut group = ConsumerGroup::builder(GROUP, [TOPIC])
        .bootstrap_servers(broker.bootstrap_servers())
        .members(MEMBERS)
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .session_timeout(SESSION)
        .heartbeat_interval(args.heartbeat_interval)
        .commit_interval(Duration::from_secs(1))
        .crash_rejoin_max_restarts(args.crash_rejoin_max_restarts)
        .crash_rejoin_window(args.crash_rejoin_window)
        .crash_rejoin_max_jitter(args.crash_rejoin_max_jitter)
        .handler(move |_| Clerk(books.clone()));
    if args.is_static {
        group = group.group_instance_id(TOPIC);
    }
    Ok(group.build()?)
}

/// What the demo plays with.
struct Play<'a> {
    broker: &'a Broker,
    group: &'a ConsumerGroup,
    app: &'a SupervisorRef,
    books: &'a Books,
    stage: &'a Stage,
    /// How long one step may take.
    patience: Duration,
}

/// What it showed.
enum Shown {
    Drill(Found),
    Restarts(Restarts),
}

impl Play<'_> {
    /// Produces and plays at the same time, then waits until all that was produced is handled.
    async fn act(
        &self,
        args: &Args,
        victim: &MemberName,
        source: Source,
        mut counts: watch::Receiver<Counts>,
    ) -> Result<(Produced, Shown), CliError> {
        let (over, played) = watch::channel(false);
        let max = args.crash_rejoin_max_restarts;
        let length = if args.is_static {
            restarts::BETWEEN * MEMBERS as u32 * 2
        } else {
            // About half of the longest pause, and half a beat until the other member hears of the rejoin.
            let per_crash =
                drill::BETWEEN_KILLS + (args.crash_rejoin_max_jitter + args.heartbeat_interval) / 2;
            per_crash * max.saturating_add(1).min(20)
        };
        let playing = async {
            let shown = if args.is_static {
                restarts::run(self).await.map(Shown::Restarts)
            } else {
                let found = drill::run(self.group, victim, max, self.patience, self.stage, &mut counts);
                found.await.map(Shown::Drill)
            };
            over.send_replace(true);
            shown
        };
        let (produced, shown) = tokio::try_join!(produce(self.broker, source, length, played), playing)?;
        self.stage.say(Paint::Cyan, &format!("all {} records are produced", produced.count));
        let deadline = Instant::now() + self.patience;
        while self.books.open().seen.values().map(ledger::Offsets::len).sum::<u64>() < produced.count {
            if Instant::now() >= deadline {
                let text = format!("not all records were handled within {:?}:", self.patience);
                self.stage.say(Paint::Red, &text);
                show_progress(self.group, self.broker, self.stage);
                break;
            }
            sleep(TICK).await;
        }
        Ok((produced, shown))
    }
}

/// Where each partition stands, for a run that does not come to its end.
fn show_progress(group: &ConsumerGroup, broker: &Broker, stage: &Stage) {
    for member in group.running() {
        let status = member.status();
        stage.say(Paint::Red, &format!("    {} {} {:?}", member.name(), status.state, status.health));
        for at in status.assignment {
            let end = broker.log_end_offset(&at.partition.topic, at.partition.partition);
            let text = format!(
                "    {} at {:?}, committed {:?}, log end {end:?}",
                at.partition, at.position, at.committed
            );
            stage.say(Paint::Red, &text);
        }
    }
}

/// Spreads four fifths of the input over the length of the drill; the rest goes when it is over.
async fn produce(
    broker: &Broker,
    mut source: Source,
    length: Duration,
    drilled: watch::Receiver<bool>,
) -> Result<Produced, CliError> {
    let servers: Result<Vec<kohort::Address>, String> =
        broker.bootstrap_servers().iter().map(|server| server.parse()).collect();
    let config = ClientConfig::new(servers.map_err(CliError::Other)?);
    let mut producer = Producer::new(Client::new(config, Hub::new()), ProducerConfig::default());
    let ticks = (length.as_millis() / TICK.as_millis()).max(1) as u64;
    let per_tick = (source.size().saturating_mul(4) / 5 / ticks).max(1);
    let mut produced = Produced::default();
    loop {
        let budget = if *drilled.borrow() { u64::MAX } else { per_tick };
        let (mut records, mut spent) = (Vec::new(), 0);
        let mut ended = false;
        while spent < budget && records.len() < LOAD {
            let Some(item) = source.next()? else {
                ended = true;
                break;
            };
            spent += item.size;
            records.push(ProducerRecord {
                topic: TOPIC.into(),
                key: item.key.map(Bytes::from),
                value: Some(Bytes::from(item.value)),
                ..ProducerRecord::default()
            });
        }
        for delivery in producer.send(records).await {
            let delivery = delivery.map_err(|error| CliError::Other(format!("producing: {error}")))?;
            produced.count += 1;
            if let Some(offset) = delivery.offset {
                produced.seen.entry(delivery.partition.partition).or_default().insert(offset);
            }
        }
        if ended {
            return Ok(produced);
        }
        if !*drilled.borrow() {
            sleep(TICK).await;
        }
    }
}

/// Closes all members at once; true if one had to be forced.
async fn close(group: &ConsumerGroup, app: &SupervisorRef) -> bool {
    let mut closing = JoinSet::new();
    for member in group.running() {
        closing
            .spawn(async move { member.close(CloseOptions::timeout(Duration::from_secs(10))).await.forced });
    }
    let forced = closing.join_all().await.into_iter().any(|forced| forced);
    // Nothing is left to stop; a supervisor that hangs must not hang the command.
    let _ = timeout(Duration::from_secs(10), app.shutdown()).await;
    forced
}

fn conclude(
    args: &Args,
    stage: &Stage,
    produced: &Produced,
    shown: &Shown,
    books: &Books,
    forced: bool,
) -> Result<(), CliError> {
    let books = books.open();
    let known: u64 = produced.seen.values().map(ledger::Offsets::len).sum();
    // An offset that the broker did not tell cannot be looked for, so it counts as lost.
    let lost = ledger::lost(&produced.seen, &books.seen) + produced.count.saturating_sub(known);
    let mut wrong = Vec::new();
    if lost > 0 {
        wrong.push(format!("{lost} records were lost"));
    }
    if forced {
        wrong.push("a close was forced".to_owned());
    }
    let mut rows = vec![
        ("records produced", produced.count.to_string()),
        ("records handled", books.handled.to_string()),
        ("duplicates", books.duplicates.to_string()),
        ("lost", lost.to_string()),
    ];
    let verdict = match shown {
        Shown::Drill(found) => {
            found.check(args.crash_rejoin_max_restarts, args.crash_rejoin_window, &mut wrong);
            rows.extend(found.rows());
            "nothing was lost, and the crash bound did what it should"
        }
        Shown::Restarts(restarts) => {
            restarts.check(&mut wrong);
            rows.extend(restarts.rows());
            "nothing was lost, and no restart cost a rebalance"
        }
    };
    let sum: i64 = books.customers.values().map(|orders| orders.sum).sum();
    let booked: u64 = books.customers.values().map(|orders| orders.count).sum();
    rows.extend([
        ("keys", books.customers.len().to_string()),
        ("records booked", booked.to_string()),
        ("sum booked", sum.to_string()),
        ("time", format!("{:.1} s", stage.seconds())),
    ]);
    stage.table(
        &rows,
        if wrong.is_empty() { Ok(verdict) } else { Err("this is not what should have happened") },
    );
    if wrong.is_empty() { stage.outcome() } else { Err(CliError::Other(wrong.join("; "))) }
}
