//! Every manifest takes versions, lints and package fields from the workspace.

use super::finding::Finding;
use super::manifest::{self, Manifest};
use super::sources::SourceFile;

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license"];

/// Finds values that a manifest sets itself, and shared dependencies that no crate uses.
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
        let fix = "add `[lints]` with `workspace = true`";
        findings.push(Finding::new(&manifest.path, "does not use the workspace lints", fix));
    }
    for field in INHERITED
        .iter()
        .filter(|field| !manifest.inherits.iter().any(|inherited| inherited == *field))
    {
        let fix = format!("write `{field}.workspace = true`");
        findings.push(Finding::new(&manifest.path, format!("has its own {field}"), &fix));
    }
    for dependency in &manifest.dependencies {
        if !dependency.inherited {
            let problem = format!("{} has its own version", dependency.name);
            let fix = "write the version in the root Cargo.toml and `workspace = true` here";
            findings.push(Finding::at(&manifest.path, dependency.line, problem, fix));
        }
    }
    findings
}

fn check_root(root: &Manifest, manifests: &[Manifest]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for shared in &root.shared {
        let is_own = shared.name == "longhaul" || shared.name.starts_with("longhaul-");
        let mut uses = manifests.iter().flat_map(|manifest| &manifest.dependencies);
        if !is_own && !uses.any(|dependency| dependency.name == shared.name) {
            let problem = format!("{} is not used by any crate", shared.name);
            let fix = "remove it until a crate needs it";
            findings.push(Finding::at(&root.path, shared.line, problem, fix));
        }
        if shared.renamed || shared.git {
            let problem = format!("{} is renamed or comes from git", shared.name);
            let fix = "use a released crate under its own name: the other checks use the name";
            findings.push(Finding::at(&root.path, shared.line, problem, fix));
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
        let source = r#"
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
        assert_eq!(summaries(&check(&fixture(source))), Vec::<String>::new());
    }

    #[test]
    fn values_that_are_not_inherited_are_found() {
        let source = r#"
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
            summaries(&check(&fixture(source))),
            [
                "crates/a/Cargo.toml: does not use the workspace lints",
                "crates/a/Cargo.toml: has its own edition",
                "crates/a/Cargo.toml:9: serde has its own version",
                "Cargo.toml:2: unused is not used by any crate",
                "Cargo.toml:3: other is renamed or comes from git",
            ]
        );
    }
}
