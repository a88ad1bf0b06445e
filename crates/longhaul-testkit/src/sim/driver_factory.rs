//! Driver factories: the small simulated driver of this crate, or the engine.

use std::fmt;

use async_trait::async_trait;
use longhaul_core::change::Blob;
use longhaul_core::id::{RunId, WorkerId};
use longhaul_core::port::store::{Claim, CreateRunsRequest};
use longhaul_core::task::TaskSpec;
use longhaul_run::DecisionContext;

use crate::clock::SimClock;
use crate::sim::SimError;
use crate::sim::driver::{DriveProgress, ReferenceDriver, SimServices};

/// A driver of one claimed run. Dropping it simulates a crash.
#[async_trait(?Send)]
pub trait SimDriver: fmt::Debug {
    /// Executes one step. `choose` returns a number below its argument.
    async fn step(
        &mut self,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Result<DriveProgress, SimError>;

    /// Returns whether a step would make progress now.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns whether the driver may continue although its worker has missed heartbeats or
    /// counts as dead. True only while it saves results that it has received.
    fn may_run_without_lease(&self) -> bool;
}

/// A worker process: state that its drivers share and lose together.
#[async_trait(?Send)]
pub trait SimProcess: fmt::Debug {
    /// Called after a heartbeat with this worker id was stored.
    async fn on_heartbeat(&mut self, _worker: WorkerId) -> Result<(), SimError> {
        Ok(())
    }

    /// Called when the worker counts as dead and continues with another id.
    fn on_new_identity(&mut self) {}

    /// Starts driving a claimed run.
    fn start_driver(
        &mut self,
        worker: WorkerId,
        claimed: &Claim,
        ctx: DecisionContext,
    ) -> Box<dyn SimDriver>;
}

/// Creates drivers, and prepares the runs for them.
#[derive(Debug, Clone)]
pub struct DriverFactory {
    /// Starts a worker process.
    pub spawn: fn(&SimServices, &SimClock) -> Box<dyn SimProcess>,
    /// Agent definition that every run is pinned to, for drivers that load it.
    pub definition: Option<Blob>,
}

impl DriverFactory {
    /// Returns the factory of the small simulated driver.
    pub fn reference() -> Self {
        Self { spawn: |services, _| Box::new(ReferenceProcess(services.clone())), definition: None }
    }

    /// Builds the request that opens a task for these drivers.
    pub fn open_request(
        &self,
        run: RunId,
        mut task: TaskSpec,
    ) -> Result<CreateRunsRequest, SimError> {
        if let Some(definition) = &self.definition {
            task.definition = definition.hash();
            for step in task.chain.iter_mut().flat_map(|position| &mut position.chain.steps) {
                step.definition = definition.hash();
            }
        }
        Ok(CreateRunsRequest {
            runs: vec![longhaul_run::submit::new_run_from_task(run, task)?],
            blobs: self.definition.iter().cloned().collect(),
            idempotency: None,
        })
    }
}

/// A process of the simulated driver. Its drivers share nothing.
#[derive(Debug)]
struct ReferenceProcess(SimServices);

impl SimProcess for ReferenceProcess {
    fn start_driver(
        &mut self,
        worker: WorkerId,
        claimed: &Claim,
        ctx: DecisionContext,
    ) -> Box<dyn SimDriver> {
        Box::new(ReferenceDriver::new(self.0.clone(), worker, claimed, ctx))
    }
}

#[async_trait(?Send)]
impl SimDriver for ReferenceDriver {
    async fn step(
        &mut self,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Result<DriveProgress, SimError> {
        Self::step(self, choose).await
    }

    fn may_run_without_lease(&self) -> bool {
        self.is_committing()
    }
}
