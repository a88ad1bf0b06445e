//! A run in a worker's hands, and how it is left.
//!
//! Never: what is done with it.

use longhaul_core::id::WorkerId;
use longhaul_core::port::store::Claimed;

use crate::crash_guard::CrashGuard;
use crate::lease::Lease;
use crate::slot::Slot;
use crate::stop::Stop;

/// A run in a worker's hands, and what may take it away again.
#[derive(Debug, Clone)]
pub struct Charge {
    /// Which run, under which epoch.
    pub claimed: Claimed,
    /// Who drives it.
    pub worker: WorkerId,
    /// As long as this lives the worker may begin things.
    pub lease: Lease,
    /// The order to stop.
    pub stop: Stop,
    /// Whether the run may be taken up once more.
    pub crash_guard: CrashGuard,
    /// Its place among the runs that are driven at once.
    pub slot: Slot,
}

/// How a drive was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// The run rests, was let go of in good order, or has ended.
    Rested,
    /// It is another's, or this worker may not go on; nothing more was written.
    Gone,
}
