//! A worker inside the process of a command, which drives (executes) the command's run while the
//! command does its other work.
//!
//! Invariants: the worker is always stopped and awaited; it drives only the runs of one tree, i.e.
//! a root run and all its descendants.

use std::sync::Arc;

use longhaul::project::ProjectRuntime;
use longhaul_core::id::RunId;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::Error;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::Worker;
use longhaul_project::assemble::mcp_tools::McpTools;
use tokio::task::JoinHandle;

use crate::error::CliError;
use crate::exit::Exit;
use crate::output;
use crate::runtime::InterruptListener;
use crate::worker::project_worker_options;

/// Time after which a notice is printed if the worker has not stopped.
const NOTICE_DELAY: Millis = Millis::from_secs(1);

/// A worker that runs as a task in this process.
#[derive(Debug)]
pub(crate) struct LocalWorker {
    shutdown: Shutdown,
    worker: JoinHandle<Result<(), Error>>,
    mcp_tools: Arc<McpTools>,
    /// True if the worker's task has already been joined.
    is_joined: bool,
}

impl LocalWorker {
    /// Starts a worker on the project's store that drives only the tree of this run: the run, its
    /// root and all runs that the root has started.
    pub(crate) async fn start(runtime: &ProjectRuntime, run: RunId) -> anyhow::Result<Self> {
        let mut options = project_worker_options(&runtime.config)?;
        // Without inboxes, nobody takes this worker for one that drives other runs.
        options.inboxes.clear();
        options.only_tree = Some(runtime.longhaul.run_row(run).await?.root);
        let stop = Shutdown::new();
        let worker = Worker::new(runtime.longhaul.services(), options);
        #[expect(clippy::disallowed_methods, reason = "owned here and awaited in `stop`")]
        let worker = tokio::spawn(worker.run(stop.clone()));
        let mcp_tools = Arc::clone(&runtime.mcp_tools);
        Ok(Self { shutdown: stop, worker, mcp_tools, is_joined: false })
    }

    /// Waits until the worker has stopped. A panic is an error. The worker's runs then continue with
    /// the next process that drives (executes) them.
    async fn join(&mut self) -> anyhow::Result<()> {
        if self.is_joined {
            return Ok(());
        }
        let result = (&mut self.worker).await;
        self.is_joined = true;
        let panicked = |panic| {
            CliError::usage_error(format!("the worker failed: {panic}")).with_exit_code(Exit::Busy)
        };
        Ok(result.map_err(panicked)??)
    }

    /// Waits until the worker stops by itself, which it should not, and returns the reason as an
    /// error.
    pub(crate) async fn wait_for_failure(&mut self) -> anyhow::Error {
        let result = self.join().await;
        result.err().unwrap_or_else(|| anyhow::anyhow!("the worker stopped unexpectedly"))
    }

    /// Stops the worker like [`stop`](Self::stop), but keeps the connections to MCP servers. If the
    /// future is dropped, the worker can still be stopped.
    pub(crate) async fn drain(&mut self) -> anyhow::Result<()> {
        self.shutdown.request_drain();
        self.join().await
    }

    /// Lets the worker release every run at the run's next event, and stops the worker. A running
    /// call is awaited, because an aborted call may have to be paid for twice or its outcome may be
    /// unknown. An interrupt aborts the call.
    pub(crate) async fn stop(mut self, interrupts: &mut InterruptListener) -> anyhow::Result<()> {
        let result = self.drain_or_abort(interrupts).await;
        self.mcp_tools.close_mcp_clients().await;
        result
    }

    async fn drain_or_abort(&mut self, interrupts: &mut InterruptListener) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            result = self.drain() => return result,
            () = SystemClock.sleep(NOTICE_DELAY) => {
                output::eprint_line("stopping: waiting for a running call; Ctrl-C aborts it");
            }
        }
        tokio::select! {
            biased;
            result = self.join() => return result,
            () = interrupts.next_signal() => self.shutdown.request_abort(),
        }
        self.join().await
    }

    /// Aborts all running calls and stops the worker. Used for runs that nobody will continue.
    pub(crate) async fn abort(mut self) -> anyhow::Result<()> {
        self.shutdown.request_abort();
        self.join().await
    }
}
