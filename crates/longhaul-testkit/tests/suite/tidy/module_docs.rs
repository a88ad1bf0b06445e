//! Every file of Rust opens with what it is for.

use super::finding::Finding;
use super::sources::SourceFile;

/// Looks for files whose first line is not a `//!` sentence.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.is_rust());
    let silent = rust.filter(|file| {
        let first = file.text.lines().next().unwrap_or_default();
        first.strip_prefix("//!").is_none_or(|said| said.trim().is_empty())
    });
    let mend = "begin with `//!`: what the module is for, then what it never does";
    silent.map(|file| Finding::at(&file.path, 1, "does not say what it is for", mend)).collect()
}

#[test]
fn a_file_without_module_docs_is_found() {
    let house = "
        //- crates/a/src/good.rs
        //! Counts sheep.
        //- crates/a/src/late.rs
        use std::fmt;
        //! Counts sheep.
        //- crates/a/src/mute.rs
        //!
        //- crates/a/tests/suite/empty.rs
        //- README.md
        # No Rust
        ";
    let found = super::finding::summaries(&check(&super::sources::fixture(house)));
    let expected =
        ["crates/a/src/late.rs", "crates/a/src/mute.rs", "crates/a/tests/suite/empty.rs"]
            .map(|file| format!("{file}:1: does not say what it is for"));
    assert_eq!(found, expected);
}
