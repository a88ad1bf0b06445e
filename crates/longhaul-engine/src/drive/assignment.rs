//! The assignment of a run to a driver, and the outcome of driving it.

use longhaul_core::id::WorkerId;
use longhaul_core::port::store::Claim;

use crate::crash_limiter::RunCrashLimiter;
use crate::drive_permit::DrivePermit;
use crate::lease::Lease;
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
