//! Test suites that every implementation of a port must pass.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a suite is test code that lives in `src` so that every crate can run it"
)]

pub mod harness;
pub mod sandboxes;
pub mod store;
