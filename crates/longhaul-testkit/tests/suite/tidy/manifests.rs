//! Every manifest takes versions, lints and its own facts from the workspace.

use super::finding::Finding;
use super::manifest::{self, Manifest};
use super::sources::SourceFile;

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license"];

/// Looks for what a manifest says by itself, and for shared versions that nobody uses.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let (manifests, mut findings) = manifest::crates(files);
    for manifest in &manifests {
        findings.extend(check_one(manifest));
    }
    if let Some(root) = files.iter().find(|file| file.path == "Cargo.toml") {
        match manifest::parse(root) {
            Ok(root) => findings.extend(check_root(&root, &manifests)),
            Err(finding) => findings.push(finding),
        }
    }
    findings
}

fn check_one(manifest: &Manifest) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !manifest.lints {
        let mend = "add `[lints]` with `workspace = true`";
        findings.push(Finding::new(&manifest.path, "does not take the house's lints", mend));
    }
    for field in INHERITED.iter().filter(|field| !manifest.inherits.iter().any(|has| has == *field))
    {
        let mend = format!("write `{field}.workspace = true`");
        findings.push(Finding::new(&manifest.path, format!("has its own {field}"), &mend));
    }
    for found in &manifest.dependencies {
        if !found.inherited {
            let wrong = format!("{} has a version of its own", found.name);
            let mend = "write the version in the root Cargo.toml and `workspace = true` here";
            findings.push(Finding::at(&manifest.path, found.line, wrong, mend));
        }
    }
    findings
}

fn check_root(root: &Manifest, manifests: &[Manifest]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for shared in &root.shared {
        let is_own = shared.name == "longhaul" || shared.name.starts_with("longhaul-");
        let mut uses = manifests.iter().flat_map(|manifest| &manifest.dependencies);
        if !is_own && !uses.any(|found| found.name == shared.name) {
            let wrong = format!("{} is used by no crate", shared.name);
            let mend = "take it out until a crate needs it";
            findings.push(Finding::at(&root.path, shared.line, wrong, mend));
        }
        if shared.renamed || shared.git {
            let wrong = format!("{} is renamed or comes from git", shared.name);
            let mend = "use a released crate under its own name: the other checks go by names";
            findings.push(Finding::at(&root.path, shared.line, wrong, mend));
        }
    }
    findings
}

#[cfg(test)]
mod checked {
    use super::super::finding::summaries;
    use super::super::sources::fixture;
    use super::check;

    #[test]
    fn a_manifest_that_inherits_everything_is_accepted() {
        let house = r#"
        //- Cargo.toml
        [workspace.dependencies]
        serde = "1"
        longhaul-core = { path = "crates/longhaul-core" }
        //- crates/a/Cargo.toml
        [package]
        name = "a"
        version.workspace = true
        edition.workspace = true
        rust-version.workspace = true
        license.workspace = true
        [lints]
        workspace = true
        [dependencies]
        serde = { workspace = true, features = ["rc"] }
        "#;
        assert_eq!(summaries(&check(&fixture(house))), Vec::<String>::new());
    }

    #[test]
    fn values_that_are_not_inherited_are_found() {
        let house = r#"
        //- Cargo.toml
        [workspace.dependencies]
        unused = "1"
        other = { package = "serde", version = "1" }
        //- crates/a/Cargo.toml
        [package]
        name = "a"
        version.workspace = true
        edition = "2021"
        rust-version.workspace = true
        license.workspace = true
        [dev-dependencies]
        other.workspace = true
        serde = "1"
        "#;
        assert_eq!(
            summaries(&check(&fixture(house))),
            [
                "crates/a/Cargo.toml: does not take the house's lints",
                "crates/a/Cargo.toml: has its own edition",
                "crates/a/Cargo.toml:9: serde has a version of its own",
                "Cargo.toml:2: unused is used by no crate",
                "Cargo.toml:3: other is renamed or comes from git",
            ]
        );
    }
}
