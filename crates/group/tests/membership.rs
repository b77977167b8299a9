//! The member's core against the catalogue: state + input → state and effects, one test a row, its id in the name.
//! Rows that are about time on the wire are tested on real actors in `crates/kohort/tests`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

#[path = "membership/closes.rs"]
mod closes;
#[path = "membership/committing.rs"]
mod committing;
#[path = "membership/cooperating.rs"]
mod cooperating;
#[path = "membership/ending.rs"]
mod ending;
#[path = "membership/every_answer.rs"]
mod every_answer;
#[path = "membership/heart.rs"]
mod heart;
#[path = "membership/joining.rs"]
mod joining;
#[path = "membership/leading.rs"]
mod leading;
#[path = "membership/mid_rebalance.rs"]
mod mid_rebalance;
#[path = "membership/stand.rs"]
mod stand;
