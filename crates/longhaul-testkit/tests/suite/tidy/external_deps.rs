//! Third-party crates that a crate of the workspace must not depend on.
//!
//! For the state machine all transitive dependencies in `Cargo.lock` count, for the other
//! crates only direct ones. Dev-dependencies are exempt.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::manifest::{self, Kind, Manifest};
use super::sources::SourceFile;

/// Crates that block, wait, use the network or are not deterministic. The state machine must
/// not depend on them, even transitively.
const FORBIDDEN_IN_STATE_MACHINE: &[&str] = &[
    "axum",
    "getrandom",
    "hyper",
    "libsqlite3-sys",
    "mio",
    "rand",
    "reqwest",
    "rusqlite",
    "rustls",
    "socket2",
    "tokio",
    "tokio-postgres",
];

const STATE_MACHINE_CRATES: &[&str] = &["longhaul-core", "longhaul-run"];

const SQL: &[&str] = &["rusqlite", "tokio-postgres", "deadpool-postgres"];
const HTTP_CLIENTS: &[&str] = &["reqwest"];
const HTTP_SERVERS: &[&str] = &["axum"];
const CONTAINERS: &[&str] = &["bollard"];
const BINARY_ONLY: &[&str] = &["anyhow", "clap"];

/// Crates that each layer above the state machine must not depend on directly.
const FORBIDDEN_BY_CRATE: &[(&str, &[&[&str]])] = &[
    ("longhaul-core", &[BINARY_ONLY]),
    ("longhaul-run", &[BINARY_ONLY]),
    ("longhaul-store", &[HTTP_CLIENTS, HTTP_SERVERS, CONTAINERS, BINARY_ONLY]),
    ("longhaul-model", &[SQL, HTTP_SERVERS, CONTAINERS, BINARY_ONLY]),
    ("longhaul-tool", &[SQL, HTTP_SERVERS, CONTAINERS, BINARY_ONLY]),
    ("longhaul-sandbox", &[SQL, HTTP_SERVERS, BINARY_ONLY]),
    ("longhaul-mcp", &[SQL, HTTP_SERVERS, CONTAINERS, BINARY_ONLY]),
    ("longhaul-api", &[SQL, HTTP_SERVERS, CONTAINERS, BINARY_ONLY]),
    ("longhaul-engine", &[SQL, HTTP_CLIENTS, HTTP_SERVERS, CONTAINERS, BINARY_ONLY]),
    ("longhaul-server", &[SQL, HTTP_CLIENTS, CONTAINERS, BINARY_ONLY]),
    ("longhaul-project", &[SQL, HTTP_SERVERS, CONTAINERS, BINARY_ONLY]),
    ("longhaul", &[SQL, HTTP_SERVERS, CONTAINERS, BINARY_ONLY]),
    ("longhaul-bench", &[SQL, HTTP_SERVERS, CONTAINERS]),
    ("longhaul-testkit", &[SQL, HTTP_CLIENTS, HTTP_SERVERS, CONTAINERS, BINARY_ONLY]),
];

/// Finds forbidden third-party dependencies.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let (manifests, _) = manifest::crates(files);
    let lock = LockFile::parse(files);
    let mut findings = Vec::new();
    for manifest in &manifests {
        findings.extend(direct_findings(manifest));
        if STATE_MACHINE_CRATES.contains(&manifest.name.as_str()) {
            findings.extend(transitive_findings(manifest, &lock));
        }
    }
    findings
}

fn direct_findings(manifest: &Manifest) -> Vec<Finding> {
    let row = FORBIDDEN_BY_CRATE.iter().find(|(name, _)| *name == manifest.name);
    let forbidden = row.map(|(_, groups)| groups.concat()).unwrap_or_default();
    let shipped = manifest.dependencies.iter().filter(|dependency| dependency.kind != Kind::Dev);
    let violations = shipped.filter(|dependency| forbidden.contains(&dependency.name.as_str()));
    let format_problem = |name: &str| format!("{} must not depend on {name}", manifest.name);
    let fix = "use it in the layer that owns it, and go through a port; \
                clap and anyhow belong to the binary";
    violations
        .map(|dependency| {
            Finding::at(&manifest.path, dependency.line, format_problem(&dependency.name), fix)
        })
        .collect()
}

fn transitive_findings(manifest: &Manifest, lock: &LockFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for dependency in manifest.dependencies.iter().filter(|dependency| dependency.kind != Kind::Dev)
    {
        let transitive = lock.transitive_dependencies(&dependency.name);
        for banned in
            FORBIDDEN_IN_STATE_MACHINE.iter().filter(|banned| transitive.contains(**banned))
        {
            let problem = format!("{} brings {banned} into the state machine", dependency.name);
            let fix = "pass the value in: the state machine has no clock, no network and no \
                        randomness; or disable features in the root Cargo.toml";
            findings.push(Finding::at(&manifest.path, dependency.line, problem, fix));
        }
    }
    findings
}

/// The packages of `Cargo.lock` by name. Versions of one package are merged, which can only
/// report too much.
#[derive(Debug, Default)]
struct LockFile {
    dependencies: BTreeMap<String, Vec<String>>,
}

impl LockFile {
    fn parse(files: &[SourceFile]) -> Self {
        let mut lock = Self::default();
        let Some(file) = files.iter().find(|file| file.path == "Cargo.lock") else {
            return lock;
        };
        let parsed: toml::Table = toml::from_str(&file.text).expect("Cargo.lock parses");
        let packages = parsed.get("package").and_then(toml::Value::as_array);
        for package in packages.into_iter().flatten() {
            let name = package["name"].as_str().unwrap_or_default().to_owned();
            let list = package.get("dependencies").and_then(toml::Value::as_array);
            let names = list.into_iter().flatten().filter_map(toml::Value::as_str);
            let package_names = names.filter_map(|name| name.split(' ').next()).map(str::to_owned);
            lock.dependencies.entry(name).or_default().extend(package_names);
        }
        lock
    }

    /// Returns a package and all its transitive dependencies. Our own crates are skipped: the
    /// lock file does not separate their dev-dependencies, and each is checked on its own.
    fn transitive_dependencies(&self, name: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut pending = vec![name.to_owned()];
        while let Some(name) = pending.pop() {
            if name.starts_with("longhaul") || !seen.insert(name.clone()) {
                continue;
            }
            pending.extend(self.dependencies.get(&name).into_iter().flatten().cloned());
        }
        seen
    }
}

#[cfg(test)]
mod checked {
    use super::super::finding::summaries;
    use super::super::sources::fixture;
    use super::check;

    const LOCK: &str = r#"
        //- Cargo.lock
        [[package]]
        name = "uuid"
        version = "1.0.0"
        dependencies = ["getrandom 0.4.0", "serde"]
        [[package]]
        name = "getrandom"
        version = "0.4.0"
        [[package]]
        name = "serde"
        version = "1.0.0"
        //- crates/longhaul-run/Cargo.toml
        [package]
        name = "longhaul-run"
        [dependencies]
        "#;

    #[test]
    fn the_state_machine_may_use_crates_without_async_or_io() {
        let source = format!("{LOCK}serde.workspace = true\n[dev-dependencies]\ntokio = \"1\"\n");
        assert_eq!(summaries(&check(&fixture(&source))), Vec::<String>::new());
    }

    #[test]
    fn a_forbidden_crate_is_found_at_any_depth() {
        let source = format!("{LOCK}uuid.workspace = true\ntokio = \"1\"\n");
        assert_eq!(
            summaries(&check(&fixture(&source))),
            [
                "crates/longhaul-run/Cargo.toml:4: uuid brings getrandom into the state machine",
                "crates/longhaul-run/Cargo.toml:5: tokio brings tokio into the state machine",
            ]
        );
    }

    #[test]
    fn only_the_store_uses_sql_and_only_the_binary_anyhow() {
        let source = r#"
        //- crates/longhaul-engine/Cargo.toml
        [package]
        name = "longhaul-engine"
        [dependencies]
        rusqlite.workspace = true
        anyhow.workspace = true
        tokio.workspace = true
        //- crates/longhaul-cli/Cargo.toml
        [package]
        name = "longhaul-cli"
        [dependencies]
        anyhow.workspace = true
        "#;
        assert_eq!(
            summaries(&check(&fixture(source))),
            [
                "crates/longhaul-engine/Cargo.toml:4: longhaul-engine must not depend on rusqlite",
                "crates/longhaul-engine/Cargo.toml:5: longhaul-engine must not depend on anyhow",
            ]
        );
    }
}
