//! What a check has found: where, what is wrong, and how to mend it.

use std::fmt::{self, Display};

/// One thing that is not tidy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// `file:line`, or the file alone where no line says it.
    pub(crate) location: String,
    pub(crate) problem: String,
    pub(crate) fix: String,
}

impl Finding {
    /// A finding at a line of a file.
    pub(crate) fn at(file: &str, line: usize, wrong: impl Into<String>, mend: &str) -> Self {
        Self::new(format!("{file}:{line}"), wrong, mend)
    }

    /// A finding about a file as a whole, or about something that has no file.
    pub(crate) fn new(place: impl Into<String>, wrong: impl Into<String>, mend: &str) -> Self {
        Self { location: place.into(), problem: wrong.into(), fix: mend.to_owned() }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    mend: {}", self.location, self.problem, self.fix)
    }
}

/// Fails with every finding, so that one run of the tests shows all there is to mend.
#[track_caller]
pub(crate) fn assert_none(findings: Vec<Finding>) {
    let said: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(said.is_empty(), "{} findings\n\n{}\n", said.len(), said.join("\n"));
}

/// What the checks of the checks compare: `place: wrong`, without the advice.
pub(crate) fn summaries(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|found| format!("{}: {}", found.location, found.problem)).collect()
}

#[test]
fn a_finding_has_location_problem_and_fix() {
    let found = Finding::at("a.rs", 7, "is too long", "split it");
    assert_eq!(found.to_string(), "a.rs:7: is too long\n    mend: split it");
}

#[test]
#[should_panic(expected = "2 findings")]
fn all_findings_are_shown_at_once() {
    assert_none(vec![Finding::new("a", "x", "y"), Finding::new("b", "x", "y")]);
}
