//! A worker in this process, beside whatever else the command does.
//!
//! Never: left behind. It is told to stop and awaited.

use longhaul::assemble::{House, worker_options};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::stop::Stop;
use longhaul_engine::worker::Worker;
use tokio::task::JoinHandle;

use crate::cli::fail::{self, Failure};

/// So long is waited for what is under way, unless Ctrl-C says otherwise.
const PATIENCE: Millis = Millis::from_secs(2);

async fn patience() {
    tokio::select! {
        () = SystemClock.sleep_until(SystemClock.now().plus(PATIENCE)) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// A worker under way.
#[derive(Debug)]
pub(crate) struct Driving {
    stop: Stop,
    worker: JoinHandle<Result<(), longhaul_engine::Error>>,
}

impl Driving {
    /// Starts a worker over this store.
    pub(crate) fn start(house: &House) -> anyhow::Result<Self> {
        let options = worker_options(&house.config).map_err(|bad| {
            Failure::usage(format!("[worker] inboxes: {bad}"))
                .hint("see where it is set", "longhaul config show --origin")
        })?;
        let stop = Stop::new();
        let worker = Worker::new(house.longhaul.ports(), options);
        #[expect(
            clippy::disallowed_methods,
            reason = "it is owned here and awaited in `end`"
        )]
        let worker = tokio::spawn(worker.run(stop.clone()));
        Ok(Self { stop, worker })
    }

    /// Returns when the worker has ended by itself, which is a fault.
    pub(crate) async fn broke(&mut self) -> anyhow::Error {
        match (&mut self.worker).await {
            Ok(Err(error)) => fail::engine(error),
            Ok(Ok(())) => Failure::usage("the worker ended without a word").into(),
            Err(panic) => Failure::usage(format!("the worker broke: {panic}")).into(),
        }
    }

    /// Lets every run go at its next fact, and ends. Somebody waits at a
    /// terminal: what is still under way after a moment is cut off, and goes on
    /// with the next driver.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.stop.drain();
        let ended = tokio::select! {
            biased;
            ended = &mut self.worker => ended,
            () = patience() => {
                self.stop.cut();
                self.worker.await
            }
        };
        match ended {
            Ok(Ok(())) | Err(_) => Ok(()),
            Ok(Err(error)) => Err(fail::engine(error)),
        }
    }
}
