//! No markers for unfinished work, no skipped tests, and no examples that are not compiled.
//! Macros for missing code are forbidden by clippy.

use super::finding::Finding;
use super::sources::SourceFile;
use super::tokens;

/// Split into two parts, so that this file does not match itself.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Finds markers in all text files, and skipped tests and uncompiled examples in Rust.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with(".lock")) {
        findings.extend(notes(file));
        if file.is_rust() {
            findings.extend(skipped(file));
            findings.extend(uncompiled(file));
        }
    }
    findings
}

fn notes(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(note) = words.find(|word| NOTES.contains(word)) {
            let fix = "do it now, or open an issue";
            findings.push(Finding::at(&file.path, index + 1, format!("contains {note}"), fix));
        }
    }
    findings
}

fn skipped(file: &SourceFile) -> Vec<Finding> {
    let attributes = tokens::attributes(&file.text).into_iter();
    let ignored = attributes.filter(|attribute| {
        let has_text = |token: &tokens::Token, text: &str| token.text == text;
        let is_ignore = attribute.first().is_some_and(|first| has_text(first, "ignore"));
        let is_cfg_attr = attribute.first().is_some_and(|first| has_text(first, "cfg_attr"));
        is_ignore || is_cfg_attr && attribute.iter().any(|token| has_text(token, "ignore"))
    });
    let fix = "run it in `make test`, or with an environment variable in `make prove`";
    ignored
        .map(|attribute| Finding::at(&file.path, attribute[0].line, "a test that never runs", fix))
        .collect()
}

fn uncompiled(file: &SourceFile) -> Vec<Finding> {
    let lines = file.text.lines().enumerate().map(|(index, line)| (index, line.trim_start()));
    let docs = lines.filter(|(_, line)| line.starts_with("///") || line.starts_with("//!"));
    let fences = docs.filter(|(_, line)| {
        line[3..].trim_start().strip_prefix("```").is_some_and(|tags| {
            tags.split(',').any(|tag| tag.trim() == "ignore" || tag.trim().starts_with("ignore-"))
        })
    });
    let fix = "make it compile (`no_run` if it must not run), or mark it `text`";
    fences
        .map(|(index, _)| {
            Finding::at(&file.path, index + 1, "an example that is not compiled", fix)
        })
        .collect()
}

#[cfg(test)]
mod checked {
    use super::super::finding::summaries;
    use super::super::sources::fixture;
    use super::{NOTES, check};

    #[test]
    fn todo_markers_are_found_in_every_kind_of_file() {
        let note = NOTES[0];
        let source = format!(
            "//- README.md\nFine.\n{note}: more\n//- scripts/a +x\n# ({note})\n//- a.rs\n// {note}S\n"
        );
        let expected =
            [format!("README.md:2: contains {note}"), format!("scripts/a:1: contains {note}")];
        assert_eq!(summaries(&check(&fixture(&source))), expected);
    }

    #[test]
    fn a_skipped_test_is_found_and_a_word_in_a_string_is_not() {
        let source = "
        //- a.rs
        #[test]
        #[ignore = \"slow\"]
        fn a() {}
        #[cfg_attr(miri, ignore)]
        fn b() { ignore(\"#[ignore]\") }
        ";
        let expected = ["a.rs:2: a test that never runs", "a.rs:4: a test that never runs"];
        assert_eq!(summaries(&check(&fixture(source))), expected);
    }

    #[test]
    fn an_example_that_is_not_compiled_is_found() {
        let fence = "```";
        let source = format!(
            "//- a.rs\n/// {fence}ignore\n/// a\n/// {fence}\n//! {fence}text\n/// {fence}rust,ignore\n"
        );
        let expected =
            ["a.rs:1: an example that is not compiled", "a.rs:5: an example that is not compiled"];
        assert_eq!(summaries(&check(&fixture(&source))), expected);
    }
}
