//! The order of things when partitions are handed over, with what handlers see of it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use kohort::{
    ConsumerGroup, ConsumerGroupBuilder, Context, ErrorCode, Handler, MemberEvent, MemberState, Record,
    TopicPartition,
};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;
use tokio::time::{Duration, sleep};

use crate::support::{GROUP, TOPIC, broker, eventually, group, millis, secs, settled, stable, told, until};

/// What handlers did and what the broker was asked, in one order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn push(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    /// What repeats itself is named once.
    pub(crate) fn take(&self) -> Vec<&'static str> {
        let mut log = std::mem::take(&mut *self.0.lock().unwrap());
        log.dedup();
        log
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|entry| **entry == what).count()
    }

    /// From now on it has the group's requests too.
    pub(crate) fn listen(&self, broker: &Broker) {
        let log = self.clone();
        let told = [ApiKey::OffsetCommit, ApiKey::JoinGroup, ApiKey::SyncGroup, ApiKey::LeaveGroup];
        let listens = broker.faults().on_any().when(move |request| {
            if told.contains(&request.api) {
                log.push(request.api.name());
            }
            false
        });
        listens.pass();
    }

    /// A group whose handler takes its time and writes everything down; it commits when it has to.
    pub(crate) fn group(&self, broker: &Broker, each: Duration) -> ConsumerGroup {
        self.handle(group(broker), each)
    }

    pub(crate) fn handle(&self, builder: ConsumerGroupBuilder, each: Duration) -> ConsumerGroup {
        let log = self.clone();
        let handler = move |_: &TopicPartition| Logging { log: log.clone(), each };
        builder.commit_interval(secs(60)).handler(handler).build().unwrap()
    }
}

struct Logging {
    log: Log,
    each: Duration,
}

impl Handler for Logging {
    type Error = Infallible;

    async fn handle(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), Infallible> {
        sleep(self.each).await;
        self.log.push("handled");
        Ok(())
    }

    async fn assigned(&mut self, _: &mut Context) -> Result<(), Infallible> {
        self.log.push("assigned");
        Ok(())
    }

    async fn revoked(&mut self, _: &mut Context) -> Result<(), Infallible> {
        self.log.push("revoked");
        Ok(())
    }

    async fn lost(&mut self, _: &mut Context) -> Result<(), Infallible> {
        self.log.push("lost");
        Ok(())
    }
}

async fn produce(broker: &Broker, records: usize) {
    for _ in 0..records {
        broker.produce_to(TOPIC, 0, Some(b"key"), Some(b"value")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c_reb_01_work_stops_is_committed_is_given_up_and_only_then_joined_for() {
    let broker = broker(1).await;
    let log = Log::default();
    let (member, mut events) = settled(&broker, &log.group(&broker, millis(300))).await;
    produce(&broker, 10).await;
    eventually("two are handled", || log.count("handled") == 2).await;
    log.take();
    log.listen(&broker);
    broker.faults().on(ApiKey::JoinGroup).times(1).delay_answer(secs(1));
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
    eventually("it joins", || member.status().state == MemberState::PreparingRebalance).await;
    assert_eq!(log.take(), ["handled", "OffsetCommit", "revoked", "JoinGroup"]);
    let committed = broker.committed(GROUP, TOPIC, 0).unwrap();
    assert!((3..=5).contains(&committed), "the record in hand too, and no more: {committed}");
    assert!(member.status().assignment.is_empty());
    sleep(millis(900)).await;
    assert_eq!(log.take(), Vec::<&str>::new(), "nothing is handled while it joins");
    stable(&mut events).await;
    eventually("the rest is handled", || log.count("handled") == 10 - committed as usize).await;
    assert_eq!(log.take(), ["SyncGroup", "assigned", "handled"], "once each, from where it was");
}

#[tokio::test(start_paused = true)]
async fn c_reb_04_a_lost_identity_calls_the_lost_hook_once_for_each_partition_and_none_for_nothing() {
    for code in [ErrorCode::IllegalGeneration, ErrorCode::UnknownMemberId] {
        let broker = broker(2).await;
        let log = Log::default();
        let (_member, mut events) = settled(&broker, &log.group(&broker, millis(1))).await;
        produce(&broker, 3).await;
        eventually("they are handled", || log.count("handled") == 3).await;
        log.take();
        log.listen(&broker);
        broker.faults().on(ApiKey::Heartbeat).times(1).error(code);
        let lost = until(&mut events, |event| {
            matches!(event, MemberEvent::Lost { .. } | MemberEvent::Revoked { .. })
        })
        .await;
        assert!(matches!(&lost, MemberEvent::Lost { partitions, .. } if partitions.len() == 2), "{lost:?}");
        stable(&mut events).await;
        eventually("both began anew", || log.count("assigned") == 2).await;
        assert_eq!((log.count("lost"), log.count("revoked"), log.count("OffsetCommit")), (2, 0, 0), "{code}");
        assert_eq!(log.take()[..2], ["lost", "JoinGroup"], "{code}: before the join");
    }
}

#[tokio::test(start_paused = true)]
async fn c_reb_04_who_owns_nothing_has_nothing_to_lose() {
    for code in [ErrorCode::IllegalGeneration, ErrorCode::UnknownMemberId] {
        let broker = broker(1).await;
        let log = Log::default();
        let groups = [log.group(&broker, millis(1)), log.group(&broker, millis(1))];
        let mut members = Vec::new();
        for group in &groups {
            members.push((group.events(), group.start().await.unwrap()));
        }
        eventually("two share one", || {
            broker.group(GROUP).unwrap().members.len() == 2
                && members.iter().all(|(_, member)| member.status().state == MemberState::Stable)
        })
        .await;
        sleep(secs(2)).await;
        let spare = members.iter().position(|(_, member)| member.status().assignment.is_empty()).unwrap();
        let (events, member) = &mut members[spare];
        told(events, |_| true);
        log.take();
        let id = member.status().member_id;
        broker.faults().on(ApiKey::Heartbeat).member(&id).times(1).error(code);
        until(events, |event| matches!(event, MemberEvent::Rebalance { .. })).await;
        stable(events).await;
        let given =
            told(events, |event| matches!(event, MemberEvent::Lost { .. } | MemberEvent::Revoked { .. }));
        assert!(given.is_empty(), "{code}: {given:?}");
        assert_eq!(log.count("lost"), 0, "{code}");
    }
}
