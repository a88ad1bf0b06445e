//! A worker in this process, beside whatever else the command does.
//!
//! Never: left behind. It is told to stop and awaited.

use std::sync::Arc;

use longhaul::assemble::supplies::Served;
use longhaul::assemble::{House, worker_options};
use longhaul_core::id::RunId;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::Error;
use longhaul_engine::stop::Stop;
use longhaul_engine::worker::Worker;
use tokio::task::{JoinError, JoinHandle};

use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupts::Interrupts;
use crate::say;

/// A stop that takes longer is explained.
const SOON: Millis = Millis::from_secs(1);

/// A worker under way.
#[derive(Debug)]
pub(crate) struct Driving {
    stop: Stop,
    worker: JoinHandle<Result<(), Error>>,
    clock: Arc<dyn Clock>,
    served: Arc<Served>,
    /// It has ended by itself, and nobody may wait for it again.
    broke: bool,
}

impl Driving {
    /// Starts a worker over this store, for this run before all others: it also
    /// serves the inbox where that one queues.
    pub(crate) async fn start(house: &House, run: RunId) -> anyhow::Result<Self> {
        let mut options = worker_options(&house.config).map_err(|bad| {
            CliError::usage(format!("[worker] inboxes: {bad}"))
                .hint("see where it is set", "longhaul config show --origin")
        })?;
        let row = house.longhaul.row(run).await?;
        if !options.inboxes.contains(&row.inbox) {
            options.inboxes.insert(0, row.inbox);
        }
        let stop = Stop::new();
        let worker = Worker::new(house.longhaul.ports(), options);
        #[expect(
            clippy::disallowed_methods,
            reason = "it is owned here and awaited in `end`"
        )]
        let worker = tokio::spawn(worker.run(stop.clone()));
        let clock = Arc::clone(&house.longhaul.ports().clock);
        Ok(Self {
            stop,
            worker,
            clock,
            served: Arc::clone(&house.served),
            broke: false,
        })
    }

    /// Returns when the worker has ended by itself, which is a fault.
    pub(crate) async fn broke(&mut self) -> anyhow::Error {
        let ended = (&mut self.worker).await;
        self.broke = true;
        match ended {
            Ok(Err(error)) => error.into(),
            Ok(Ok(())) => CliError::usage("the worker ended without a word").into(),
            Err(panic) => broken(&panic),
        }
    }

    /// Lets every run go at its next fact, and ends. A call that runs is waited
    /// for, since one that is cut off may have to be paid or answered for twice;
    /// whoever can't wait says so.
    pub(crate) async fn end(self, interrupts: &mut Interrupts) -> anyhow::Result<()> {
        let served = Arc::clone(&self.served);
        let ended = self.end_worker(interrupts).await;
        served.close().await;
        ended
    }

    async fn end_worker(self, interrupts: &mut Interrupts) -> anyhow::Result<()> {
        self.stop.drain();
        if self.broke {
            return Ok(());
        }
        let mut worker = self.worker;
        tokio::select! {
            biased;
            done = &mut worker => return ended(done),
            () = self.clock.sleep(SOON) => {
                say::talk("stopping: a call still runs and is waited for; Ctrl-C cuts it off");
            }
        }
        tokio::select! {
            biased;
            done = &mut worker => ended(done),
            () = interrupts.next() => {
                self.stop.cut();
                ended(worker.await)
            }
        }
    }
}

impl Driving {
    /// Cuts off whatever runs: nobody will go on with it.
    pub(crate) async fn cut(self) -> anyhow::Result<()> {
        self.stop.cut();
        match self.broke {
            true => Ok(()),
            false => ended(self.worker.await),
        }
    }
}

fn ended(done: Result<Result<(), Error>, JoinError>) -> anyhow::Result<()> {
    match done {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(panic) => Err(broken(&panic)),
    }
}

/// Runs go on with the next driver, whatever became of this one.
fn broken(panic: &JoinError) -> anyhow::Error {
    CliError::usage(format!("the worker broke: {panic}"))
        .exit(Exit::Busy)
        .into()
}
