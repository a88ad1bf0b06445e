//! Builds tokio runtimes for commands. The store has threads of its own.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// Builds a single-threaded tokio runtime, for commands that do not drive (execute) runs.
pub(crate) fn build_single_thread_tokio() -> anyhow::Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.context("the async runtime can't be started")
}

/// Builds a multi-threaded tokio runtime, for commands that drive (execute) runs.
pub(crate) fn build_multi_thread_tokio() -> anyhow::Result<Runtime> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.context("the async runtime can't be started")
}
