//! The member against whatever broker `KOHORT_BOOTSTRAP` names, with foreign producers and consumers. Run by
//! `tests/interop/run`, on Apache Kafka first; needs `KOHORT_PYTHON`, `KOHORT_INTEROP`, `KOHORT_JAVA` and
//! `KOHORT_CLASSPATH` from it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kohort::supervisor::Supervisor;
use kohort::{
    AutoOffsetReset, CloseOptions, ConsumerGroup, ConsumerGroupBuilder, Context, Handler, Member,
    MemberEvent, MemberEvents, Record, TerminalClass,
};

const RECORDS: usize = 10_000;
const PARTITIONS: i32 = 4;

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run this through tests/interop/run"))
}

fn python(script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env("KOHORT_PYTHON"));
    command.arg(format!("{}/python/{script}", env("KOHORT_INTEROP"))).args(arguments);
    command
}

fn run(command: &mut Command) {
    let status = command.status().expect("python runs");
    assert!(status.success(), "{command:?}: {status}");
}

/// By partition and offset, how often a record was handled, and its value.
type Handled = BTreeMap<(i32, i64), (usize, u64)>;

/// What members handled.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Handled>>);

impl Ledger {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn sum(&self) -> u64 {
        self.0.lock().unwrap().values().map(|(_, value)| value).sum()
    }

    fn repeated(&self) -> usize {
        self.0.lock().unwrap().values().map(|(times, _)| times - 1).sum()
    }
}

struct Summing {
    ledger: Ledger,
    pace: Duration,
}

impl Handler for Summing {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        // So slow that the kills fall into the middle of the work.
        tokio::time::sleep(self.pace).await;
        let value =
            record.value.and_then(|value| std::str::from_utf8(value).ok()).and_then(|text| text.parse().ok());
        let mut ledger = self.ledger.0.lock().unwrap();
        let entry =
            ledger.entry((cx.partition().partition, record.offset)).or_insert((0, value.unwrap_or(0)));
        entry.0 += 1;
        Ok(())
    }
}

fn group(name: &str, topic: &str, ledger: &Ledger, pace: Duration) -> ConsumerGroupBuilder {
    let ledger = ledger.clone();
    ConsumerGroup::builder(name, [topic])
        .bootstrap_servers([env("KOHORT_BOOTSTRAP")])
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .session_timeout(Duration::from_secs(6))
        .heartbeat_interval(Duration::from_millis(500))
        .commit_interval(Duration::from_millis(500))
        .crash_rejoin_max_restarts(3)
        .crash_rejoin_window(Duration::from_secs(30))
        .crash_rejoin_max_jitter(Duration::from_millis(200))
        .handler(move |_| Summing { ledger: ledger.clone(), pace })
}

async fn until(events: &mut MemberEvents, wanted: impl Fn(&MemberEvent) -> bool) -> MemberEvent {
    let found = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let event = events.next().await.expect("the group lives");
            if wanted(&event) {
                return event;
            }
        }
    });
    found.await.expect("the event comes within a minute")
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_consume_what_a_foreign_producer_wrote_while_one_is_killed_into_a_fresh_start() {
    let (topic, name) = (env("KOHORT_TOPIC"), env("KOHORT_GROUP"));
    let (records, partitions) = (RECORDS.to_string(), PARTITIONS.to_string());
    run(&mut python("produce_known.py", &[&env("KOHORT_BOOTSTRAP"), &topic, &partitions, &records]));

    let ledger = Ledger::default();
    let group = group(&name, &topic, &ledger, Duration::from_millis(2)).members(2).build().unwrap();
    let mut events = group.events();
    let app = Supervisor::one_for_one()
        .intensity(3, Duration::from_secs(60))
        .children(group.child_specs("orders"))
        .start()
        .await
        .unwrap();
    let shared =
        || group.running().len() == 2 && group.running().iter().all(|m| m.status().assignment.len() == 2);
    eventually("the members share the partitions", shared).await;

    let victim = group.running()[0].clone();
    let member_id = victim.status().member_id;
    let mut crashes = 0;
    loop {
        let children = victim.which_children().await.unwrap();
        let heartbeat = children.into_iter().find(|child| child.id == "heartbeat").unwrap();
        heartbeat.cell.expect("it runs").kill();
        let about_victim = |event: &MemberEvent| event.member().is_some_and(|member| member == victim.name());
        let next = until(&mut events, |event| {
            about_victim(event)
                && matches!(event, MemberEvent::HeartbeatCrash { .. } | MemberEvent::Terminated { .. })
        });
        if let MemberEvent::Terminated { class, .. } = next.await {
            assert_eq!(class, TerminalClass::CrashLoop);
            break;
        }
        crashes += 1;
        until(&mut events, |event| about_victim(event) && matches!(event, MemberEvent::Assigned { .. }))
            .await;
        assert_eq!(victim.status().member_id, member_id, "it rejoins in place");
    }
    assert_eq!(crashes, 3);
    eventually("the member is started fresh", || {
        shared() && group.running().iter().all(|member| member.status().member_id != member_id)
    })
    .await;

    eventually("everything is handled", || ledger.len() == RECORDS).await;
    assert_eq!(ledger.sum(), (0..RECORDS as u64).sum::<u64>());
    let members = group.running();
    app.shutdown().await;
    for member in members {
        let report = member.ended().await.unwrap();
        assert!(!report.forced, "{report:?}");
    }
    assert_eq!(ledger.repeated(), 0, "orderly rejoins and an orderly end repeat nothing");
}

/// A foreign consumer in a process of its own; what it says, line by line.
struct Foreign {
    child: Child,
    partitions: Arc<Mutex<BTreeSet<i32>>>,
    consumed: Arc<Mutex<Vec<(i32, i64)>>>,
}

impl Foreign {
    /// On librdkafka.
    fn librdkafka(group: &str, topic: &str) -> Self {
        Self::start(&mut python("mixed_member.py", &[&env("KOHORT_BOOTSTRAP"), group, topic]))
    }

    /// On Kafka's Java client.
    fn java(group: &str, topic: &str) -> Self {
        let mut command = Command::new(env("KOHORT_JAVA"));
        command.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", &env("KOHORT_CLASSPATH"), "MixedMember"]);
        Self::start(command.args([&env("KOHORT_BOOTSTRAP"), group, topic]))
    }

    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let (partitions, consumed) =
            (Arc::<Mutex<BTreeSet<i32>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (said, seen) = (partitions.clone(), consumed.clone());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let message: serde_json::Value = serde_json::from_str(&line).expect("a line of JSON");
                if let Some(list) = message["assigned"].as_array() {
                    *said.lock().unwrap() =
                        list.iter().map(|number| number.as_i64().unwrap() as i32).collect();
                } else {
                    let number = |key: &str| message[key].as_i64().unwrap();
                    seen.lock().unwrap().push((number("partition") as i32, number("offset")));
                }
            }
        });
        Self { child, partitions, consumed }
    }

    fn share(&self) -> usize {
        self.partitions.lock().unwrap().len()
    }

    fn seen(&self) -> BTreeSet<(i32, i64)> {
        self.consumed.lock().unwrap().iter().copied().collect()
    }

    fn stop(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "the foreign consumer: {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_consumer_and_a_member_share_the_partitions() {
    let (topic, name) = (format!("{}-mixed", env("KOHORT_TOPIC")), format!("{}-mixed", env("KOHORT_GROUP")));
    let partitions = PARTITIONS.to_string();
    run(&mut python("produce_known.py", &[&env("KOHORT_BOOTSTRAP"), &topic, &partitions, "0"]));
    let foreign = Foreign::librdkafka(&name, &topic);
    eventually("the foreign member has all", || foreign.partitions.lock().unwrap().len() == 4).await;

    let ledger = Ledger::default();
    let group = group(&name, &topic, &ledger, Duration::ZERO).build().unwrap();
    let member = group.start().await.unwrap();
    eventually("they share", || {
        member.status().assignment.len() == 2 && foreign.partitions.lock().unwrap().len() == 2
    })
    .await;
    run(&mut python("produce_known.py", &[&env("KOHORT_BOOTSTRAP"), &topic, &partitions, "1000"]));
    eventually("together they have everything", || {
        ledger.len() + foreign.consumed.lock().unwrap().len() >= 1000
    })
    .await;
    let theirs: BTreeSet<_> = foreign.consumed.lock().unwrap().iter().copied().collect();
    let ours: BTreeSet<_> = ledger.0.lock().unwrap().keys().copied().collect();
    assert!(!theirs.is_empty() && !ours.is_empty());
    assert_eq!(theirs.union(&ours).count(), 1000);
    assert_eq!(theirs.intersection(&ours).count(), 0);

    // Our leave hands everything back to the foreign member.
    let report = member.close(CloseOptions::default()).await;
    assert!(!report.forced, "{report:?}");
    eventually("the foreign member has all again", || foreign.partitions.lock().unwrap().len() == 4).await;
    foreign.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_member_a_librdkafka_member_and_members_of_ours_share_one_group() {
    let (topic, name) = (format!("{}-three", env("KOHORT_TOPIC")), format!("{}-three", env("KOHORT_GROUP")));
    let produce = |records: &str| {
        run(&mut python("produce_known.py", &[&env("KOHORT_BOOTSTRAP"), &topic, "6", records]));
    };
    produce("0");
    let (java, librdkafka) = (Foreign::java(&name, &topic), Foreign::librdkafka(&name, &topic));
    let ledger = Ledger::default();
    let start =
        async || group(&name, &topic, &ledger, Duration::ZERO).build().unwrap().start().await.unwrap();
    let share = |member: &Member| member.status().assignment.len();

    let one = start().await;
    eventually("three share", || java.share() == 2 && librdkafka.share() == 2 && share(&one) == 2).await;
    produce("1000");

    // Two more of ours come while records come, and the first goes.
    let (two, three) = (start().await, start().await);
    produce("1000");
    eventually("five share", || {
        let shares = [java.share(), librdkafka.share(), share(&one), share(&two), share(&three)];
        shares.iter().all(|share| (1..=2).contains(share)) && shares.iter().sum::<usize>() == 6
    })
    .await;
    produce("1000");
    let report = one.close(CloseOptions::default()).await;
    assert!(!report.forced, "{report:?}");
    produce("1000");
    eventually("four share", || {
        let shares = [java.share(), librdkafka.share(), share(&two), share(&three)];
        shares.iter().all(|share| (1..=2).contains(share)) && shares.iter().sum::<usize>() == 6
    })
    .await;
    produce("1000");

    let ours = || -> BTreeSet<(i32, i64)> { ledger.0.lock().unwrap().keys().copied().collect() };
    let all = || ours().into_iter().chain(java.seen()).chain(librdkafka.seen()).collect::<BTreeSet<_>>();
    eventually("nothing is lost", || all().len() == 5000).await;
    assert!(!ours().is_empty() && !java.seen().is_empty() && !librdkafka.seen().is_empty());
    for member in [two, three] {
        let report = member.close(CloseOptions::default()).await;
        assert!(!report.forced, "{report:?}");
    }
    eventually("the foreign members have all", || java.share() + librdkafka.share() == 6).await;
    java.stop();
    librdkafka.stop();
}
