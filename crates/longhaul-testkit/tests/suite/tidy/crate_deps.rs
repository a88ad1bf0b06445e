//! The arrows between our own crates, against the table of floors.

use super::finding::Finding;
use super::manifest::{self, Kind, Manifest};
use super::sources::SourceFile;

/// Who may use whom. A crate that is not here is not part of the house.
const ALLOWED_DEPS: &[(&str, &[&str])] = &[
    ("longhaul-core", &[]),
    ("longhaul-run", &["longhaul-core"]),
    ("longhaul-store", &["longhaul-core"]),
    ("longhaul-model", &["longhaul-core"]),
    ("longhaul-tool", &["longhaul-core"]),
    ("longhaul-mcp", &["longhaul-core"]),
    ("longhaul-api", &["longhaul-core"]),
    ("longhaul-engine", &["longhaul-core", "longhaul-run", "longhaul-api"]),
    ("longhaul-server", &["longhaul-core", "longhaul-engine", "longhaul-api"]),
    (
        "longhaul",
        &[
            "longhaul-core",
            "longhaul-run",
            "longhaul-store",
            "longhaul-model",
            "longhaul-tool",
            "longhaul-mcp",
            "longhaul-api",
            "longhaul-engine",
            "longhaul-server",
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
            "longhaul-mcp",
            "longhaul-api",
            "longhaul-engine",
            "longhaul-server",
            "longhaul",
        ],
    ),
    (TESTKIT, &["longhaul-core", "longhaul-run"]),
];

const TESTKIT: &str = "longhaul-testkit";

const DOCUMENT: &str = "ARCHITECTURE.md";

const FIX: &str = "move the code to a floor that may see both, or hand the need in through a port \
                    of longhaul-core; the table is in ARCHITECTURE.md";

/// Compares every arrow of every manifest with the table.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let (manifests, mut findings) = manifest::crates(files);
    for manifest in &manifests {
        findings.extend(check_one(manifest));
    }
    for (name, _) in ALLOWED_DEPS {
        if !manifests.iter().any(|manifest| manifest.name == *name) {
            let wrong = format!("the table of floors names {name}, which is not there");
            findings.push(Finding::new("crates/", wrong, "add the crate, or take its row away"));
        }
    }
    findings.extend(files.iter().filter(|file| file.path == DOCUMENT).flat_map(check_document));
    findings
}

/// What people read says the same as what the machine holds.
fn check_document(document: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, may_use) in ALLOWED_DEPS {
        let told: Vec<_> = may_use.iter().map(|name| name.replace("longhaul-", "")).collect();
        let told = match told.len() {
            0 => "nothing of ours".to_owned(),
            len if len == ALLOWED_DEPS.len() - 2 => "all of them".to_owned(),
            _ => told.join(", "),
        };
        let row = format!("| `{name}` | {told} |");
        if !document.text.lines().any(|line| line.starts_with(&row)) {
            let wrong = format!("does not tell what {name} may use");
            let mend = format!("the table of floors needs the row `{row} ...`");
            findings.push(Finding::new(DOCUMENT, wrong, &mend));
        }
    }
    findings
}

fn check_one(manifest: &Manifest) -> Vec<Finding> {
    let Some((_, may_use)) = ALLOWED_DEPS.iter().find(|(name, _)| *name == manifest.name) else {
        let wrong = format!("{} is not in the table of floors", manifest.name);
        let mend = "give it a floor in ALLOWED_DEPS and in ARCHITECTURE.md, if it earns a wall";
        return vec![Finding::new(&manifest.path, wrong, mend)];
    };
    let ours = |name: &str| name == "longhaul" || name.starts_with("longhaul-");
    let arrows = manifest.dependencies.iter().filter(|arrow| ours(&arrow.name));
    let wrong = arrows.filter(|arrow| {
        let for_tests = arrow.kind == Kind::Dev && arrow.name == TESTKIT;
        !for_tests && !may_use.contains(&arrow.name.as_str())
    });
    let say = |name: &str| format!("{} may not use {name}", manifest.name);
    wrong.map(|arrow| Finding::at(&manifest.path, arrow.line, say(&arrow.name), FIX)).collect()
}

#[cfg(test)]
mod checked {
    use super::super::finding::summaries;
    use super::super::sources::fixture;
    use super::{ALLOWED_DEPS, check};

    /// Findings about one crate; the rest of the table is missing in these small houses.
    fn about(written: &str) -> Vec<String> {
        let mut all = summaries(&check(&fixture(written)));
        all.retain(|line| !line.starts_with("crates/: "));
        all
    }

    #[test]
    fn allowed_dependencies_are_accepted() {
        let house = r#"
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
        assert_eq!(about(house), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_within_a_layer_is_found_in_every_section() {
        let house = r#"
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
        assert_eq!(about(house), expected);
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        let house = r#"
        //- crates/longhaul-run/Cargo.toml
        [package]
        name = "longhaul-run"
        [dependencies]
        longhaul-testkit.workspace = true
        "#;
        let expected =
            "crates/longhaul-run/Cargo.toml:4: longhaul-run may not use longhaul-testkit";
        assert_eq!(about(house), [expected]);
    }

    #[test]
    fn a_crate_without_a_row_and_a_missing_crate_are_found() {
        let house = "//- crates/longhaul-utils/Cargo.toml\n[package]\nname = \"longhaul-utils\"\n";
        let all = summaries(&check(&fixture(house)));
        assert!(all[0].ends_with("longhaul-utils is not in the table of floors"), "{all:?}");
        assert_eq!(all.len(), ALLOWED_DEPS.len() + 1);
    }

    #[test]
    fn a_document_with_another_table_is_found() {
        let house = "
        //- ARCHITECTURE.md
        | `longhaul-core` | nothing of ours | a clock |
        | `longhaul-run` | core, store | a clock |
        ";
        let mut all = summaries(&check(&fixture(house)));
        all.retain(|line| line.starts_with("ARCHITECTURE.md: "));
        assert_eq!(all.len(), ALLOWED_DEPS.len() - 1);
        assert_eq!(all[0], "ARCHITECTURE.md: does not tell what longhaul-run may use");
    }
}
