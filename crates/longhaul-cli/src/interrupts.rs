//! Handles SIGINT, SIGTERM and SIGHUP for commands that must release resources before they exit. A
//! signal that arrives while `next_signal` is not awaited is not lost.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for the signals that ask this command to stop.
#[derive(Debug)]
pub(crate) struct InterruptListener {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl InterruptListener {
    /// Starts to handle SIGINT, SIGTERM and SIGHUP, which then no longer end the process.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listener = |kind| signal(kind).context("signal handlers can't be installed");
        Ok(Self {
            interrupt: listener(SignalKind::interrupt())?,
            terminate: listener(SignalKind::terminate())?,
            hangup: listener(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal that asks the command to stop.
    pub(crate) async fn next_signal(&mut self) {
        let received = tokio::select! {
            received = self.interrupt.recv() => received,
            received = self.terminate.recv() => received,
            received = self.hangup.recv() => received,
        };
        if received.is_none() {
            std::future::pending().await
        }
    }
}
