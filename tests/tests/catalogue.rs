//! The event catalogue of `docs/telemetry.md`, rendered from one sample of every event.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use kohort::{
    CloseReport, MemberEvent, MemberName, MemberState, TerminalClass, TerminalReason, TopicPartition,
};
use kohort_broker::{BrokerEvent, CloseReason, RemovalReason};
use kohort_client::{Address, ClientEvent};
use kohort_protocol::ApiKey;
use kohort_supervisor::{ChildKind, ChildStartError, ExitReason, SupervisorEvent};
use kohort_telemetry::{ErasedEvent, Event, HandlerFailed};
use kohort_tests::{blocks, workspace};

const SECOND: Duration = Duration::from_secs(1);

fn members() -> Vec<Box<dyn ErasedEvent>> {
    let member = || MemberName { group: "orders-service".into(), index: 1 };
    let partition = || TopicPartition::new("orders", 0);
    let text = || "text".to_owned();
    let duration = SECOND;
    let samples = vec![
        MemberEvent::StateChanged { member: member(), from: MemberState::Unjoined, to: MemberState::Stable },
        MemberEvent::Unreachable { member: member(), reason: text() },
        MemberEvent::Reachable { member: member(), coordinator: text() },
        MemberEvent::Retrying {
            member: member(),
            api: "JoinGroup",
            reason: text(),
            attempt: 1,
            wait: SECOND,
        },
        MemberEvent::Join { member: member(), duration, generation: 1, member_id: text(), leader: true },
        MemberEvent::Sync { member: member(), duration, generation: 1 },
        MemberEvent::Heartbeat { member: member(), duration, result: "ok" },
        MemberEvent::Rebalance { member: member(), kind: "rebalance_in_progress", generation: 1 },
        MemberEvent::HeartbeatCrash { member: member(), exit: text(), crashes_in_window: 1 },
        MemberEvent::Terminated {
            member: member(),
            class: TerminalClass::Fenced,
            reason: TerminalReason::FencedInstanceId,
        },
        MemberEvent::Assigned { member: member(), generation: 1, partitions: vec![partition()] },
        MemberEvent::Revoked { member: member(), partitions: vec![partition()] },
        MemberEvent::Lost { member: member(), partitions: vec![partition()] },
        MemberEvent::Commit { member: member(), offsets: vec![(partition(), 1)] },
        MemberEvent::CommitFailed { member: member(), reason: text(), partitions: 1, retriable: true },
        MemberEvent::OffsetReset {
            member: member(),
            partition: partition(),
            from: Some(1),
            to: 2,
            policy: "latest",
        },
        MemberEvent::PartitionFailed { member: member(), partition: partition(), reason: text() },
        MemberEvent::WorkerRestarted { member: member(), partition: partition(), failures: 1, wait: SECOND },
        MemberEvent::UnreadableBlob { member: member(), member_id: text(), reason: text() },
        MemberEvent::WorkerStuck {
            member: member(),
            partition: TopicPartition::new("orders", 0),
            offset: 7,
            duration: std::time::Duration::from_secs(300),
        },
        MemberEvent::StaticMembershipUnsupported { member: member(), version: 4 },
        MemberEvent::MissingTopic { member: member(), topic: "orders".into() },
        MemberEvent::RebalanceStorm { member: member(), generations: 5 },
        MemberEvent::Closed { member: member(), report: CloseReport::default() },
        MemberEvent::Lagged { missed: 1 },
    ];
    boxed(samples)
}

fn supervisors() -> Vec<Box<dyn ErasedEvent>> {
    let (supervisor, child) = (|| "app".into(), || "worker".into());
    let kind = ChildKind::Worker;
    let reason = || ExitReason::Killed;
    boxed(vec![
        SupervisorEvent::ChildStarted { supervisor: supervisor(), child: child(), kind, incarnation: 1 },
        SupervisorEvent::ChildStartFailed {
            supervisor: supervisor(),
            child: child(),
            kind,
            incarnation: 1,
            error: ChildStartError::Cancelled,
        },
        SupervisorEvent::ChildExited {
            supervisor: supervisor(),
            child: child(),
            kind,
            incarnation: 1,
            reason: reason(),
        },
        SupervisorEvent::ChildRestarted { supervisor: supervisor(), child: child(), kind, incarnation: 2 },
        SupervisorEvent::RestartDelayed {
            supervisor: supervisor(),
            child: child(),
            kind,
            incarnation: 2,
            delay: SECOND,
        },
        SupervisorEvent::IntensityReached {
            supervisor: supervisor(),
            child: child(),
            max: 1,
            period: SECOND,
            reason: reason(),
        },
        SupervisorEvent::Unkillable { supervisor: supervisor(), child: child() },
        SupervisorEvent::UnknownExit {
            supervisor: supervisor(),
            actor: ractor::ActorId::Local(1),
            reason: reason(),
        },
        SupervisorEvent::Shutdown { supervisor: supervisor(), reason: reason() },
        SupervisorEvent::Lagged { missed: 1 },
    ])
}

fn clients() -> Vec<Box<dyn ErasedEvent>> {
    let address = || Address::new("localhost", 9092);
    boxed(vec![
        ClientEvent::Request { api: ApiKey::Fetch, address: address(), duration: SECOND, failure: None },
        ClientEvent::Connection { address: address(), duration: SECOND, failure: Some("refused".into()) },
        ClientEvent::Lagged { missed: 1 },
    ])
}

fn brokers() -> Vec<Box<dyn ErasedEvent>> {
    let text = || "text".to_owned();
    boxed(vec![
        BrokerEvent::Started { address: text() },
        BrokerEvent::Stopped,
        BrokerEvent::ConnectionOpened { connection: 1, peer: text() },
        BrokerEvent::ConnectionRefused { peer: text(), max: 1 },
        BrokerEvent::ConnectionClosed { connection: 1, peer: text(), reason: CloseReason::Io(text()) },
        BrokerEvent::RequestReceived {
            connection: 1,
            api: ApiKey::Fetch,
            version: 1,
            client_id: "kohort".into(),
            correlation_id: 1,
        },
        BrokerEvent::FaultInjected { connection: 1, api: ApiKey::Fetch, kind: "delay" },
        BrokerEvent::TopicCreated { topic: text(), partitions: 1 },
        BrokerEvent::TopicDeleted { topic: text() },
        BrokerEvent::PartitionsCreated { topic: text(), partitions: 1 },
        BrokerEvent::GroupDeleted { group_id: text() },
        BrokerEvent::NodeStarted { node: 1, address: text() },
        BrokerEvent::NodeStopped { node: 1 },
        BrokerEvent::CoordinatorMoved { partition: 1, node: 1 },
        BrokerEvent::LeaderMoved { topic: text(), partition: 1, node: 1, leader_epoch: 1 },
        BrokerEvent::RebalanceStarted { group_id: text(), generation: 1 },
        BrokerEvent::GenerationStarted { group_id: text(), generation: 1, members: 1 },
        BrokerEvent::MemberRemoved { group_id: text(), member_id: text(), reason: RemovalReason::Left },
        BrokerEvent::NamelessLeave { group_id: text() },
        BrokerEvent::Lagged { missed: 1 },
    ])
}

fn boxed<E: Event>(samples: Vec<E>) -> Vec<Box<dyn ErasedEvent>> {
    samples.into_iter().map(|sample| Box::new(sample) as Box<dyn ErasedEvent>).collect()
}

/// A variant that has no sample is found by its name in the source.
fn complete(source: &str, prefix: &str, samples: &[Box<dyn ErasedEvent>]) {
    let text = workspace::read(source);
    let named: BTreeSet<&str> = text.split('"').filter(|piece| piece.starts_with(prefix)).collect();
    let sampled: BTreeSet<&str> = samples.iter().map(|sample| sample.name()).collect();
    assert_eq!(named, sampled, "{source} and the samples name the same events");
}

fn table(samples: &[Box<dyn ErasedEvent>]) -> String {
    let mut text =
        String::from("| event | level | labels | values | measurements |\n|---|---|---|---|---|\n");
    for sample in samples {
        let (mut labels, mut values, mut measurements) = (Vec::new(), Vec::new(), Vec::new());
        sample.labels(&mut |label, _| labels.push(label.as_str()));
        sample.values(&mut |name, _| values.push(name));
        sample.measurements(&mut |name, _| measurements.push(name));
        let list = |names: Vec<&str>| if names.is_empty() { "–".to_owned() } else { names.join(", ") };
        let level = sample.level().to_string().to_lowercase();
        let (labels, values, measurements) = (list(labels), list(values), list(measurements));
        writeln!(text, "| `{}` | {level} | {labels} | {values} | {measurements} |", sample.name()).unwrap();
    }
    text
}

#[test]
fn telemetry_lists_every_event_as_the_code_has_it() {
    let (members, supervisors, clients, brokers) = (members(), supervisors(), clients(), brokers());
    complete("crates/kohort/src/event.rs", "kohort.member.", &members);
    complete("crates/supervisor/src/event.rs", "kohort.supervisor.", &supervisors);
    complete("crates/client/src/event.rs", "kohort.client.", &clients);
    complete("crates/broker/src/event.rs", "kohort.broker.", &brokers);
    let telemetry = boxed(vec![HandlerFailed::lagged(1)]);
    blocks::check(
        "docs/telemetry.md",
        &[
            ("member events", table(&members)),
            ("supervisor events", table(&supervisors)),
            ("client events", table(&clients)),
            ("broker events", table(&brokers)),
            ("telemetry events", table(&telemetry)),
        ],
    );
}
