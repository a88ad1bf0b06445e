//! Under which id a worker works, and until when it may believe in it.
//!
//! Never: an id twice. A worker that was counted as dead comes back as another.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::WorkerId;
use longhaul_core::port::store::{Beat, Claimed, Standing};
use longhaul_core::time::Millis;

use crate::crash_guard::CrashGuard;
use crate::drive::charge::Charge;
use crate::error::Error;
use crate::lease::Lease;
use crate::ports::Ports;
use crate::slot::Slot;
use crate::stop::Stop;
use crate::worker::options::WorkerOptions;

/// A wall clock that differs by more from what the monotonic clock lets expect was set.
/// It is compared this often.
const CLOCK_STEP: Millis = Millis::from_secs(1);

/// One stretch of life under one id.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub(super) worker: WorkerId,
    pub(super) lease: Lease,
    crash_guard: CrashGuard,
}

impl Term {
    /// A run in this worker's hands.
    pub(super) fn charge(&self, claimed: Claimed, stop: &Stop, slot: Slot) -> Charge {
        Charge {
            claimed,
            worker: self.worker,
            lease: self.lease.clone(),
            stop: stop.clone(),
            crash_guard: self.crash_guard.clone(),
            slot,
        }
    }
}

/// The term that runs now. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    ports: Ports,
    host: String,
    build: String,
    ttl: Millis,
    now: Arc<Mutex<Term>>,
}

impl Terms {
    /// The first term: the store knows of it.
    pub(super) async fn begin(ports: &Ports, options: &WorkerOptions) -> Result<Self, Error> {
        let terms = Self {
            now: Arc::new(Mutex::new(fresh(
                ports,
                options.lease,
                CrashGuard::new(options.crash_limit),
            ))),
            ports: ports.clone(),
            host: options.host.clone(),
            build: options.build.clone(),
            ttl: options.lease,
        };
        terms.beat(false).await?;
        Ok(terms)
    }

    /// The term that runs now.
    pub(super) fn current(&self) -> Term {
        self.now
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns when the next heartbeat is due: after a third of the ttl, or at once
    /// when the wall clock was set, because the last heartbeat has the wrong time then.
    pub(super) async fn rest(&self) {
        let clock = &self.ports.clock;
        let (begun, started_at) = (clock.monotonic(), clock.now());
        let span = Millis(self.ttl.0 / 3);
        loop {
            let passed = clock.monotonic().minus(begun);
            let expected = started_at.plus(passed);
            if passed >= span || !clock.now().is_within(CLOCK_STEP, expected) {
                return;
            }
            clock.sleep(CLOCK_STEP.min(span.minus(passed))).await;
        }
    }

    /// Gives a sign of life. One that comes too late begins a new term.
    pub(super) async fn beat(&self, draining: bool) -> Result<(), Error> {
        let term = self.current();
        let sent = self.ports.clock.nanos();
        let renewed = self.ports.store.renew(self.sign(&term, draining)).await?;
        if renewed.reaped > 0 {
            tracing::warn!(
                runs = renewed.reaped,
                "runs of a dead worker are ready again"
            );
            self.ports.nudges.may_be_ready();
        }
        if renewed.standing != Standing::Dead {
            term.lease.renewed(sent);
            return Ok(());
        }
        tracing::error!(worker = %term.worker, "this worker was silent for too long");
        term.lease.lose();
        let next = fresh(&self.ports, self.ttl, term.crash_guard);
        self.ports.store.renew(self.sign(&next, draining)).await?;
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    fn sign(&self, term: &Term, draining: bool) -> Beat {
        Beat {
            worker: term.worker,
            host: self.host.clone(),
            build: self.build.clone(),
            draining,
            ttl: self.ttl,
        }
    }
}

fn fresh(ports: &Ports, ttl: Millis, crash_guard: CrashGuard) -> Term {
    Term {
        worker: WorkerId::from_bits(ports.mint.bits()),
        lease: Lease::new(ports.clock.clone(), ttl),
        crash_guard,
    }
}
