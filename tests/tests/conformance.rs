//! Every row of the catalogue has its named tests where it asks for them. That they are green is what `cargo test` says
//! with them; the `conformance` program runs just these and counts.

#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use kohort_tests::blocks;
use kohort_tests::conformance::{Asks, ROWS, missing, rows, tests};
use kohort_tests::workspace::read;

#[test]
fn every_row_has_a_named_test_wherever_it_asks_for_one() {
    let (rows, tests) = (rows(&read(ROWS)), tests());
    let rows = rows.unwrap_or_else(|error| panic!("{ROWS}: {error}"));
    let without: Vec<String> = rows
        .iter()
        .flat_map(|row| missing(row, &tests).into_iter().map(move |place| format!("{} on {place}", row.id)))
        .collect();
    assert!(without.is_empty(), "rows without a test: {}", without.join(", "));
}

/// A mistyped id would count for nothing. Field reports beyond the list have tests too.
#[test]
fn every_id_in_a_tests_name_is_a_rows() {
    let rows = rows(&read(ROWS)).unwrap_or_else(|error| panic!("{ROWS}: {error}"));
    for (id, named) in tests() {
        let known = rows.iter().any(|row| row.id == id) || id.starts_with("D-");
        assert!(known, "{id} is no row, but a test names it: {named:?}");
    }
}

/// Each row with its tests, as they are in the sources.
#[test]
fn the_document_lists_every_row_with_its_tests() {
    let (rows, tests) = (rows(&read(ROWS)).unwrap_or_else(|error| panic!("{ROWS}: {error}")), tests());
    let mut text = String::from("| row | asks for | tests |\n|---|---|---|\n");
    for row in &rows {
        let named: Vec<String> = match &row.asks {
            Asks::NotApplicable { reason } => vec![format!("does not apply: {reason}")],
            Asks::Tests(_) => {
                let own = tests.get(&row.id).into_iter().flatten();
                own.map(|test| format!("{}: `{}`", test.place, test.name)).collect()
            }
        };
        writeln!(text, "| {} | {} | {} |", row.id, row.what, named.join("<br>")).unwrap();
    }
    blocks::check("docs/conformance.md", &[("rows", text)]);
}
