//! The threads that a command waits on.
//!
//! Never: more than the work needs. The store has threads of its own.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// For commands that say a word or look.
pub(crate) fn current_thread() -> anyhow::Result<Runtime> {
    let built = Builder::new_current_thread().enable_all().build();
    built.context("this process gets no thread")
}

/// For commands that drive.
pub(crate) fn multi_thread() -> anyhow::Result<Runtime> {
    let built = Builder::new_multi_thread().enable_all().build();
    built.context("this process gets no threads")
}
