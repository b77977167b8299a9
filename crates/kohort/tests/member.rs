//! The member on real actors, against the embedded broker in memory, under the paused clock: timing is exact
//! and nothing sleeps for luck.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "member/abused.rs"]
mod abused;
#[path = "member/answers.rs"]
mod answers;
#[path = "member/between.rs"]
mod between;
#[path = "member/closing.rs"]
mod closing;
#[path = "member/commits.rs"]
mod commits;
#[path = "member/consuming.rs"]
mod consuming;
#[path = "member/cooperative.rs"]
mod cooperative;
#[path = "member/cooperative_commits.rs"]
mod cooperative_commits;
#[path = "member/crash_bound.rs"]
mod crash_bound;
#[path = "member/ends.rs"]
mod ends;
#[path = "member/every_close.rs"]
mod every_close;
#[path = "member/handing_over.rs"]
mod handing_over;
#[path = "member/handshake.rs"]
mod handshake;
#[path = "member/hearts.rs"]
mod hearts;
#[path = "member/leaving.rs"]
mod leaving;
#[path = "member/offsets.rs"]
mod offsets;
#[path = "member/outages.rs"]
mod outages;
#[path = "member/rebalances.rs"]
mod rebalances;
#[path = "member/responsive.rs"]
mod responsive;
#[path = "member/retries.rs"]
mod retries;
#[path = "member/static_members.rs"]
mod static_members;
#[path = "member/support.rs"]
mod support;
#[path = "member/topics.rs"]
mod topics;
#[path = "member/worlds.rs"]
mod worlds;
