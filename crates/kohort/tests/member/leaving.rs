//! Closes that find no coordinator, wait for a commit, or get odd answers.

use kohort::{CloseOptions, ErrorCode, LeaveOutcome, MemberEvent};
use kohort_protocol::ApiKey;
use tokio::time::{Instant, sleep};

use crate::between::{between, leave_answer};
use crate::handing_over::Log;
use crate::support::{
    GROUP, Seen, TOPIC, broker, eventually, group, millis, recording, secs, settled, told, until,
};

#[tokio::test(start_paused = true)]
async fn c_close_09_with_nothing_to_commit_a_coordinator_is_not_even_looked_for() {
    let broker = broker(2).await;
    let (group, _) = recording(&broker);
    let (member, mut events) = settled(&broker, &group).await;
    // The start position is something to commit.
    until(&mut events, |event| matches!(event, MemberEvent::Commit { .. })).await;
    broker.faults().on(ApiKey::FindCoordinator).drop();
    broker.faults().on(ApiKey::Heartbeat).times(1).error(ErrorCode::NotCoordinator);
    eventually("it is looked for", || !broker.requests(ApiKey::FindCoordinator).is_empty()).await;
    broker.clear_requests();
    let begun = Instant::now();
    let report = member.close(CloseOptions::timeout(secs(5))).await;
    assert!(begun.elapsed() <= millis(5), "at once: {:?}", begun.elapsed());
    assert_eq!((report.leave, report.forced), (LeaveOutcome::NotSent, false));
    sleep(secs(60)).await;
    assert!(broker.all_requests().is_empty(), "{:?}", broker.all_requests());
}

#[tokio::test(start_paused = true)]
async fn c_close_12_a_close_waits_for_its_commit_then_revokes_once_then_leaves() {
    let broker = broker(1).await;
    let log = Log::default();
    let (member, mut events) = settled(&broker, &log.group(&broker, millis(1))).await;
    for _ in 0..3 {
        broker.produce(TOPIC, "key", "value").await.unwrap();
    }
    eventually("they are handled", || log.count("handled") == 3).await;
    log.take();
    log.listen(&broker);
    broker.faults().on(ApiKey::OffsetCommit).times(1).delay_answer(secs(2));
    let closing = {
        let member = member.reference();
        tokio::spawn(async move { member.close(CloseOptions::timeout(secs(5))).await })
    };
    sleep(millis(1_900)).await;
    assert_eq!(log.take(), ["OffsetCommit"]);
    assert!(!closing.is_finished());
    let report = closing.await.unwrap();
    assert_eq!((log.count("revoked"), log.count("LeaveGroup")), (1, 1));
    assert_eq!(log.take(), ["revoked", "LeaveGroup"]);
    assert_eq!((report.leave, report.forced), (LeaveOutcome::Left, false));
    assert_eq!(report.committed.values().copied().collect::<Vec<_>>(), [3]);
    assert_eq!(broker.committed(GROUP, TOPIC, 0), Some(3));
    let given =
        told(&mut events, |event| matches!(event, MemberEvent::Revoked { .. } | MemberEvent::Lost { .. }));
    assert!(matches!(&given[..], [MemberEvent::Revoked { .. }]), "{given:?}");
}

#[tokio::test(start_paused = true)]
async fn c_close_19_whatever_the_leave_is_answered_the_close_succeeds_and_says_what_it_was() {
    // The codes of the entries; without any list it is an error on top.
    let cases: [(Option<&'static [i16]>, bool); 4] =
        [(Some(&[25]), false), (Some(&[]), true), (Some(&[0, 0]), false), (None, false)];
    for (codes, left) in cases {
        let broker = broker(2).await;
        let answering = between(&broker, move |api, frame| async move {
            match (api, codes) {
                (ApiKey::LeaveGroup, Some(codes)) => Some(leave_answer(&frame, "someone", codes)),
                _ => Some(frame),
            }
        });
        if codes.is_none() {
            broker.faults().on(ApiKey::LeaveGroup).error(ErrorCode::GroupAuthorizationFailed);
        }
        let group =
            group(&broker).connector(answering).handler(|_| Seen::default().handler()).build().unwrap();
        let (member, _) = settled(&broker, &group).await;
        let begun = Instant::now();
        let report = member.close(CloseOptions::timeout(secs(5))).await;
        assert!(begun.elapsed() <= millis(5), "{codes:?}: {:?}", begun.elapsed());
        assert_eq!(
            (report.leave == LeaveOutcome::Left, report.forced),
            (left, false),
            "{codes:?}: {report:?}"
        );
        assert_eq!(member.ended().await.unwrap(), report);
        assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 1, "{codes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c_close_06_and_08_without_a_timeout_a_coordinator_is_looked_for_for_thirty_seconds() {
    let broker = broker(1).await;
    let log = Log::default();
    // The session outlives the close: else the work is given up with it.
    let group = log.handle(group(&broker).session_timeout(secs(45)), millis(1));
    let (member, _) = settled(&broker, &group).await;
    broker.produce(TOPIC, "key", "value").await.unwrap();
    eventually("it is handled", || log.count("handled") == 1).await;
    broker.stop().await;
    let begun = Instant::now();
    let report = member.close(CloseOptions::default()).await;
    let took = begun.elapsed();
    assert!(took >= secs(29) && took <= secs(30) + millis(100), "{took:?}");
    assert!(report.forced && report.dropped.len() == 1, "{report:?}");
}
