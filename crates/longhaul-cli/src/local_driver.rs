//! Drives (executes) the run that a command follows, if no other process executes the runs of the
//! store. While all runs of its tree are parked (wait without a worker), any other process may do
//! so.
//!
//! Invariants: a worker of this process runs only while this process holds the driver lock. It is
//! always stopped and awaited, and drives only the runs of one tree, i.e. a root run and all its
//! descendants.

use longhaul::project::ProjectRuntime;
use longhaul_core::id::RunId;
use longhaul_core::port::store::{RunFilter, StoreError};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::Error;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::Worker;
use tokio::task::JoinHandle;

use crate::error::CliError;
use crate::exit::Exit;
use crate::output;
use crate::runtime::InterruptListener;
use crate::worker::project_worker_options;

/// Interval between checks whether a run of the tree can continue and whether another process
/// executes the runs of the store.
const POLL_INTERVAL: Millis = Millis(500);

/// How long before a timer is due this process acquires the driver lock and starts its worker, in
/// order to fire the timer.
const TIMER_LEAD: Millis = Millis::from_secs(2);

/// Drives (executes) the run that this command follows, as long as no other process executes the
/// runs of the store.
#[derive(Debug)]
pub(crate) struct LocalDriver<'a> {
    runtime: &'a ProjectRuntime,
    run: RunId,
    root: RunId,
    silent: bool,
    /// The worker that drives (executes) the run. `None` while this process does not drive the run.
    worker: Option<LocalWorker>,
    /// True if another process has executed the runs of the store since this process last did so.
    has_other_driver: bool,
}

impl<'a> LocalDriver<'a> {
    /// Starts to drive (execute) the run if this process holds the driver lock, i.e. the exclusive
    /// right to execute the runs of the store.
    pub(crate) async fn start(
        runtime: &'a ProjectRuntime,
        run: RunId,
        silent: bool,
    ) -> anyhow::Result<Self> {
        let root = runtime.longhaul.run_row(run).await?.root;
        let is_driver_process = runtime.store.is_driver_process();
        let worker = match is_driver_process {
            true => Some(LocalWorker::start(runtime, run).await?),
            false => None,
        };
        Ok(Self { runtime, run, root, silent, worker, has_other_driver: !is_driver_process })
    }

    /// Drives (executes) the run whenever a run of its tree has work and no other process executes
    /// the runs of the store, until an error. In between, other processes may execute them unless
    /// `keeps_lock` is set. Dropping the future does not stop the worker; [`stop`](Self::stop)
    /// does.
    pub(crate) async fn drive_until_error(&mut self, keeps_lock: bool) -> anyhow::Error {
        loop {
            let step = match &mut self.worker {
                Some(worker) if keeps_lock => return worker.wait_for_failure().await,
                Some(_) => self.drive_until_parked().await,
                None => self.wait_and_start_driving().await,
            };
            if let Err(error) = step {
                return error;
            }
        }
    }

    /// Stops the worker and lets other processes execute the runs of the store.
    pub(crate) async fn stop(mut self, interrupts: &mut InterruptListener) -> anyhow::Result<()> {
        let stopped = match &mut self.worker {
            Some(worker) => worker.drain_or_abort(interrupts).await,
            None => Ok(()),
        };
        self.runtime.mcp_tools.close_mcp_clients().await;
        stopped?;
        self.runtime.store.release_driver_lock();
        Ok(())
    }

    /// Aborts all running calls and stops the worker. Used for runs that nobody will continue.
    pub(crate) async fn abort(self) -> anyhow::Result<()> {
        let Some(mut worker) = self.worker else { return Ok(()) };
        worker.shutdown.request_abort();
        worker.join().await
    }

    /// Drives (executes) the run until all runs of its tree are parked, i.e. wait without a worker,
    /// then lets other processes execute the runs of the store. The MCP servers keep running,
    /// because they may have state.
    async fn drive_until_parked(&mut self) -> anyhow::Result<()> {
        let parked = async {
            while has_run_or_timer_to_drive(self.runtime, self.root).await? {
                SystemClock.sleep(POLL_INTERVAL).await;
            }
            anyhow::Ok(())
        };
        let Some(worker) = &mut self.worker else { return Ok(()) };
        tokio::select! {
            biased;
            error = worker.wait_for_failure() => return Err(error),
            parked = parked => parked?,
        }
        worker.release_runs().await?;
        self.worker = None;
        self.runtime.store.release_driver_lock();
        Ok(())
    }

    /// Waits until a run of the tree has work and no other process executes the runs of the store,
    /// then starts to drive (execute) the run. Does not start if another process was faster.
    async fn wait_and_start_driving(&mut self) -> anyhow::Result<()> {
        let services = self.runtime.longhaul.services();
        let mut changes = services.store.watch_for_changes();
        loop {
            let is_driven =
                services.records.has_process_driving_runs().await.map_err(Error::from)?;
            self.has_other_driver |= is_driven;
            if !is_driven && has_run_or_timer_to_drive(self.runtime, self.root).await? {
                break;
            }
            tokio::select! {
                result = changes.wait_for_change() => result.map_err(Error::from)?,
                () = SystemClock.sleep(POLL_INTERVAL) => {}
            }
        }
        match self.runtime.store.acquire_driver_lock().await {
            Ok(()) => {}
            // Another process was faster.
            Err(StoreError::AlreadyDriven { .. }) => {
                SystemClock.sleep(POLL_INTERVAL).await;
                return Ok(());
            }
            Err(error) => return Err(Error::from(error).into()),
        }
        if self.has_other_driver && !self.silent {
            output::eprint_line("the driver is gone; this process drives the run now");
        }
        self.has_other_driver = false;
        self.worker = Some(LocalWorker::start(self.runtime, self.run).await?);
        Ok(())
    }
}

/// Returns whether a run of the tree with this root is queued or running, or a timer of the store
/// is due soon.
async fn has_run_or_timer_to_drive(runtime: &ProjectRuntime, root: RunId) -> Result<bool, Error> {
    let services = runtime.longhaul.services();
    let filter = RunFilter {
        statuses: vec![Status::Pending, Status::Running],
        root: Some(root),
        limit: 1,
        ..RunFilter::default()
    };
    if !services.store.list_runs(filter).await?.is_empty() {
        return Ok(true);
    }
    let due = services.records.next_timer_due().await?;
    let now = services.records.now().await?;
    Ok(due.is_some_and(|due| due <= now.plus(TIMER_LEAD)))
}

/// Time after which a notice is printed if the worker has not stopped.
const NOTICE_DELAY: Millis = Millis::from_secs(1);

/// A worker that runs as a task in this process.
#[derive(Debug)]
struct LocalWorker {
    shutdown: Shutdown,
    worker: JoinHandle<Result<(), Error>>,
    /// True if the worker's task has already been joined.
    is_joined: bool,
}

impl LocalWorker {
    /// Starts a worker on the project's store that drives only the tree of this run: the run, its
    /// root and all runs that the root has started.
    async fn start(runtime: &ProjectRuntime, run: RunId) -> anyhow::Result<Self> {
        let mut options = project_worker_options(&runtime.config)?;
        // Without inboxes, nobody takes this worker for one that drives other runs.
        options.inboxes.clear();
        options.only_tree = Some(runtime.longhaul.run_row(run).await?.root);
        let stop = Shutdown::new();
        let worker = Worker::new(runtime.longhaul.services(), options);
        #[expect(clippy::disallowed_methods, reason = "owned here and awaited in `join`")]
        let worker = tokio::spawn(worker.run(stop.clone()));
        Ok(Self { shutdown: stop, worker, is_joined: false })
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
    async fn wait_for_failure(&mut self) -> anyhow::Error {
        let result = self.join().await;
        result.err().unwrap_or_else(|| anyhow::anyhow!("the worker stopped unexpectedly"))
    }

    /// Lets the worker release every run at the run's next event, and waits until the worker has
    /// stopped. If the future is dropped, the worker can still be stopped.
    async fn release_runs(&mut self) -> anyhow::Result<()> {
        self.shutdown.request_drain();
        self.join().await
    }

    /// Lets the worker release every run at the run's next event, and stops the worker. A running
    /// call is awaited, because an aborted call may have to be paid for twice or its outcome may be
    /// unknown. An interrupt aborts the call.
    async fn drain_or_abort(&mut self, interrupts: &mut InterruptListener) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            result = self.release_runs() => return result,
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
}
