//! N memberships against one coordinator in virtual time, with seeded delay, loss and crashes. Every seed must
//! keep the invariants (see `world.rs`) and settle once the faults stop.
//!
//! `KOHORT_SIM_SEEDS=10000` runs so many seeds, `KOHORT_SIM_SEED=17` one alone, `KOHORT_SIM_TRACE=1` prints
//! what happens.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

#[path = "simulation/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Sabotage, World};

fn run(seed: u64, sabotage: Sabotage) -> Result<world::Tally, String> {
    match catch_unwind(AssertUnwindSafe(|| World::new(seed, sabotage).run())) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {value:?}")))
}

#[test]
fn every_seed_keeps_the_invariants_and_settles() {
    if let Some(seed) = number("KOHORT_SIM_SEED") {
        run(seed, Sabotage::None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        return;
    }
    let seeds = number("KOHORT_SIM_SEEDS").unwrap_or(500);
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut total = world::Tally::default();
    let results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    (thread..seeds)
                        .step_by(threads as usize)
                        .map(|seed| run(seed, Sabotage::None).map_err(|violation| (seed, violation)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker that catches panics"))
            .collect::<Vec<_>>()
    });
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(tally) => total.add(&tally),
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort();
    for (seed, violation) in failures.iter().take(5) {
        eprintln!(
            "seed {seed}: {violation}\n  again: KOHORT_SIM_SEED={seed} KOHORT_SIM_TRACE=1 cargo test -p kohort-group --test simulation -- --nocapture"
        );
    }
    assert!(failures.is_empty(), "{} of {seeds} seeds failed", failures.len());
    eprintln!("{seeds} seeds: {total:?}");
    // A world in which nothing happens keeps every invariant: make sure that it was not that one.
    assert!(
        total.rejoins_after_crash > 0
            && total.crash_loops > 0
            && total.closes > 0
            && total.lost_partitions > 0
    );
    assert!(total.moves > 0 && total.gave_up > 0);
    assert!(total.generations > 3 * seeds && total.commits > 10 * seeds);
}

/// Each invariant is able to fail: a world that breaks it on purpose is caught.
#[test]
fn planted_violations_are_caught() {
    for (sabotage, word) in [
        (Sabotage::WorkersOutliveRelease, "workers alive"),
        (Sabotage::CommitPastWork, "past the work"),
        (Sabotage::AssignTwice, "two members"),
        (Sabotage::SpeakAfterTheEnd, "silent"),
        (Sabotage::NeverHeal, "settle"),
    ] {
        let caught =
            (0..50).filter_map(|seed| run(seed, sabotage).err()).find(|violation| violation.contains(word));
        assert!(caught.is_some(), "{sabotage:?} went unnoticed");
    }
}
