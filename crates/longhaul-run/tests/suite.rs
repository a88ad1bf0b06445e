//! Integration tests of this crate, built as one binary. Each module is a file in `suite/`.

#[cfg(test)]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test matches the events it checks and ignores the others"
)]
mod suite {
    mod agent_options;
    mod answers;
    mod approvers;
    mod budgets;
    mod calls;
    mod chains;
    mod checkpoints;
    mod children;
    mod compaction;
    mod crash;
    mod failures;
    mod forks;
    mod format;
    mod gates;
    mod generators;
    mod harness;
    mod legacy_journals;
    mod lifecycle;
    mod outages;
    mod outcomes;
    mod policies;
    mod properties;
    mod questions;
    mod refusals;
    mod result_gates;
    mod retries;
    mod sandboxes;
    mod signals;
    mod steers;
    mod strictness;
    mod suspension;
    mod timeouts;
    mod workspaces;
}
