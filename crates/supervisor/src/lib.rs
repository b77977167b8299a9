//! OTP-style supervision on [ractor]: ordered start with rollback, ordered shutdown as a plan in the
//! message loop, restart intensity as OTP counts it, typed exit reasons with their causes.
//!
//! ```
//! use kohort_supervisor::{ChildSpec, Restart, Supervisor, SupervisorEvent};
//! use ractor::{Actor, ActorProcessingErr, ActorRef};
//! use std::time::Duration;
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
//! // Two that are no use without each other, as one child of the application.
//! let pair = Supervisor::one_for_all()
//!     .intensity(3, Duration::from_secs(60))
//!     .child(ChildSpec::actor("reader", || (Worker, ())))
//!     .child(ChildSpec::actor("writer", || (Worker, ())));
//! let app = Supervisor::one_for_one()
//!     .id("app")
//!     .child(pair.spec("pair"))
//!     .child(ChildSpec::task("ticker", || async {
//!         loop {
//!             tokio::time::sleep(Duration::from_secs(1)).await;
//!         }
//!     }).restart(Restart::Transient))
//!     .start()
//!     .await?;
//!
//! let mut events = app.events(16);
//! let children = app.which_children().await?;
//! children[1].cell.as_ref().ok_or("it runs")?.kill();
//! while !matches!(events.next().await, Some(SupervisorEvent::ChildRestarted { .. })) {}
//!
//! let tree = app.snapshot().await?;
//! assert_eq!(tree.find(["ticker"]).ok_or("it is there")?.incarnation, 2);
//! assert!(tree.to_string().contains("└─ ticker"));
//! app.shutdown_within(Duration::from_secs(5)).await;
//! # Ok(()) }
//! ```
//!
//! # OTP and Kohort
//!
//! | OTP | here |
//! |---|---|
//! | `supervisor:start_link` | [`SupervisorBuilder::start`]; [`start_linked`](SupervisorBuilder::start_linked) below any ractor actor |
//! | `one_for_one`, `one_for_all`, `rest_for_one` | [`Supervisor::one_for_one`], [`one_for_all`](Supervisor::one_for_all), [`rest_for_one`](Supervisor::rest_for_one) |
//! | `simple_one_for_one`, Elixir's `DynamicSupervisor` | [`DynamicSupervisor`], [`max_children`](DynamicSupervisor::max_children) |
//! | `intensity`, `period` | [`SupervisorBuilder::intensity`] |
//! | `auto_shutdown`, `significant` | [`AutoShutdown`], [`ChildSpec::significant`] |
//! | `child_spec()`, `{M, F, A}` | [`ChildSpec::actor`], [`ChildSpec::task`], [`ChildSpec::new`], a supervisor's [`spec`](SupervisorBuilder::spec) |
//! | `permanent`, `transient`, `temporary` | [`Restart`], and [`Restart::Delegated`], which is ours |
//! | `brutal_kill`, `timeout()`, `infinity` | [`Shutdown`] |
//! | `worker`, `supervisor` | [`ChildKind`] |
//! | `start_child`, `terminate_child`, `restart_child`, `delete_child`, `which_children`, `count_children` | the methods of [`SupervisorRef`] of these names |
//! | `check_childspecs` | [`SupervisorBuilder::check`], [`ChildSpec::check`] |
//! | `{error, running}`, `not_found`, … | [`SupervisorError`] |
//! | `reached_max_restart_intensity` | [`SupervisorExit::ReachedMaxIntensity`] |
//! | exit reasons | [`ExitReason`] |
//! | `observer` | [`SupervisorRef::snapshot`], [`TreeSnapshot`] |
//! | – | [`Backoff`], [`SupervisorBuilder::prepare`], [`SupervisorRef::shutdown_within`], [`SupervisorExit::Unkillable`] |
//!
//! Where a meaning differs from OTP's, and why, is in `docs/supervision.md` of the repository.
//!
//! # Features
//!
//! `serde`: [`TreeSnapshot`] can be serialised. Off by default.
//!
//! # Rooms
//!
//! `plan` decides (pure: no actors, no clock), `actor` performs, `builder`, `dynamic`, `spec` and `handle` are what
//! users touch, `reason`, `error`, `event` and `snapshot` are what comes out, `task` makes an actor of a future.
//! This crate knows nothing of Kafka.

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
