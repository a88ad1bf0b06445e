//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
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
    mod policies;
    mod refusals;
    mod steers;
    mod world;
}
