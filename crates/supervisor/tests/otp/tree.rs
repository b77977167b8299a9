//! Trees: nested supervisors, causes through them, other runtimes, other parents.

use crate::kit::{Broken, Journal, Order, Script, cell, order, restarted, scripted, worker};
use kohort_supervisor::{
    ChildKind, ChildSpec, ExitReason, Supervisor, SupervisorEvent, SupervisorExit, SupervisorRef,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_typed_cause_is_found_from_the_top_through_two_nested_supervisors() {
    let journal = Journal::default();
    let inner = Supervisor::one_for_all().id("inner").intensity(0, Duration::from_secs(1));
    let inner = inner.children([worker("a", &journal), worker("b", &journal)]);
    let middle = Supervisor::one_for_one()
        .id("middle")
        .intensity(0, Duration::from_secs(1))
        .child(inner.spec("inner"));
    let root = Supervisor::one_for_one()
        .id("root")
        .intensity(1, Duration::from_secs(60))
        .child(middle.spec("middle"))
        .start()
        .await
        .unwrap();
    let mut events = root.events(64);
    for round in 1..=2 {
        let middle = SupervisorRef::of(&cell(&root, "middle").await).await.unwrap();
        let inner = SupervisorRef::of(&cell(&middle, "inner").await).await.unwrap();
        journal.take();
        order(&inner, "b", Order::Fail).await;
        let reason = inner.ended().await;
        assert!(matches!(&*reason, ExitReason::Error(_)));
        assert_eq!(journal.take()[..1], ["stop a"]);
        if round == 1 {
            assert_eq!(restarted(&mut events, "middle").await, 2);
        }
    }
    let reason = root.ended().await;
    assert_eq!(reason.find::<Broken>().unwrap().0, "b");
    let mut link = std::error::Error::source(&*reason);
    let mut supervisors = Vec::new();
    while let Some(error) = link {
        if let Some(SupervisorExit::ReachedMaxIntensity { supervisor, .. }) = error.downcast_ref() {
            supervisors.push(supervisor.as_str());
        }
        link = error.source();
    }
    assert_eq!(supervisors, ["root", "middle", "inner"]);
}

#[tokio::test(start_paused = true)]
async fn a_nested_supervisor_whose_start_fails_leaves_nothing_and_tells_why() {
    let journal = Journal::default();
    let failing = Script {
        name: "b",
        journal: journal.clone(),
        failing_starts: Arc::new(1.into()),
        ..Script::default()
    };
    let inner = Supervisor::one_for_one().id("inner").children([worker("a", &journal), scripted(failing)]);
    let error = Supervisor::one_for_one()
        .children([worker("first", &journal), inner.spec("inner")])
        .start()
        .await
        .unwrap_err();
    assert_eq!(journal.take(), ["start first", "start a", "fail b", "stop a", "stop first"]);
    assert!(ExitReason::Error(Arc::new(error)).find::<Broken>().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_nested_supervisor_is_stopped_by_message_and_counted_as_one() {
    let journal = Journal::default();
    let inner =
        Supervisor::one_for_one().children([worker("a", &journal), worker("b", &journal)]).spec("inner");
    assert_eq!(inner.id().as_str(), "inner");
    let root = Supervisor::one_for_one().children([inner, worker("c", &journal)]).start().await.unwrap();
    let counts = root.count_children().await.unwrap();
    assert_eq!((counts.supervisors, counts.workers), (1, 1));
    let nested = SupervisorRef::of(&cell(&root, "inner").await).await.unwrap();
    journal.take();
    root.shutdown().await;
    assert_eq!(journal.take(), ["stop c", "stop b", "stop a"]);
    assert!(matches!(*nested.ended().await, ExitReason::Shutdown));
    assert!(SupervisorRef::of(nested.cell()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_killed_nested_supervisor_is_restarted_with_its_children() {
    let journal = Journal::default();
    let inner = Supervisor::one_for_one().children([worker("a", &journal)]).spec("inner");
    let root = Supervisor::one_for_one().child(inner).start().await.unwrap();
    let mut events = root.events(16);
    let nested = cell(&root, "inner").await;
    let nested = SupervisorRef::of(&nested).await.unwrap();
    nested.cell().kill();
    assert!(matches!(*nested.ended().await, ExitReason::Killed));
    assert_eq!(restarted(&mut events, "inner").await, 2);
    assert_eq!(journal.take(), ["start a", "start a"], "a kill runs no post_stop");
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_gets_a_reference_to_its_supervisor() {
    let seen: Arc<Mutex<Vec<(u64, SupervisorRef)>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let spec = ChildSpec::new("a", move |context| {
        sink.lock().unwrap().push((context.incarnation, context.supervisor.clone()));
        async move {
            use ractor::Actor;
            let script = Script { name: "a", ..Script::default() };
            let (actor, _) =
                crate::kit::Worker::spawn_linked(None, crate::kit::Worker(script), (), context.cell())
                    .await?;
            Ok(actor.get_cell())
        }
    })
    .kind(ChildKind::Worker);
    let root = Supervisor::one_for_one().child(spec).start().await.unwrap();
    let mut events = root.events(16);
    cell(&root, "a").await.kill();
    restarted(&mut events, "a").await;
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen.iter().map(|(incarnation, _)| *incarnation).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(seen[0].1.cell(), root.cell());
    seen[1].1.shutdown().await;
    assert!(!root.is_running());
}

#[tokio::test(start_paused = true)]
async fn an_unlinked_child_is_adopted() {
    let spec = ChildSpec::new("a", |_| async {
        use ractor::Actor;
        let script = Script { name: "a", ..Script::default() };
        let (actor, _) = crate::kit::Worker::spawn(None, crate::kit::Worker(script), ()).await?;
        Ok(actor.get_cell())
    });
    let root =
        Supervisor::one_for_one().intensity(5, Duration::from_secs(1)).child(spec).start().await.unwrap();
    let mut events = root.events(16);
    for incarnation in 2..=3 {
        cell(&root, "a").await.kill();
        assert_eq!(restarted(&mut events, "a").await, incarnation);
    }
    root.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_dead_before_its_start_is_answered_is_not_lost() {
    for linked in [true, false] {
        let spec = ChildSpec::new("a", move |context| async move {
            use ractor::Actor;
            let made = crate::kit::Worker(Script { name: "a", ..Script::default() });
            let (actor, _) = match linked {
                true => crate::kit::Worker::spawn_linked(None, made, (), context.cell()).await?,
                false => crate::kit::Worker::spawn(None, made, ()).await?,
            };
            actor.kill();
            actor.wait(None).await?;
            Ok(actor.get_cell())
        });
        let builder = Supervisor::one_for_one().intensity(3, Duration::from_secs(1)).child(spec);
        let mut events = builder.events(64);
        let root = builder.start().await.unwrap();
        let reason = root.ended().await;
        assert!(reason.find::<SupervisorExit>().is_some(), "{linked}");
        let restarts = std::iter::from_fn(|| events.try_next())
            .filter(|event| matches!(event, SupervisorEvent::ChildRestarted { .. }));
        assert_eq!(restarts.count(), 3);
    }
}

#[test]
fn a_child_lives_on_the_runtime_it_is_told_to() {
    let here = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let there = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("there")
        .enable_all()
        .build()
        .unwrap();
    let names: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let sink = Arc::clone(&names);
    let journal = Journal::default();
    let inner =
        Supervisor::one_for_one().child(worker("a", &journal)).spec("inner").on(there.handle().clone());
    let probe = ChildSpec::new("probe", move |context| {
        let sink = Arc::clone(&sink);
        async move {
            use ractor::Actor;
            sink.lock().unwrap().push(std::thread::current().name().map(str::to_owned));
            let script = Script { name: "probe", ..Script::default() };
            let (actor, _) =
                crate::kit::Worker::spawn_linked(None, crate::kit::Worker(script), (), context.cell())
                    .await?;
            Ok(actor.get_cell())
        }
    })
    .on(there.handle().clone());
    here.block_on(async {
        let root = Supervisor::one_for_one().children([probe, inner]).start().await.unwrap();
        let mut events = root.events(16);
        cell(&root, "probe").await.kill();
        assert_eq!(restarted(&mut events, "probe").await, 2);
        cell(&root, "inner").await.kill();
        // The intensity of one in five seconds is used up.
        assert!(root.ended().await.find::<SupervisorExit>().is_some());
    });
    assert_eq!(*names.lock().unwrap(), [Some("there".to_owned()), Some("there".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tree_under_random_kills_on_many_threads_stays_whole_and_ends() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    for make in [Supervisor::one_for_one, Supervisor::one_for_all, Supervisor::rest_for_one] {
        let journal = Journal::default();
        let root = make()
            .intensity(u32::MAX, Duration::from_secs(60))
            .children(NAMES.map(|name| worker(name, &journal)))
            .start()
            .await
            .unwrap();
        let killers: Vec<_> = (0..4)
            .map(|offset| {
                let root = root.clone();
                tokio::spawn(async move {
                    for round in 0..200 {
                        let name = NAMES[(round * 5 + offset) % NAMES.len()];
                        if round % 7 == offset {
                            root.terminate_child(name).await.unwrap();
                            // Somebody else's restart of the group may have been faster.
                            let _ = root.restart_child(name).await;
                        }
                        let children = root.which_children().await.unwrap();
                        let cell =
                            children.into_iter().find(|child| child.id == name).and_then(|child| child.cell);
                        if let Some(cell) = cell {
                            cell.kill();
                        }
                    }
                })
            })
            .collect();
        for killer in killers {
            killer.await.unwrap();
        }
        // Restarts that are still under way may come first; then every child runs exactly once.
        loop {
            let counts = root.count_children().await.unwrap();
            let down = root.which_children().await.unwrap();
            for child in down.iter().filter(|child| child.status == kohort_supervisor::ChildStatus::Down) {
                let _ = root.restart_child(&child.id).await;
            }
            if counts.active == NAMES.len() {
                break;
            }
        }
        // ractor unlinks an actor a moment after it has reported its exit.
        let unlinked = async {
            while root.cell().get_children().len() != NAMES.len() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), unlinked).await.expect("no incarnation is left over");
        assert!(matches!(*root.shutdown().await, ExitReason::Shutdown));
    }
}
