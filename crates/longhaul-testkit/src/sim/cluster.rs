//! A cluster of simulated workers: claim, step, crash, stall, and finally drive all runs to
//! their end.
//!
//! Invariant: no run is woken artificially, so a run that nothing wakes is detected.

use longhaul_core::event::EVENT_FORMAT;
use longhaul_core::id::{InboxName, WorkerId};
use longhaul_core::port::store::{Heartbeat, RunClaimRequest, WorkerLiveness};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_run::DecisionContext;

use crate::clock::SimClock;
use crate::ids::SeededIds;
use crate::sim::SimError;
use crate::sim::driver::{DriveProgress, SimServices};
use crate::sim::driver_factory::{DriverFactory, SimDriver, SimProcess};
use crate::sim::external_actors;
use crate::sim::sandboxes::stop_idle_sandboxes;

/// Time without a heartbeat after which a worker counts as dead.
pub const TTL: Millis = Millis::from_secs(15);

/// Age of the last heartbeat after which a worker starts no new work (self-fencing).
const SELF_FENCE: Millis = Millis::from_secs(10);

/// Maximum number of runs that a worker drives at once.
const SLOTS: usize = 3;

/// One simulated worker.
#[derive(Debug)]
pub struct SimWorker {
    id: WorkerId,
    process: Box<dyn SimProcess>,
    drivers: Vec<Box<dyn SimDriver>>,
    heartbeat_at: Timestamp,
    stalled_until: Timestamp,
}

/// All workers of one store.
#[derive(Debug)]
pub struct Cluster {
    /// Services of the drivers.
    pub services: SimServices,
    /// Factory of the drivers.
    pub factory: DriverFactory,
    /// Clock of the store.
    pub clock: SimClock,
    ids: SeededIds,
    inbox: InboxName,
    workers: Vec<SimWorker>,
    /// Number of batches that drivers have appended.
    pub commits: usize,
}

impl Cluster {
    /// Creates a cluster without workers. Its drivers are the small simulated ones.
    pub fn new(services: SimServices, clock: SimClock, ids: SeededIds, inbox: InboxName) -> Self {
        Self {
            services,
            factory: DriverFactory::reference(),
            clock,
            ids,
            inbox,
            workers: Vec::new(),
            commits: 0,
        }
    }

    #[must_use]
    pub fn with_factory(self, factory: DriverFactory) -> Self {
        Self { factory, ..self }
    }

    /// Adds a worker that has sent its first heartbeat.
    pub async fn add_worker(&mut self) -> Result<(), SimError> {
        let worker = SimWorker {
            id: self.ids.worker(),
            process: (self.factory.spawn)(&self.services, &self.clock),
            drivers: Vec::new(),
            heartbeat_at: self.clock.now(),
            stalled_until: Timestamp::default(),
        };
        self.workers.push(worker);
        self.heartbeat(self.workers.len() - 1).await
    }

    /// Returns the number of workers.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Returns whether there are no workers.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Crashes a worker, which loses all its state, and adds a new one.
    pub async fn crash(&mut self, index: usize) -> Result<(), SimError> {
        self.workers.remove(index);
        self.add_worker().await
    }

    /// Crashes all workers without replacement.
    pub fn crash_all(&mut self) {
        self.workers.clear();
    }

    /// Suspends a worker for a while, as SIGSTOP does.
    pub fn stall(&mut self, index: usize, duration: Millis) {
        let until = self.clock.now().plus(duration);
        if let Some(worker) = self.workers.get_mut(index) {
            worker.stalled_until = until;
        }
    }

    fn is_stalled(&self, index: usize) -> bool {
        self.workers[index].stalled_until > self.clock.now()
    }

    /// Sends the heartbeat of a worker. A worker that counts as dead releases its runs and
    /// returns with a new id, but still saves the results it has received.
    pub async fn heartbeat(&mut self, index: usize) -> Result<(), SimError> {
        if self.is_stalled(index) {
            return Ok(());
        }
        let worker = &mut self.workers[index];
        let heartbeat = Heartbeat {
            worker: worker.id,
            host: "sim".into(),
            build: "sim".into(),
            inboxes: vec![self.inbox.clone()],
            types: Vec::new(),
            draining: false,
            ttl: TTL,
        };
        worker.heartbeat_at = self.clock.now();
        if self.services.store.heartbeat(heartbeat).await?.liveness == WorkerLiveness::Dead {
            worker.drivers.retain(|driver| driver.may_run_without_lease());
            worker.process.on_new_identity();
            worker.id = self.ids.worker();
            let new_heartbeat = Heartbeat {
                worker: worker.id,
                host: "sim".into(),
                build: "sim".into(),
                inboxes: vec![self.inbox.clone()],
                types: Vec::new(),
                draining: false,
                ttl: TTL,
            };
            self.services.store.heartbeat(new_heartbeat).await?;
        }
        worker.process.on_heartbeat(worker.id).await
    }

    /// Sends the heartbeats of all workers.
    pub async fn heartbeat_all(&mut self) -> Result<(), SimError> {
        for index in 0..self.workers.len() {
            self.heartbeat(index).await?;
        }
        Ok(())
    }

    /// Executes one step of a worker: a claim, or a step of one of its runs. Returns whether
    /// anything was done.
    pub async fn step(
        &mut self,
        index: usize,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Result<bool, SimError> {
        if self.is_stalled(index) {
            return Ok(false);
        }
        let is_fenced = self.workers[index].heartbeat_at.plus(SELF_FENCE) < self.clock.now();
        let count = self.workers[index].drivers.len();
        if !is_fenced
            && count < SLOTS
            && (count == 0 || choose(4) == 0)
            && self.claim(index).await?
        {
            return Ok(true);
        }
        let worker = &mut self.workers[index];
        if worker.drivers.is_empty() {
            return Ok(false);
        }
        // Drivers that are waiting are skipped.
        let first = choose(worker.drivers.len());
        let mut order = (first..worker.drivers.len()).chain(0..first);
        let Some(chosen) = order.find(|index| worker.drivers[*index].is_ready()) else {
            return Ok(false);
        };
        let driver = &mut worker.drivers[chosen];
        if is_fenced && !driver.may_run_without_lease() {
            return Ok(false);
        }
        match driver.step(choose).await? {
            DriveProgress::Continue => {}
            DriveProgress::Committed => self.commits += 1,
            DriveProgress::Done => {
                worker.drivers.remove(chosen);
            }
        }
        Ok(true)
    }

    async fn claim(&mut self, index: usize) -> Result<bool, SimError> {
        let request = RunClaimRequest {
            worker: self.workers[index].id,
            inboxes: vec![self.inbox.clone()],
            types: Vec::new(),
            only: None,
            limit: 1,
            format: EVENT_FORMAT,
            host: None,
        };
        let claimed = self.services.store.claim_runs(request).await?;
        let ctx = DecisionContext::new(self.clock.now());
        let worker = &mut self.workers[index];
        for run in &claimed {
            let driver = worker.process.start_driver(worker.id, run, ctx.clone());
            worker.drivers.push(driver);
        }
        Ok(!claimed.is_empty())
    }

    /// Drives all runs to their end, without crashes and with all gates answered. Returns an
    /// error with the runs that do not end.
    pub async fn run_to_completion(&mut self) -> Result<(), SimError> {
        let mut choose = |_| 0;
        // Events of different steps must have different times, because the lane check compares
        // times.
        self.clock.advance(Millis(1));
        for round in 0..ROUNDS_MAX {
            self.heartbeat_all().await?;
            let mut has_progress = false;
            for index in 0..self.workers.len() {
                for _ in 0..STEPS_PER_ROUND {
                    if !self.step(index, &mut choose).await? {
                        break;
                    }
                    has_progress = true;
                    self.clock.advance(Millis(1));
                }
            }
            has_progress |= stop_idle_sandboxes(&self.services, &mut choose).await?;
            has_progress |= external_actors::fire_due_timers(&self.services).await?;
            for gate in external_actors::open_gates(&self.services).await? {
                external_actors::answer(&self.services, &gate, round + 1).await?;
                has_progress = true;
            }
            let open = external_actors::open_runs(&self.services).await?;
            if open.is_empty() {
                return Ok(());
            }
            for row in open {
                let out_of_budget = row.reason.as_deref() == Some("budget");
                if row.status == Status::Paused || out_of_budget {
                    external_actors::resume(&self.services, row.id).await?;
                    has_progress = true;
                }
                // The budget of a tree is raised at its root, or at the newest step of a chain.
                if out_of_budget {
                    let root = external_actors::newest_of_chain(&self.services, row.root).await?;
                    external_actors::resume(&self.services, root).await?;
                }
            }
            // The reference driver's windows end soon; those of the real driver take a day.
            has_progress |=
                external_actors::raise_caps(&self.services, Millis::from_secs(3_600)).await?;
            self.advance_clock(has_progress).await?;
        }
        let open = external_actors::open_runs(&self.services).await?;
        let stuck: Vec<String> = open
            .iter()
            .map(|row| format!("{} {} {:?}", row.id, row.status.as_str(), row.reason))
            .collect();
        Err(format!("these runs did not end: {}", stuck.join("; ")).into())
    }

    /// If there was no progress, advances the clock to the next timer, or far enough for dead
    /// workers to be detected.
    async fn advance_clock(&mut self, has_progress: bool) -> Result<(), SimError> {
        if has_progress {
            self.clock.advance(Millis(1));
            return Ok(());
        }
        let now = self.clock.now();
        let next = self.services.records.next_timer_due().await?;
        let wait = next.map_or(Millis::from_secs(5), |due| due.duration_since(now).plus(Millis(1)));
        self.clock.advance(wait.min(Millis::from_secs(5)));
        Ok(())
    }
}

/// Maximum number of rounds until all runs must have ended. Waiting for a day takes 17,280
/// rounds of five seconds.
const ROUNDS_MAX: usize = 40_000;
const STEPS_PER_ROUND: usize = 200;
