//! The real drive, polled by hand: one poll is one small step, and to drop it
//! is to crash at that wait.
//!
//! Never: polls what nothing has woken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use longhaul_core::id::WorkerId;
use longhaul_core::port::store::Claimed;
use longhaul_engine::Error;
use longhaul_engine::crash_guard::CrashGuard;
use longhaul_engine::drive::{Charge, Parting, drive};
use longhaul_engine::lease::Lease;
use longhaul_engine::nudge::Nudges;
use longhaul_engine::ports::Ports;
use longhaul_engine::slot::Slot;
use longhaul_engine::stop::Stop;
use longhaul_run::Moment;
use longhaul_testkit::sim::Fault;
use longhaul_testkit::sim::driver::Going;
use longhaul_testkit::sim::shepherd::TTL;
use longhaul_testkit::sim::staff::{Driving, Process};

use crate::suite::sim::world::World;
use crate::suite::sim::yielding::Yielding;

/// A worker's process without its loop: the simulation claims and beats for it.
#[derive(Debug)]
pub(super) struct RealProcess {
    ports: Ports,
    world: World,
    yielding: Arc<Yielding>,
    lease: Lease,
    crash_guard: CrashGuard,
}

impl RealProcess {
    pub(super) fn new(ports: Ports, world: World, yielding: Arc<Yielding>) -> Self {
        Self {
            lease: Lease::new(ports.clock.clone(), TTL),
            crash_guard: CrashGuard::new(Some(3)),
            ports,
            world,
            yielding,
        }
    }
}

#[async_trait(?Send)]
impl Process for RealProcess {
    async fn lives(&mut self, worker: WorkerId) -> Result<(), Fault> {
        self.lease.renewed(self.ports.clock.nanos());
        self.world.is_known_as(worker);
        // What others wrote is heard now, or later, or never.
        if self.world.luck.below(2) == 0 {
            let heads = self.yielding.shelves().heads(worker).await?;
            self.ports.nudges.compare(&heads);
        }
        Ok(())
    }

    fn begins_anew(&mut self) {
        self.lease.lose();
        self.lease = Lease::new(self.ports.clock.clone(), TTL);
    }

    fn take_up(&mut self, worker: WorkerId, claimed: &Claimed, _: Moment) -> Box<dyn Driving> {
        let charge = Charge {
            claimed: claimed.clone(),
            worker,
            lease: self.lease.clone(),
            stop: Stop::new(),
            crash_guard: self.crash_guard.clone(),
            slot: Slot::default(),
        };
        let ports = self.ports.clone();
        Box::new(RealDrive {
            future: async move { drive(&ports, charge).await }.boxed(),
            claimed: claimed.clone(),
            woken: Arc::new(Woken(AtomicBool::new(true))),
            world: self.world.clone(),
            yielding: self.yielding.clone(),
            nudges: self.ports.nudges.clone(),
        })
    }
}

/// Whether a drive was woken since it was last polled.
#[derive(Debug)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Woken {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One run in the engine's hands.
struct RealDrive {
    future: BoxFuture<'static, Result<Parting, Error>>,
    claimed: Claimed,
    woken: Arc<Woken>,
    world: World,
    yielding: Arc<Yielding>,
    nudges: Nudges,
}

impl fmt::Debug for RealDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealDrive")
            .field("claimed", &self.claimed)
            .finish_non_exhaustive()
    }
}

/// After each poll a step is over once in so many times.
const POLLS_A_STEP: usize = 4;

#[async_trait(?Send)]
impl Driving for RealDrive {
    async fn step(&mut self, choose: &mut dyn FnMut(usize) -> usize) -> Result<Going, Fault> {
        let Claimed { run, epoch, .. } = self.claimed;
        // A nudge is a hint: it may come although nobody wrote.
        if choose(4) == 3 {
            self.nudges.wrote(run);
        }
        let written = self.yielding.written();
        let waker = Waker::from(self.woken.clone());
        let mut context = Context::from_waker(&waker);
        while self.woken.0.swap(false, Ordering::Relaxed) {
            self.world.luck.set(choose(1 << 12));
            if let Poll::Ready(parted) = self.future.poll_unpin(&mut context) {
                parted.map_err(|fault| format!("{run}: its drive met a fault: {fault}"))?;
                self.world.outside.parted(run, epoch);
                return Ok(Going::Over);
            }
            if choose(POLLS_A_STEP) == 0 {
                break;
            }
        }
        Ok(if self.yielding.written() > written {
            Going::Wrote
        } else {
            Going::On
        })
    }

    fn is_ready(&self) -> bool {
        self.woken.is_set()
    }

    /// Its lease says what it may still begin.
    fn goes_on_unheard(&self) -> bool {
        true
    }
}
