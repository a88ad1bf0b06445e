//! Under which id a worker works, and until when it may believe in it.
//!
//! Never: an id twice. A worker that was counted as dead comes back as another.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::WorkerId;
use longhaul_core::port::store::{Claim, Heartbeat, WorkerLiveness};
use longhaul_core::time::Millis;

use crate::crash_guard::CrashGuard;
use crate::drive::assignment::Assignment;
use crate::drive_permit::DrivePermit;
use crate::error::Error;
use crate::lease::Lease;
use crate::services::EngineServices;
use crate::shutdown::Shutdown;
use crate::worker::options::WorkerOptions;

/// A wall clock that differs by more from what the monotonic clock lets expect was set.
/// It is compared this often.
const CLOCK_STEP_MAX: Millis = Millis::from_secs(1);

/// One stretch of life under one id.
#[derive(Debug, Clone)]
pub(super) struct WorkerIdentity {
    pub(super) worker: WorkerId,
    pub(super) lease: Lease,
    crash_guard: CrashGuard,
}

impl WorkerIdentity {
    /// A run in this worker's hands.
    pub(super) fn assignment(
        &self,
        claimed: Claim,
        stop: &Shutdown,
        slot: DrivePermit,
    ) -> Assignment {
        Assignment {
            claim: claimed,
            worker: self.worker,
            lease: self.lease.clone(),
            shutdown: stop.clone(),
            crash_guard: self.crash_guard.clone(),
            permit: slot,
        }
    }
}

/// The term that runs now. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Heartbeats {
    services: EngineServices,
    host: String,
    build: String,
    ttl: Millis,
    current: Arc<Mutex<WorkerIdentity>>,
}

impl Heartbeats {
    /// The first term: the store knows of it.
    pub(super) async fn start(
        ports: &EngineServices,
        options: &WorkerOptions,
    ) -> Result<Self, Error> {
        let terms = Self {
            current: Arc::new(Mutex::new(new_identity(
                ports,
                options.lease,
                CrashGuard::new(options.crash_limit),
            ))),
            services: ports.clone(),
            host: options.host.clone(),
            build: options.build.clone(),
            ttl: options.lease,
        };
        terms.beat(false).await?;
        Ok(terms)
    }

    /// The term that runs now.
    pub(super) fn current(&self) -> WorkerIdentity {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when the next heartbeat is due: after a third of the ttl, or at once
    /// when the wall clock was set, because the last heartbeat has the wrong time then.
    pub(super) async fn wait_interval(&self) {
        let clock = &self.services.clock;
        let (begun, started_at) = (clock.monotonic(), clock.now());
        let span = Millis(self.ttl.0 / 3);
        loop {
            let passed = clock.monotonic().minus(begun);
            let expected = started_at.plus(passed);
            if passed >= span || !clock.now().is_within(CLOCK_STEP_MAX, expected) {
                return;
            }
            clock.sleep(CLOCK_STEP_MAX.min(span.minus(passed))).await;
        }
    }

    /// Gives a sign of life. One that comes too late begins a new term.
    pub(super) async fn beat(&self, draining: bool) -> Result<(), Error> {
        let term = self.current();
        let sent = self.services.clock.monotonic_nanos();
        let renewed = self.services.store.heartbeat(self.heartbeat(&term, draining)).await?;
        if renewed.reaped > 0 {
            tracing::warn!(runs = renewed.reaped, "runs of a dead worker are ready again");
            self.services.notifier.work_available();
        }
        if renewed.liveness != WorkerLiveness::Dead {
            term.lease.renew(sent);
            return Ok(());
        }
        tracing::error!(worker = %term.worker, "this worker was silent for too long");
        term.lease.mark_lost();
        let next = new_identity(&self.services, self.ttl, term.crash_guard);
        self.services.store.heartbeat(self.heartbeat(&next, draining)).await?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    fn heartbeat(&self, term: &WorkerIdentity, draining: bool) -> Heartbeat {
        Heartbeat {
            worker: term.worker,
            host: self.host.clone(),
            build: self.build.clone(),
            draining,
            ttl: self.ttl,
        }
    }
}

fn new_identity(ports: &EngineServices, ttl: Millis, crash_guard: CrashGuard) -> WorkerIdentity {
    WorkerIdentity {
        worker: WorkerId::from_bits(ports.ids.next_bits()),
        lease: Lease::new(ports.clock.clone(), ttl),
        crash_guard,
    }
}
