//! The assignment of a run to a driver with its drive permit (one of the permits that limit the
//! worker's concurrent runs), and the outcome of driving it.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::WorkerId;
use longhaul_core::port::store::Claim;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::drive::crash_limiter::RunCrashLimiter;
use crate::drive::lease::Lease;
use crate::shutdown::Shutdown;

/// A claimed run that is assigned to a driver, with the signals and limits that can end the driver.
#[derive(Debug, Clone)]
pub struct RunAssignment {
    /// Claim of the worker on the run: run id and epoch (number of the claim).
    pub claim: Claim,
    /// Id of the worker that drives the run.
    pub worker: WorkerId,
    /// Lease of the worker. The driver may start new work, such as model requests and tool calls,
    /// only while the lease is valid.
    pub lease: Lease,
    /// Shutdown signal of the worker.
    pub shutdown: Shutdown,
    /// Limit on how often the run may crash its worker.
    pub crash_limiter: RunCrashLimiter,
    /// Permit to drive the run: one of the permits that limit the worker's concurrent runs.
    pub permit: DrivePermit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveRunOutcome {
    /// The run is parked, paused, released or ended, so there is nothing to drive.
    Idle,
    /// Another driver has claimed the run, or this worker may not continue. Nothing more is written
    /// to the journal.
    Lost,
}

/// Permit to drive a run, which can be released and acquired again. Cheap to clone; clones share
/// the permit. The default value has no semaphore and never waits.
#[derive(Debug, Clone, Default)]
pub struct DrivePermit {
    semaphore: Option<Arc<Semaphore>>,
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl DrivePermit {
    /// Creates a drive permit that holds `permit`.
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self {
            semaphore: Some(Arc::clone(permit.semaphore())),
            permit: Arc::new(Mutex::new(Some(permit))),
        }
    }

    fn set_permit(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    /// Releases the permit, so that another run can be driven.
    pub(crate) fn release(&self) {
        self.set_permit(None);
    }

    /// Acquires the permit again, waiting until another run has released one.
    pub(crate) async fn acquire(&self) {
        if let Some(semaphore) = &self.semaphore {
            self.set_permit(Arc::clone(semaphore).acquire_owned().await.ok());
        }
    }
}
