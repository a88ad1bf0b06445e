//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the facts it looks at, and lets the others pass"
)]
mod suite {
    mod agent_options;
    mod budgets;
    mod calls;
    mod compaction;
    mod crash;
    mod failures;
    mod format;
    mod gates;
    mod generators;
    mod harness;
    mod legacy_journals;
    mod lifecycle;
    mod policies;
    mod properties;
    mod refusals;
    mod steers;
    mod strictness;
}
