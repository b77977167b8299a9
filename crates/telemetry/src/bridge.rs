//! The two bridges out of the process: `tracing` and `metrics`. They are always on; without a subscriber or a
//! recorder they do next to nothing. Called by every emit.

pub(crate) mod meter;
pub(crate) mod trace;
