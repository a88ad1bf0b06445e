//! Every Rust file is compiled, and each crate has one integration test binary.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::sources::SourceFile;
use super::tree::trees;

/// Finds files that no `mod` item includes, and test binaries other than the suite.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let trees = trees(files);
    let included: BTreeSet<&str> =
        trees.iter().flat_map(|tree| &tree.modules).map(|module| module.file.as_str()).collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && file.krate().is_some()) {
        if !included.contains(file.path.as_str()) {
            let problem = "no `mod` item includes this file, so it is never compiled";
            let fix = "declare it in its parent (for tests: in tests/suite.rs), or delete it";
            findings.push(Finding::new(&file.path, problem, fix));
        } else if file.crate_path().is_some_and(is_second_binary) {
            let problem = "is a second integration test binary: each one is linked separately";
            let fix = "move it to tests/suite/ and declare it in tests/suite.rs";
            findings.push(Finding::new(&file.path, problem, fix));
        }
    }
    findings
}

fn is_second_binary(path: &str) -> bool {
    let Some(name) = path.strip_prefix("tests/") else {
        return false;
    };
    name != "suite.rs" && (!name.contains('/') || name.ends_with("/main.rs"))
}

#[cfg(test)]
mod checked {
    use super::super::finding::summaries;
    use super::super::sources::fixture;
    use super::check;

    #[test]
    fn a_file_without_a_mod_line_is_found_in_source_and_tests() {
        let source = "
        //- crates/a/src/lib.rs
        mod b;
        //- crates/a/src/b.rs
        //- crates/a/src/c.rs
        //- crates/a/tests/suite.rs
        mod suite { mod d; }
        //- crates/a/tests/suite/d.rs
        //- crates/a/tests/suite/e.rs
        ";
        let problem = "no `mod` item includes this file, so it is never compiled";
        let expected = ["crates/a/src/c.rs", "crates/a/tests/suite/e.rs"]
            .map(|file| format!("{file}: {problem}"));
        assert_eq!(summaries(&check(&fixture(source))), expected);
    }

    #[test]
    fn a_second_binary_is_found() {
        let source = "
        //- crates/a/tests/suite.rs
        //- crates/a/tests/more.rs
        //- crates/a/tests/most/main.rs
        ";
        let found = summaries(&check(&fixture(source)));
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("crates/a/tests/more.rs: is a second"), "{found:?}");
    }
}
