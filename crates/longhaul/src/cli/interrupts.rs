//! Ctrl-C, heard from the moment a command has something to let go of.
//!
//! Never: lost in between. What is pressed while nobody waits for it is kept.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whoever types wants this command to end.
#[derive(Debug)]
pub(crate) struct Interrupts(Signal);

impl Interrupts {
    /// Listens from now on: the process is no longer ended by it.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let heard = signal(SignalKind::interrupt()).context("Ctrl-C can't be listened for")?;
        Ok(Self(heard))
    }

    /// Returns when it was pressed once more.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}
