//! What the tests of the house rules and of the documents share: the workspace's files and generated blocks.
//! The tests themselves are in the `tests` folder.

// Everything here is called by tests; to panic is how they fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod blocks;
pub mod conformance;
pub mod links;
pub mod workspace;

/// The programs in the README compile, and those that need no broker of their own run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
