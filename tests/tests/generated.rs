//! Generated blocks of `docs/architecture.md` and `docs/protocol.md`: states, verdicts, versions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;

use kohort_group::membership::TRANSITIONS;
use kohort_group::verdict::Forget;
use kohort_group::{GroupApi, MemberState, Verdict, verdict};
use kohort_protocol::{ApiKey, ErrorCode};
use kohort_tests::blocks;

fn state_table() -> String {
    let mut text = String::from("| state | may follow | may be followed by |\n|---|---|---|\n");
    let list = |states: Vec<MemberState>| {
        let names: Vec<String> = states.iter().map(ToString::to_string).collect();
        if names.is_empty() { "–".to_owned() } else { names.join(", ") }
    };
    for state in MemberState::ALL {
        let before = TRANSITIONS.iter().filter(|(_, to)| *to == state).map(|(from, _)| *from).collect();
        let after = TRANSITIONS.iter().filter(|(from, _)| *from == state).map(|(_, to)| *to).collect();
        writeln!(text, "| {state} | {} | {} |", list(before), list(after)).unwrap();
    }
    text
}

fn state_drawing() -> String {
    let mut text = String::from("```mermaid\nstateDiagram-v2\n    [*] --> Unjoined\n");
    for (from, to) in TRANSITIONS {
        writeln!(text, "    {from} --> {to}").unwrap();
    }
    for state in MemberState::ALL.iter().filter(|state| state.is_final()) {
        writeln!(text, "    {state} --> [*]").unwrap();
    }
    text + "```\n"
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
fn architecture_shows_the_states_as_the_code_has_them() {
    let blocks = [("member states", state_table()), ("member state drawing", state_drawing())];
    blocks::check("docs/architecture.md", &blocks);
}

#[test]
fn protocol_shows_verdicts_and_versions_as_the_code_has_them() {
    let blocks = [("error verdicts", verdict_table()), ("api versions", version_table())];
    blocks::check("docs/protocol.md", &blocks);
}
