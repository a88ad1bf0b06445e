//! A crew of workers and the people around it: claim, step, crash, stall, and
//! in the end bring every run home.
//!
//! Never: helps a run along. A run that nothing wakes is found, not woken.

use longhaul_core::event::EVENT_FORMAT;
use longhaul_core::id::{InboxName, WorkerId};
use longhaul_core::port::store::{ClaimRequest, Heartbeat, WorkerLiveness};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_run::DecideContext;

use crate::clock::SimClock;
use crate::ids::SeededIds;
use crate::sim::SimError;
use crate::sim::driver::{DriveProgress, SimServices};
use crate::sim::driver_factory::{DriverFactory, SimDriver, SimProcess};
use crate::sim::external_actors;

/// A worker that is silent for longer counts as dead.
pub const TTL: Millis = Millis::from_secs(15);

/// A worker stops beginning anything when its last sign of life is this old.
const SELF_FENCE: Millis = Millis::from_secs(10);

/// So many runs a worker drives at once.
const SLOTS: usize = 3;

/// One worker.
#[derive(Debug)]
pub struct SimWorker {
    id: WorkerId,
    process: Box<dyn SimProcess>,
    drivers: Vec<Box<dyn SimDriver>>,
    heartbeat_at: Timestamp,
    stalled_until: Timestamp,
}

/// All workers, over one store.
#[derive(Debug)]
pub struct Cluster {
    /// What everybody works with.
    pub services: SimServices,
    /// Who is hired.
    pub factory: DriverFactory,
    /// The clock of the store.
    pub clock: SimClock,
    ids: SeededIds,
    inbox: InboxName,
    workers: Vec<SimWorker>,
    /// How many batches drivers have written.
    pub commits: usize,
}

impl Cluster {
    /// Nobody yet; the stand-in will be hired.
    pub fn new(ports: SimServices, clock: SimClock, ids: SeededIds, inbox: InboxName) -> Self {
        Self {
            services: ports,
            factory: DriverFactory::reference(),
            clock,
            ids,
            inbox,
            workers: Vec::new(),
            commits: 0,
        }
    }

    /// The same, hiring others.
    #[must_use]
    pub fn with_factory(self, staff: DriverFactory) -> Self {
        Self { factory: staff, ..self }
    }

    /// One worker more, which has said that it lives.
    pub async fn add_worker(&mut self) -> Result<(), SimError> {
        let hand = SimWorker {
            id: self.ids.worker(),
            process: (self.factory.spawn)(&self.services, &self.clock),
            drivers: Vec::new(),
            heartbeat_at: self.clock.now(),
            stalled_until: Timestamp::default(),
        };
        self.workers.push(hand);
        self.heartbeat(self.workers.len() - 1).await
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// A worker dies with everything it holds; its place is taken by a new one.
    pub async fn crash(&mut self, place: usize) -> Result<(), SimError> {
        self.workers.remove(place);
        self.add_worker().await
    }

    /// Every worker dies, and nobody comes.
    pub fn crash_all(&mut self) {
        self.workers.clear();
    }

    /// A worker stands still for a while, as under SIGSTOP.
    pub fn stall(&mut self, place: usize, span: Millis) {
        let until = self.clock.now().plus(span);
        if let Some(hand) = self.workers.get_mut(place) {
            hand.stalled_until = until;
        }
    }

    fn is_stalled(&self, place: usize) -> bool {
        self.workers[place].stalled_until > self.clock.now()
    }

    /// A worker says that it lives. One that counts as dead lets go of its runs
    /// and comes back under a new id; what it has in its hands it still tells.
    pub async fn heartbeat(&mut self, place: usize) -> Result<(), SimError> {
        if self.is_stalled(place) {
            return Ok(());
        }
        let hand = &mut self.workers[place];
        let beat = Heartbeat {
            worker: hand.id,
            host: "sim".into(),
            build: "sim".into(),
            draining: false,
            ttl: TTL,
        };
        hand.heartbeat_at = self.clock.now();
        if self.services.store.heartbeat(beat).await?.liveness == WorkerLiveness::Dead {
            hand.drivers.retain(|drive| drive.may_run_without_lease());
            hand.process.on_new_identity();
            hand.id = self.ids.worker();
            let again = Heartbeat {
                worker: hand.id,
                host: "sim".into(),
                build: "sim".into(),
                draining: false,
                ttl: TTL,
            };
            self.services.store.heartbeat(again).await?;
        }
        hand.process.on_heartbeat(hand.id).await
    }

    /// Every worker says that it lives.
    pub async fn heartbeat_all(&mut self) -> Result<(), SimError> {
        for place in 0..self.workers.len() {
            self.heartbeat(place).await?;
        }
        Ok(())
    }

    /// A worker does one small thing: claims, or goes on with a run. Whether it
    /// did anything.
    pub async fn step(
        &mut self,
        place: usize,
        choose: &mut dyn FnMut(usize) -> usize,
    ) -> Result<bool, SimError> {
        if self.is_stalled(place) {
            return Ok(false);
        }
        let fenced = self.workers[place].heartbeat_at.plus(SELF_FENCE) < self.clock.now();
        let count = self.workers[place].drivers.len();
        if !fenced && count < SLOTS && (count == 0 || choose(4) == 0) && self.claim(place).await? {
            return Ok(true);
        }
        let hand = &mut self.workers[place];
        if hand.drivers.is_empty() {
            return Ok(false);
        }
        // Whoever waits for something is passed over.
        let first = choose(hand.drivers.len());
        let mut order = (first..hand.drivers.len()).chain(0..first);
        let Some(chosen) = order.find(|place| hand.drivers[*place].is_ready()) else {
            return Ok(false);
        };
        let drive = &mut hand.drivers[chosen];
        if fenced && !drive.may_run_without_lease() {
            return Ok(false);
        }
        match drive.step(choose).await? {
            DriveProgress::Continue => {}
            DriveProgress::Committed => self.commits += 1,
            DriveProgress::Done => {
                hand.drivers.remove(chosen);
            }
        }
        Ok(true)
    }

    async fn claim(&mut self, place: usize) -> Result<bool, SimError> {
        let ask = ClaimRequest {
            worker: self.workers[place].id,
            inboxes: vec![self.inbox.clone()],
            types: Vec::new(),
            limit: 1,
            format: EVENT_FORMAT,
            host: None,
        };
        let claimed = self.services.store.claim(ask).await?;
        let moment = DecideContext::new(self.clock.now());
        let hand = &mut self.workers[place];
        for run in &claimed {
            let drive = hand.process.start_driver(hand.id, run, moment);
            hand.drivers.push(drive);
        }
        Ok(!claimed.is_empty())
    }

    /// Peace: nothing crashes any more, everybody is answered, and every run
    /// must come to its end. A run that does not is named.
    pub async fn run_to_completion(&mut self) -> Result<(), SimError> {
        let mut choose = |_| 0;
        // Facts of two steps never bear the same time: lanes are judged by it.
        self.clock.advance(Millis(1));
        for round in 0..ROUNDS_MAX {
            self.heartbeat_all().await?;
            let mut moved = false;
            for place in 0..self.workers.len() {
                for _ in 0..STEPS_PER_ROUND {
                    if !self.step(place, &mut choose).await? {
                        break;
                    }
                    moved = true;
                    self.clock.advance(Millis(1));
                }
            }
            moved |= external_actors::fire_due_timers(&self.services).await?;
            for gate in external_actors::open_gates(&self.services).await? {
                external_actors::answer(&self.services, &gate, round + 1).await?;
                moved = true;
            }
            let open = external_actors::open_runs(&self.services).await?;
            if open.is_empty() {
                return Ok(());
            }
            for row in open {
                let broke = row.reason.as_deref() == Some("budget");
                if row.status == Status::Paused || broke {
                    external_actors::resume(&self.services, row.id).await?;
                    moved = true;
                }
            }
            self.advance_clock(moved).await?;
        }
        let open = external_actors::open_runs(&self.services).await?;
        let stuck: Vec<String> = open
            .iter()
            .map(|row| format!("{} {} {:?}", row.id, row.status.as_str(), row.reason))
            .collect();
        Err(format!("these runs never end: {}", stuck.join("; ")).into())
    }

    /// When nothing moves, the clock goes to the next timer, or far enough for
    /// the dead to be noticed.
    async fn advance_clock(&mut self, moved: bool) -> Result<(), SimError> {
        if moved {
            self.clock.advance(Millis(1));
            return Ok(());
        }
        let now = self.clock.now();
        let next = self.services.records.next_timer_due().await?;
        let wait = next.map_or(Millis::from_secs(5), |due| due.since(now).plus(Millis(1)));
        self.clock.advance(wait.min(Millis::from_secs(5)));
        Ok(())
    }
}

/// So many rounds of peace; a day of waiting takes 17,280 of five seconds.
const ROUNDS_MAX: usize = 40_000;
const STEPS_PER_ROUND: usize = 200;
