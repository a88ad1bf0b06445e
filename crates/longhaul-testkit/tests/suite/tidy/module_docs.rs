//! Every Rust file begins with a module comment.

use super::finding::Finding;
use super::sources::SourceFile;

/// Finds files whose first line is not a `//!` comment with text.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.is_rust());
    let undocumented = rust.filter(|file| {
        let first = file.text.lines().next().unwrap_or_default();
        first.strip_prefix("//!").is_none_or(|docs| docs.trim().is_empty())
    });
    let fix = "begin with `//!` and one or two sentences about the module";
    undocumented.map(|file| Finding::at(&file.path, 1, "has no module comment", fix)).collect()
}

#[test]
fn a_file_without_module_docs_is_found() {
    let source = "
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
    let found = super::finding::summaries(&check(&super::sources::fixture(source)));
    let expected =
        ["crates/a/src/late.rs", "crates/a/src/mute.rs", "crates/a/tests/suite/empty.rs"]
            .map(|file| format!("{file}:1: has no module comment"));
    assert_eq!(found, expected);
}
