//! A tree as data and as text, and what it is worth while a part of it is slow.

use crate::kit::{Journal, Order, Script, cell, exited, order, restarted, scripted, worker};
use kohort_supervisor::{ChildKind, ChildStatus, Supervisor, SupervisorError, SupervisorRef};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

async fn tree(journal: &Journal) -> SupervisorRef {
    let leaf = Supervisor::rest_for_one().intensity(3, 10 * SECOND).child(worker("x", journal));
    let middle = Supervisor::one_for_all().child(leaf.spec("leaf"));
    let children = [worker("a", journal), middle.spec("middle"), worker("z", journal)];
    Supervisor::one_for_one().id("app").intensity(5, 60 * SECOND).children(children).start().await.unwrap()
}

async fn nested(root: &SupervisorRef, path: &[&str]) -> SupervisorRef {
    let mut supervisor = root.clone();
    for id in path {
        supervisor = SupervisorRef::of(&cell(&supervisor, id).await).await.unwrap();
    }
    supervisor
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_whole_tree() {
    let root = tree(&Journal::default()).await;
    let mut events = root.events(64);
    let leaf = nested(&root, &["middle", "leaf"]).await;
    let mut below = leaf.events(64);
    tokio::time::sleep(30 * SECOND).await;
    cell(&root, "a").await.kill();
    restarted(&mut events, "a").await;
    order(&leaf, "x", Order::Fail).await;
    restarted(&mut below, "x").await;
    root.terminate_child("z").await.unwrap();
    tokio::time::sleep(3 * SECOND).await;
    let snapshot = root.snapshot().await.unwrap();
    let ids: Vec<_> = snapshot.walk().into_iter().map(|(depth, node)| (depth, node.id.as_str())).collect();
    assert_eq!(ids, [(0, "app"), (1, "a"), (1, "middle"), (2, "leaf"), (3, "x"), (1, "z")]);
    let a = snapshot.find(["a"]).unwrap();
    assert_eq!((a.kind, a.status, a.incarnation), (ChildKind::Worker, ChildStatus::Running, 2));
    assert_eq!((a.restarts_in_window, a.uptime), (1, Some(3 * SECOND)));
    assert_eq!(a.last_exit.as_ref().unwrap().class, "killed");
    let z = snapshot.find(["z"]).unwrap();
    assert_eq!((z.status, z.uptime), (ChildStatus::Down, None));
    let own = snapshot.supervisor.as_ref().unwrap();
    assert_eq!((own.strategy.as_str(), own.restarts, own.intensity), ("one_for_one", 1, 5));
    let leaf = snapshot.find(["middle", "leaf"]).unwrap();
    assert_eq!(leaf.supervisor.as_ref().unwrap().restarts, 1);
    assert_eq!(
        snapshot.to_string(),
        "\
app         supervisor · running · up 33 s · one_for_one · 1 of 5 restarts in 60 s
├─ a        worker · running · incarnation 2 · up 3 s · last exit killed
├─ middle   supervisor · running · up 33 s · one_for_all · 0 of 1 restarts in 5 s
│  └─ leaf  supervisor · running · up 33 s · rest_for_one · 1 of 3 restarts in 10 s
│     └─ x  worker · running · incarnation 2 · up 3 s · last exit error: broken x
└─ z        worker · down · last exit shutdown
"
    );
    tokio::time::sleep(60 * SECOND).await;
    let later = root.snapshot().await.unwrap();
    assert_eq!(later.find(["a"]).unwrap().restarts_in_window, 0, "the window slides without an exit");
    root.shutdown().await;
    assert!(matches!(root.snapshot().await, Err(SupervisorError::Gone)));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_answered_in_time_even_when_a_nested_supervisor_is_not() {
    let journal = Journal::default();
    let slow = Script { name: "x", stop_takes: 20 * SECOND, ..Script::default() };
    let inner = Supervisor::one_for_one().children([scripted(slow)]);
    let children = [inner.spec("slow"), worker("a", &journal)];
    let root = Supervisor::one_for_one().children(children).start().await.unwrap();
    // A foreign stop runs in `post_stop`, where nothing can reach it.
    cell(&root, "slow").await.stop(None);
    tokio::task::yield_now().await;
    let began = tokio::time::Instant::now();
    let snapshot = root.snapshot().await.unwrap();
    assert!(began.elapsed() <= SECOND);
    let slow = snapshot.find(["slow"]).unwrap();
    assert!(slow.supervisor.is_none() && slow.children.is_empty());
    assert!(snapshot.to_string().contains("no answer"));
    assert!(snapshot.find(["a"]).is_some());
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_answered_during_a_shutdown() {
    let journal = Journal::default();
    let slow = Script { name: "x", journal, stop_takes: 20 * SECOND, ..Script::default() };
    let inner = Supervisor::one_for_one().child(scripted(slow)).spec("inner");
    let root = Supervisor::one_for_one().child(inner).start().await.unwrap();
    let mut events = nested(&root, &["inner"]).await.events(8);
    root.request_shutdown(None);
    tokio::time::sleep(SECOND).await;
    let snapshot = root.snapshot().await.unwrap();
    assert!(snapshot.walk().iter().all(|(_, node)| node.status == ChildStatus::Stopping), "{snapshot}");
    exited(&mut events, "x").await;
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_serialisable() {
    let root = tree(&Journal::default()).await;
    let snapshot = root.snapshot().await.unwrap();
    let json = serde_json::to_value(&snapshot).unwrap();
    assert_eq!(json["children"][1]["children"][0]["children"][0]["status"], "running");
    assert_eq!(json["kind"], "supervisor");
    let back: kohort_supervisor::TreeSnapshot = serde_json::from_value(json).unwrap();
    assert_eq!(back, snapshot);
    root.shutdown().await;
}
