//! Typed telemetry events: the plumbing that every Kohort crate emits through.
//!
//! A crate defines its own events by implementing [`Event`] and emits them through a [`Hub`]. One emit reaches,
//! in this order:
//!
//! 1. the typed subscribers of that hub ([`Hub::subscribe`], an [`EventStream`]),
//! 2. the `tracing` bridge (target `kohort`) and the `metrics` bridge, both always on and free of effect when
//!    nobody installed a subscriber or a recorder,
//! 3. the process-wide handlers ([`attach`]) and subscriptions ([`subscribe`]).
//!
//! Emitting never blocks and never fails: a slow subscriber loses its oldest events and is told how many, a
//! handler that panics is removed and reported ([`HandlerFailed`]).
//!
//! Labels come from the closed set [`Label`], so the number of series stays bounded; whatever is unbounded
//! (member ids, offsets, error text) is a *value* and never a label.
//!
//! This crate knows no domain and no async runtime.

mod bridge;
mod event;
mod hub;
mod label;
mod registry;
mod ring;

pub use bridge::meter::{Description, describe};
pub use event::{AnyEvent, ErasedEvent, Event};
pub use hub::Hub;
pub use label::Label;
pub use registry::{Filter, HandlerFailed, HandlerId, attach, detach, subscribe};
pub use ring::EventStream;
