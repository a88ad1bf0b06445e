//! A run in a worker's hands, and how it is left.
//!
//! Never: what is done with it.

use longhaul_core::id::WorkerId;
use longhaul_core::port::store::Claim;

use crate::crash_guard::CrashGuard;
use crate::drive_permit::DrivePermit;
use crate::lease::Lease;
use crate::shutdown::Shutdown;

/// A run in a worker's hands, and what may take it away again.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// Which run, under which epoch.
    pub claim: Claim,
    /// Who drives it.
    pub worker: WorkerId,
    /// As long as this lives the worker may begin things.
    pub lease: Lease,
    /// The order to stop.
    pub shutdown: Shutdown,
    /// Whether the run may be taken up once more.
    pub crash_guard: CrashGuard,
    /// Its place among the runs that are driven at once.
    pub permit: DrivePermit,
}

/// How a drive was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveOutcome {
    /// The run rests, was let go of in good order, or has ended.
    Idle,
    /// It is another's, or this worker may not go on; nothing more was written.
    Lost,
}
