//! `docs/cli.md` shows the help of every subcommand as the command prints it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use kohort_tests::blocks;

fn help(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_kohort")).args(arguments).arg("--help").output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("```text\n{}\n```", lines.join("\n").trim_end())
}

#[test]
fn the_document_shows_the_help_as_it_is() {
    blocks::check(
        "docs/cli.md",
        &[
            ("help", help(&[])),
            ("help demo", help(&["demo"])),
            ("help broker", help(&["broker"])),
            ("help produce", help(&["produce"])),
            ("help consume", help(&["consume"])),
            ("help group", help(&["group"])),
        ],
    );
}
