//! The state that all handles of a runtime share: its store and other parts, the number of running
//! workers, and the error of the last worker that failed.

use std::fmt;
use std::sync::Arc;

use longhaul_engine::Longhaul;
use longhaul_engine::worker::WorkerOptions;
#[cfg(feature = "project")]
use longhaul_project::{
    agents::loaded_agents::{AgentError, LoadedAgents},
    assemble::mcp_tools::McpTools,
};
use tokio::sync::watch;

use crate::error::Error;

/// The store and other parts of a runtime, and the state of its workers.
pub(crate) struct RuntimeState {
    pub(crate) longhaul: Longhaul,
    pub(crate) worker: WorkerOptions,
    /// The settings of the project, or of the environment.
    #[cfg(all(feature = "server", feature = "project"))]
    pub(crate) config: longhaul_project::config::settings::Config,
    /// The agents and MCP tools of the project. `None` means that the runtime has no project.
    #[cfg(feature = "project")]
    pub(crate) project: Option<(LoadedAgents, Arc<McpTools>)>,
    pub(crate) workers: watch::Sender<RunningWorkers>,
}

impl fmt::Debug for RuntimeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuntimeState")
    }
}

/// Number of running workers, and the error of the last worker that failed.
#[derive(Debug, Default)]
pub(crate) struct RunningWorkers {
    running: usize,
    failure: Option<Arc<Error>>,
}

impl RunningWorkers {
    /// Returns the error of the last failed worker if no other worker runs. `None` means that a
    /// worker runs or that none has failed.
    fn worker_failure_if_no_worker_runs(&self) -> Option<Error> {
        let failure = self.failure.as_ref().filter(|_| self.running == 0);
        failure.map(|error| Error::WorkerFailed(Arc::clone(error)))
    }
}

impl RuntimeState {
    /// Closes the connections to all MCP servers of the project. The returned future completes when
    /// they are closed. A server that is needed afterwards is started again.
    pub(crate) fn restart_mcp_servers(&self) -> impl Future<Output = ()> + use<> {
        #[cfg(feature = "project")]
        let closing = self.project.as_ref().map(|(_, mcp_tools)| mcp_tools.restart_servers());
        #[cfg(not(feature = "project"))]
        let closing = None::<std::future::Ready<()>>;
        async {
            if let Some(closing) = closing {
                closing.await;
            }
        }
    }

    /// Checks that no file of the project defines an invalid agent with this name.
    #[cfg_attr(not(feature = "project"), expect(unused_variables, reason = "no project has files"))]
    pub(crate) fn check_agent_file_valid(&self, agent_name: &str) -> Result<(), Error> {
        #[cfg(feature = "project")]
        if let Some((loaded, _)) = &self.project
            && let Err(broken @ AgentError::Broken { .. }) = loaded.find_loaded_agent(agent_name)
        {
            return Err(broken.into());
        }
        Ok(())
    }

    /// Counts a worker as running until `record_end` is called on the returned guard or the
    /// guard is dropped.
    pub(crate) fn register_worker(self: &Arc<Self>) -> RunningWorkerGuard {
        self.workers.send_modify(|workers| {
            workers.running += 1;
            workers.failure = None;
        });
        RunningWorkerGuard(Some(Arc::clone(self)))
    }

    /// Returns the error of the last failed worker if no other worker runs. `None` means that a
    /// worker runs or that none has failed.
    pub(crate) fn worker_failure(&self) -> Option<Error> {
        self.workers.borrow().worker_failure_if_no_worker_runs()
    }

    /// Waits until the last running worker fails, and returns the error of that worker.
    pub(crate) async fn wait_for_worker_failure(&self) -> Error {
        let mut workers = self.workers.subscribe();
        loop {
            if let Some(failure) = workers.borrow_and_update().worker_failure_if_no_worker_runs() {
                return failure;
            }
            // The sender is part of this state, so the channel is open.
            _ = workers.changed().await;
        }
    }
}

/// Guard that counts a worker as running while it exists.
#[derive(Debug)]
pub(crate) struct RunningWorkerGuard(Option<Arc<RuntimeState>>);

impl RunningWorkerGuard {
    /// Records the result of a worker. After the last worker has ended, the MCP servers are closed;
    /// the next worker starts them again.
    pub(crate) async fn record_end(mut self, result: Result<(), Error>) -> Result<(), Error> {
        let failure = result.err().map(Arc::new);
        if let Some(state) = self.0.take() {
            let mut closing = None;
            state.workers.send_modify(|workers| {
                workers.running -= 1;
                workers.failure = failure.clone().or(workers.failure.take());
                // Decided under the lock: a worker that starts later gets new connections.
                closing = (workers.running == 0).then(|| state.restart_mcp_servers());
            });
            if let Some(closing) = closing {
                closing.await;
            }
        }
        match failure {
            Some(error) => Err(Error::Worker(error)),
            None => Ok(()),
        }
    }
}

impl Drop for RunningWorkerGuard {
    fn drop(&mut self) {
        if let Some(state) = &self.0 {
            state.workers.send_modify(|workers| {
                workers.running -= 1;
                // Without an error, callers of `wait` would never return.
                if std::thread::panicking() {
                    workers.failure = Some(Arc::new(Error::WorkerPanicked));
                }
            });
        }
    }
}
