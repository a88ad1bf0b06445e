//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the facts it looks at, and lets the others pass"
)]
mod suite {
    mod budgets;
    mod calls;
    mod chance;
    mod crash;
    mod failures;
    mod format;
    mod gates;
    mod laws;
    mod lifecycle;
    mod older;
    mod policies;
    mod refusals;
    mod shorten;
    mod steers;
    mod strict;
    mod wishes;
    mod world;
}
