//! The state that all handles of a runtime share: its parts, the number of running workers and the
//! error of the last worker that failed.

use std::fmt;
use std::sync::Arc;

use longhaul_engine::worker::WorkerOptions;
use tokio::sync::watch;

use crate::assemble::{ProjectRuntime, worker_options};
use crate::error::Error;

/// The parts of a runtime and the state of its workers.
pub(crate) struct RuntimeState {
    pub(crate) runtime: ProjectRuntime,
    pub(crate) worker_options: WorkerOptions,
    workers: watch::Sender<WorkerState>,
}

impl fmt::Debug for RuntimeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuntimeState")
    }
}

/// Number of running workers, and the error of the last worker that failed.
#[derive(Debug, Default)]
struct WorkerState {
    running: usize,
    failure: Option<Arc<Error>>,
}

impl WorkerState {
    /// The error of the last failed worker if no worker runs.
    fn failure(&self) -> Option<Error> {
        let failure = self.failure.as_ref().filter(|_| self.running == 0);
        failure.map(|why| Error::WorkerFailed(Arc::clone(why)))
    }
}

impl RuntimeState {
    pub(crate) fn new(house: ProjectRuntime) -> Result<Self, Error> {
        Ok(Self {
            worker_options: worker_options(&house.config)?,
            runtime: house,
            workers: watch::Sender::default(),
        })
    }

    /// Counts a worker as running until the returned guard is ended or dropped.
    pub(crate) fn start_worker(self: &Arc<Self>) -> RunningWorker {
        self.workers.send_modify(|workers| {
            workers.running += 1;
            workers.failure = None;
        });
        RunningWorker(Some(Arc::clone(self)))
    }

    /// The error of the last failed worker if no worker runs.
    pub(crate) fn worker_failure(&self) -> Option<Error> {
        self.workers.borrow().failure()
    }

    /// Waits until the last running worker fails, and returns its error.
    pub(crate) async fn wait_for_worker_failure(&self) -> Error {
        let mut workers = self.workers.subscribe();
        loop {
            if let Some(failure) = workers.borrow_and_update().failure() {
                return failure;
            }
            // The sender is part of this state, so the channel is open.
            _ = workers.changed().await;
        }
    }
}

/// Guard of a running worker.
#[derive(Debug)]
pub(crate) struct RunningWorker(Option<Arc<RuntimeState>>);

impl RunningWorker {
    /// Records how the worker ended. After the last worker the MCP servers are closed; the next
    /// worker starts them again.
    pub(crate) async fn finish(mut self, worked: Result<(), Error>) -> Result<(), Error> {
        let failure = worked.err().map(Arc::new);
        if let Some(state) = self.0.take() {
            let mut closing = None;
            state.workers.send_modify(|workers| {
                workers.running -= 1;
                workers.failure = failure.clone().or(workers.failure.take());
                // A worker that starts from now on gets new connections.
                closing = (workers.running == 0).then(|| state.runtime.restart_servers());
            });
            if let Some(closing) = closing {
                closing.await;
            }
        }
        match failure {
            Some(why) => Err(Error::Worker(why)),
            None => Ok(()),
        }
    }
}

impl Drop for RunningWorker {
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
