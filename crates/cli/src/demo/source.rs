//! The demo's input: a file's lines, or orders made up here.

use std::fs::File;
use std::path::Path;

use crate::exit::CliError;
use crate::lines::{self, Lines};

/// Records to produce, one after the other.
pub(super) enum Source {
    /// The lines of a file.
    File { lines: Lines<File>, bytes: u64 },
    /// Orders of a few hundred customers.
    Orders { left: u64, total: u64, seed: u64 },
}

/// A key, a value, and how much of [`Source::size`] they are.
pub(super) struct Item {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Vec<u8>,
    pub(super) size: u64,
}

impl Source {
    pub(super) fn open(input: Option<&Path>, records: u64) -> Result<Self, CliError> {
        let Some(path) = input else {
            return Ok(Source::Orders { left: records, total: records, seed: 0x9e37_79b9_7f4a_7c15 });
        };
        let open = || {
            let file = File::open(path)?;
            let bytes = file.metadata()?.len();
            Ok(Source::File { lines: Lines::new(file), bytes })
        };
        open()
            .map_err(|error: std::io::Error| CliError::Usage(format!("--input {}: {error}", path.display())))
    }

    /// Bytes of a file, number of orders; 0 where it cannot be known.
    pub(super) fn size(&self) -> u64 {
        match self {
            Source::File { bytes, .. } => *bytes,
            Source::Orders { total, .. } => *total,
        }
    }

    /// The next record. Reads a file as it goes, in large pieces.
    pub(super) fn next(&mut self) -> Result<Option<Item>, CliError> {
        match self {
            Source::File { lines, .. } => {
                let line = lines.next().map_err(|error| CliError::io("reading the input", error))?;
                Ok(line.map(|line| {
                    let size = line.len() as u64 + 1;
                    let (key, value) = lines::split(line, b"\t");
                    Item { key, value, size }
                }))
            }
            Source::Orders { left: 0, .. } => Ok(None),
            Source::Orders { left, seed, .. } => {
                *left -= 1;
                // Xorshift: only a spread of customers and amounts is needed, the same in every run.
                *seed ^= *seed << 13;
                *seed ^= *seed >> 7;
                *seed ^= *seed << 17;
                let key = format!("customer-{:03}", *seed % 400).into_bytes();
                let value = (1 + (*seed >> 32) % 500).to_string().into_bytes();
                Ok(Some(Item { key: Some(key), value, size: 1 }))
            }
        }
    }
}
