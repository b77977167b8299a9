//! How a member comes in: what it keeps and what it drops when a JoinGroup or SyncGroup is refused, and how soon it
//! asks again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kohort::{Assignor, CloseOptions, ErrorCode, MemberEvent, Shares, TerminalClass, TerminalReason};
use kohort_broker::{Broker, Fault, RequestSeen};
use kohort_protocol::{ApiKey, TopicPartition};
use tokio::time::{Instant, sleep};

use crate::retries::{apis, membership, rejoining};
use crate::support::{
    GROUP, Seen, TOPIC, broker, eventually, group, group_of, millis, recording, secs, settled, stable, told,
    until,
};

/// The ids in the JoinGroups, the given ones by their order.
fn ids(joins: &[RequestSeen]) -> Vec<usize> {
    let mut given: Vec<&str> = vec![""];
    joins
        .iter()
        .map(|join| {
            let id = join.member_id.as_deref().unwrap();
            given.iter().position(|known| *known == id).unwrap_or_else(|| {
                given.push(id);
                given.len() - 1
            })
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn c_join_01_the_id_that_is_demanded_is_used_at_once_and_forgotten_when_it_is_refused() {
    for refused in [false, true] {
        let broker = broker(2).await;
        if refused {
            let named = |request: &RequestSeen| request.member_id.as_deref() != Some("");
            broker.faults().on(ApiKey::JoinGroup).when(named).times(1).error(ErrorCode::UnknownMemberId);
        }
        let (group, _) = recording(&broker);
        let (mut events, mut all) = (group.events(), group.events());
        let member = group.start().await.unwrap();
        stable(&mut events).await;
        let joins = broker.requests(ApiKey::JoinGroup);
        let expected: &[usize] = if refused { &[0, 1, 0, 2] } else { &[0, 1] };
        assert_eq!(ids(&joins), expected);
        let took = joins.last().unwrap().at - joins[0].at;
        assert!(took <= millis(5), "without a pause: {took:?}");
        assert_eq!(Some(member.status().member_id), joins.last().unwrap().member_id);
        let retries = told(&mut all, |event| matches!(event, MemberEvent::Retrying { .. }));
        assert!(refused || retries.is_empty(), "the demand is no failure: {retries:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c_join_03_an_id_that_is_unknown_by_now_is_dropped_and_joined_without_at_once() {
    let broker = broker(2).await;
    let (member, id) =
        rejoining(&broker, Fault::Error(ErrorCode::UnknownMemberId), 1, ApiKey::JoinGroup).await;
    let joins = broker.requests(ApiKey::JoinGroup);
    let named: Vec<_> = joins.iter().map(|join| join.member_id.clone().unwrap()).collect();
    assert_eq!(named, [id.clone(), String::new(), member.status().member_id]);
    assert_ne!(named[2], id);
    let took = joins[2].at - joins[0].at;
    assert!(took <= millis(5), "immediately: {took:?}");
    assert_eq!((member.status().assignment.len(), member.status().crashes_in_window), (2, 0), "no crash");
}

/// The member ends with this, having asked once and never again.
async fn ends_by(broker: &Broker, api: ApiKey, code: ErrorCode) -> TerminalReason {
    let (group, _) = recording(broker);
    let (member, mut events) = settled(broker, &group).await;
    let rule = broker.faults().on(api).error(code);
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
    let reason = member.ended().await.unwrap_err();
    assert_eq!(rule.hits(), 1, "{api} {code}");
    let joins = broker.requests(ApiKey::JoinGroup).len();
    assert_eq!(joins, 1, "{api} {code}: no rejoin");
    broker.clear_requests();
    sleep(secs(60)).await;
    assert!(broker.all_requests().is_empty(), "{api} {code}: silence");
    let ends = told(&mut events, |event| {
        matches!(event, MemberEvent::Terminated { .. } | MemberEvent::HeartbeatCrash { .. })
    });
    assert!(matches!(&ends[..], [MemberEvent::Terminated { .. }]), "{api} {code}: {ends:?}");
    reason
}

#[tokio::test(start_paused = true)]
async fn c_join_07_a_refusal_for_good_ends_the_member_after_one_join_and_says_which() {
    for refusal in [
        ErrorCode::InvalidSessionTimeout,
        ErrorCode::InvalidGroupId,
        ErrorCode::InconsistentGroupProtocol,
        ErrorCode::UnsupportedVersion,
    ] {
        let reason = ends_by(&broker(2).await, ApiKey::JoinGroup, refusal).await;
        assert!(
            matches!(&reason, TerminalReason::Protocol { api: "JoinGroup", code, .. } if *code == refusal),
            "{reason}"
        );
    }
    let reason = ends_by(&broker(2).await, ApiKey::JoinGroup, ErrorCode::GroupAuthorizationFailed).await;
    assert!(matches!(reason, TerminalReason::GroupAuthorizationFailed), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn c_sync_03_fenced_or_unauthorized_in_a_sync_is_an_end_without_a_rejoin() {
    for (code, class) in [
        (ErrorCode::FencedInstanceId, TerminalClass::Fenced),
        (ErrorCode::GroupAuthorizationFailed, TerminalClass::Auth),
    ] {
        assert_eq!(ends_by(&broker(2).await, ApiKey::SyncGroup, code).await.class(), class);
    }
}

#[tokio::test(start_paused = true)]
async fn c_coord_02_a_lookup_that_is_not_authorized_ends_the_member_whenever_it_comes() {
    for late in [false, true] {
        let broker = broker(2).await;
        let (group, _) = recording(&broker);
        let refuse =
            || broker.faults().on(ApiKey::FindCoordinator).error(ErrorCode::GroupAuthorizationFailed);
        let (member, rule) = if late {
            let (member, _) = settled(&broker, &group).await;
            let rule = refuse();
            broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::NotCoordinator);
            (member, rule)
        } else {
            let rule = refuse();
            (group.start().await.unwrap(), rule)
        };
        let reason = member.ended().await.unwrap_err();
        assert!(matches!(reason, TerminalReason::GroupAuthorizationFailed), "{reason}");
        sleep(secs(60)).await;
        assert_eq!(rule.hits(), 1, "late: {late}: not asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn c_join_11_a_join_without_an_answer_ends_at_its_deadline_like_a_lost_connection() {
    // The longer of request timeout and rebalance timeout with its padding.
    for (request, rebalance, padding, deadline) in [(5, 10, 5, 15), (30, 10, 5, 30), (5, 20, 0, 20)] {
        let broker = broker(2).await;
        let group = group(&broker)
            .session_timeout(secs(45))
            .request_timeout(secs(request))
            .rebalance_timeout(secs(rebalance))
            .session_timeout_padding(secs(padding))
            .handler(|_| Seen::default().handler())
            .build()
            .unwrap();
        let (member, mut events) = settled(&broker, &group).await;
        let id = member.status().member_id;
        broker.faults().on(ApiKey::JoinGroup).times(1).drop();
        broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::RebalanceInProgress);
        stable(&mut events).await;
        let asked = membership(&broker);
        let expected = [ApiKey::JoinGroup, ApiKey::FindCoordinator, ApiKey::JoinGroup, ApiKey::SyncGroup];
        assert_eq!(apis(&asked), expected);
        let waited = asked[1].at - asked[0].at;
        assert!(waited >= secs(deadline) && waited <= secs(deadline) + millis(150), "{waited:?}");
        assert_eq!((asked[0].member_id.as_ref(), asked[2].member_id.as_ref()), (Some(&id), Some(&id)));
        member.close(CloseOptions::default()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c_sync_01_and_02_a_refused_sync_is_followed_by_a_join_at_once_under_what_is_left_of_the_identity() {
    for (code, keeps_id) in [
        (ErrorCode::RebalanceInProgress, true),
        (ErrorCode::IllegalGeneration, true),
        (ErrorCode::UnknownMemberId, false),
    ] {
        let broker = broker(2).await;
        let (member, id) = rejoining(&broker, Fault::Error(code), 1, ApiKey::SyncGroup).await;
        let asked = membership(&broker);
        let joins = if keeps_id { 1 } else { 2 };
        let expected = [
            &[ApiKey::JoinGroup, ApiKey::SyncGroup][..],
            &[ApiKey::JoinGroup; 2][..joins],
            &[ApiKey::SyncGroup],
        ];
        assert_eq!(apis(&asked), expected.concat(), "{code}");
        let named = asked[2].member_id.as_deref();
        assert_eq!(named, Some(if keeps_id { id.as_str() } else { "" }), "{code}");
        let took = asked[1 + joins].at - asked[1].at;
        assert!(took <= millis(5), "{code}: at once, not after {took:?}");
        assert_eq!(member.status().member_id == id, keeps_id, "{code}");
    }
}

/// Everybody gets the partitions of the topics it subscribes to; and how often that was worked out.
fn counting(runs: &Arc<AtomicUsize>) -> Assignor {
    let runs = Arc::clone(runs);
    Assignor::custom("own-topics", move |members, counts: &BTreeMap<String, i32>| {
        runs.fetch_add(1, Ordering::SeqCst);
        let share = |topics: &std::collections::BTreeSet<String>| {
            let of = |topic: &String| {
                let count = counts.get(topic).copied().unwrap_or(0);
                (0..count).map(|number| TopicPartition::new(topic.as_str(), number)).collect::<Vec<_>>()
            };
            topics.iter().flat_map(of).collect()
        };
        members.iter().map(|member| (member.member_id.clone(), share(&member.topics))).collect::<Shares>()
    })
}

#[tokio::test(start_paused = true)]
async fn c_sync_11_a_leader_that_came_back_assigns_nothing_and_watches_the_topics_of_the_others() {
    let broker = Broker::builder().in_memory().topic(TOPIC, 2).topic("theirs", 2).start().await.unwrap();
    let runs = Arc::<AtomicUsize>::default();
    let with = |topic: &str, instance: &str| {
        group_of(&broker, topic)
            .assignors([counting(&runs)])
            .group_instance_id(instance)
            .metadata_max_age(secs(2))
            .handler(|_| Seen::default().handler())
            .build()
            .unwrap()
    };
    let (ours, theirs) = (with(TOPIC, "web-0"), with("theirs", "web-1"));
    let (member, _) = settled(&broker, &ours).await;
    let other = theirs.start().await.unwrap();
    eventually("both have their own", || {
        member.status().assignment.len() == 2 && other.status().assignment.len() == 2
    })
    .await;
    sleep(secs(3)).await;
    let (generation, before) = (other.status().generation, runs.load(Ordering::SeqCst));

    member.close(CloseOptions::default()).await;
    let mut events = ours.events();
    let again = ours.start().await.unwrap();
    let joined = until(&mut events, |event| matches!(event, MemberEvent::Join { .. })).await;
    assert!(matches!(joined, MemberEvent::Join { leader: true, .. }), "{joined:?}");
    stable(&mut events).await;
    sleep(secs(10)).await;
    assert_eq!(runs.load(Ordering::SeqCst), before, "nothing is worked out");
    assert_eq!((again.status().generation, other.status().generation), (generation, generation));
    assert_eq!((again.status().assignment.len(), other.status().assignment.len()), (2, 2), "all keep theirs");

    broker.create_partitions("theirs", 4).await.unwrap();
    let grown = Instant::now();
    eventually("what grew is served", || other.status().assignment.len() == 4).await;
    assert!(grown.elapsed() <= secs(12), "{:?}", grown.elapsed());
    let kinds = told(&mut events, |event| matches!(event, MemberEvent::Rebalance { .. }));
    assert!(matches!(&kinds[..], [MemberEvent::Rebalance { kind: "metadata_changed", .. }]), "{kinds:?}");
    assert_eq!(broker.group(GROUP).unwrap().generation, generation + 1);
    assert_eq!(runs.load(Ordering::SeqCst), before + 1);
}
