//! The rules of the house: who may depend on whom, and what every file looks like.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use kohort_tests::workspace::{files, read, root};
use serde_json::Value;

const MAX_LINES: usize = 700;

/// Ours that each crate may depend on in a normal dependency; the table of `docs/architecture.md`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("kohort-telemetry", &[]),
    ("kohort-supervisor", &["kohort-telemetry"]),
    ("kohort-protocol", &[]),
    ("kohort-group", &["kohort-protocol"]),
    ("kohort-client", &["kohort-protocol", "kohort-telemetry"]),
    (
        "kohort",
        &["kohort-supervisor", "kohort-group", "kohort-client", "kohort-protocol", "kohort-telemetry"],
    ),
    ("kohort-broker", &["kohort-group", "kohort-protocol", "kohort-telemetry"]),
    (
        "kohort-cli",
        &[
            "kohort",
            "kohort-broker",
            "kohort-client",
            "kohort-protocol",
            "kohort-supervisor",
            "kohort-telemetry",
        ],
    ),
    ("kohort-examples", &["kohort", "kohort-broker", "kohort-supervisor"]),
    ("kohort-tests", &["kohort", "kohort-broker"]),
];

/// Foreign crates that a crate of ours may not know.
const MAY_NOT_KNOW: &[(&str, &[&str])] = &[
    ("kohort-telemetry", &["tokio", "ractor", "kafka-protocol"]),
    ("kohort-supervisor", &["kafka-protocol"]),
    ("kohort-protocol", &["tokio", "tokio-util", "ractor", "socket2"]),
    ("kohort-group", &["tokio", "tokio-util", "ractor", "socket2", "rand", "kafka-protocol"]),
    ("kohort-client", &["ractor", "kafka-protocol"]),
    ("kohort-broker", &["ractor", "kafka-protocol"]),
    ("kohort", &["kafka-protocol"]),
    ("kohort-cli", &["kafka-protocol", "anyhow"]),
];

fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().expect("dependencies");
            let normal = all.iter().filter(|dependency| dependency["kind"].is_null());
            let names = normal.map(|dependency| dependency["name"].as_str().expect("a name").to_owned());
            (package["name"].as_str().expect("a name").to_owned(), names.collect())
        })
        .collect()
}

#[test]
fn a_crate_depends_only_on_what_it_may_know() {
    let crates = dependencies();
    let known: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    for (name, uses) in &crates {
        let may = known.get(name.as_str()).unwrap_or_else(|| panic!("{name} stands in no table"));
        for used in uses.iter().filter(|used| crates.contains_key(*used)) {
            assert!(may.contains(&used.as_str()), "{name} may not depend on {used}");
        }
    }
    for (name, forbidden) in MAY_NOT_KNOW {
        let uses = crates.get(*name).unwrap_or_else(|| panic!("there is no {name}"));
        for foreign in *forbidden {
            assert!(!uses.contains(*foreign), "{name} may not know {foreign}");
        }
    }
    for (name, uses) in &crates {
        assert!(name == "kohort-protocol" || !uses.contains("kafka-protocol"), "{name} names kafka-protocol");
        assert!(!uses.contains("kohort-cli"), "{name} depends on the command");
        assert!(!uses.contains("anyhow"), "{name}: errors are typed here");
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    // The benches are no part of the workspace: their peers must not share its features.
    let member = |path: &&String| *path != "Cargo.toml" && !path.starts_with("bench/");
    for manifest in files("", "Cargo.toml").iter().filter(member) {
        let text = read(manifest);
        assert!(
            text.contains("[lints]\nworkspace = true"),
            "{manifest} does not take the lints of the workspace"
        );
        assert!(text.contains("edition.workspace = true"), "{manifest} has an edition of its own");
    }
}

#[test]
fn a_source_file_says_what_it_is_and_is_not_too_long() {
    let sources: Vec<String> =
        files("crates", ".rs").into_iter().filter(|path| path.contains("/src/")).collect();
    assert!(sources.len() > 50, "the sources were not found");
    for path in sources.iter().chain(&files("examples", ".rs")) {
        let text = read(path);
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{path} has {lines} lines; split it: {MAX_LINES} is the limit");
        assert!(text.starts_with("//! "), "{path} does not open with what it is");
    }
}

#[test]
fn nothing_is_left_to_be_done_in_the_sources() {
    // Written in two halves, so that this file is not found itself.
    let left =
        [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!("), concat!("FIX", "ME")];
    for path in files("", ".rs") {
        assert!(!path.ends_with("/mod.rs"), "{path}: a module is foo.rs beside foo/");
        let text = read(&path);
        for word in left {
            assert!(!text.contains(word), "{path} contains {word}");
        }
    }
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    let folders =
        [concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
    for ending in [".rs", ".toml", ".md", "/run", ".yml", ".py", ".sh"] {
        for path in files("", ending.trim_start_matches('/')) {
            let text = read(&path);
            for folder in folders {
                for (at, _) in text.match_indices(folder) {
                    let before = text[..at].chars().next_back();
                    let inside = before.is_some_and(|char| char.is_alphanumeric() || "._-/".contains(char));
                    assert!(inside, "{path} names {folder}");
                }
            }
        }
    }
}
