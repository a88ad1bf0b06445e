//! A worker in this process, beside whatever else the command does.
//!
//! Never: left behind. It is told to stop and awaited.

use std::sync::Arc;

use longhaul::assemble::mcp_tools::McpTools;
use longhaul::assemble::{ProjectRuntime, worker_options};
use longhaul_core::id::RunId;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::Error;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::Worker;
use tokio::task::{JoinError, JoinHandle};

use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupts::Interrupts;
use crate::output;

/// A stop that takes longer is explained.
const NOTICE_DELAY: Millis = Millis::from_secs(1);

/// A worker under way.
#[derive(Debug)]
pub(crate) struct LocalWorker {
    shutdown: Shutdown,
    worker: JoinHandle<Result<(), Error>>,
    clock: Arc<dyn Clock>,
    mcp_tools: Arc<McpTools>,
    /// It has ended by itself, and nobody may wait for it again.
    is_joined: bool,
}

impl LocalWorker {
    /// Starts a worker over this store, for this run before all others: it also
    /// serves the inbox where that one queues.
    pub(crate) async fn start(house: &ProjectRuntime, run: RunId) -> anyhow::Result<Self> {
        let mut options = worker_options(&house.config).map_err(|bad| {
            CliError::usage(format!("[worker] inboxes: {bad}"))
                .hint("see where it is set", "longhaul config show --origin")
        })?;
        let row = house.longhaul.run_row(run).await?;
        if !options.inboxes.contains(&row.inbox) {
            options.inboxes.insert(0, row.inbox);
        }
        let stop = Shutdown::new();
        let worker = Worker::new(house.longhaul.services(), options);
        #[expect(clippy::disallowed_methods, reason = "it is owned here and awaited in `end`")]
        let worker = tokio::spawn(worker.run(stop.clone()));
        let clock = Arc::clone(&house.longhaul.services().clock);
        Ok(Self {
            shutdown: stop,
            worker,
            clock,
            mcp_tools: Arc::clone(&house.mcp_tools),
            is_joined: false,
        })
    }

    /// Returns when the worker has ended by itself, which is a fault.
    pub(crate) async fn wait_for_failure(&mut self) -> anyhow::Error {
        let ended = (&mut self.worker).await;
        self.is_joined = true;
        match ended {
            Ok(Err(error)) => error.into(),
            Ok(Ok(())) => CliError::usage("the worker ended without a word").into(),
            Err(panic) => panic_error(&panic),
        }
    }

    /// Lets every run go at its next fact, and ends. A call that runs is waited
    /// for, since one that is cut off may have to be paid or answered for twice;
    /// whoever can't wait says so.
    pub(crate) async fn stop(self, interrupts: &mut Interrupts) -> anyhow::Result<()> {
        let served = Arc::clone(&self.mcp_tools);
        let ended = self.stop_worker(interrupts).await;
        served.close().await;
        ended
    }

    async fn stop_worker(self, interrupts: &mut Interrupts) -> anyhow::Result<()> {
        self.shutdown.drain();
        if self.is_joined {
            return Ok(());
        }
        let mut worker = self.worker;
        tokio::select! {
            biased;
            done = &mut worker => return join_result(done),
            () = self.clock.sleep(NOTICE_DELAY) => {
                output::stderr_line("stopping: a call still runs and is waited for; Ctrl-C cuts it off");
            }
        }
        tokio::select! {
            biased;
            done = &mut worker => join_result(done),
            () = interrupts.next() => {
                self.shutdown.abort();
                join_result(worker.await)
            }
        }
    }
}

impl LocalWorker {
    /// Cuts off whatever runs: nobody will go on with it.
    pub(crate) async fn abort(self) -> anyhow::Result<()> {
        self.shutdown.abort();
        match self.is_joined {
            true => Ok(()),
            false => join_result(self.worker.await),
        }
    }
}

fn join_result(done: Result<Result<(), Error>, JoinError>) -> anyhow::Result<()> {
    match done {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(panic) => Err(panic_error(&panic)),
    }
}

/// Runs go on with the next driver, whatever became of this one.
fn panic_error(panic: &JoinError) -> anyhow::Error {
    CliError::usage(format!("the worker broke: {panic}")).with_exit(Exit::Busy).into()
}
