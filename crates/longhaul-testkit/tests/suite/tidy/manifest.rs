//! Parses the parts of a manifest that the checks need.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::finding::Finding;
use super::sources::SourceFile;

/// Section of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Whether it has `workspace = true`.
    pub(crate) inherited: bool,
    /// Whether it is renamed with `package = "..."`.
    pub(crate) renamed: bool,
    /// Whether it comes from a git repository.
    pub(crate) git: bool,
}

/// The manifest of a crate or of the workspace.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Entries of `[workspace.dependencies]`, in the manifest of the workspace.
    pub(crate) shared: Vec<Dependency>,
    /// Whether it has `[lints] workspace = true`.
    pub(crate) lints: bool,
    /// Fields of `[package]` that are inherited from the workspace.
    pub(crate) inherits: Vec<String>,
}

/// Parses the manifests of all crates. Each parse error is a finding.
pub(crate) fn crates(files: &[SourceFile]) -> (Vec<Manifest>, Vec<Finding>) {
    let manifests = files.iter().filter(|file| file.crate_path() == Some("Cargo.toml"));
    let mut parsed = Vec::new();
    let mut findings = Vec::new();
    for result in manifests.map(parse) {
        match result {
            Ok(manifest) => parsed.push(manifest),
            Err(finding) => findings.push(finding),
        }
    }
    (parsed, findings)
}

pub(crate) fn parse(file: &SourceFile) -> Result<Manifest, Finding> {
    let parse_error = |error: toml::de::Error| {
        Finding::new(&file.path, format!("does not parse: {}", error.message()), "write valid TOML")
    };
    let parsed = DeTable::parse(&file.text).map_err(parse_error)?;
    let root = parsed.get_ref();
    let package = table(root, "package");
    let mut dependencies = sections(root, &file.text);
    for target in table(root, "target").into_iter().flatten() {
        if let Some(target) = target.1.get_ref().as_table() {
            dependencies.extend(sections(target, &file.text));
        }
    }
    let shared = table(root, "workspace").and_then(|workspace| table(workspace, "dependencies"));
    Ok(Manifest {
        path: file.path.clone(),
        name: package.and_then(|package| string(package, "name")).unwrap_or_default(),
        dependencies,
        shared: shared.map(|section| list(section, Kind::Normal, &file.text)).unwrap_or_default(),
        lints: table(root, "lints").is_some_and(inherited),
        inherits: package.map(inherits).unwrap_or_default(),
    })
}

fn sections(root: &DeTable<'_>, text: &str) -> Vec<Dependency> {
    let kinds = [
        ("dependencies", Kind::Normal),
        ("build-dependencies", Kind::Build),
        ("dev-dependencies", Kind::Dev),
    ];
    let tables = kinds.into_iter().filter_map(|(name, kind)| Some((table(root, name)?, kind)));
    tables.flat_map(|(section, kind)| list(section, kind, text)).collect()
}

fn list(section: &DeTable<'_>, kind: Kind, text: &str) -> Vec<Dependency> {
    let entries = section.iter().map(|(key, value)| {
        let inner = value.get_ref().as_table();
        let has_field = |field: &str| inner.is_some_and(|inner| get(inner, field).is_some());
        Dependency {
            kind,
            name: key.get_ref().to_string(),
            line: 1 + text[..key.span().start].matches('\n').count(),
            inherited: inner.is_some_and(inherited),
            renamed: has_field("package"),
            git: has_field("git"),
        }
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|dependency| dependency.line);
    entries
}

fn inherits(package: &DeTable<'_>) -> Vec<String> {
    let fields =
        package.iter().filter(|(_, value)| value.get_ref().as_table().is_some_and(inherited));
    fields.map(|(key, _)| key.get_ref().to_string()).collect()
}

fn inherited(entry: &DeTable<'_>) -> bool {
    get(entry, "workspace").is_some_and(|value| value.get_ref().as_bool() == Some(true))
}

fn table<'a, 'i>(root: &'a DeTable<'i>, name: &str) -> Option<&'a DeTable<'i>> {
    get(root, name)?.get_ref().as_table()
}

fn string(root: &DeTable<'_>, name: &str) -> Option<String> {
    get(root, name)?.get_ref().as_str().map(str::to_owned)
}

fn get<'a, 'i>(root: &'a DeTable<'i>, name: &str) -> Option<&'a Spanned<DeValue<'i>>> {
    root.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
}

#[test]
fn a_manifest_is_read_with_its_sections_and_lines() {
    let files = super::sources::fixture(
        r#"
        //- crates/a/Cargo.toml
        [package]
        name = "a"
        edition.workspace = true
        [lints]
        workspace = true
        [dependencies]
        b.workspace = true
        [target.'cfg(unix)'.build-dependencies]
        c = { version = "1", package = "d" }
        "#,
    );
    let manifest = parse(&files[0]).expect("the manifest parses");
    assert_eq!((manifest.name.as_str(), manifest.lints), ("a", true));
    assert_eq!(manifest.inherits, ["edition"]);
    let [b, c] = manifest.dependencies.as_slice() else { panic!("expected two dependencies") };
    assert_eq!((b.kind, b.line, b.inherited, b.renamed), (Kind::Normal, 7, true, false));
    assert_eq!((c.kind, c.line, c.inherited, c.renamed), (Kind::Build, 9, false, true));
}

#[test]
fn a_manifest_that_does_not_parse_is_a_finding() {
    let files = super::sources::fixture("//- crates/a/Cargo.toml\n[package\n");
    let (manifests, findings) = crates(&files);
    assert!(manifests.is_empty());
    assert_eq!(findings.len(), 1);
}
