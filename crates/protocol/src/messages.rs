//! The requests and answers that Kohort speaks, as plain data. The wire never leaks past these types.
//!
//! A field that a version lacks has its default, or the value that the field's line names.

pub mod admin;
pub mod cluster;
pub mod data;
pub mod group;
pub mod offsets;

pub use admin::*;
pub use cluster::*;
pub use data::*;
pub use group::*;
pub use offsets::*;
