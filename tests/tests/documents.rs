//! The documents: links lead somewhere, and what is said twice is said once.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use kohort_tests::links::{anchors, targets};
use kohort_tests::workspace::{files, read, root};

fn documents() -> Vec<String> {
    let mut documents = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    documents.extend(files("docs", ".md"));
    documents
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    for document in documents() {
        let text = read(&document);
        let folder = Path::new(&document).parent().expect("a folder").to_owned();
        for target in targets(&text).iter().filter(|target| !target.contains("://")) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() { root().join(&document) } else { root().join(&folder).join(path) };
            assert!(file.exists(), "{document} links to {target}, which is not there");
            if !anchor.is_empty() {
                let there = std::fs::read_to_string(&file).expect("a text");
                let found = anchors(&there).iter().any(|known| known == anchor);
                assert!(found, "{document} links to {target}, which has no such heading");
            }
        }
    }
}

#[test]
fn every_document_is_reachable_from_the_readme() {
    let readme = targets(&read("README.md"));
    for document in files("docs", ".md") {
        assert!(
            readme.iter().any(|target| target.starts_with(&document)),
            "README.md does not link to {document}"
        );
    }
}

/// The program in the README is the example, from its first `use` on.
#[test]
fn the_readme_shows_the_example_that_compiles() {
    let example = read("examples/examples/embed.rs");
    let start = example.find("use ").expect("it uses something");
    let shown = format!("```rust,no_run\n{}```", &example[start..]);
    assert!(
        read("README.md").contains(&shown),
        "README.md does not show examples/examples/embed.rs as it is"
    );
}

/// A test that a document names as `file::test` is in the file of tests of that name.
#[test]
fn every_test_that_a_document_names_exists() {
    let sources: Vec<String> = files("", ".rs").into_iter().filter(|path| path.contains("/tests/")).collect();
    let mut named = 0;
    for document in documents() {
        let text = read(&document);
        for (file, test) in text.split('`').skip(1).step_by(2).filter_map(|piece| piece.split_once("::")) {
            let ending = format!("/{file}.rs");
            let mut candidates = sources.iter().filter(|path| path.ends_with(&ending)).peekable();
            if candidates.peek().is_none() {
                continue;
            }
            named += 1;
            let there = candidates.any(|path| read(path).contains(&format!("fn {test}(")));
            assert!(there, "{document} names the test {file}::{test}, which is not there");
        }
    }
    assert!(named > 20, "documents name tests as `file::test`; only {named} were found");
}
