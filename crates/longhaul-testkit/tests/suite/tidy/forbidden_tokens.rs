//! Identifiers that a crate must not use in its source.
//!
//! Clippy forbids the function that reads the clock everywhere. Here the types are forbidden in
//! the crates that get the time as an argument.

use super::finding::Finding;
use super::sources::SourceFile;
use super::tokens;

/// Forbidden identifiers, the crates they are forbidden in (an empty list means all), and how
/// to fix a finding.
struct Ban {
    tokens: &'static [&'static str],
    crates: &'static [&'static str],
    fix: &'static str,
}

const STATE_MACHINE_CRATES: &[&str] = &["longhaul-core", "longhaul-run"];

const BANS: &[Ban] = &[
    Ban {
        tokens: &["SystemTime", "Instant"],
        crates: STATE_MACHINE_CRATES,
        fix: "take the time as an argument: the state machine never reads a clock",
    },
    Ban {
        tokens: &["rand", "getrandom", "thread_rng", "RandomState"],
        crates: STATE_MACHINE_CRATES,
        fix: "take the id or the jitter as an argument; for maps use BTreeMap or IndexMap",
    },
    Ban {
        tokens: &["async", "await"],
        crates: &["longhaul-run"],
        fix: "return a Step; the engine does the waiting",
    },
    Ban {
        tokens: &["longhaul_testkit"],
        crates: &[],
        fix: "use the testkit only from tests/: a unit test would link a second copy of its crate",
    },
];

/// Finds forbidden identifiers in the source of every crate.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_source()) {
        let krate = file.krate().unwrap_or_default();
        let bans = BANS.iter().filter(|ban| ban.crates.is_empty() || ban.crates.contains(&krate));
        let bans: Vec<&Ban> = bans.collect();
        for token in tokens::all_tokens(&file.text) {
            let violated = bans.iter().find(|ban| ban.tokens.contains(&token.text.as_str()));
            findings.extend(violated.map(|ban| {
                let problem = format!("{krate} must not use `{}`", token.text);
                Finding::at(&file.path, token.line, problem, ban.fix)
            }));
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
    fn the_state_machine_uses_no_clock_and_no_await() {
        let source = "
        //- crates/longhaul-run/src/next.rs
        //! Mentions SystemTime and await in a comment, which is fine.
        use std::time::SystemTime;
        async fn think() {
            vec![soon().await];
        }
        //- crates/longhaul-run/tests/suite/a.rs
        use std::time::Instant;
        //- crates/longhaul-core/src/port.rs
        async fn a_port_may() {}
        ";
        assert_eq!(
            summaries(&check(&fixture(source))),
            [
                "crates/longhaul-run/src/next.rs:2: longhaul-run must not use `SystemTime`",
                "crates/longhaul-run/src/next.rs:3: longhaul-run must not use `async`",
                "crates/longhaul-run/src/next.rs:4: longhaul-run must not use `await`",
            ]
        );
    }

    #[test]
    fn no_source_uses_the_testkit() {
        let source = "
        //- crates/longhaul-store/src/a.rs
        #[cfg(test)]
        use longhaul_testkit::World;
        //- crates/longhaul-store/tests/suite.rs
        use longhaul_testkit::World;
        ";
        let expected =
            "crates/longhaul-store/src/a.rs:2: longhaul-store must not use `longhaul_testkit`";
        assert_eq!(summaries(&check(&fixture(source))), [expected]);
    }
}
