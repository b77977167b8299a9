//! Static membership (KIP-345) on real actors.

use kohort::supervisor::Supervisor;
use kohort::{
    CloseOptions, ConsumerGroup, ErrorCode, GroupMembershipOperation, LeaveOutcome, MemberEvent,
    TerminalClass,
};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;

use crate::support::{
    GROUP, Seen, broker, eventually, group, kill_child, recording, remove_members, secs, stable, told, until,
};

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

/// The control: what the restart of a dynamic member costs.
#[tokio::test(start_paused = true)]
async fn c_static_03_the_restart_of_a_dynamic_member_begins_a_new_generation_for_all() {
    for static_ids in [true, false] {
        let broker = broker(4).await;
        let with =
            |instance: &str| if static_ids { static_group(&broker, instance) } else { recording(&broker).0 };
        let (first, second) = (with("web-0"), with("web-1"));
        let other = first.start().await.unwrap();
        let member = second.start().await.unwrap();
        eventually("both share", || {
            other.status().assignment.len() == 2 && member.status().assignment.len() == 2
        })
        .await;
        tokio::time::sleep(secs(1)).await;
        let before = other.status().generation;
        let mut events = first.events();
        member.close(CloseOptions::default()).await;
        tokio::time::sleep(secs(2)).await;
        let again = second.start().await.unwrap();
        eventually("both share again", || {
            other.status().assignment.len() == 2 && again.status().assignment.len() == 2
        })
        .await;
        let after = (other.status().generation, again.status().generation);
        let rebalances = told(&mut events, |event| matches!(event, MemberEvent::Rebalance { .. })).len();
        if static_ids {
            assert_eq!((after, rebalances), ((before, before), 0));
        } else {
            assert!(after.0 == after.1 && after.0 > before && rebalances > 0, "{before} {after:?}");
        }
    }
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
    let id = new.status().member_id;
    let of_others = broker.all_requests();
    let of_others = of_others.iter().filter(|one| one.member_id.as_ref().is_some_and(|named| *named != id));
    assert_eq!(of_others.count(), 0, "the older one asks for nothing that could be refused");
    let again = told(&mut older_events, |event| matches!(event, MemberEvent::Terminated { .. }));
    assert_eq!(again.len(), 1);
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

#[tokio::test(start_paused = true)]
async fn d_19_a_killed_process_that_comes_back_with_its_id_is_accepted_at_once_and_costs_nobody_a_rebalance()
{
    let broker = broker(4).await;
    let (one, two) = (static_group(&broker, "web-0"), static_group(&broker, "web-1"));
    let (mut one_events, mut two_events) = (one.events(), two.events());
    let app = Supervisor::one_for_one().intensity(0, secs(1)).child(one.child_spec("web-0").unwrap());
    let app = app.start().await.unwrap();
    stable(&mut one_events).await;
    let other = two.start().await.unwrap();
    stable(&mut two_events).await;
    eventually("they share", || other.status().assignment.len() == 2).await;
    let generation = other.status().generation;
    // As by kill -9: nothing of it says goodbye.
    app.which_children().await.unwrap()[0].cell.as_ref().unwrap().kill();
    app.ended().await;
    tokio::time::sleep(secs(1)).await;
    let again = static_group(&broker, "web-0");
    let mut events = again.events();
    let begun = tokio::time::Instant::now();
    let member = again.start().await.unwrap();
    stable(&mut events).await;
    assert!(begun.elapsed() < crate::support::millis(100), "{:?}", begun.elapsed());
    assert_eq!((member.status().assignment.len(), member.status().generation), (2, generation));
    tokio::time::sleep(secs(5)).await;
    assert_eq!(other.status().generation, generation);
}

#[tokio::test(start_paused = true)]
async fn d_21_and_c_close_02_03_four_closes_send_a_leave_group_or_keep_the_place() {
    use GroupMembershipOperation::*;
    for (instance, operation, leaves) in [
        (Some("web-0"), Default, 0),
        (None, Default, 1),
        (Some("web-0"), LeaveGroup, 1),
        (None, RemainInGroup, 0),
    ] {
        let what = format!("{instance:?} {operation:?}");
        let broker = broker(2).await;
        let (others, _) = recording(&broker);
        let other = others.start().await.unwrap();
        let member = match instance {
            Some(id) => static_group(&broker, id).start().await.unwrap(),
            None => recording(&broker).0.start().await.unwrap(),
        };
        eventually("they share", || {
            member.status().assignment.len() == 1 && other.status().assignment.len() == 1
        })
        .await;
        let generation = other.status().generation;
        member.close(CloseOptions::group_membership_operation(operation)).await;
        assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), leaves, "{what}");
        tokio::time::sleep(secs(4)).await;
        let moved = other.status().generation > generation;
        assert_eq!(moved, leaves == 1, "{what}: the other rebalances at once, or not within the session");
        tokio::time::sleep(secs(5)).await;
        assert_eq!(other.status().assignment.len(), 2, "{what}: after the session timeout in any case");
    }
}

#[tokio::test(start_paused = true)]
async fn d_22_a_static_member_that_goes_for_good_is_told_to_leave_by_itself_or_by_an_operator() {
    let with = |broker: &Broker, id: &str| {
        let builder = group(broker).session_timeout(secs(120)).rebalance_timeout(secs(10));
        builder.group_instance_id(id).handler(|_| Seen::default().handler()).build().unwrap()
    };
    for by_operator in [false, true] {
        let broker = broker(3).await;
        let groups = ["web-0", "web-1", "web-2"].map(|id| with(&broker, id));
        let (first, second) = (groups[0].start().await.unwrap(), groups[1].start().await.unwrap());
        let app =
            Supervisor::one_for_one().intensity(0, secs(1)).child(groups[2].child_spec("web-2").unwrap());
        let app = app.start().await.unwrap();
        eventually("all share", || {
            groups
                .iter()
                .all(|group| group.running().iter().all(|member| member.status().assignment.len() == 1))
        })
        .await;
        let third = groups[2].running()[0].clone();
        let begun = if by_operator {
            app.which_children().await.unwrap()[0].cell.as_ref().unwrap().kill();
            app.ended().await;
            tokio::time::sleep(secs(20)).await;
            assert_eq!(broker.group(GROUP).unwrap().members.len(), 3, "its place is kept");
            let begun = tokio::time::Instant::now();
            // By instance id alone; and one that nobody has.
            let removed = remove_members(&broker, &["web-2", "web-9"]).await;
            assert_eq!(removed, [ErrorCode::None, ErrorCode::UnknownMemberId]);
            begun
        } else {
            broker.clear_requests();
            let begun = tokio::time::Instant::now();
            third.close(CloseOptions::group_membership_operation(GroupMembershipOperation::LeaveGroup)).await;
            let leave = &broker.requests(ApiKey::LeaveGroup)[0];
            assert!(leave.version >= 3 && leave.member_id.as_deref().unwrap().starts_with("web-2-"));
            assert_eq!(leave.group_instance_id.as_deref(), Some("web-2"), "both ids");
            begun
        };
        eventually("all partitions are served", || {
            first.status().assignment.len() + second.status().assignment.len() == 3
        })
        .await;
        assert!(begun.elapsed() <= secs(10), "within the rebalance timeout: {:?}", begun.elapsed());
    }
}
