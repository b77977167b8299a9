//! Topics and partitions that appear and disappear, by name and by pattern.

use kohort::{ConsumerGroup, ConsumerGroupBuilder, MemberEvent};
use kohort_broker::Broker;
use kohort_protocol::{ApiKey, ErrorCode};
use tokio::time::Instant;

use crate::support::{GROUP, Seen, TOPIC, broker, eventually, group, secs, stable, told};

fn watching(broker: &Broker) -> (ConsumerGroup, Seen) {
    let seen = Seen::default();
    let group = {
        let seen = seen.clone();
        group(broker).metadata_max_age(secs(2)).handler(move |_| seen.handler()).build().unwrap()
    };
    (group, seen)
}

/// A group with what it subscribes to still to be said.
fn subscribing(
    broker: &Broker,
    topics: &[&str],
    wanted: impl Fn(ConsumerGroupBuilder) -> ConsumerGroupBuilder,
) -> (ConsumerGroup, Seen) {
    let (seen, memory) = (Seen::default(), broker.memory());
    let handler = seen.clone();
    let builder = ConsumerGroup::builder(GROUP, topics.iter().copied())
        .bootstrap_servers(broker.bootstrap_servers())
        .connector(kohort::connector_fn(move |host, port| {
            let memory = memory.clone();
            async move { memory.connect(&host, port).await }
        }))
        .session_timeout(secs(6))
        .heartbeat_interval(secs(1))
        .metadata_max_age(secs(2))
        .property("auto.offset.reset", "earliest")
        .membership_runtime(kohort::MembershipRuntime::Current);
    (wanted(builder).handler(move |_| handler.handler()).build().unwrap(), seen)
}

fn by_pattern(broker: &Broker, pattern: &str) -> (ConsumerGroup, Seen) {
    subscribing(broker, &[], |builder| builder.topic_pattern(pattern))
}

#[tokio::test(start_paused = true)]
async fn d_31_a_topic_that_is_created_later_is_served_after_exactly_one_rebalance() {
    let broker = Broker::builder().in_memory().auto_create_topics(false).start().await.unwrap();
    let (group, seen) = watching(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    tokio::time::sleep(secs(10)).await;
    assert!(
        member.status().assignment.is_empty() && broker.topics().is_empty(),
        "subscribing creates nothing"
    );
    let generation = member.status().generation;
    broker.create_topic(TOPIC, 2).await.unwrap();
    eventually("it is served", || member.status().assignment.len() == 2).await;
    broker.produce(TOPIC, "key", "value").await.unwrap();
    eventually("its record is handled", || seen.len() == 1).await;
    tokio::time::sleep(secs(20)).await;
    assert_eq!(member.status().generation, generation + 1);
}

#[tokio::test(start_paused = true)]
async fn d_31_a_missing_topic_holds_nothing_up_and_growth_is_served_after_one_rebalance_for_each_change() {
    let started = Broker::builder().in_memory().auto_create_topics(false).topic("a", 2).start();
    let broker = started.await.unwrap();
    let (group, seen) = subscribing(&broker, &["a", "b"], |builder| builder);
    let (mut events, mut all) = (group.events(), group.events());
    let member = group.start().await.unwrap();
    let begun = Instant::now();
    stable(&mut events).await;
    broker.produce_to("a", 0, None, Some(b"value")).await.unwrap();
    eventually("a flows", || seen.len() == 1).await;
    assert!(begun.elapsed() <= secs(2), "at once: {:?}", begun.elapsed());
    tokio::time::sleep(secs(60)).await;
    assert_eq!(broker.topics(), ["a"], "subscribing creates nothing");
    let missing = std::iter::from_fn(|| all.try_next())
        .filter(|event| matches!(event, MemberEvent::MissingTopic { topic, .. } if topic == "b"));
    assert_eq!(missing.count(), 1, "told once");

    let mut generation = member.status().generation;
    for (what, partitions) in [("b comes", 4), ("a grows", 6), ("b goes", 4)] {
        match what {
            "b comes" => broker.create_topic("b", 2).await.unwrap(),
            "a grows" => broker.create_partitions("a", 4).await.unwrap(),
            _ => assert!(broker.delete_topic("b").await),
        }
        let changed = Instant::now();
        eventually(what, || member.status().assignment.len() == partitions).await;
        assert!(changed.elapsed() <= secs(12), "{what}: {:?}", changed.elapsed());
        tokio::time::sleep(secs(30)).await;
        generation += 1;
        assert_eq!(member.status().generation, generation, "{what}: exactly one rebalance");
    }
    broker.produce_to("a", 3, None, Some(b"value")).await.unwrap();
    eventually("a new partition is served from its start", || seen.len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn c_reb_09_a_topic_that_grows_makes_the_leader_alone_ask_for_a_rebalance() {
    let broker = broker(2).await;
    let ((one, _), (two, _)) = (watching(&broker), watching(&broker));
    let (mut one_events, mut two_events) = (one.events(), two.events());
    let (first, second) = (one.start().await.unwrap(), two.start().await.unwrap());
    let share = |each| first.status().assignment.len() == each && second.status().assignment.len() == each;
    eventually("they share", || share(1)).await;
    tokio::time::sleep(secs(10)).await;
    for events in [&mut one_events, &mut two_events] {
        told(events, |_| true);
    }
    let before = broker.group(GROUP).unwrap();
    broker.create_partitions(TOPIC, 4).await.unwrap();
    eventually("they share what grew", || share(2)).await;
    tokio::time::sleep(secs(20)).await;
    assert_eq!(broker.group(GROUP).unwrap().generation, before.generation + 1, "once");
    for (member, events) in [(&first, &mut one_events), (&second, &mut two_events)] {
        let leads = before.leader == Some(member.status().member_id);
        let kinds: Vec<_> = told(events, |event| matches!(event, MemberEvent::Rebalance { .. }))
            .into_iter()
            .map(|event| match event {
                MemberEvent::Rebalance { kind, .. } => kind,
                _ => unreachable!(),
            })
            .collect();
        let expected = if leads { "metadata_changed" } else { "rebalance_in_progress" };
        assert_eq!(kinds, [expected], "leads: {leads}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_passing_metadata_error_leads_to_no_rebalance() {
    let broker = broker(2).await;
    let (group, _) = watching(&broker);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let generation = member.status().generation;
    for _ in 0..5 {
        broker.faults().on(ApiKey::Metadata).times(1).error(ErrorCode::LeaderNotAvailable);
        tokio::time::sleep(secs(5)).await;
    }
    assert_eq!(member.status().generation, generation);
    assert_eq!(member.status().assignment.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pattern_subscribes_to_what_matches_and_to_what_comes_to_match() {
    let broker = Broker::builder().in_memory().topic("orders-eu", 2).topic("other", 1).start().await.unwrap();
    let (group, seen) = by_pattern(&broker, "orders-.*");
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let topics = || {
        let mut topics: Vec<String> = member
            .status()
            .assignment
            .iter()
            .map(|one| format!("{}/{}", one.partition.topic, one.partition.partition))
            .collect();
        topics.sort();
        topics
    };
    eventually("what matches is served", || topics() == ["orders-eu/0", "orders-eu/1"]).await;
    let generation = member.status().generation;
    broker.create_topic("orders-us", 1).await.unwrap();
    broker.create_topic("no-orders-", 1).await.unwrap();
    eventually("what comes to match is served", || topics() == ["orders-eu/0", "orders-eu/1", "orders-us/0"])
        .await;
    broker.produce("orders-us", "key", "value").await.unwrap();
    eventually("and handled", || seen.len() == 1).await;
    tokio::time::sleep(secs(20)).await;
    assert_eq!(member.status().generation, generation + 1, "one rebalance for the change");
    while let Some(event) = events.try_next() {
        assert!(!matches!(event, MemberEvent::Lost { .. }), "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pattern_that_matches_nothing_waits_and_a_broken_one_is_refused() {
    let broker = Broker::builder().in_memory().start().await.unwrap();
    let (group, _) = by_pattern(&broker, "orders-.*");
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    broker.create_topic("orders-eu", 1).await.unwrap();
    eventually("it is served", || member.status().assignment.len() == 1).await;
    let error = ConsumerGroup::builder(GROUP, [""; 0])
        .topic_pattern("orders-(")
        .bootstrap_servers(["x:1"])
        .handler(|_| Seen::default().handler())
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("topic_pattern"), "{error}");
}
