//! Nothing in the tree waits for the network or a handler: whoever asks is answered at the same virtual instant.

use std::convert::Infallible;
use std::time::Duration;

use kohort::{CloseOptions, Context, Handler, LeaveOutcome, MemberEvent, MemberState, Record};
use kohort_protocol::ApiKey;
use tokio::time::Instant;

use crate::support::{
    GROUP, TOPIC, broker, eventually, group, kill_child, recording, secs, stable, told, until,
};

#[tokio::test(start_paused = true)]
async fn while_a_join_group_is_outstanding_everything_is_answered_and_a_close_ends_at_its_deadline() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let mut events = group.events();
    // The handshake's first JoinGroup passes, the second is never answered.
    broker.faults().on(ApiKey::JoinGroup).when(|request| request.member_id.as_deref() != Some("")).drop();
    let member = group.start().await.unwrap();
    eventually("the second JoinGroup is out", || broker.requests(ApiKey::JoinGroup).len() == 2).await;
    tokio::time::sleep(secs(3)).await;

    let asked = Instant::now();
    assert_eq!(member.status().state, MemberState::PreparingRebalance);
    let children: Vec<String> =
        member.which_children().await.unwrap().iter().map(|child| child.id.to_string()).collect();
    assert_eq!(children, ["heartbeat", "manager", "partitions", "fetchers"]);
    assert_eq!(asked.elapsed(), Duration::ZERO);

    // Supervision gets in.
    kill_child(&member, "heartbeat").await;
    until(&mut events, |event| matches!(event, MemberEvent::HeartbeatCrash { .. })).await;
    assert_eq!(asked.elapsed(), Duration::ZERO);

    // A close does not wait for the JoinGroup: the id of the handshake is left.
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert!(asked.elapsed() <= secs(5), "{:?}", asked.elapsed());
    assert_eq!(report.leave, LeaveOutcome::Left);
    assert!(broker.group(GROUP).unwrap().pending.is_empty());
}

/// Never comes back.
struct Stuck;

impl Handler for Stuck {
    type Error = Infallible;

    async fn handle(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), Infallible> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn d_24_during_a_long_drain_everything_is_answered_and_the_close_is_forced_at_its_deadline() {
    let broker = broker(1).await;
    broker.produce(TOPIC, "key", "value").await.unwrap();
    let group = group(&broker).handler(|_| Stuck).build().unwrap();
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    tokio::time::sleep(secs(1)).await;

    let begun = Instant::now();
    let closing = tokio::spawn({
        let member = member.reference();
        async move { member.close(CloseOptions::timeout(secs(5))).await }
    });
    tokio::time::sleep(secs(1)).await;
    assert_eq!(member.status().state, MemberState::PrepareLeaving);
    let beats = broker.requests(ApiKey::Heartbeat).len();
    assert_eq!(member.which_children().await.unwrap().len(), 4);
    assert_eq!(begun.elapsed(), secs(1), "answered at the same instant");
    tokio::time::sleep(secs(2)).await;
    assert!(broker.requests(ApiKey::Heartbeat).len() > beats, "hearts beat while draining");

    let report = closing.await.unwrap();
    assert!(begun.elapsed() <= secs(6), "{:?}", begun.elapsed());
    assert!(report.forced, "{report:?}");
    let dropped: Vec<_> = report.dropped.iter().map(ToString::to_string).collect();
    assert_eq!(dropped, ["orders-0"]);
    let closed = told(&mut events, |event| matches!(event, MemberEvent::Closed { .. }));
    assert!(
        matches!(&closed[..], [MemberEvent::Closed { report: told, .. }] if *told == report),
        "one forced close is told: {closed:?}"
    );
    assert_eq!(report.leave, LeaveOutcome::Left, "the group is left all the same");
    assert_eq!(broker.committed(GROUP, TOPIC, 0).unwrap_or(0), 0, "the record in hand is not committed");
}

#[tokio::test(start_paused = true)]
async fn a_kill_gets_in_during_a_long_drain() {
    let broker = broker(1).await;
    broker.produce(TOPIC, "key", "value").await.unwrap();
    let group = group(&broker).handler(|_| Stuck).build().unwrap();
    let mut events = group.events();
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    tokio::time::sleep(secs(1)).await;
    let closing = tokio::spawn({
        let member = member.reference();
        async move { member.close(CloseOptions::timeout(secs(30))).await }
    });
    tokio::time::sleep(secs(1)).await;
    let killed = Instant::now();
    kill_child(&member, "manager").await;
    closing.await.unwrap();
    assert!(killed.elapsed() < secs(2), "{:?}", killed.elapsed());
}
