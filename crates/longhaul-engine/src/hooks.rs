//! What a program wants to hear of its worker: a run begins, ends, rests, fails.
//!
//! Never: holds a run up. A hook that panics is noted and forgotten.

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;

/// Somebody who wants to know. Every method may be left out.
#[async_trait]
pub trait Hooks: Send + Sync + std::fmt::Debug {
    /// A run was claimed and is about to be driven.
    async fn on_start(&self, _run: RunId) {}

    /// A run has completed.
    async fn on_complete(&self, _run: &RunRow) {}

    /// A run has failed or was cancelled.
    async fn on_error(&self, _run: &RunRow) {}

    /// A run rests and holds nothing here.
    async fn on_idle(&self, _run: &RunRow) {}

    /// There was nothing to claim.
    async fn on_empty(&self) {}
}

/// Nobody wants to know.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
