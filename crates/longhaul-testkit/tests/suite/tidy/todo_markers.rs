//! Nothing is left for later: no notes to oneself, no test that is skipped.
//!
//! The macros that stand for missing code are forbidden by clippy.

use super::finding::Finding;
use super::sources::SourceFile;
use super::tokens;

/// Written in two parts, so that this file does not find itself.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Looks for notes in every text that a person wrote, and for skipped tests in Rust.
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
            let mend = "do it now, or write it down as an issue";
            findings.push(Finding::at(&file.path, index + 1, format!("says {note}"), mend));
        }
    }
    findings
}

fn skipped(file: &SourceFile) -> Vec<Finding> {
    let attributes = tokens::attributes(&file.text).into_iter();
    let skipping = attributes.filter(|words| {
        let is = |word: &tokens::Token, text: &str| word.text == text;
        let direct = words.first().is_some_and(|first| is(first, "ignore"));
        let conditional = words.first().is_some_and(|first| is(first, "cfg_attr"));
        direct || conditional && words.iter().any(|word| is(word, "ignore"))
    });
    let mend = "let it run in `make test`, or behind an environment variable in `make prove`";
    skipping
        .map(|words| Finding::at(&file.path, words[0].line, "a test that never runs", mend))
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
    let mend = "make it compile (`no_run` if it must not run), or mark it `text`";
    fences
        .map(|(index, _)| Finding::at(&file.path, index + 1, "an example nobody compiles", mend))
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
        let house = format!(
            "//- README.md\nFine.\n{note}: more\n//- scripts/a +x\n# ({note})\n//- a.rs\n// {note}S\n"
        );
        let expected = [format!("README.md:2: says {note}"), format!("scripts/a:1: says {note}")];
        assert_eq!(summaries(&check(&fixture(&house))), expected);
    }

    #[test]
    fn a_skipped_test_is_found_and_a_word_in_a_string_is_not() {
        let house = "
        //- a.rs
        #[test]
        #[ignore = \"slow\"]
        fn a() {}
        #[cfg_attr(miri, ignore)]
        fn b() { ignore(\"#[ignore]\") }
        ";
        let expected = ["a.rs:2: a test that never runs", "a.rs:4: a test that never runs"];
        assert_eq!(summaries(&check(&fixture(house))), expected);
    }

    #[test]
    fn an_example_that_is_not_compiled_is_found() {
        let fence = "```";
        let house = format!(
            "//- a.rs\n/// {fence}ignore\n/// a\n/// {fence}\n//! {fence}text\n/// {fence}rust,ignore\n"
        );
        let expected = ["a.rs:1: an example nobody compiles", "a.rs:5: an example nobody compiles"];
        assert_eq!(summaries(&check(&fixture(&house))), expected);
    }
}
