//! Generated blocks of `docs/protocol.md`: both state machines, verdicts, closes, versions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use kohort_group::coordinator::GroupState;
use kohort_group::membership::{GroupMembershipOperation, TRANSITIONS};
use kohort_group::verdict::Forget;
use kohort_group::{GroupApi, MemberState, Verdict, verdict};
use kohort_protocol::{ApiKey, ErrorCode};
use kohort_tests::{blocks, workspace};

/// What the code says of each variant of an enum: the lines above it, as one.
fn meanings(file: &str, of: &str) -> BTreeMap<String, String> {
    let text = workspace::read(file);
    let body =
        text.split(&format!("pub enum {of} {{")).nth(1).expect("the enum").split("\n}").next().unwrap();
    let (mut meanings, mut lines) = (BTreeMap::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        match line.strip_prefix("///") {
            Some(text) => lines.push(text.trim()),
            None if line.ends_with(',') => {
                meanings.insert(line.trim_end_matches(',').to_owned(), std::mem::take(&mut lines).join(" "));
            }
            None => {}
        }
    }
    meanings
}

fn state_table<S: Copy + PartialEq + Display>(
    states: &[S],
    transitions: &[(S, S)],
    meanings: &BTreeMap<String, String>,
) -> String {
    let mut text = String::from("| state | meaning | may follow | may be followed by |\n|---|---|---|---|\n");
    let list = |states: Vec<S>| {
        let names: Vec<String> = states.iter().map(ToString::to_string).collect();
        if names.is_empty() { "–".to_owned() } else { names.join(", ") }
    };
    for state in states {
        let before = transitions.iter().filter(|(_, to)| to == state).map(|(from, _)| *from).collect();
        let after = transitions.iter().filter(|(from, _)| from == state).map(|(_, to)| *to).collect();
        let meaning = &meanings[&state.to_string()];
        writeln!(text, "| {state} | {meaning} | {} | {} |", list(before), list(after)).unwrap();
    }
    text
}

fn state_drawing<S: Display>(first: S, transitions: &[(S, S)], last: &[S]) -> String {
    let mut text = format!("```mermaid\nstateDiagram-v2\n    [*] --> {first}\n");
    for (from, to) in transitions {
        writeln!(text, "    {from} --> {to}").unwrap();
    }
    for state in last {
        writeln!(text, "    {state} --> [*]").unwrap();
    }
    text + "```\n"
}

fn close_table() -> String {
    let mut text = String::from("| | Default | LeaveGroup | RemainInGroup |\n|---|---|---|---|\n");
    for (member, is_static) in [("dynamic member", false), ("static member", true)] {
        let cells: Vec<&str> = GroupMembershipOperation::ALL
            .iter()
            .map(|operation| match (operation.leaves(is_static), is_static) {
                (true, false) => "LeaveGroup with the member id",
                (true, true) => "LeaveGroup with member id and instance id",
                (false, _) => "nothing: the place is kept until the session timeout",
            })
            .collect();
        writeln!(text, "| {member} | {} |", cells.join(" | ")).unwrap();
    }
    text
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Success => "success",
        Verdict::JoinWithGivenId => "join with the id",
        Verdict::Retry => "retry",
        Verdict::FindCoordinator => "find coordinator",
        Verdict::Rejoin(Forget::Nothing) => "rejoin",
        Verdict::Rejoin(Forget::Generation) => "rejoin, keep id",
        Verdict::Rejoin(Forget::Identity) => "rejoin, drop id",
        Verdict::Surface => "tell",
        Verdict::Log => "log",
        Verdict::Fenced => "**fenced**",
        Verdict::Unauthorized => "**unauthorized**",
        Verdict::Refused => "**refused**",
    }
}

fn verdict_table() -> String {
    let names: Vec<&str> = GroupApi::ALL.iter().map(|api| api.name()).collect();
    let mut text = format!("| code | {} |\n|---{}|\n", names.join(" | "), "|---".repeat(names.len()));
    for code in ErrorCode::ALL.iter().chain(&[ErrorCode::Other(999)]) {
        let shown = match code {
            ErrorCode::Other(_) => "any other".to_owned(),
            named => format!("{named:?} ({})", named.code()),
        };
        let words: Vec<&str> = GroupApi::ALL.iter().map(|api| word(verdict(*api, *code))).collect();
        writeln!(text, "| {shown} | {} |", words.join(" | ")).unwrap();
    }
    text
}

fn version_table() -> String {
    let mut text = String::from("| key | request | versions |\n|---|---|---|\n");
    for api in ApiKey::ALL {
        writeln!(text, "| {} | {api} | {} |", api.key(), api.versions()).unwrap();
    }
    text
}

#[test]
fn protocol_shows_states_verdicts_closes_and_versions_as_the_code_has_them() {
    let members = meanings("crates/group/src/membership/state.rs", "MemberState");
    let groups = meanings("crates/group/src/coordinator/group.rs", "GroupState");
    let last: Vec<MemberState> = MemberState::ALL.into_iter().filter(|state| state.is_final()).collect();
    let blocks = [
        ("member states", state_table(&MemberState::ALL, TRANSITIONS, &members)),
        ("member state drawing", state_drawing(MemberState::Unjoined, TRANSITIONS, &last)),
        ("group states", state_table(&GroupState::ALL, GroupState::TRANSITIONS, &groups)),
        (
            "group state drawing",
            state_drawing(GroupState::Empty, GroupState::TRANSITIONS, &[GroupState::Empty]),
        ),
        ("error verdicts", verdict_table()),
        ("close", close_table()),
        ("api versions", version_table()),
    ];
    blocks::check("docs/protocol.md", &blocks);
}
