//! The assignment of a run to a driver with its drive permit (one of the permits that limit the
//! worker's concurrent runs), and the outcome of driving it.
//!
//! The lease is the worker's right to drive the runs that it has claimed. A worker whose heartbeats
//! fail stops starting work, such as tool calls, before other workers may claim its runs.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::WorkerId;
use longhaul_core::port::store::Claim;
use longhaul_core::time::{Clock, Millis};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::drive::crash_limiter::RunCrashLimiter;
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

/// A worker's right to drive the runs that it has claimed, renewed by heartbeats. Cheap to clone;
/// clones share state.
#[derive(Debug, Clone)]
pub struct Lease {
    clock: Arc<dyn Clock>,
    /// How long after its last heartbeat the worker may start new work, such as tool calls.
    valid_for: Millis,
    state: watch::Sender<LeaseState>,
}

#[derive(Debug, Clone, Copy)]
struct LeaseState {
    renewed_nanos: u64,
    lost: bool,
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

impl Lease {
    /// Creates a lease that was just renewed. Other workers may claim this worker's runs after
    /// `ttl`. This worker itself treats the lease as stale after two thirds of `ttl`.
    pub fn new(clock: Arc<dyn Clock>, ttl: Millis) -> Self {
        let state = LeaseState { renewed_nanos: clock.monotonic_nanos(), lost: false };
        Self { clock, valid_for: Millis(ttl.0 / 3 * 2), state: watch::Sender::new(state) }
    }

    /// Renews the lease after a successful heartbeat. The parameter is the time on the monotonic
    /// clock at which the heartbeat was sent.
    pub fn renew(&self, heartbeat_sent_at_nanos: u64) {
        self.state.send_modify(|state| state.renewed_nanos = heartbeat_sent_at_nanos);
    }

    /// Marks the lease as lost: the store treats this worker as dead.
    pub fn mark_lost(&self) {
        self.state.send_modify(|state| state.lost = true);
    }

    pub fn is_lost(&self) -> bool {
        self.state.borrow().lost
    }

    fn is_valid(&self) -> bool {
        let renewed_nanos = self.state.borrow().renewed_nanos;
        let elapsed_ms = self.clock.monotonic_nanos().saturating_sub(renewed_nanos) / 1_000_000;
        elapsed_ms < self.valid_for.0
    }

    /// Waits until the lease was renewed recently enough for the worker to start new work, such as
    /// a tool call. Returns `false` if the lease is lost.
    pub async fn wait_until_valid(&self) -> bool {
        let mut receiver = self.state.subscribe();
        loop {
            if self.is_lost() {
                return false;
            }
            if self.is_valid() {
                return true;
            }
            // The sender lives as long as this lease, so `changed` never fails.
            _ = receiver.changed().await;
        }
    }

    pub async fn wait_until_lost(&self) {
        let mut receiver = self.state.subscribe();
        _ = receiver.wait_for(|state| state.lost).await;
    }
}
