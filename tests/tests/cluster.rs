//! Members on an embedded cluster of three nodes, under the paused clock: coordinators and leaders that move, nodes
//! that restart one after the other, members that close meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kohort::{
    AutoOffsetReset, CloseOptions, ConsumerGroup, ConsumerGroupBuilder, Context, GroupMembershipOperation,
    Handler, LeaveOutcome, Member, MembershipRuntime, Record, connector_fn,
};
use kohort_broker::{ApiKey, Broker, ErrorCode, GroupState};
use tokio::time::Instant;

const GROUP: &str = "orders-service";
const TOPIC: &str = "orders";
const PARTITIONS: i32 = 10;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn three_nodes() -> Broker {
    Broker::builder().in_memory().nodes(3).topic(TOPIC, PARTITIONS).seed(7).start().await.unwrap()
}

/// How often each (partition, offset) was handled.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<(i32, i64), usize>>>);

impl Seen {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn repeated(&self) -> Vec<(i32, i64)> {
        self.0.lock().unwrap().iter().filter(|(_, times)| **times > 1).map(|(place, _)| *place).collect()
    }
}

struct Recorder(Seen);

impl Handler for Recorder {
    type Error = Infallible;

    async fn handle(&mut self, record: Record<'_>, cx: &mut Context) -> Result<(), Infallible> {
        *self.0.0.lock().unwrap().entry((cx.partition().partition, record.offset)).or_default() += 1;
        Ok(())
    }
}

fn group(broker: &Broker, seen: &Seen) -> ConsumerGroupBuilder {
    let (memory, seen) = (broker.memory(), seen.clone());
    ConsumerGroup::builder(GROUP, [TOPIC])
        .bootstrap_servers(broker.bootstrap_servers())
        .connector(connector_fn(move |host, port| {
            let memory = memory.clone();
            async move { memory.connect(&host, port).await }
        }))
        .session_timeout(secs(10))
        .heartbeat_interval(millis(500))
        .rebalance_timeout(secs(10))
        .request_timeout(secs(5))
        .commit_interval(millis(500))
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .membership_runtime(MembershipRuntime::Current)
        .seed(42)
        .handler(move |_| Recorder(seen.clone()))
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(millis(10)).await;
    }
    panic!("never: {what}");
}

/// Five members of one group, each with its two partitions.
async fn five(broker: &Broker, seen: &Seen) -> Vec<Member> {
    let members = group(broker, seen).members(5).build().unwrap().start_all().await.unwrap();
    settled(broker, &members).await;
    members
}

async fn settled(broker: &Broker, members: &[Member]) {
    eventually("the members share the partitions", || {
        let view = broker.group(GROUP);
        let stable = view.is_some_and(|view| {
            view.state == GroupState::Stable
                && view.members.len() == members.len()
                && members.iter().all(|member| member.status().generation == view.generation)
        });
        let mut owned = BTreeSet::new();
        for member in members {
            owned.extend(member.status().assignment.iter().map(|part| part.partition.partition));
        }
        stable && owned.len() == PARTITIONS as usize
    })
    .await;
}

fn generations(members: &[Member]) -> Vec<(String, i32)> {
    let status = |member: &Member| (member.status().member_id, member.status().generation);
    members.iter().map(status).collect()
}

/// Puts `count` records into every partition.
async fn produce(broker: &Broker, count: usize) {
    for partition in 0..PARTITIONS {
        for _ in 0..count {
            broker.produce_to(TOPIC, partition, None, Some(b"value")).await.unwrap();
        }
    }
}

/// Everything is handled, exactly once, and committed to the end.
async fn all_is_done(broker: &Broker, seen: &Seen, records: usize) {
    eventually("everything is handled", || seen.len() == records).await;
    eventually("everything is committed", || {
        let ends =
            |partition| (broker.committed(GROUP, TOPIC, partition), broker.log_end_offset(TOPIC, partition));
        (0..PARTITIONS).map(ends).all(|(committed, end)| committed == end)
    })
    .await;
    assert_eq!(seen.repeated(), [], "nothing is repeated");
}

#[tokio::test(start_paused = true)]
async fn c_hb_11_c_coord_04_d_26_a_coordinator_that_moves_costs_no_rebalance() {
    let (broker, seen) = (three_nodes().await, Seen::default());
    let members = five(&broker, &seen).await;
    let before = generations(&members);
    broker.clear_requests();

    // The new one is told of late, and has to load for three seconds.
    let finding =
        broker.faults().on(ApiKey::FindCoordinator).times(2).error(ErrorCode::CoordinatorNotAvailable);
    let to = (broker.coordinator_of(GROUP) + 1) % 3;
    broker.move_coordinator(GROUP, to).unwrap();
    broker.load_coordinator_for(GROUP, secs(3));
    produce(&broker, 10).await;
    let loaded = Instant::now() + secs(3);
    tokio::time::sleep(secs(3)).await;
    all_is_done(&broker, &seen, 100).await;
    assert!(loaded.elapsed() <= secs(5), "committed {:?} after loading ended", loaded.elapsed());

    tokio::time::sleep(secs(30)).await;
    assert_eq!(generations(&members), before, "ids and generation are kept");
    assert_eq!(broker.requests(ApiKey::JoinGroup).len(), 0);
    assert_eq!(broker.requests(ApiKey::SyncGroup).len(), 0);
    assert_eq!(finding.hits(), 2);
    let found = broker.requests(ApiKey::FindCoordinator).len();
    assert!(
        found <= 2 + 2 * members.len(),
        "a member asks for the new coordinator once, not {found} times in all"
    );
    let late = broker.requests(ApiKey::Heartbeat).into_iter().filter(|beat| beat.at > loaded);
    assert!(late.clone().count() > 100 && late.into_iter().all(|beat| beat.node == to));
    for member in &members {
        assert!(member.status().last_good_heartbeat.unwrap() <= secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn leaders_that_move_lose_and_repeat_nothing() {
    let (broker, seen) = (three_nodes().await, Seen::default());
    let members = five(&broker, &seen).await;
    let before = generations(&members);
    for round in 1..=6 {
        for partition in 0..PARTITIONS {
            let to = (broker.leader_of(TOPIC, partition).unwrap() + 1) % 3;
            broker.move_leader(TOPIC, partition, to).unwrap();
        }
        produce(&broker, 5).await;
        eventually("the round is handled", || seen.len() == round * 50).await;
    }
    all_is_done(&broker, &seen, 300).await;
    assert_eq!(generations(&members), before, "a leader that moves is no rebalance");
}

#[tokio::test(start_paused = true)]
async fn d_26_a_rolling_restart_under_five_members_loses_and_repeats_nothing() {
    let (broker, seen) = (three_nodes().await, Seen::default());
    let members = five(&broker, &seen).await;
    let before = generations(&members);
    broker.clear_requests();
    let mut produced = 0;
    for node in broker.node_ids() {
        produce(&broker, 5).await;
        broker.stop_node(node).await.unwrap();
        for _ in 0..10 {
            produce(&broker, 1).await;
            tokio::time::sleep(millis(700)).await;
        }
        broker.start_node(node).await.unwrap();
        tokio::time::sleep(secs(5)).await;
        produced += 150;
    }
    all_is_done(&broker, &seen, produced).await;
    assert_eq!(generations(&members), before, "no node that goes in order costs a rebalance");
    assert_eq!(broker.requests(ApiKey::JoinGroup).len(), 0);
    for member in members {
        let report = member.close(CloseOptions::default()).await;
        assert!(!report.forced, "{report:?}");
    }
    assert_eq!(broker.group(GROUP).unwrap().state, GroupState::Empty);
    assert_eq!(seen.repeated(), []);
}

#[tokio::test(start_paused = true)]
async fn close_options_leave_the_group_as_they_say_while_the_nodes_restart() {
    use GroupMembershipOperation::{Default, LeaveGroup, RemainInGroup};
    let (broker, seen) = (three_nodes().await, Seen::default());
    // Who, static or not, how it closes, and whether its place is kept. Those that leave come first: the others are
    // dead to the rebalance that a leave begins.
    let table = [
        (None, Default, false),
        (Some("static-leave"), LeaveGroup, false),
        (None, RemainInGroup, true),
        (Some("static-default"), Default, true),
        (Some("static-remain"), RemainInGroup, true),
    ];
    let mut members = Vec::new();
    for (instance, _, _) in &table {
        let mut group = group(&broker, &seen).session_timeout(secs(60)).rebalance_timeout(secs(60));
        if let Some(instance) = instance {
            group = group.group_instance_id(*instance);
        }
        members.push(group.build().unwrap().start().await.unwrap());
    }
    settled(&broker, &members).await;
    produce(&broker, 10).await;
    eventually("the records are handled", || seen.len() == 100).await;

    // Each closes at the moment that its coordinator changes, so that its commit and its leave find another. Of those
    // that stay the coordinator stops without a word; a leave that finds nobody to connect to is not sent again, so
    // those that leave are told by the old coordinator, which stops after that.
    let mut kept = BTreeSet::new();
    let mut generation = 0;
    for (instance, operation, stays) in table {
        let member = members.remove(0);
        let id = member.status().member_id;
        let node = broker.coordinator_of(GROUP);
        let stop = async {
            if !stays {
                broker.move_coordinator(GROUP, (node + 1) % 3).unwrap();
                tokio::time::sleep(secs(1)).await;
            }
            broker.stop_node(node).await.unwrap();
        };
        let options = CloseOptions::group_membership_operation(operation);
        let (report, ()) = tokio::join!(member.close(options), stop);
        assert!(!report.forced, "{instance:?} {operation:?}: {report:?}");
        assert_eq!(report.leave == LeaveOutcome::Left, !stays, "{instance:?} {operation:?}: {report:?}");
        assert_ne!(broker.coordinator_of(GROUP), node);
        broker.start_node(node).await.unwrap();
        let view = broker.group(GROUP).unwrap();
        assert_eq!(view.members.contains_key(&id), stays, "{instance:?} {operation:?}: {view:?}");
        if let (Some(instance), true) = (instance, stays) {
            kept.insert(instance.to_owned());
            assert_eq!(view.members[&id].group_instance_id.as_deref(), Some(instance));
        }
        if stays {
            assert_eq!(view.generation, generation, "nobody rebalances for one that stays");
        } else {
            settled(&broker, &members).await;
            generation = broker.group(GROUP).unwrap().generation;
        }
    }
    let view = broker.group(GROUP).unwrap();
    let instances: BTreeSet<String> =
        view.members.values().filter_map(|member| member.group_instance_id.clone()).collect();
    assert_eq!(instances, kept);
    assert_eq!(seen.repeated(), []);

    // What stayed is there until its session is over.
    eventually("the sessions end", || broker.group(GROUP).unwrap().state == GroupState::Empty).await;
}
