//! The OTP cases on real actors, mostly under the paused clock.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "otp/delegate.rs"]
mod delegate;
#[path = "otp/kit.rs"]
mod kit;
#[path = "otp/restart.rs"]
mod restart;
#[path = "otp/start.rs"]
mod start;
#[path = "otp/stop.rs"]
mod stop;
#[path = "otp/tree.rs"]
mod tree;
