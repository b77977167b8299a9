//! Static membership (KIP-345) on real actors.

use kohort::supervisor::Supervisor;
use kohort::{
    CloseOptions, ConsumerGroup, GroupMembershipOperation, LeaveOutcome, MemberEvent, TerminalClass,
};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;

use crate::support::{GROUP, Seen, broker, eventually, group, kill_child, recording, secs, stable, until};

fn static_group(broker: &Broker, instance: &str) -> ConsumerGroup {
    group(broker).group_instance_id(instance).handler(|_| Seen::default().handler()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn c_static_02_every_request_names_the_instance_and_a_dynamic_member_names_none() {
    let broker = broker(2).await;
    let group = static_group(&broker, "web-0");
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    tokio::time::sleep(secs(6)).await;
    let options = CloseOptions::group_membership_operation(GroupMembershipOperation::LeaveGroup);
    let report = member.close(options).await;
    assert_eq!(report.leave, LeaveOutcome::Left, "C-CLOSE-03");
    for api in
        [ApiKey::JoinGroup, ApiKey::SyncGroup, ApiKey::Heartbeat, ApiKey::OffsetCommit, ApiKey::LeaveGroup]
    {
        let seen = broker.requests(api);
        assert!(!seen.is_empty(), "{api}");
        assert!(seen.iter().all(|request| request.group_instance_id.as_deref() == Some("web-0")), "{api}");
    }
    assert!(
        broker.requests(ApiKey::LeaveGroup)[0].member_id.as_deref().unwrap().starts_with("web-0-"),
        "both ids"
    );

    broker.clear_requests();
    let (dynamic, _) = recording(&broker);
    let mut events = dynamic.events();
    let member = dynamic.start().await.unwrap();
    stable(&mut events).await;
    member.close(CloseOptions::default()).await;
    assert!(broker.all_requests().iter().all(|request| request.group_instance_id.is_none()));
}

#[tokio::test(start_paused = true)]
async fn c_static_03_a_restart_within_the_session_costs_nobody_a_rebalance() {
    let broker = broker(4).await;
    let (first, second) = (static_group(&broker, "web-0"), static_group(&broker, "web-1"));
    let (mut first_events, mut second_events) = (first.events(), second.events());
    let one = first.start().await.unwrap();
    stable(&mut first_events).await;
    let two = second.start().await.unwrap();
    stable(&mut second_events).await;
    eventually("both share", || one.status().assignment.len() == 2 && two.status().assignment.len() == 2)
        .await;
    let before = two.status();

    // Whichever of the two leads the group: a leader is told to skip the assignment, a follower just returns.
    for (group, member, other) in [(&second, two, &one)] {
        let generation = other.status().generation;
        let report = member.close(CloseOptions::default()).await;
        assert_eq!(report.leave, LeaveOutcome::NotSent, "C-CLOSE-02, C-STATIC-07");
        tokio::time::sleep(secs(2)).await;
        let mut events = group.events();
        let again = group.start().await.unwrap();
        stable(&mut events).await;
        let after = again.status();
        assert_eq!(after.generation, generation);
        assert_ne!(after.member_id, before.member_id, "the member id is new");
        let partitions = |status: &kohort::MemberStatus| {
            status.assignment.iter().map(|partition| partition.partition.clone()).collect::<Vec<_>>()
        };
        assert_eq!(partitions(&after), partitions(&before));
        tokio::time::sleep(secs(2)).await;
        assert_eq!(other.status().generation, generation);
        again.close(CloseOptions::group_membership_operation(GroupMembershipOperation::LeaveGroup)).await;
    }
    // The other one, alone now and leader for sure, restarts too.
    eventually("the rest has everything", || one.status().assignment.len() == 4).await;
    let generation = one.status().generation;
    one.close(CloseOptions::default()).await;
    let mut events = first.events();
    let again = first.start().await.unwrap();
    stable(&mut events).await;
    assert_eq!((again.status().generation, again.status().assignment.len()), (generation, 4), "C-SYNC-11");
}

#[tokio::test(start_paused = true)]
async fn c_static_07_the_slot_is_held_until_the_session_timeout() {
    let broker = broker(2).await;
    let group = static_group(&broker, "web-0");
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    member.close(CloseOptions::default()).await;
    assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 0);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(broker.group(GROUP).unwrap().members.len(), 1);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(broker.group(GROUP).unwrap().members.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn d_20_and_c_static_05_the_newer_process_holds_the_slot_and_the_older_stops_for_good() {
    let broker = broker(2).await;
    let (older, newer) = (static_group(&broker, "web-0"), static_group(&broker, "web-0"));
    let (mut older_events, mut newer_events) = (older.events(), newer.events());
    let old = older.start().await.unwrap();
    stable(&mut older_events).await;
    tokio::time::sleep(secs(5)).await;
    let generation = old.status().generation;
    let new = newer.start().await.unwrap();
    stable(&mut newer_events).await;
    let fenced = tokio::time::Instant::now();
    let reason = old.ended().await.unwrap_err();
    assert_eq!(reason.class(), TerminalClass::Fenced);
    assert!(fenced.elapsed() <= secs(1), "within one heartbeat");
    broker.clear_requests();
    tokio::time::sleep(secs(120)).await;
    assert_eq!(broker.requests(ApiKey::JoinGroup).len(), 0, "no ping-pong");
    assert_eq!(new.status().generation, generation, "no rebalance");
    assert_eq!(new.status().assignment.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn d_20_members_of_one_process_have_an_id_each() {
    let broker = broker(3).await;
    let group = group(&broker)
        .members(3)
        .group_instance_id("web-0")
        .handler(|_| Seen::default().handler())
        .build()
        .unwrap();
    let members = group.start_all().await.unwrap();
    eventually("all share", || members.iter().all(|member| member.status().assignment.len() == 1)).await;
    let ids: Vec<_> = members.iter().map(|member| member.status().group_instance_id.unwrap()).collect();
    assert_eq!(ids, ["web-0-1-consumer", "web-0-2-consumer", "web-0-3-consumer"]);
}

#[tokio::test(start_paused = true)]
async fn an_id_from_the_environment_that_is_not_there_fails_the_start_with_its_name() {
    let broker = broker(1).await;
    let group = group(&broker)
        .group_instance_id_from_env("KOHORT_NO_SUCH_VARIABLE")
        .handler(|_| Seen::default().handler())
        .build()
        .unwrap();
    let error = group.start().await.unwrap_err().to_string();
    assert!(error.contains("KOHORT_NO_SUCH_VARIABLE"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_static_member_in_a_crash_loop_keeps_its_place_for_the_fresh_start() {
    let broker = broker(2).await;
    let group = group(&broker)
        .group_instance_id("web-0")
        .crash_rejoin_max_restarts(0)
        .handler(|_| Seen::default().handler())
        .build()
        .unwrap();
    let mut events = group.events();
    let app = Supervisor::one_for_one().child(group.child_spec("orders").unwrap()).start().await.unwrap();
    stable(&mut events).await;
    let generation = group.running()[0].status().generation;
    kill_child(&group.running()[0], "heartbeat").await;
    until(&mut events, |event| {
        matches!(event, MemberEvent::Terminated { class: TerminalClass::CrashLoop, .. })
    })
    .await;
    stable(&mut events).await;
    assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 0);
    assert_eq!(group.running()[0].status().generation, generation, "no rebalance");
    app.shutdown().await;
}
