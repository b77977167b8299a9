//! How a member ends for good: told once, with its class.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use kohort::supervisor::Supervisor;
use kohort::{
    CloseOptions, ConsumerGroup, CrashBound, ErrorCode, MemberEvent, TerminalClass, TerminalReason,
    connector_fn,
};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;
use tokio::time::{Instant, sleep};

use crate::support::{
    Seen, broker, eventually, group, kill_child, millis, recording, secs, settled, stable, told,
};

/// A stream that panics where a request of this kind is written to it, as a defect in the client would.
struct PanicsOn(ApiKey, tokio::io::DuplexStream);

impl tokio::io::AsyncRead for PanicsOn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.1).poll_read(cx, buffer)
    }
}

impl tokio::io::AsyncWrite for PanicsOn {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        // The api key stands behind the length.
        assert!(bytes.get(4..6) != Some(&self.0.key().to_be_bytes()[..]), "a defect");
        Pin::new(&mut self.1).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.1).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.1).poll_shutdown(cx)
    }
}

/// A group whose client has a defect in this request.
fn defective(broker: &Broker, api: ApiKey) -> ConsumerGroup {
    let memory = broker.memory();
    let connector = connector_fn(move |host: String, port| {
        let memory = memory.clone();
        async move { Ok(PanicsOn(api, memory.connect(&host, port).await?)) }
    });
    group(broker).connector(connector).handler(|_| Seen::default().handler()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn d_08_a_panic_inside_a_beat_is_terminal_crashed_at_once() {
    let broker = broker(1).await;
    let group = defective(&broker, ApiKey::Heartbeat);
    let (mut events, mut all) = (group.events(), group.events());
    let member = group.start().await.unwrap();
    stable(&mut events).await;
    let begun = Instant::now();
    let reason = member.ended().await.unwrap_err();
    assert!(begun.elapsed() <= millis(600), "with the first beat: {:?}", begun.elapsed());
    assert!(matches!(&reason, TerminalReason::Crashed { what } if what == "a defect"), "{reason}");
    assert_eq!(ends(&mut all), [TerminalClass::Crashed]);
    let crashes = told(&mut group.events(), |event| matches!(event, MemberEvent::HeartbeatCrash { .. }));
    assert!(crashes.is_empty(), "none is counted: {crashes:?}");
}

/// What a request of the manager's panics in is the client: it is gone, and that is no refusal and no crash.
#[tokio::test(start_paused = true)]
async fn c_hb_15_a_client_that_dies_ends_the_member_with_a_reason_of_its_own_and_no_rejoin() {
    let broker = broker(1).await;
    let group = defective(&broker, ApiKey::OffsetFetch);
    let mut events = group.events();
    let member = group.start().await.unwrap();
    let reason = member.ended().await.unwrap_err();
    assert!(matches!(&reason, TerminalReason::ClientDied { detail } if detail == "a defect"), "{reason}");
    let joins = broker.requests(ApiKey::JoinGroup).len();
    sleep(secs(60)).await;
    assert_eq!(broker.requests(ApiKey::JoinGroup).len(), joins);
    assert_eq!(ends(&mut events), [TerminalClass::ClientDied]);
}

/// The classes that the events so far end with.
fn ends(events: &mut kohort::MemberEvents) -> Vec<TerminalClass> {
    let ends = told(events, |event| matches!(event, MemberEvent::Terminated { .. }));
    ends.into_iter()
        .map(|event| match event {
            MemberEvent::Terminated { class, reason, .. } => {
                assert_eq!(class, reason.class());
                class
            }
            _ => unreachable!(),
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn c_crash_13_every_end_for_good_is_told_once_with_its_class() {
    use TerminalClass::*;
    for class in [Fenced, Auth, Error, ClientDied, Crashed, CrashLoop, Workers] {
        let broker = broker(1).await;
        let group = match class {
            ClientDied => defective(&broker, ApiKey::OffsetCommit),
            Workers => group(&broker)
                .worker_max_restarts(0, secs(60))
                .handler(kohort::handler_fn(|_| async { Err::<(), _>("no") }))
                .build()
                .unwrap(),
            _ => group(&broker)
                .crash_rejoin_max_restarts(0)
                .handler(|_| Seen::default().handler())
                .build()
                .unwrap(),
        };
        let (member, mut events) = settled(&broker, &group).await;
        let refuse = |code| drop(broker.faults().on(ApiKey::Heartbeat).error(code));
        match class {
            Fenced => refuse(ErrorCode::FencedInstanceId),
            Auth => refuse(ErrorCode::GroupAuthorizationFailed),
            Error => refuse(ErrorCode::InvalidGroupId),
            Crashed => kill_child(&member, "manager").await,
            CrashLoop => kill_child(&member, "heartbeat").await,
            _ => drop(broker.produce(crate::support::TOPIC, "key", "value").await.unwrap()),
        }
        let reason = member.ended().await.unwrap_err();
        assert_eq!(reason.class(), class, "{reason}");
        sleep(secs(60)).await;
        assert_eq!(ends(&mut events), [class]);
    }
}

#[tokio::test(start_paused = true)]
async fn c_crash_13_a_clean_end_is_not_told_as_an_end_for_good() {
    for how in ["closed", "dropped", "shut down"] {
        let broker = broker(1).await;
        let (group, _) = recording(&broker);
        let mut events = group.events();
        match how {
            "closed" => drop(settled(&broker, &group).await.0.close(CloseOptions::default()).await),
            "dropped" => drop(settled(&broker, &group).await),
            _ => {
                let app = Supervisor::one_for_one().child(group.child_spec("orders").unwrap());
                let app = app.start().await.unwrap();
                eventually("it runs", || !group.running()[0].status().assignment.is_empty()).await;
                app.shutdown().await;
            }
        }
        eventually("it is over", || group.running().is_empty()).await;
        sleep(secs(60)).await;
        assert_eq!(ends(&mut events), [], "{how}");
    }
}

/// The bound does not count what it does not know: an unlimited one is never the end.
#[tokio::test(start_paused = true)]
async fn c_crash_04_fifty_crashes_under_an_unlimited_bound_are_fifty_rejoins() {
    let broker = broker(1).await;
    let unlimited = group(&broker).crash_rejoin_max_restarts(CrashBound::Unlimited);
    let group = unlimited.handler(|_| Seen::default().handler()).build().unwrap();
    let (member, mut events) = settled(&broker, &group).await;
    for _ in 0..50 {
        kill_child(&member, "heartbeat").await;
        stable(&mut events).await;
    }
    assert_eq!((member.status().generation, member.status().crashes_in_window), (51, 50));
}
