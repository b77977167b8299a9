//! The rounds: what is done to members, and what is read from what they say.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use kohort_tests::workspace::root;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::broker::Running;
use crate::line::{Event, Line};
use crate::process::{Process, owned, pause, said_at};
use crate::table::{Part, Row, Samples};
use crate::{CLOSE_TIMEOUT, Client, Failed, HEARTBEAT, Strategy};

const TOPIC: &str = "rebalance";
const PARTITIONS: usize = 12;
/// A close in a black hole is not waited for longer. Shorter than Kafka's own patience with a broker, 9 s, which is
/// stopped meanwhile.
pub(crate) const CUT_OFF: Duration = Duration::from_secs(8);
/// Long enough for a member to be idle: its fetch is parked at the broker.
const IDLE: Duration = Duration::from_millis(700);

pub(crate) struct Rounds<'a> {
    pub(crate) broker: &'a Running,
    pub(crate) rows: BTreeSet<Row>,
    pub(crate) rounds: usize,
    pub(crate) python: PathBuf,
    pub(crate) trace: bool,
}

/// One client in one round.
struct Turn<'a> {
    of: &'a Rounds<'a>,
    client: Client,
    strategy: Strategy,
    round: usize,
    group: String,
}

impl Rounds<'_> {
    pub(crate) async fn run(&self) -> Result<Samples, Failed> {
        let mut samples = Samples::default();
        self.create_topic().await?;
        // Not measured: a fresh Kafka first makes its topic for offsets, and pages come from the disk.
        for client in [Client::Kohort, Client::Librdkafka] {
            self.turn(client, Strategy::Eager, 0, "warm").join_and_close().await?;
        }
        for round in 0..self.rounds {
            eprintln!("round {} of {}", round + 1, self.rounds);
            for strategy in [Strategy::Eager, Strategy::Cooperative] {
                for client in [Client::Kohort, Client::Librdkafka] {
                    self.turn(client, strategy, round, "group").group(&mut samples).await?;
                }
            }
            for client in [Client::Kohort, Client::Librdkafka] {
                self.turn(client, Strategy::Eager, round, "static").restart(&mut samples).await?;
            }
            for client in [Client::Kohort, Client::Librdkafka] {
                self.turn(client, Strategy::Eager, round, "black-hole").black_hole(&mut samples).await?;
            }
        }
        Ok(samples)
    }

    fn turn(&self, client: Client, strategy: Strategy, round: usize, what: &str) -> Turn<'_> {
        let group = format!("{what}-{client}-{strategy}-{round}");
        Turn { of: self, client, strategy, round, group }
    }

    fn wants(&self, rows: &[Row]) -> bool {
        rows.iter().any(|row| self.rows.contains(row))
    }

    async fn create_topic(&self) -> Result<(), Failed> {
        let start = |error| Failed::Start { what: format!("{}", self.python.display()), error };
        let mut command = Command::new(&self.python);
        command.arg(root().join("tests/interop/python/produce_known.py"));
        command.args([self.broker.address(), TOPIC, &PARTITIONS.to_string(), "0"]);
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).kill_on_drop(true);
        let status = timeout(Duration::from_secs(60), command.status()).await;
        match status.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(start)? {
            status if status.success() => Ok(()),
            _ => Err(Failed::Broker { reason: "the topic could not be created".into() }),
        }
    }
}

impl Turn<'_> {
    fn member(&self, name: &str, instance: Option<&str>) -> Result<Process, Failed> {
        let (mut command, strategy) = match self.client {
            Client::Kohort => {
                let what = "a member".to_owned();
                let program = std::env::current_exe().map_err(|error| Failed::Start { what, error })?;
                let mut command = Command::new(program);
                command.arg("member");
                (command, self.strategy.to_string())
            }
            Client::Librdkafka => {
                let mut command = Command::new(&self.of.python);
                command.arg(root().join("tests/interop/python/rebalance_member.py"));
                (command, self.strategy.assignor().to_owned())
            }
        };
        command.args([self.of.broker.address(), &self.group, TOPIC, &strategy]).args(instance);
        Process::start(&format!("{} {name}", self.group), command, self.of.trace)
    }

    /// A moment of its own within the heartbeat interval for each round, so that rounds meet all phases of the first
    /// member's heartbeat alike.
    async fn phase(&self, step: usize) {
        let interval = HEARTBEAT.as_millis() as usize;
        let wait = (self.round * interval / self.of.rounds + 137 * step) % interval;
        sleep(Duration::from_millis(wait as u64)).await;
    }

    /// A process that is ready to join.
    async fn ready(&self, name: &str, instance: Option<&str>) -> Result<Process, Failed> {
        let mut member = self.member(name, instance)?;
        member.says(Event::Ready, 0).await?;
        Ok(member)
    }

    /// When it subscribed, and when it had its share.
    async fn join(&self, member: &mut Process, share: usize) -> Result<(u64, u64), Failed> {
        member.ask("subscribe").await?;
        let subscribe = member.says(Event::Subscribe, 0).await?;
        Ok((subscribe, member.owns(share, subscribe).await?))
    }

    async fn close(&self, mut member: Process) -> Result<u64, Failed> {
        member.ask("close").await?;
        let closing = member.says(Event::Closing, 0).await?;
        let closed = member.says(Event::Closed, closing).await?;
        member.ended().await?;
        Ok(closed - closing)
    }

    async fn join_and_close(&self) -> Result<(), Failed> {
        let mut member = self.ready("only", None).await?;
        self.join(&mut member, PARTITIONS).await?;
        self.close(member).await.map(drop)
    }

    /// When the first member learned that there is a rebalance: by a heartbeat's answer. librdkafka does not tell of
    /// it, but an eager member of it revokes then.
    fn told(&self, lines: &[Line], since: u64) -> Option<u64> {
        match (self.client, self.strategy) {
            (Client::Kohort, _) => said_at(lines, &Event::Told, since),
            (Client::Librdkafka, Strategy::Eager) => lines
                .iter()
                .find(|line| line.at >= since && matches!(line.event, Event::Revoked { .. }))
                .map(|line| line.at),
            (Client::Librdkafka, Strategy::Cooperative) => None,
        }
    }

    fn add(&self, samples: &mut Samples, row: Row, micros: u64) {
        if self.of.rows.contains(&row) {
            samples.add(row, self.strategy, Part::Whole, self.client, micros);
        }
    }

    /// A row that waits for a heartbeat of `first`.
    fn add_told(&self, samples: &mut Samples, row: Row, first: &Process, from: u64, to: u64) {
        self.add(samples, row, to - from);
        if let Some(told) = self.told(&first.lines(), from).filter(|_| self.of.rows.contains(&row)) {
            samples.add(row, self.strategy, Part::AfterTold, self.client, to.saturating_sub(told));
        }
    }

    /// A second member into the group; returns when both have their half.
    async fn second(
        &self,
        first: &mut Process,
        second: &mut Process,
        samples: Option<&mut Samples>,
    ) -> Result<(), Failed> {
        let (subscribe, assigned) = self.join(second, PARTITIONS / 2).await?;
        let halved = |lines: &[Line]| (owned(lines).len() == PARTITIONS / 2).then_some(());
        first.until("to own half", halved).await?;
        if let Some(samples) = samples {
            self.add_told(samples, Row::Second, first, subscribe, assigned);
            self.add(samples, Row::Pause, pause(&first.lines(), subscribe));
        }
        Ok(())
    }

    async fn group(&self, samples: &mut Samples) -> Result<(), Failed> {
        if !self.of.wants(&[Row::First, Row::Second, Row::Pause, Row::Leave, Row::Kill, Row::Close]) {
            return Ok(());
        }
        // All made before, so that clients whose processes start fast and slow meet the same phases.
        let mut second = self.ready("second", None).await?;
        let mut third = self.ready("third", None).await?;
        let mut first = self.ready("first", None).await?;
        let (subscribe, assigned) = self.join(&mut first, PARTITIONS).await?;
        self.add(samples, Row::First, assigned - subscribe);
        if self.of.wants(&[Row::Second, Row::Pause, Row::Leave]) {
            self.phase(0).await;
            self.second(&mut first, &mut second, Some(samples)).await?;
            self.phase(1).await;
            second.ask("close").await?;
            let closing = second.says(Event::Closing, 0).await?;
            let all = first.owns(PARTITIONS, closing).await?;
            self.add_told(samples, Row::Leave, &first, closing, all);
            second.ended().await?;
        }
        if self.of.wants(&[Row::Kill]) {
            self.second(&mut first, &mut third, None).await?;
            self.phase(2).await;
            let killed = third.kill().await?;
            let all = first.owns(PARTITIONS, killed).await?;
            self.add_told(samples, Row::Kill, &first, killed, all);
        }
        sleep(IDLE).await;
        self.phase(3).await;
        let took = self.close(first).await?;
        self.add(samples, Row::Close, took);
        Ok(())
    }

    /// A static member that leads goes and comes again, beside one that stays.
    async fn restart(&self, samples: &mut Samples) -> Result<(), Failed> {
        if !self.of.wants(&[Row::Static]) {
            return Ok(());
        }
        let mut first = self.ready("first", Some("instance-1")).await?;
        self.join(&mut first, PARTITIONS).await?;
        let mut second = self.ready("second", Some("instance-2")).await?;
        self.join(&mut second, PARTITIONS / 2).await?;
        let halved = |lines: &[Line]| (owned(lines).len() == PARTITIONS / 2).then(|| generation(lines));
        let before = first.until("to own half", halved).await?;
        let quiet = second.lines().len();
        self.phase(4).await;
        self.close(first).await?;
        let mut first = self.ready("again", Some("instance-1")).await?;
        let (subscribe, assigned) = self.join(&mut first, PARTITIONS / 2).await?;
        self.add(samples, Row::Static, assigned - subscribe);
        // What another rebalance would take to show.
        sleep(2 * HEARTBEAT).await;
        let after = first.until("to own half", halved).await?;
        if let (Some(before), Some(after)) = (before, after) {
            samples.check("static restart: the generation is unchanged", self.client, before == after);
        }
        let moves = |line: &Line| matches!(line.event, Event::Assigned { .. } | Event::Revoked { .. });
        let undisturbed = !second.lines()[quiet..].iter().any(moves);
        samples.check("static restart: the other member is undisturbed", self.client, undisturbed);
        Ok(())
    }

    async fn black_hole(&self, samples: &mut Samples) -> Result<(), Failed> {
        if !self.of.wants(&[Row::BlackHole]) {
            return Ok(());
        }
        let mut member = self.ready("only", None).await?;
        self.join(&mut member, PARTITIONS).await?;
        sleep(IDLE).await;
        let silence = self.of.broker.silence()?;
        // librdkafka's close takes no timeout.
        member.ask(&format!("close {}", CLOSE_TIMEOUT.as_millis())).await?;
        let closing = member.says(Event::Closing, 0).await?;
        let took = match timeout(CUT_OFF, member.says(Event::Closed, closing)).await {
            Ok(closed) => closed? - closing,
            Err(_) => CUT_OFF.as_micros() as u64,
        };
        self.add(samples, Row::BlackHole, took);
        drop(member);
        drop(silence);
        // The next round begins with a broker that is itself again.
        let group = format!("{}-after", self.group);
        Turn { client: Client::Kohort, group, ..*self }.join_and_close().await
    }
}

/// The last generation that partitions came in.
fn generation(lines: &[Line]) -> Option<i32> {
    lines.iter().rev().find_map(|line| match line.event {
        Event::Assigned { generation, .. } => generation,
        _ => None,
    })
}
