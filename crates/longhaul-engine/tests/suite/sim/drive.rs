//! The real driver, polled by hand. Dropping it is a crash at its current await.
//!
//! It is polled only after it was woken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use longhaul_core::id::WorkerId;
use longhaul_core::port::store::Claim;
use longhaul_engine::Error;
use longhaul_engine::drive::DrivePermit;
use longhaul_engine::drive::assignment::Lease;
use longhaul_engine::drive::crash_limiter::RunCrashLimiter;
use longhaul_engine::drive::{DriveRunOutcome, RunAssignment, drive_run};
use longhaul_engine::notifier::DriverNotifier;
use longhaul_engine::services::Services;
use longhaul_engine::shutdown::Shutdown;
use longhaul_run::DecisionContext;
use longhaul_testkit::sim::SimError;
use longhaul_testkit::sim::cluster::TTL;
use longhaul_testkit::sim::driver::DriveProgress;
use longhaul_testkit::sim::driver_factory::{SimDriver, SimProcess};

use crate::suite::sim::context::SimContext;
use crate::suite::sim::yielding_store::YieldingStore;

/// A worker process without its main loop: the simulation claims runs and sends heartbeats for it.
#[derive(Debug)]
pub(super) struct EngineProcess {
    services: Services,
    ctx: SimContext,
    store: Arc<YieldingStore>,
    lease: Lease,
    crash_limiter: RunCrashLimiter,
}

impl EngineProcess {
    pub(super) fn new(services: Services, ctx: SimContext, yielding: Arc<YieldingStore>) -> Self {
        Self {
            lease: Lease::new(services.clock.clone(), TTL),
            crash_limiter: RunCrashLimiter::new(Some(3)),
            services,
            ctx,
            store: yielding,
        }
    }
}

#[async_trait(?Send)]
impl SimProcess for EngineProcess {
    async fn on_heartbeat(&mut self, worker: WorkerId) -> Result<(), SimError> {
        self.lease.renew(self.services.clock.monotonic_nanos());
        self.ctx.register_worker(worker);
        // Changes by others are noticed now, later or never.
        if self.ctx.random.below(2) == 0 {
            let heads = self.store.records().claimed_runs_with_last_seq(worker).await?;
            self.services.notifier.notify_outdated_drivers(&heads);
        }
        Ok(())
    }

    fn on_new_identity(&mut self) {
        self.lease.mark_lost();
        self.lease = Lease::new(self.services.clock.clone(), TTL);
    }

    fn start_driver(
        &mut self,
        worker: WorkerId,
        claimed: &Claim,
        _: DecisionContext,
    ) -> Box<dyn SimDriver> {
        let assignment = RunAssignment {
            claim: claimed.clone(),
            worker,
            lease: self.lease.clone(),
            shutdown: Shutdown::new(),
            crash_limiter: self.crash_limiter.clone(),
            permit: DrivePermit::default(),
        };
        let services = self.services.clone();
        Box::new(EngineDriver {
            future: async move { drive_run(&services, assignment).await }.boxed(),
            claim: claimed.clone(),
            woken: Arc::new(WakeFlag(AtomicBool::new(true))),
            ctx: self.ctx.clone(),
            store: self.store.clone(),
            notifier: self.services.notifier.clone(),
        })
    }
}

/// Whether a driver was woken since it was last polled.
#[derive(Debug)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl WakeFlag {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The real driver of one run.
struct EngineDriver {
    future: BoxFuture<'static, Result<DriveRunOutcome, Error>>,
    claim: Claim,
    woken: Arc<WakeFlag>,
    ctx: SimContext,
    store: Arc<YieldingStore>,
    notifier: DriverNotifier,
}

impl fmt::Debug for EngineDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineDriver").field("claim", &self.claim).finish_non_exhaustive()
    }
}

/// After each poll a step ends with a probability of one in this number.
const POLLS_PER_STEP: usize = 4;

#[async_trait(?Send)]
impl SimDriver for EngineDriver {
    async fn step(
        &mut self,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Result<DriveProgress, SimError> {
        let Claim { run, epoch, .. } = self.claim;
        // A notification is only a hint: it may come although nothing was written.
        if choose(4) == 3 {
            self.notifier.notify_run_changed(run);
        }
        let commits_before = self.store.commits();
        let waker = Waker::from(self.woken.clone());
        let mut context = Context::from_waker(&waker);
        while self.woken.0.swap(false, Ordering::Relaxed) {
            self.ctx.random.set(choose(1 << 12));
            if let Poll::Ready(result) = self.future.poll_unpin(&mut context) {
                result.map_err(|error| format!("{run}: its driver failed: {error}"))?;
                self.ctx.external.record_driver_end(run, epoch);
                return Ok(DriveProgress::Done);
            }
            if choose(POLLS_PER_STEP) == 0 {
                break;
            }
        }
        Ok(if self.store.commits() > commits_before {
            DriveProgress::Committed
        } else {
            DriveProgress::Continue
        })
    }

    fn is_ready(&self) -> bool {
        self.woken.is_set()
    }

    /// The lease decides what the driver may still start.
    fn may_run_without_lease(&self) -> bool {
        true
    }
}
