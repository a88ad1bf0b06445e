//! A finding of a check: the position, what is wrong, and how to fix it.

use std::fmt::{self, Display};

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// `file:line`, or only the file if there is no line.
    pub(crate) location: String,
    pub(crate) problem: String,
    pub(crate) fix: String,
}

impl Finding {
    pub(crate) fn at(file: &str, line: usize, problem: impl Into<String>, fix: &str) -> Self {
        Self::new(format!("{file}:{line}"), problem, fix)
    }

    /// Creates a finding about a whole file, or about something that is not a file.
    pub(crate) fn new(location: impl Into<String>, problem: impl Into<String>, fix: &str) -> Self {
        Self { location: location.into(), problem: problem.into(), fix: fix.to_owned() }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    fix: {}", self.location, self.problem, self.fix)
    }
}

/// Fails with all findings, so that one test run shows everything that has to be fixed.
#[track_caller]
pub(crate) fn assert_none(findings: Vec<Finding>) {
    let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(messages.is_empty(), "{} findings\n\n{}\n", messages.len(), messages.join("\n"));
}

/// Returns the findings as `position: problem`, without the fix.
pub(crate) fn summaries(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}: {}", finding.location, finding.problem)).collect()
}

#[test]
fn a_finding_has_location_problem_and_fix() {
    let finding = Finding::at("a.rs", 7, "is too long", "split it");
    assert_eq!(finding.to_string(), "a.rs:7: is too long\n    fix: split it");
}

#[test]
#[should_panic(expected = "2 findings")]
fn all_findings_are_shown_at_once() {
    assert_none(vec![Finding::new("a", "x", "y"), Finding::new("b", "x", "y")]);
}
