//! The OTP cases on real actors, mostly under the paused clock.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "otp/backoff.rs"]
mod backoff;
#[path = "otp/delegate.rs"]
mod delegate;
#[path = "otp/kit.rs"]
mod kit;
#[path = "otp/lifetimes.rs"]
mod lifetimes;
#[path = "otp/observe.rs"]
mod observe;
#[path = "otp/restart.rs"]
mod restart;
#[path = "otp/snapshot.rs"]
mod snapshot;
#[path = "otp/start.rs"]
mod start;
#[path = "otp/stop.rs"]
mod stop;
#[path = "otp/task.rs"]
mod task;
#[path = "otp/tree.rs"]
mod tree;
