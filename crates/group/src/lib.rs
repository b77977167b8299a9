//! The Kafka group protocol as two pure state machines: [`Membership`] is a member's side, [`Coordinator`]
//! the broker's. Neither knows a runtime, a clock, a socket or chance: `now` and a seed come in, plain
//! [`Effect`]s go out, and whoever drives them performs these in one place.
//!
//! Both roles live side by side so that they can be run against each other in memory. A misreading that both
//! share can then only be caught by foreign brokers and clients; the interop tests are for that.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod assignor;
pub mod backoff;
pub mod coordinator;
pub mod crash_window;
pub mod membership;
pub mod offsets;
pub mod seed;
pub mod verdict;

pub use assignor::Assignor;
pub use coordinator::Coordinator;
pub use crash_window::{CrashBound, CrashWindow};
pub use membership::{Effect, Effects, Input, MemberState, Membership, MembershipConfig, Notice};
pub use verdict::{GroupApi, Verdict, verdict};
