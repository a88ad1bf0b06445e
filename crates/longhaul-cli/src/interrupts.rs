//! Ctrl-C and orders to end, heard from the moment a command has something to
//! let go of.
//!
//! Never: lost in between. What comes while nobody waits for it is kept.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whoever types, or the machine, wants this command to end.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Interrupts {
    /// Listens from now on: the process is no longer ended by it.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let heard = |kind| signal(kind).context("signals can't be listened for");
        Ok(Self {
            interrupt: heard(SignalKind::interrupt())?,
            terminate: heard(SignalKind::terminate())?,
            hangup: heard(SignalKind::hangup())?,
        })
    }

    /// Returns when it is wanted once more.
    pub(crate) async fn next(&mut self) {
        let heard = tokio::select! {
            heard = self.interrupt.recv() => heard,
            heard = self.terminate.recv() => heard,
            heard = self.hangup.recv() => heard,
        };
        if heard.is_none() {
            std::future::pending().await
        }
    }
}
