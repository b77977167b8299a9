//! The catalogue of what Kafka's and other clients' tests demand, and of what people ran into: its rows
//! (`tests/conformance/rows.tsv`), and the tests that carry a row's id in their name. Read by the `conformance`
//! program, which also runs them, and by the test of that name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::workspace;

/// The list of rows.
pub const ROWS: &str = "tests/conformance/rows.tsv";

/// Where a test of a row lies, by what it can see there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The pure state machines and assignors.
    Core,
    /// The member on real actors.
    Actor,
    /// The embedded broker as clients see it.
    Wire,
    /// The command.
    Command,
    /// Several brokers, or the whole.
    Cluster,
    /// The client's connections.
    Client,
}

impl Place {
    const ALL: [(Place, &str, &str); 6] = [
        (Place::Core, "core", "crates/group/"),
        (Place::Actor, "actor", "crates/kohort/"),
        (Place::Wire, "wire", "crates/broker/"),
        (Place::Command, "command", "crates/cli/"),
        (Place::Cluster, "cluster", "tests/tests/"),
        (Place::Client, "client", "crates/client/"),
    ];

    fn named(name: &str) -> Option<Place> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(place, ..)| *place)
    }

    fn of(file: &str) -> Option<Place> {
        Self::ALL.iter().find(|(_, _, folder)| file.starts_with(folder)).map(|(place, ..)| *place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(place, ..)| place == self).map(|(_, name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

/// What a row asks for, or why it does not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asks {
    /// A named test in each of these places.
    Tests(Vec<Place>),
    /// Nothing.
    NotApplicable {
        /// Why.
        reason: String,
    },
}

/// A row of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// For example `C-JOIN-01`.
    pub id: String,
    /// What it is about.
    pub what: String,
    /// What it asks for.
    pub asks: Asks,
}

impl Row {
    /// Its id without the number.
    pub fn area(&self) -> &str {
        self.id.rsplit_once('-').map_or(self.id.as_str(), |(area, _)| area)
    }
}

/// The rows, in the order of the file.
///
/// # Errors
/// The first line that is none, with what is wrong with it.
pub fn rows(text: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let wrong = |what: &str| Err(format!("line {}: {what}: {line}", number + 1));
        let (id, places, what, reason) = match *line.split('\t').collect::<Vec<_>>().as_slice() {
            [id, places, what] => (id, places, what, None),
            [id, places, what, reason] => (id, places, what, Some(reason)),
            _ => return wrong("not three columns, or four with a reason"),
        };
        if ids(&id.to_lowercase().replace('-', "_")) != [id] {
            return wrong("no row's id");
        }
        if rows.iter().any(|row| row.id == id) {
            return wrong("a second time");
        }
        let asks = match (places, reason) {
            ("n/a", Some(reason)) if !reason.trim().is_empty() => {
                Asks::NotApplicable { reason: reason.to_owned() }
            }
            ("n/a", _) => return wrong("does not apply, without a reason"),
            (_, Some(_)) => return wrong("a reason for what applies"),
            (places, None) => {
                let named: Option<Vec<Place>> = places.split('+').map(Place::named).collect();
                let Some(named) = named else { return wrong("an unknown place") };
                Asks::Tests(named)
            }
        };
        rows.push(Row { id: id.to_owned(), what: what.to_owned(), asks });
    }
    Ok(rows)
}

/// The rows that a test's name begins with: `c_hb_07_and_08_and_d_09_words` is C-HB-07, C-HB-08 and D-09.
pub fn ids(test: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut area: Option<String> = None;
    let mut words = test.split('_').peekable();
    while let Some(word) = words.next() {
        let number = word.len() == 2 && word.bytes().all(|byte| byte.is_ascii_digit());
        match (word, &area) {
            (number_of, Some(area)) if number => found.push(format!("{area}-{number_of}")),
            ("and", Some(_)) => {}
            ("c" | "b", _) => {
                let Some(kind) =
                    words.next_if(|kind| kind.len() > 1 && kind.bytes().all(|b| b.is_ascii_lowercase()))
                else {
                    break;
                };
                area = Some(format!("{}-{}", word.to_uppercase(), kind.to_uppercase()));
            }
            ("x" | "d", _) => area = Some(word.to_uppercase()),
            _ => break,
        }
    }
    found
}

/// A test that carries ids of rows in its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    /// The function's name.
    pub name: String,
    /// Where it lies.
    pub place: Place,
    /// The file.
    pub file: String,
}

/// Every test of the workspace that carries ids, by id.
pub fn tests() -> BTreeMap<String, BTreeSet<Test>> {
    let mut tests: BTreeMap<String, BTreeSet<Test>> = BTreeMap::new();
    for file in workspace::files("", ".rs") {
        let Some(place) = Place::of(&file) else { continue };
        let text = workspace::read(&file);
        let mut attributed = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                attributed = true;
            }
            let Some(name) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") else {
                continue;
            };
            let name: String = name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if std::mem::take(&mut attributed) {
                for id in ids(&name) {
                    let test = Test { name: name.clone(), place, file: file.clone() };
                    tests.entry(id).or_default().insert(test);
                }
            }
        }
    }
    tests
}

/// The places where a row asks for a test and none is.
pub fn missing(row: &Row, tests: &BTreeMap<String, BTreeSet<Test>>) -> Vec<Place> {
    let Asks::Tests(places) = &row.asks else { return Vec::new() };
    let has =
        |place: &Place| tests.get(&row.id).is_some_and(|own| own.iter().any(|test| test.place == *place));
    places.iter().copied().filter(|place| !has(place)).collect()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_tests_name_says_its_rows() {
        for (name, expected) in [
            ("c_join_01_a_demand", vec!["C-JOIN-01"]),
            ("b_static_09_and_10_who", vec!["B-STATIC-09", "B-STATIC-10"]),
            ("c_hb_07_08_and_c_reb_04_lost", vec!["C-HB-07", "C-HB-08", "C-REB-04"]),
            ("c_hb_11_c_coord_04_d_26_a_coordinator", vec!["C-HB-11", "C-COORD-04", "D-26"]),
            ("b_sess_02_and_x_02_a_commit", vec!["B-SESS-02", "X-02"]),
            ("c_crash_01_and_c_crash_11_kills_1_to_3", vec!["C-CRASH-01", "C-CRASH-11"]),
            ("a_commit_of_nothing", vec![]),
            ("b_oc_01_and_02_who", vec!["B-OC-01", "B-OC-02"]),
            ("what_c_join_01_is", vec![]),
        ] {
            assert_eq!(ids(name), expected, "{name}");
        }
    }

    #[test]
    fn a_line_that_is_no_row_is_refused() {
        let good = "# id\tplaces\nC-JOIN-01\tcore+actor\twhat\nD-01\tn/a\twhat\twhy\n";
        let read = rows(good).unwrap();
        assert_eq!(read[0].asks, Asks::Tests(vec![Place::Core, Place::Actor]));
        assert_eq!((read[0].area(), read[1].area()), ("C-JOIN", "D"));
        for wrong in [
            "C-JOIN-01\tcore",
            "JOIN\tcore\twhat",
            "C-JOIN-01\tn/a\twhat",
            "C-JOIN-01\tcore\twhat\twhy",
            "C-JOIN-01\tnowhere\twhat",
            "C-JOIN-01\tcore\twhat\nC-JOIN-01\tcore\twhat",
        ] {
            assert!(rows(wrong).is_err(), "{wrong}");
        }
    }
}
