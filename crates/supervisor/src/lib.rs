//! OTP-style supervision on [ractor]: ordered start with rollback, ordered shutdown as a plan in the
//! message loop, restart intensity as OTP counts it, typed exit reasons with their causes.
//!
//! ```
//! use kohort_supervisor::{ChildSpec, Supervisor};
//! use ractor::{Actor, ActorProcessingErr, ActorRef};
//!
//! struct Worker;
//!
//! impl Actor for Worker {
//!     type Msg = ();
//!     type State = ();
//!     type Arguments = ();
//!     async fn pre_start(&self, _: ActorRef<()>, _: ()) -> Result<(), ActorProcessingErr> {
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let app = Supervisor::one_for_one()
//!     .id("app")
//!     .child(ChildSpec::actor("worker", || (Worker, ())))
//!     .start()
//!     .await?;
//! assert_eq!(app.which_children().await?.len(), 1);
//! app.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! The words are those of OTP's `supervisor` module. One addition: [`Restart::Delegated`], a child whose exits
//! are told to a sibling, which decides.
//!
//! Rooms: `plan` decides (pure: no actors, no clock), `actor` performs, `builder`, `spec` and `handle` are what
//! users touch, `reason` and `error` are what comes out. This crate knows nothing of Kafka.

mod actor;
mod builder;
mod dynamic;
mod error;
mod event;
mod handle;
mod id;
mod plan;
mod reason;
mod snapshot;
mod spec;
mod task;

pub use builder::{AutoShutdown, PrepareDone, PrepareRequest, Strategy, Supervisor, SupervisorBuilder};
pub use dynamic::{DynamicRef, DynamicSupervisor};
pub use error::{BadSpec, ChildStartError, StartError, SupervisorError, SupervisorExit};
pub use event::SupervisorEvent;
pub use handle::{ChildCounts, ChildInfo, ChildStatus, ChildTarget, SupervisorRef};
pub use id::ChildId;
pub use reason::ExitReason;
pub use snapshot::{LastExit, SupervisorSnapshot, TreeSnapshot};
pub use spec::{Backoff, ChildKind, ChildSpec, DelegateNotice, Restart, Shutdown, StartContext};
pub use task::TaskOutput;
