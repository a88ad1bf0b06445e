//! Who drives in a history: the small stand-in of this crate, or the engine.
//!
//! Never: drives. It hires those who do, and opens the runs as they need them.

use std::fmt;

use async_trait::async_trait;
use longhaul_core::change::Blob;
use longhaul_core::id::{RunId, WorkerId};
use longhaul_core::port::store::{Claim, OpenRequest};
use longhaul_core::task::TaskSpec;
use longhaul_run::DecideContext;

use crate::clock::SimClock;
use crate::sim::SimError;
use crate::sim::driver::{DriveProgress, ReferenceDriver, SimServices};

/// One claimed run in a worker's hands. To drop it is to crash.
#[async_trait(?Send)]
pub trait SimDriver: fmt::Debug {
    /// Does one small step. `choose` draws a number below its argument.
    async fn step(
        &mut self,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Result<DriveProgress, SimError>;

    /// Whether a step would do anything now.
    fn is_ready(&self) -> bool {
        true
    }

    /// Whether it may go on although its worker was silent for long, or counts
    /// as dead already: it only tells what it has in its hands.
    fn may_run_without_lease(&self) -> bool;
}

/// What the drives of one worker share, and lose together.
#[async_trait(?Send)]
pub trait SimProcess: fmt::Debug {
    /// A sign of life under this id has just arrived.
    async fn on_heartbeat(&mut self, _worker: WorkerId) -> Result<(), SimError> {
        Ok(())
    }

    /// Others count it as dead: it goes on under another id.
    fn on_new_identity(&mut self) {}

    /// Takes up a claimed run.
    fn start_driver(
        &mut self,
        worker: WorkerId,
        claimed: &Claim,
        moment: DecideContext,
    ) -> Box<dyn SimDriver>;
}

/// Who drives, and what their runs are opened with.
#[derive(Debug, Clone)]
pub struct DriverFactory {
    /// Starts a worker's process.
    pub spawn: fn(&SimServices, &SimClock) -> Box<dyn SimProcess>,
    /// What every run is pinned to, for drivers that look it up.
    pub definition: Option<Blob>,
}

impl DriverFactory {
    /// The small driver of this crate.
    pub fn reference() -> Self {
        Self { spawn: |ports, _| Box::new(ReferenceProcess(ports.clone())), definition: None }
    }

    /// How a task is opened for these drivers.
    pub fn open_request(&self, run: RunId, mut task: TaskSpec) -> Result<OpenRequest, SimError> {
        if let Some(definition) = &self.definition {
            task.definition = definition.hash();
        }
        Ok(OpenRequest {
            runs: vec![longhaul_run::submit::submit(run, task)?],
            blobs: self.definition.iter().cloned().collect(),
            idempotency: None,
        })
    }
}

/// A process of the small driver: its drives share nothing.
#[derive(Debug)]
struct ReferenceProcess(SimServices);

impl SimProcess for ReferenceProcess {
    fn start_driver(
        &mut self,
        worker: WorkerId,
        claimed: &Claim,
        moment: DecideContext,
    ) -> Box<dyn SimDriver> {
        Box::new(ReferenceDriver::new(self.0.clone(), worker, claimed, moment))
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
