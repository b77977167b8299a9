//! What the tests share: a broker in memory, a group on it, a handler that writes down what it gets.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kohort::{
    AutoOffsetReset, ConsumerGroup, ConsumerGroupBuilder, Context, ErrorCode, Handler, Member, MemberEvent,
    MemberEvents, MemberRef, MembershipRuntime, Record, connector_fn,
};
use kohort_broker::Broker;
use kohort_client::{Address, Client, ClientConfig};
use kohort_protocol::messages::{
    LeaveGroupRequest, LeaveMember, OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic,
};

pub(crate) const GROUP: &str = "orders-service";
pub(crate) const TOPIC: &str = "orders";

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) async fn broker(partitions: i32) -> Broker {
    Broker::builder().in_memory().topic(TOPIC, partitions).seed(7).start().await.unwrap()
}

/// Session 6 s, heartbeat 500 ms, bound 3 in 30 s, jitter up to 200 ms, everything on the test's clock.
pub(crate) fn group(broker: &Broker) -> ConsumerGroupBuilder {
    group_of(broker, TOPIC)
}

/// The same, subscribed to this topic.
pub(crate) fn group_of(broker: &Broker, topic: &str) -> ConsumerGroupBuilder {
    let memory = broker.memory();
    ConsumerGroup::builder(GROUP, [topic])
        .bootstrap_servers(broker.bootstrap_servers())
        .connector(connector_fn(move |host, port| {
            let memory = memory.clone();
            async move { memory.connect(&host, port).await }
        }))
        .session_timeout(secs(6))
        .heartbeat_interval(millis(500))
        .rebalance_timeout(secs(10))
        .request_timeout(secs(5))
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .crash_rejoin_max_restarts(3)
        .crash_rejoin_window(secs(30))
        .crash_rejoin_max_jitter(millis(200))
        .membership_runtime(MembershipRuntime::Current)
        .seed(42)
}

/// Every (partition, offset) handled, in order.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<(i32, i64)>>>);

impl Seen {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// How often each was handled.
    pub(crate) fn counts(&self) -> BTreeMap<(i32, i64), usize> {
        self.0.lock().unwrap().iter().fold(BTreeMap::new(), |mut counts, seen| {
            *counts.entry(*seen).or_default() += 1;
            counts
        })
    }

    pub(crate) fn push(&self, cx: &Context, offset: i64) {
        self.0.lock().unwrap().push((cx.partition().partition, offset));
    }

    pub(crate) fn handler(&self) -> Recorder {
        Recorder(self.clone())
    }
}

pub(crate) struct Recorder(Seen);

impl Handler for Recorder {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        self.0.push(cx, record.offset);
        Ok(())
    }
}

/// Takes its time for each record, then writes it down.
pub(crate) struct Slow {
    pub(crate) seen: Seen,
    pub(crate) each: Duration,
}

impl Handler for Slow {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        tokio::time::sleep(self.each).await;
        self.seen.push(cx, record.offset);
        Ok(())
    }
}

/// A group whose handler writes down what it gets.
pub(crate) fn recorder(builder: ConsumerGroupBuilder, seen: &Seen) -> ConsumerGroup {
    let seen = seen.clone();
    builder.handler(move |_| seen.handler()).build().unwrap()
}

/// A group with the tests' settings that writes down what it gets.
pub(crate) fn recording(broker: &Broker) -> (ConsumerGroup, Seen) {
    let seen = Seen::default();
    (recorder(group(broker), &seen), seen)
}

/// A member of this group that is stable and whose heart beats; the log of requests is empty.
pub(crate) async fn settled(broker: &Broker, group: &ConsumerGroup) -> (Member, MemberEvents) {
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    tokio::time::sleep(secs(1)).await;
    broker.clear_requests();
    (member, events)
}

/// What was told since, as far as it is wanted.
pub(crate) fn told(events: &mut MemberEvents, wanted: impl Fn(&MemberEvent) -> bool) -> Vec<MemberEvent> {
    std::iter::from_fn(|| events.try_next()).filter(wanted).collect()
}

/// Waits for an event; every other is passed over. Fails loudly when none comes within ten virtual minutes.
pub(crate) async fn until(events: &mut MemberEvents, wanted: impl Fn(&MemberEvent) -> bool) -> MemberEvent {
    let found = tokio::time::timeout(secs(600), async {
        loop {
            let event = events.next().await.expect("the group lives");
            if wanted(&event) {
                return event;
            }
        }
    });
    found.await.expect("the event comes")
}

pub(crate) async fn stable(events: &mut MemberEvents) {
    until(events, |event| matches!(event, MemberEvent::Assigned { .. })).await;
}

/// Waits until a condition holds, looking whenever the clock moves on.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(millis(10)).await;
    }
    panic!("never: {what}");
}

pub(crate) async fn kill_child(member: &MemberRef, id: &str) {
    let children = member.which_children().await.unwrap();
    let child = children.iter().find(|child| child.id == id).unwrap_or_else(|| panic!("no child {id}"));
    child.cell.as_ref().expect("it runs").kill();
}

/// A tool beside the group, and where it asks.
fn tool(broker: &Broker) -> (Client, Address) {
    let memory = broker.memory();
    let server: Address = broker.bootstrap_servers()[0].parse().unwrap();
    let mut config = ClientConfig::new(vec![server.clone()]);
    config.connector = connector_fn(move |host, port| {
        let memory = memory.clone();
        async move { memory.connect(&host, port).await }
    });
    (Client::new(config, kohort_telemetry::Hub::new()), server)
}

/// What a tool commits for a group that has no members.
pub(crate) async fn commit_from_outside(broker: &Broker, offset: i64) {
    let (client, server) = tool(broker);
    let partition = OffsetCommitPartition { partition: 0, offset, leader_epoch: -1, metadata: None };
    let request = OffsetCommitRequest {
        group_id: GROUP.into(),
        generation: -1,
        topics: vec![OffsetCommitTopic { name: TOPIC.into(), partitions: vec![partition] }],
        ..OffsetCommitRequest::default()
    };
    client.call(&server, &request, secs(5)).await.unwrap();
    assert_eq!(broker.committed(GROUP, TOPIC, 0), Some(offset));
}

async fn leave(broker: &Broker, members: Vec<LeaveMember>) -> Vec<ErrorCode> {
    let (client, server) = tool(broker);
    let request = LeaveGroupRequest { group_id: GROUP.into(), members };
    let answer = client.call(&server, &request, secs(5)).await.unwrap();
    answer.members.into_iter().map(|member| member.error).collect()
}

/// An operator removes a member from the group.
pub(crate) async fn evict(broker: &Broker, member_id: &str) {
    let member = LeaveMember { member_id: member_id.into(), group_instance_id: None, reason: None };
    assert_eq!(leave(broker, vec![member]).await, [ErrorCode::None]);
}

/// An operator removes static members by their instance ids.
pub(crate) async fn remove_members(broker: &Broker, instances: &[&str]) -> Vec<ErrorCode> {
    let members = instances.iter().map(|id| LeaveMember {
        member_id: String::new(),
        group_instance_id: Some((*id).into()),
        reason: None,
    });
    leave(broker, members.collect()).await
}
