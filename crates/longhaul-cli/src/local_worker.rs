//! A worker inside the process of a command, which drives (executes) the command's run while the
//! command does its other work.
//!
//! Invariants: the worker is always stopped and awaited; it drives only the runs of one tree, i.e.
//! a root run and all its descendants.

use std::sync::Arc;

use longhaul::project::ProjectRuntime;
use longhaul_core::id::RunId;
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::Error;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::Worker;
use longhaul_project::assemble::mcp_tools::McpTools;
use longhaul_project::assemble::worker_options;
use tokio::task::{JoinError, JoinHandle};

use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupts::InterruptListener;
use crate::output;

/// Time after which a notice is printed if the worker has not stopped.
const NOTICE_DELAY: Millis = Millis::from_secs(1);

/// A worker that runs as a task in this process.
#[derive(Debug)]
pub(crate) struct LocalWorker {
    shutdown: Shutdown,
    worker: JoinHandle<Result<(), Error>>,
    clock: Arc<dyn Clock>,
    mcp_tools: Arc<McpTools>,
    /// True if the worker's task has already been joined.
    is_joined: bool,
}

impl LocalWorker {
    /// Starts a worker on the project's store that drives only the tree of this run: the run, its
    /// root and all runs that the root has started.
    pub(crate) async fn start(runtime: &ProjectRuntime, run: RunId) -> anyhow::Result<Self> {
        let mut options = worker_options(&runtime.config).map_err(|error| {
            CliError::usage_error(format!("the setting `[worker] inboxes` is invalid: {error}"))
                .with_hint("see where it is set", "longhaul config show --origin")
        })?;
        // Without inboxes, nobody takes this worker for one that drives other runs.
        options.inboxes.clear();
        options.only_tree = Some(runtime.longhaul.run_row(run).await?.root);
        let stop = Shutdown::new();
        let worker = Worker::new(runtime.longhaul.services(), options);
        #[expect(clippy::disallowed_methods, reason = "owned here and awaited in `stop`")]
        let worker = tokio::spawn(worker.run(stop.clone()));
        let clock = Arc::clone(&runtime.longhaul.services().clock);
        Ok(Self {
            shutdown: stop,
            worker,
            clock,
            mcp_tools: Arc::clone(&runtime.mcp_tools),
            is_joined: false,
        })
    }

    /// Waits until the worker stops by itself, which it should not, and returns the reason as an
    /// error.
    pub(crate) async fn wait_for_failure(&mut self) -> anyhow::Error {
        let result = (&mut self.worker).await;
        self.is_joined = true;
        match result {
            Ok(Err(error)) => error.into(),
            Ok(Ok(())) => CliError::usage_error("the worker stopped unexpectedly").into(),
            Err(panic) => worker_panic_error(&panic),
        }
    }

    /// Stops the worker like [`stop`](Self::stop), but keeps the connections to MCP servers. If the
    /// future is dropped, the worker can still be stopped.
    pub(crate) async fn drain(&mut self) -> anyhow::Result<()> {
        self.shutdown.request_drain();
        let result = (&mut self.worker).await;
        self.is_joined = true;
        flatten_join_result(result)
    }

    /// Lets the worker release every run at the run's next event, and stops the worker. A running
    /// call is awaited, because an aborted call may have to be paid for twice or its outcome may be
    /// unknown. An interrupt aborts the call.
    pub(crate) async fn stop(self, interrupts: &mut InterruptListener) -> anyhow::Result<()> {
        let mcp_tools = Arc::clone(&self.mcp_tools);
        let result = self.stop_worker(interrupts).await;
        mcp_tools.close_mcp_clients().await;
        result
    }

    async fn stop_worker(self, interrupts: &mut InterruptListener) -> anyhow::Result<()> {
        self.shutdown.request_drain();
        if self.is_joined {
            return Ok(());
        }
        let mut worker = self.worker;
        tokio::select! {
            biased;
            result = &mut worker => return flatten_join_result(result),
            () = self.clock.sleep(NOTICE_DELAY) => {
                output::eprint_line("stopping: waiting for a running call; Ctrl-C aborts it");
            }
        }
        tokio::select! {
            biased;
            result = &mut worker => flatten_join_result(result),
            () = interrupts.next_signal() => {
                self.shutdown.request_abort();
                flatten_join_result(worker.await)
            }
        }
    }
}

impl LocalWorker {
    /// Aborts all running calls and stops the worker. Used for runs that nobody will continue.
    pub(crate) async fn abort(self) -> anyhow::Result<()> {
        self.shutdown.request_abort();
        match self.is_joined {
            true => Ok(()),
            false => flatten_join_result(self.worker.await),
        }
    }
}

fn flatten_join_result(result: Result<Result<(), Error>, JoinError>) -> anyhow::Result<()> {
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(panic) => Err(worker_panic_error(&panic)),
    }
}

/// Returns the error for a worker that panicked. The worker's runs continue with the next process
/// that drives (executes) them.
fn worker_panic_error(panic: &JoinError) -> anyhow::Error {
    CliError::usage_error(format!("the worker failed: {panic}")).with_exit_code(Exit::Busy).into()
}
