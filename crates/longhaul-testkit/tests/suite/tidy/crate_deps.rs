//! Dependencies between our own crates, checked against the table of layers.

use super::finding::Finding;
use super::manifest::{self, Kind, Manifest};
use super::sources::SourceFile;

/// The crates that each crate may depend on. Every crate must be listed.
const ALLOWED_DEPS: &[(&str, &[&str])] = &[
    ("longhaul-core", &[]),
    ("longhaul-run", &["longhaul-core"]),
    ("longhaul-store", &["longhaul-core"]),
    ("longhaul-model", &["longhaul-core"]),
    ("longhaul-tool", &["longhaul-core"]),
    ("longhaul-sandbox", &["longhaul-core"]),
    ("longhaul-mcp", &["longhaul-core"]),
    ("longhaul-api", &["longhaul-core"]),
    ("longhaul-engine", &["longhaul-core", "longhaul-run", "longhaul-api"]),
    ("longhaul-server", &["longhaul-core", "longhaul-engine", "longhaul-api"]),
    (
        "longhaul-project",
        &[
            "longhaul-core",
            "longhaul-run",
            "longhaul-store",
            "longhaul-model",
            "longhaul-tool",
            "longhaul-sandbox",
            "longhaul-mcp",
            "longhaul-api",
            "longhaul-engine",
            "longhaul-server",
        ],
    ),
    (
        "longhaul",
        &[
            "longhaul-core",
            "longhaul-run",
            "longhaul-store",
            "longhaul-model",
            "longhaul-tool",
            "longhaul-sandbox",
            "longhaul-mcp",
            "longhaul-api",
            "longhaul-engine",
            "longhaul-server",
            "longhaul-project",
        ],
    ),
    (
        "longhaul-cli",
        &[
            "longhaul-core",
            "longhaul-run",
            "longhaul-store",
            "longhaul-model",
            "longhaul-tool",
            "longhaul-sandbox",
            "longhaul-mcp",
            "longhaul-api",
            "longhaul-engine",
            "longhaul-server",
            "longhaul-project",
            "longhaul",
        ],
    ),
    (BENCH, &["longhaul", "longhaul-engine", "longhaul-sandbox"]),
    (TESTKIT, &["longhaul-core", "longhaul-run"]),
];

const BENCH: &str = "longhaul-bench";
const TESTKIT: &str = "longhaul-testkit";

/// Crates that are not shipped, so that no other crate may use them in its product code.
const NOT_SHIPPED: &[&str] = &[BENCH, TESTKIT];

const DOCUMENT: &str = "ARCHITECTURE.md";

const FIX: &str = "move the code to a layer that may use both, or define a port in longhaul-core \
                    for it; the table is in ARCHITECTURE.md";

/// Compares the dependencies of every manifest with the table.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let (manifests, mut findings) = manifest::crates(files);
    for manifest in &manifests {
        findings.extend(check_one(manifest));
    }
    for (name, _) in ALLOWED_DEPS {
        if !manifests.iter().any(|manifest| manifest.name == *name) {
            let problem = format!("the table of layers has {name}, which does not exist");
            findings.push(Finding::new("crates/", problem, "add the crate, or remove its row"));
        }
    }
    findings.extend(files.iter().filter(|file| file.path == DOCUMENT).flat_map(check_document));
    findings
}

/// Checks that the table in the document is the same as the one in this file.
fn check_document(document: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, may_use) in ALLOWED_DEPS {
        let allowed: Vec<_> = may_use.iter().map(|name| name.replace("longhaul-", "")).collect();
        let allowed = match allowed.len() {
            0 => "nothing of ours".to_owned(),
            len if len == ALLOWED_DEPS.len() - NOT_SHIPPED.len() - 1 => "all of them".to_owned(),
            _ => allowed.join(", "),
        };
        let row = format!("| `{name}` | {allowed} |");
        if !document.text.lines().any(|line| line.starts_with(&row)) {
            let problem = format!("does not list what {name} may use");
            let fix = format!("the table of layers needs the row `{row} ...`");
            findings.push(Finding::new(DOCUMENT, problem, &fix));
        }
    }
    findings
}

fn check_one(manifest: &Manifest) -> Vec<Finding> {
    let Some((_, may_use)) = ALLOWED_DEPS.iter().find(|(name, _)| *name == manifest.name) else {
        let problem = format!("{} is not in the table of layers", manifest.name);
        let fix = "add it to ALLOWED_DEPS and to ARCHITECTURE.md, if it should be a separate crate";
        return vec![Finding::new(&manifest.path, problem, fix)];
    };
    let is_ours = |name: &str| name == "longhaul" || name.starts_with("longhaul-");
    let dependencies = manifest.dependencies.iter().filter(|dependency| is_ours(&dependency.name));
    let forbidden = dependencies.filter(|dependency| {
        let for_tests = dependency.kind == Kind::Dev && dependency.name == TESTKIT;
        !for_tests && !may_use.contains(&dependency.name.as_str())
    });
    let format_problem = |name: &str| format!("{} may not use {name}", manifest.name);
    forbidden
        .map(|dependency| {
            Finding::at(&manifest.path, dependency.line, format_problem(&dependency.name), FIX)
        })
        .collect()
}

#[cfg(test)]
mod checked {
    use super::super::finding::summaries;
    use super::super::sources::fixture;
    use super::{ALLOWED_DEPS, check};

    /// Returns the findings about one crate. The examples do not contain the other crates of
    /// the table.
    fn about(source: &str) -> Vec<String> {
        let mut all = summaries(&check(&fixture(source)));
        all.retain(|line| !line.starts_with("crates/: "));
        all
    }

    #[test]
    fn allowed_dependencies_are_accepted() {
        let source = r#"
        //- crates/longhaul-engine/Cargo.toml
        [package]
        name = "longhaul-engine"
        [dependencies]
        longhaul-core.workspace = true
        longhaul-run.workspace = true
        tokio.workspace = true
        [dev-dependencies]
        longhaul-testkit.workspace = true
        "#;
        assert_eq!(about(source), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_within_a_layer_is_found_in_every_section() {
        let source = r#"
        //- crates/longhaul-store/Cargo.toml
        [package]
        name = "longhaul-store"
        [dependencies]
        longhaul-run.workspace = true
        [build-dependencies]
        longhaul.workspace = true
        [dev-dependencies]
        longhaul-model.workspace = true
        "#;
        let expected = [("4", "longhaul-run"), ("6", "longhaul"), ("8", "longhaul-model")].map(
            |(line, name)| {
                format!(
                    "crates/longhaul-store/Cargo.toml:{line}: longhaul-store may not use {name}"
                )
            },
        );
        assert_eq!(about(source), expected);
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        let source = r#"
        //- crates/longhaul-run/Cargo.toml
        [package]
        name = "longhaul-run"
        [dependencies]
        longhaul-testkit.workspace = true
        "#;
        let expected =
            "crates/longhaul-run/Cargo.toml:4: longhaul-run may not use longhaul-testkit";
        assert_eq!(about(source), [expected]);
    }

    #[test]
    fn a_crate_without_a_row_and_a_missing_crate_are_found() {
        let source = "//- crates/longhaul-utils/Cargo.toml\n[package]\nname = \"longhaul-utils\"\n";
        let all = summaries(&check(&fixture(source)));
        assert!(all[0].ends_with("longhaul-utils is not in the table of layers"), "{all:?}");
        assert_eq!(all.len(), ALLOWED_DEPS.len() + 1);
    }

    #[test]
    fn a_document_with_another_table_is_found() {
        let source = "
        //- ARCHITECTURE.md
        | `longhaul-core` | nothing of ours | a clock |
        | `longhaul-run` | core, store | a clock |
        ";
        let mut all = summaries(&check(&fixture(source)));
        all.retain(|line| line.starts_with("ARCHITECTURE.md: "));
        assert_eq!(all.len(), ALLOWED_DEPS.len() - 1);
        assert_eq!(all[0], "ARCHITECTURE.md: does not list what longhaul-run may use");
    }
}
