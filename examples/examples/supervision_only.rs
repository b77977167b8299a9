//! OTP supervision without Kafka: a tree of tasks and actors, parts of which are killed and come back. Ends by
//! itself: `cargo run -p kohort-examples --example supervision_only`.

use std::error::Error;
use std::time::Duration;

use kohort_supervisor::{
    Backoff, ChildSpec, DynamicSupervisor, Restart, Supervisor, SupervisorEvent, SupervisorRef,
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};

/// Counts what it is sent. A crash costs it its count, and nobody else anything.
struct Counter;

impl Actor for Counter {
    type Msg = u64;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<u64>, _: ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(&self, _: ActorRef<u64>, more: u64, count: &mut u64) -> Result<(), ActorProcessingErr> {
        *count = count.checked_add(more).ok_or("it counted too far")?;
        Ok(())
    }
}

async fn child(supervisor: &SupervisorRef, id: &str) -> Result<ActorCell, Box<dyn Error>> {
    let children = supervisor.which_children().await?;
    let cell = children.into_iter().find(|child| child.id == *id).and_then(|child| child.cell);
    cell.ok_or_else(|| format!("{id} does not run").into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let minute = Duration::from_secs(60);

    // A source and a sink that are no use without each other: one_for_all.
    let pipeline = Supervisor::one_for_all()
        .intensity(3, minute)
        .child(ChildSpec::actor("source", || (Counter, ())))
        .child(ChildSpec::actor("sink", || (Counter, ())));

    // Connections that come and go: started by argument, at most ten.
    let connections = DynamicSupervisor::new(|port: u16| {
        ChildSpec::task(format!("port-{port}"), std::future::pending::<()>).restart(Restart::Transient)
    })
    .max_children(10)
    .intensity(3, minute);

    // A task that fails now and then; its restarts wait a little longer each time.
    let backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1)).jitter(0.2, 42);
    let poller = ChildSpec::task_with("poller", |context| async move {
        if context.incarnation < 3 {
            return Err("the service does not answer yet");
        }
        std::future::pending().await
    });

    let app = Supervisor::one_for_one()
        .id("app")
        .intensity(10, minute)
        .child(pipeline.spec("pipeline"))
        .child(connections.spec("connections"))
        .child(poller.backoff(backoff));
    let mut events = app.events(256);
    let app = app.start().await?;

    let of_connections = SupervisorRef::of(&child(&app, "connections").await?).await;
    let of_connections = of_connections.ok_or("connections does not run")?;
    for port in [8080, 8081] {
        connections.bind(of_connections.clone()).start_child(port).await?;
    }
    println!("before:\n{}", app.snapshot().await?);

    let of_pipeline = SupervisorRef::of(&child(&app, "pipeline").await?).await;
    let of_pipeline = of_pipeline.ok_or("pipeline does not run")?;
    let mut below = of_pipeline.events(64);
    println!("killing source: its sibling is restarted with it");
    child(&of_pipeline, "source").await?.kill();
    while !matches!(below.next().await, Some(SupervisorEvent::ChildRestarted { child, .. }) if child == *"sink")
    {
    }

    let mut below = of_connections.events(64);
    println!("killing port-8080: it comes back alone");
    child(&of_connections, "port-8080").await?.kill();
    while !matches!(below.next().await, Some(SupervisorEvent::ChildRestarted { .. })) {}

    println!("waiting for poller: it fails twice\n");
    loop {
        match events.next().await {
            Some(SupervisorEvent::ChildRestarted { child, incarnation: 3, .. }) if child == *"poller" => {
                break;
            }
            Some(_) => {}
            None => return Err("the tree is gone".into()),
        }
    }
    println!("after:\n{}", app.snapshot().await?);

    let reason = app.shutdown_within(Duration::from_secs(5)).await;
    println!("the tree ended: {reason}");
    Ok(())
}
