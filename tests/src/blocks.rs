//! Generated blocks: parts of a document that are rendered from the code and compared by a test.
//!
//! ```text
//! <!-- generated: NAME -->
//! …
//! <!-- end -->
//! ```
//!
//! `KOHORT_BLESS=1` writes them instead. All blocks of one document are checked by one call, because two that
//! write the same file would undo each other.

use std::fs;

use crate::workspace;

const BLESS: &str = "KOHORT_BLESS";
const END: &str = "<!-- end -->";

/// Checks that the document has exactly these blocks, and that each is what the code says.
pub fn check(document: &str, blocks: &[(&str, String)]) {
    let text = workspace::read(document);
    let wanted = render(document, &text, blocks);
    if text == wanted {
        return;
    }
    if std::env::var_os(BLESS).is_some_and(|value| value == "1") {
        fs::write(workspace::root().join(document), wanted).expect("a document that can be written");
        return;
    }
    let difference = text.lines().zip(wanted.lines()).enumerate().find(|(_, (is, should))| is != should);
    let place = match difference {
        Some((line, (is, should))) => format!("line {}: is {is:?}, should be {should:?}", line + 1),
        None => "it ends too early or too late".to_owned(),
    };
    panic!("{document} is not what the code says; {place}. {BLESS}=1 cargo test writes it anew.");
}

fn render(document: &str, text: &str, blocks: &[(&str, String)]) -> String {
    let mut wanted = String::new();
    let mut lines = text.lines();
    let mut seen = Vec::new();
    while let Some(line) = lines.next() {
        wanted.push_str(line);
        wanted.push('\n');
        let Some(name) = line.strip_prefix("<!-- generated: ").and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let (_, block) = blocks
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("{document}: no test renders the block {name:?}"));
        seen.push(name);
        wanted.push_str(block.trim_end());
        wanted.push_str("\n\n");
        wanted.push_str(END);
        wanted.push('\n');
        assert!(lines.any(|line| line == END), "{document}: the block {name:?} has no end");
    }
    for (name, _) in blocks {
        assert!(seen.contains(name), "{document} has no block {name:?}");
    }
    wanted
}
