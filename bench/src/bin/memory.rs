//! What an idle child costs in bytes: `cargo run --release --bin memory` in `bench/`.

use kohort_bench::{Parent, Probe, ours, peer_options, peers};
use kohort_supervisor::Supervisor;
use ractor::Actor;
use ractor_supervisor::{Supervisor as Peer, SupervisorArguments};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MANY: usize = 10_000;

/// Every actor has started, and every parent has heard of it.
async fn settle() {
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
}

fn net(region: &Region<'_, System>) -> isize {
    let change = region.change();
    change.bytes_allocated as isize - change.bytes_deallocated as isize
}

async fn bare(probe: &Probe) -> isize {
    let (parent, _) = Actor::spawn(None, Parent, ()).await.unwrap();
    let region = Region::new(ALLOCATOR);
    let mut cells = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        let (actor, _) = Actor::spawn_linked(None, probe.clone(), (), parent.get_cell()).await.unwrap();
        cells.push(actor.get_cell());
    }
    settle().await;
    let bytes = net(&region);
    for cell in cells {
        cell.stop(None);
        cell.wait(None).await.unwrap();
    }
    parent.stop(None);
    settle().await;
    bytes
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let probe = Probe::default();
    let per_child = |bytes: isize| bytes / MANY as isize;

    // The first round also fills what the runtime keeps for good.
    bare(&probe).await;
    let bare = bare(&probe).await;
    println!("bare ractor, linked    {:>6} bytes a child", per_child(bare));

    let region = Region::new(ALLOCATOR);
    let builder = Supervisor::one_for_one().children((0..MANY).map(|n| ours(format!("child-{n}"), &probe)));
    let root = builder.start().await.unwrap();
    drop(builder);
    settle().await;
    let ours = net(&region);
    root.shutdown().await;
    println!(
        "kohort                 {:>6} bytes a child, {} more than bare",
        per_child(ours),
        per_child(ours - bare)
    );

    let region = Region::new(ALLOCATOR);
    let specs = (0..MANY).map(|n| peers(format!("child-{n}"), &probe)).collect();
    let specs = SupervisorArguments { child_specs: specs, options: peer_options() };
    let (peer, end) = Peer::spawn("many".into(), specs).await.unwrap();
    while ractor::registry::where_is(format!("child-{}", MANY - 1)).is_none() {
        tokio::task::yield_now().await;
    }
    settle().await;
    let theirs = net(&region);
    peer.stop(None);
    end.await.unwrap();
    println!(
        "ractor-supervisor      {:>6} bytes a child, {} more than bare",
        per_child(theirs),
        per_child(theirs - bare)
    );
}
