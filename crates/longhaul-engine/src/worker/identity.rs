//! The identity of a worker (its id and lease) and its heartbeats.
//!
//! Invariant: worker ids are not reused. A worker whose lease has expired continues under a new id.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::WorkerId;
use longhaul_core::port::store::{Heartbeat, WorkerLiveness};
use longhaul_core::time::Millis;

use crate::drive::assignment::Lease;
use crate::drive::crash_limiter::RunCrashLimiter;
use crate::error::Result;
use crate::services::Services;
use crate::worker::options::WorkerOptions;

/// Maximum deviation of the wall clock from the monotonic clock. With a larger deviation, somebody
/// has set the wall clock. Also the interval at which this is checked.
const CLOCK_STEP_MAX: Millis = Millis::from_secs(1);

/// The id of a worker and the lease that belongs to this id.
#[derive(Debug, Clone)]
pub(super) struct WorkerIdentity {
    pub(super) worker: WorkerId,
    pub(super) lease: Lease,
    pub(super) crash_limiter: RunCrashLimiter,
}

/// Sends the heartbeats of a worker and holds its current identity. Cheap to clone; clones share
/// state.
#[derive(Debug, Clone)]
pub(super) struct HeartbeatSender {
    services: Services,
    options: WorkerOptions,
    /// Whether the worker claims runs. If not, its heartbeats name no inboxes.
    is_claiming: Arc<AtomicBool>,
    current: Arc<Mutex<WorkerIdentity>>,
}

impl HeartbeatSender {
    pub(super) async fn start(services: &Services, options: &WorkerOptions) -> Result<Self> {
        let heartbeats = Self {
            current: Arc::new(Mutex::new(new_worker_identity(
                services,
                options.lease,
                RunCrashLimiter::new(options.crash_limit),
            ))),
            services: services.clone(),
            options: options.clone(),
            is_claiming: Arc::new(AtomicBool::new(true)),
        };
        heartbeats.send_heartbeat(false).await?;
        Ok(heartbeats)
    }

    pub(super) fn current_identity(&self) -> WorkerIdentity {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets whether the worker claims runs. While it claims none, its heartbeats name no inboxes,
    /// so that its inboxes do not count as served.
    pub(super) fn set_claiming(&self, is_claiming: bool) {
        self.is_claiming.store(is_claiming, Ordering::Relaxed);
    }

    /// Waits until the next heartbeat is due: after a third of the lease duration, or at once if
    /// the wall clock was set, because the last heartbeat then has a wrong time.
    pub(super) async fn wait_for_next_heartbeat(&self) {
        let clock = &self.services.clock;
        let (started, started_at) = (clock.monotonic_time(), clock.now());
        let interval = Millis(self.options.lease.0 / 3);
        loop {
            let elapsed = clock.monotonic_time().minus(started);
            let expected = started_at.plus(elapsed);
            if elapsed >= interval || !clock.now().is_within(CLOCK_STEP_MAX, expected) {
                return;
            }
            clock.sleep(CLOCK_STEP_MAX.min(interval.minus(elapsed))).await;
        }
    }

    /// Sends a heartbeat. If it came too late and the lease has expired, the worker gets a new
    /// identity.
    pub(super) async fn send_heartbeat(&self, draining: bool) -> Result<()> {
        let identity = self.current_identity();
        let sent_at = self.services.clock.monotonic_nanos();
        let ack = self.services.store.heartbeat(self.build_heartbeat(&identity, draining)).await?;
        if ack.reaped > 0 {
            tracing::warn!(runs = ack.reaped, "released the runs of a dead worker");
            self.services.notifier.notify_runs_ready();
        }
        if ack.liveness != WorkerLiveness::Dead {
            identity.lease.renew(sent_at);
            return Ok(());
        }
        tracing::error!(worker = %identity.worker, "the lease of the worker has expired");
        identity.lease.mark_lost();
        let next = new_worker_identity(&self.services, self.options.lease, identity.crash_limiter);
        self.services.store.heartbeat(self.build_heartbeat(&next, draining)).await?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    fn build_heartbeat(&self, identity: &WorkerIdentity, draining: bool) -> Heartbeat {
        let WorkerOptions { host, build, inboxes, types, lease, .. } = self.options.clone();
        let is_claiming = self.is_claiming.load(Ordering::Relaxed);
        let inboxes = if is_claiming { inboxes } else { Vec::new() };
        Heartbeat { worker: identity.worker, host, build, inboxes, types, draining, ttl: lease }
    }
}

fn new_worker_identity(
    services: &Services,
    ttl: Millis,
    crash_limiter: RunCrashLimiter,
) -> WorkerIdentity {
    WorkerIdentity {
        worker: WorkerId::from_bits(services.ids.next_id_bits()),
        lease: Lease::new(services.clock.clone(), ttl),
        crash_limiter,
    }
}
