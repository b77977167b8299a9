//! Every close from every state, with every option and with timeouts down to zero: it ends in time, sends what the table
//! of KIP-1092 says and no more, and leaves silence behind.

use std::convert::Infallible;

use kohort::supervisor::Supervisor;
use kohort::{
    CloseOptions, ConsumerGroup, Context, ErrorCode, GroupMembershipOperation, Handler, LeaveOutcome, Member,
    MemberState, Record,
};
use kohort_broker::Broker;
use kohort_protocol::ApiKey;
use tokio::time::{Duration, Instant, sleep};

use crate::support::{GROUP, TOPIC, broker, eventually, group, millis, secs, stable};

/// Never comes back.
struct Forever;

impl Handler for Forever {
    type Error = Infallible;

    async fn handle(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), Infallible> {
        std::future::pending().await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    FindingTheCoordinator,
    Joining,
    Syncing,
    LoadingOffsets,
    Idle,
    Working,
    Revoking,
    Closing,
    Ended,
}

const ALL: [At; 9] = [
    At::FindingTheCoordinator,
    At::Joining,
    At::Syncing,
    At::LoadingOffsets,
    At::Idle,
    At::Working,
    At::Revoking,
    At::Closing,
    At::Ended,
];

/// A member that is there.
async fn brought(broker: &Broker, group: &ConsumerGroup, at: At) -> Member {
    let beats = || broker.faults().on(ApiKey::Heartbeat).times(1);
    match at {
        At::FindingTheCoordinator => drop(broker.faults().on(ApiKey::FindCoordinator).drop()),
        At::Joining => {
            let named = broker.faults().on(ApiKey::JoinGroup);
            // A static member's first join has no id and is not sent back for one.
            drop(
                named
                    .when(|join| join.member_id.as_deref() != Some("") || join.group_instance_id.is_some())
                    .drop(),
            );
        }
        At::Syncing => drop(broker.faults().on(ApiKey::SyncGroup).drop()),
        At::LoadingOffsets => drop(broker.faults().on(ApiKey::OffsetFetch).drop()),
        _ => {}
    }
    if matches!(at, At::Working | At::Revoking | At::Closing) {
        broker.produce(TOPIC, "key", "value").await.unwrap();
    }
    let member = group.start().await.unwrap();
    sleep(secs(2)).await;
    match at {
        At::Revoking => {
            beats().error(ErrorCode::RebalanceInProgress);
            eventually("it gives back", || member.status().state == MemberState::Revoking).await;
        }
        At::Closing => {
            let first = member.reference();
            tokio::spawn(async move { first.close(CloseOptions::timeout(secs(30))).await });
            eventually("it closes", || member.status().state == MemberState::PrepareLeaving).await;
        }
        At::Ended => {
            beats().error(ErrorCode::GroupAuthorizationFailed);
            let _ = member.ended().await;
        }
        _ => {}
    }
    member
}

async fn closes(at: At, operation: GroupMembershipOperation, instance: Option<&str>, timeout: Duration) {
    let what = format!("{at:?} {operation:?} {instance:?} {timeout:?}");
    let broker = broker(1).await;
    let builder = match instance {
        Some(id) => group(&broker).group_instance_id(id),
        None => group(&broker),
    };
    let group = builder.handler(|_| Forever).build().unwrap();
    let member = brought(&broker, &group, at).await;
    broker.clear_requests();
    let options = CloseOptions::timeout(timeout).with_group_membership_operation(operation);
    let begun = Instant::now();
    let report = member.close(options).await;
    // A close that runs is not cut by another one, which gets its report.
    let bound = if at == At::Closing { secs(30) } else { timeout };
    assert!(begun.elapsed() <= bound + secs(1), "{what}: {:?}", begun.elapsed());
    sleep(secs(1)).await;
    let leaves = broker.requests(ApiKey::LeaveGroup).len();
    // A static member that joins for the first time has no id yet.
    let has_no_id = match at {
        At::FindingTheCoordinator | At::Ended => true,
        At::Joining => instance.is_some(),
        _ => false,
    };
    let operation = if at == At::Closing { GroupMembershipOperation::Default } else { operation };
    let expected = usize::from(!has_no_id && operation.leaves(instance.is_some()));
    assert_eq!(leaves, expected, "{what}: {report:?}");
    assert_eq!(report.leave == LeaveOutcome::NotSent, expected == 0, "{what}: {report:?}");
    if expected == 1 {
        assert!(broker.group(GROUP).is_none_or(|group| group.members.is_empty()), "{what}");
    }
    // Without any time even an idle member cannot hand over.
    let stuck = matches!(at, At::Working | At::Revoking | At::Closing) || at == At::Idle && timeout.is_zero();
    assert_eq!(report.forced, stuck, "{what}: {report:?}");
    let outcome = member.ended().await;
    assert_eq!(outcome.is_ok(), at != At::Ended, "{what}: {outcome:?}");
    broker.clear_requests();
    sleep(secs(20)).await;
    assert!(broker.all_requests().is_empty(), "{what}: silence afterwards");
}

#[tokio::test(start_paused = true)]
async fn every_state_closes_in_time_with_every_option() {
    use GroupMembershipOperation::*;
    for at in ALL {
        for operation in [Default, LeaveGroup, RemainInGroup] {
            for instance in [None, Some("web-0")] {
                for timeout in [secs(0), millis(1), secs(1), secs(5)] {
                    closes(at, operation, instance, timeout).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_beside_its_supervisors_shutdown_is_the_same_close() {
    for close_first in [false, true] {
        let broker = broker(1).await;
        broker.produce(TOPIC, "key", "value").await.unwrap();
        let group = group(&broker).close_timeout(secs(3)).handler(|_| Forever).build().unwrap();
        let mut events = group.events();
        let app = Supervisor::one_for_one().child(group.child_spec("orders").unwrap()).start().await.unwrap();
        stable(&mut events).await;
        sleep(secs(1)).await;
        let member = group.running()[0].clone();
        let closing =
            |member: kohort::MemberRef| async move { member.close(CloseOptions::timeout(secs(2))).await };
        let begun = Instant::now();
        let report = if close_first {
            let close = tokio::spawn(closing(member.clone()));
            sleep(millis(100)).await;
            app.shutdown().await;
            close.await.unwrap()
        } else {
            let down = tokio::spawn(async move { app.shutdown().await });
            sleep(millis(100)).await;
            let report = closing(member.clone()).await;
            down.await.unwrap();
            report
        };
        assert!(begun.elapsed() <= secs(5), "{:?}", begun.elapsed());
        assert_eq!((report.leave.clone(), report.forced), (LeaveOutcome::Left, true));
        assert_eq!(broker.requests(ApiKey::LeaveGroup).len(), 1);
        assert_eq!(member.ended().await.unwrap(), report);
    }
}
