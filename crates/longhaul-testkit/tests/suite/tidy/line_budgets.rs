//! Budgets of source lines by crate. A change that needs more lines raises the number here, where
//! a reviewer sees it.
//!
//! Blank lines, comments and unit tests don't count. Crates that don't ship have no budget.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::sources::SourceFile;

/// Maximum number of source lines of each shipped crate.
const BUDGETS: &[(&str, usize)] = &[
    ("longhaul", 4_210),
    ("longhaul-api", 3_340),
    ("longhaul-cli", 15_400),
    ("longhaul-core", 8_500),
    ("longhaul-engine", 14_800),
    ("longhaul-mcp", 4_680),
    ("longhaul-model", 8_010),
    ("longhaul-project", 8_900),
    ("longhaul-run", 9_200),
    ("longhaul-sandbox", 6_600),
    ("longhaul-server", 4_360),
    ("longhaul-store", 7_600),
    ("longhaul-tool", 8_100),
];

const NOT_SHIPPED: &[&str] = &["longhaul-bench", "longhaul-testkit"];

/// Finds crates with more source lines than their budget, and crates without a budget.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut lines = BTreeMap::<&str, usize>::new();
    let is_unit_test = |file: &SourceFile| file.path.ends_with("/tests.rs");
    for file in files.iter().filter(|file| file.is_source() && !is_unit_test(file)) {
        *lines.entry(file.krate().unwrap_or_default()).or_default() += source_lines(&file.text);
    }
    lines.retain(|krate, _| !NOT_SHIPPED.contains(krate));
    let over_budget = lines.into_iter().filter_map(|(krate, lines)| {
        let budget = BUDGETS.iter().find(|(name, _)| *name == krate).map(|(_, budget)| *budget);
        let problem = match budget {
            None => "has no budget of source lines".to_owned(),
            Some(budget) if lines > budget => format!("{lines} source lines, {budget} at most"),
            Some(_) => return None,
        };
        let fix = "delete or simplify code, or change BUDGETS and say why in the commit";
        Some(Finding::new(format!("crates/{krate}"), problem, fix))
    });
    over_budget.collect()
}

/// Counts the lines of a file that are neither blank, nor a comment, nor in a test module.
fn source_lines(text: &str) -> usize {
    let mut count = 0;
    let mut in_test = false;
    for line in text.lines() {
        let trimmed = line.trim();
        in_test |= trimmed == "#[cfg(test)]";
        if in_test {
            in_test = !(line == "}" || trimmed.starts_with("mod ") && trimmed.ends_with(';'));
        } else if !trimmed.is_empty() && !trimmed.starts_with("//") {
            count += 1;
        }
    }
    count
}

#[test]
fn comments_blank_lines_and_unit_tests_do_not_count() {
    let text = "//! Doc.\n\nuse a;\n\n/// Doc.\nfn f() {\n    // Why.\n    g();\n}\n\n#[cfg(test)]\nmod tests;\n\nfn h() {}\n\n#[cfg(test)]\nmod checked {\n    fn i() {}\n}\n";
    assert_eq!(source_lines(text), 5);
}

#[test]
fn a_crate_above_its_budget_and_one_without_a_budget_are_found() {
    let file = |path: &str, lines: usize| SourceFile {
        path: path.to_owned(),
        text: "g();\n".repeat(lines),
        executable: false,
    };
    let (name, budget) = BUDGETS[0];
    let path = format!("crates/{name}/src/lib.rs");
    let unknown = file("crates/longhaul-new/src/lib.rs", 1);
    let not_shipped = file("crates/longhaul-testkit/src/lib.rs", 1);
    let tests = file(&format!("crates/{name}/tests/suite.rs"), 1);
    let within = check(&[file(&path, budget), not_shipped, tests]);
    assert_eq!(within, []);
    let found = super::finding::summaries(&check(&[file(&path, budget + 1), unknown]));
    let over = format!("crates/{name}: {} source lines, {budget} at most", budget + 1);
    assert_eq!(found, [over.as_str(), "crates/longhaul-new: has no budget of source lines"]);
}
