//! What a command runs on: a tokio runtime (the store has threads of its own), and what asks the
//! command to stop: SIGINT, SIGTERM and SIGHUP, and the end of the parent process. A signal that
//! arrives while `next_signal` is not awaited is not lost.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs a command that does not drive (execute) runs, on this thread.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.context("the async runtime can't be started")?.block_on(command)
}

/// Builds a multi-threaded tokio runtime, for commands that drive (execute) runs.
pub(crate) fn build_multi_thread_tokio() -> anyhow::Result<Runtime> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.context("the async runtime can't be started")
}

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

/// Returns when stdin reaches EOF, because the parent process is gone. Never returns if
/// watching is disabled.
pub(crate) async fn wait_for_parent_exit(enabled: bool) {
    if !enabled {
        return std::future::pending().await;
    }
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(sender);
    });
    _ = receiver.await;
}
