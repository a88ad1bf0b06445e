//! A worker in this process, beside whatever else the command does.
//!
//! Never: left behind. It is told to stop and awaited.

use longhaul::assemble::{House, worker_options};
use longhaul_engine::stop::Stop;
use longhaul_engine::worker::Worker;
use tokio::task::JoinHandle;

use crate::cli::fail::{self, Failure};

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

    /// Lets every run go at its next fact, and ends.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.stop.drain();
        match self.worker.await {
            Ok(Ok(())) | Err(_) => Ok(()),
            Ok(Err(error)) => Err(fail::engine(error)),
        }
    }
}
