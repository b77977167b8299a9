//! The coordinator's core against the catalogue: one test a row, its id in the name. Rows on the wire (X-05 to
//! B-OC-09) are tested in the broker.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

#[path = "coordinator/joining.rs"]
mod joining;
#[path = "coordinator/lifecycle.rs"]
mod lifecycle;
#[path = "coordinator/offsets.rs"]
mod offsets;
#[path = "coordinator/sessions.rs"]
mod sessions;
#[path = "coordinator/stand.rs"]
mod stand;
#[path = "coordinator/static_members.rs"]
mod static_members;
