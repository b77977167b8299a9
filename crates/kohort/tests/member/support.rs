//! What the tests share: a broker in memory, a group on it, a handler that writes down what it gets.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kohort::{
    AutoOffsetReset, ConsumerGroup, ConsumerGroupBuilder, Context, Handler, MemberEvent, MemberEvents,
    MemberRef, MembershipRuntime, Record, connector_fn,
};
use kohort_broker::Broker;

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
    let memory = broker.memory();
    ConsumerGroup::builder(GROUP, [TOPIC])
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

/// A group whose handler only writes down.
pub(crate) fn recording(broker: &Broker) -> (ConsumerGroup, Seen) {
    let seen = Seen::default();
    let group = {
        let seen = seen.clone();
        group(broker).handler(move |_| seen.handler()).build().unwrap()
    };
    (group, seen)
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
