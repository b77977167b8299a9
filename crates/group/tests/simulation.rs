//! N memberships against one coordinator in virtual time, with seeded delay, loss and crashes. Every seed must
//! keep the invariants (see `invariants.rs`) and settle once the faults stop.
//!
//! `KOHORT_SIM_SEEDS=10000` runs so many seeds, `KOHORT_SIM_SEED=17` one alone, `KOHORT_SIM_TRACE=1` prints
//! what happens.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

#[path = "simulation/broker.rs"]
mod broker;
#[path = "simulation/faults.rs"]
mod faults;
#[path = "simulation/invariants.rs"]
mod invariants;
#[path = "simulation/member.rs"]
mod member;
#[path = "simulation/network.rs"]
mod network;
#[path = "simulation/workers.rs"]
mod workers;
#[path = "simulation/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use invariants::{Invariant, Violation};
use world::{Tally, World};

/// Runs one world. A panic of a core (its setter refuses illegal transitions) fails the seed as a violation does.
fn run(seed: u64, plant: Option<Invariant>) -> Result<Result<Tally, Violation>, String> {
    catch_unwind(AssertUnwindSafe(|| World::new(seed, plant).run())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        format!("panicked: {}", text.unwrap_or_default())
    })
}

fn sound(seed: u64) -> Result<Tally, String> {
    run(seed, None)?.map_err(|violation| violation.to_string())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {value:?}")))
}

/// All of this has to have happened in some world: one in which nothing happens keeps every invariant.
const HAPPENS: [&str; 20] = [
    "generations",
    "commits",
    "rejoins after a crash",
    "crash loops",
    "closes",
    "default closes",
    "leaving closes",
    "remaining closes",
    "losses",
    "moves",
    "coordinator restarts",
    "static manager crashes",
    "dynamic manager crashes",
    "worker crashes",
    "workers gave up",
    "second incarnations",
    "fenced",
    "refused",
    "duplicates",
    "late deliveries",
];

#[test]
fn every_seed_keeps_the_invariants_and_settles() {
    if let Some(seed) = number("KOHORT_SIM_SEED") {
        sound(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        return;
    }
    let seeds = number("KOHORT_SIM_SEEDS").unwrap_or(500);
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    (thread..seeds)
                        .step_by(threads as usize)
                        .map(|seed| sound(seed).map_err(|violation| (seed, violation)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker that catches panics"))
            .collect::<Vec<_>>()
    });
    let mut total = Tally::default();
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
    eprintln!("{seeds} seeds: {:?}", total.0);
    for what in HAPPENS {
        assert!(total.of(what) > 0, "in {seeds} worlds there were no {what}");
    }
    assert!(total.of("generations") > 3 * seeds && total.of("commits") > 10 * seeds);
}

/// Each invariant is able to fail: a world that breaks it on purpose is caught, and for that.
#[test]
fn planted_violations_are_caught() {
    for invariant in Invariant::ALL {
        let caught = (0..200).any(|seed| {
            matches!(run(seed, Some(*invariant)), Ok(Err(violation)) if violation.invariant == *invariant)
        });
        assert!(caught, "nothing here breaks {invariant:?}, or nobody noticed");
    }
}

/// What a reader is told of is what is checked.
#[test]
fn the_documentation_lists_every_invariant() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/testing.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    for invariant in Invariant::ALL {
        assert!(page.contains(&format!("`{invariant:?}`")), "docs/testing.md does not name {invariant:?}");
    }
}
