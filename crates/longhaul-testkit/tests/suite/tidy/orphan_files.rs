//! No file of Rust that nobody compiles, and one integration binary a crate.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::sources::SourceFile;
use super::tree::trees;

/// Looks for files that no `mod` line reaches and for test binaries beside the suite.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let trees = trees(files);
    let reached: BTreeSet<&str> =
        trees.iter().flat_map(|tree| &tree.modules).map(|module| module.file.as_str()).collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && file.krate().is_some()) {
        if !reached.contains(file.path.as_str()) {
            let wrong = "no `mod` line leads here, so it is never compiled";
            let mend = "declare it in its parent (for tests: in tests/suite.rs), or delete it";
            findings.push(Finding::new(&file.path, wrong, mend));
        } else if file.crate_path().is_some_and(is_second_binary) {
            let wrong = "is a second integration binary: each one is linked by itself";
            let mend = "move it to tests/suite/ and declare it in tests/suite.rs";
            findings.push(Finding::new(&file.path, wrong, mend));
        }
    }
    findings
}

fn is_second_binary(room: &str) -> bool {
    let Some(name) = room.strip_prefix("tests/") else {
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
        let house = "
        //- crates/a/src/lib.rs
        mod b;
        //- crates/a/src/b.rs
        //- crates/a/src/c.rs
        //- crates/a/tests/suite.rs
        mod suite { mod d; }
        //- crates/a/tests/suite/d.rs
        //- crates/a/tests/suite/e.rs
        ";
        let wrong = "no `mod` line leads here, so it is never compiled";
        let expected = ["crates/a/src/c.rs", "crates/a/tests/suite/e.rs"]
            .map(|file| format!("{file}: {wrong}"));
        assert_eq!(summaries(&check(&fixture(house))), expected);
    }

    #[test]
    fn a_second_binary_is_found() {
        let house = "
        //- crates/a/tests/suite.rs
        //- crates/a/tests/more.rs
        //- crates/a/tests/most/main.rs
        ";
        let found = summaries(&check(&fixture(house)));
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("crates/a/tests/more.rs: is a second"), "{found:?}");
    }
}
