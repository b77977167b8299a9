//! Delegated children: owned by the supervisor, decided about by a sibling.

use crate::kit::{Journal, Order, Script, cell, exited, order, restarted, scripted, worker};
use kohort_supervisor::{DelegateNotice, ExitReason, Supervisor, SupervisorError, SupervisorRef};
use ractor::ActorId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

#[derive(Debug)]
struct Told {
    delegate: ActorId,
    notice: DelegateNotice,
}

async fn tree(journal: &Journal, heart: Script) -> (SupervisorRef, mpsc::UnboundedReceiver<Told>) {
    let (tell, told) = mpsc::unbounded_channel();
    let root = Supervisor::one_for_all()
        .intensity(1, Duration::from_secs(60))
        .child(scripted(heart).delegate_to("manager", move |delegate, notice| {
            let _ = tell.send(Told { delegate: delegate.get_id(), notice });
        }))
        .children([worker("manager", journal), worker("other", journal)])
        .start()
        .await
        .unwrap();
    (root, told)
}

fn heart(journal: &Journal) -> Script {
    Script { name: "heart", journal: journal.clone(), ..Script::default() }
}

fn started(told: &Told) -> u64 {
    match &told.notice {
        DelegateNotice::ChildStarted { id, incarnation, .. } if *id == "heart" => *incarnation,
        other => panic!("{other:?}"),
    }
}

fn ended(told: &Told) -> (u64, ExitReason) {
    match &told.notice {
        DelegateNotice::ChildExited { id, incarnation, reason } if *id == "heart" => {
            (*incarnation, reason.clone())
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_delegated_exit_is_told_and_neither_restarted_nor_counted() {
    let journal = Journal::default();
    let (root, mut told) = tree(&journal, heart(&journal)).await;
    let manager = cell(&root, "manager").await.get_id();
    let first = told.recv().await.unwrap();
    assert_eq!((started(&first), first.delegate), (1, manager), "kept until the manager ran");
    journal.take();
    for incarnation in 1..=5 {
        assert!(matches!(root.restart_child("heart").await, Err(SupervisorError::Running(_))));
        cell(&root, "heart").await.kill();
        let (old, reason) = ended(&told.recv().await.unwrap());
        assert_eq!(old, incarnation);
        assert!(matches!(reason, ExitReason::Killed));
        assert!(root.request_restart_child("heart"));
        let next = told.recv().await.unwrap();
        assert_eq!(started(&next), incarnation + 1);
        let DelegateNotice::ChildStarted { cell: new, .. } = &next.notice else { panic!() };
        assert_eq!(*new, cell(&root, "heart").await);
    }
    assert_eq!(journal.take(), ["start heart"; 5], "no sibling was touched");
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_restart_of_a_delegated_child_is_told_as_an_exit() {
    let journal = Journal::default();
    let script = heart(&journal);
    let failing = Arc::clone(&script.failing_starts);
    let (root, mut told) = tree(&journal, script).await;
    told.recv().await.unwrap();
    cell(&root, "heart").await.kill();
    ended(&told.recv().await.unwrap());
    failing.store(1, std::sync::atomic::Ordering::SeqCst);
    assert!(matches!(root.restart_child("heart").await, Err(SupervisorError::StartFailed { .. })));
    let (incarnation, reason) = ended(&told.recv().await.unwrap());
    assert_eq!(incarnation, 2);
    assert!(reason.find::<crate::kit::Broken>().is_some());
    assert!(root.restart_child("heart").await.is_ok());
    assert_eq!(started(&told.recv().await.unwrap()), 3);
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn notices_wait_for_the_next_incarnation_of_the_delegate() {
    let journal = Journal::default();
    let (root, mut told) = tree(&journal, heart(&journal)).await;
    let old = told.recv().await.unwrap().delegate;
    let mut events = root.events(64);
    order(&root, "manager", Order::Fail).await;
    restarted(&mut events, "manager").await;
    let manager = cell(&root, "manager").await.get_id();
    assert_ne!(manager, old);
    let exit = told.recv().await.unwrap();
    let start = told.recv().await.unwrap();
    assert_eq!((ended(&exit).0, exit.delegate), (1, manager), "an exit older than the latest start");
    assert_eq!((started(&start), start.delegate), (2, manager));
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn there_are_never_two_incarnations_at_once() {
    let journal = Journal::default();
    let (root, mut told) =
        tree(&journal, Script { stop_takes: Duration::from_secs(2), ..heart(&journal) }).await;
    told.recv().await.unwrap();
    journal.take();
    let stopper = root.clone();
    let terminate = tokio::spawn(async move { stopper.terminate_child("heart").await });
    let mut events = root.events(16);
    tokio::task::yield_now().await;
    assert!(matches!(root.restart_child("heart").await, Err(SupervisorError::Running(_))));
    exited(&mut events, "heart").await;
    terminate.await.unwrap().unwrap();
    assert!(root.restart_child("heart").await.is_ok());
    assert_eq!(journal.take(), ["stopping heart", "stop heart", "start heart"]);
    root.shutdown().await;
}
