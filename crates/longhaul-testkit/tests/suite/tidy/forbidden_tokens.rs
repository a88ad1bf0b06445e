//! Words that a floor must not say in its source.
//!
//! The method that reads the clock is forbidden everywhere by clippy; here the
//! very types are, on the floors that are handed their time.

use super::finding::Finding;
use super::sources::SourceFile;
use super::tokens;

/// A word, the crates that must not say it (none named: all of them), and the way out.
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
        fix: "take the time as an argument: the heart never reads a clock",
    },
    Ban {
        tokens: &["rand", "getrandom", "thread_rng", "RandomState"],
        crates: STATE_MACHINE_CRATES,
        fix: "take the id or the jitter as an argument; for maps use BTreeMap or IndexMap",
    },
    Ban {
        tokens: &["async", "await"],
        crates: &["longhaul-run"],
        fix: "return a Step that says what must be done; the engine waits for it",
    },
    Ban {
        tokens: &["longhaul_testkit"],
        crates: &[],
        fix: "use the testkit from tests/ only: a unit test would meet a second copy of its crate",
    },
];

/// Looks for forbidden words in the source of every crate.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_source()) {
        let krate = file.krate().unwrap_or_default();
        let bans = BANS.iter().filter(|ban| ban.crates.is_empty() || ban.crates.contains(&krate));
        let bans: Vec<&Ban> = bans.collect();
        for word in tokens::all_tokens(&file.text) {
            let broken = bans.iter().find(|ban| ban.tokens.contains(&word.text.as_str()));
            findings.extend(broken.map(|ban| {
                let wrong = format!("{krate} must not say `{}`", word.text);
                Finding::at(&file.path, word.line, wrong, ban.fix)
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
        let house = "
        //- crates/longhaul-run/src/next.rs
        //! Speaks of SystemTime and await in a comment, which is fine.
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
            summaries(&check(&fixture(house))),
            [
                "crates/longhaul-run/src/next.rs:2: longhaul-run must not say `SystemTime`",
                "crates/longhaul-run/src/next.rs:3: longhaul-run must not say `async`",
                "crates/longhaul-run/src/next.rs:4: longhaul-run must not say `await`",
            ]
        );
    }

    #[test]
    fn no_source_uses_the_testkit() {
        let house = "
        //- crates/longhaul-store/src/a.rs
        #[cfg(test)]
        use longhaul_testkit::World;
        //- crates/longhaul-store/tests/suite.rs
        use longhaul_testkit::World;
        ";
        let expected =
            "crates/longhaul-store/src/a.rs:2: longhaul-store must not say `longhaul_testkit`";
        assert_eq!(summaries(&check(&fixture(house))), [expected]);
    }
}
