//! One seed, one history: who does what next is drawn from it, and nothing else.
//!
//! Never: two histories from one seed. A seed that fails is a test case.

use longhaul_core::event::entry::Entry;
use longhaul_core::id::RunId;
use longhaul_core::port::store::OpenOutcome;
use longhaul_core::time::Millis;

use crate::clock::SimClock;
use crate::conformance::harness::Harness;
use crate::ids::SeededIds;
use crate::mem_store::{BrokenRule, MemStore};
use crate::sim::SimError;
use crate::sim::check::{SimHistory, check, check_lost_results};
use crate::sim::cluster::Cluster;
use crate::sim::driver::SimServices;
use crate::sim::driver_factory::DriverFactory;
use crate::sim::external_world::ExternalWorld;
use crate::sim::rng::SeededRng;
use crate::sim::{external_actors, scenario};

/// What one history came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimResult {
    /// Runs that ended.
    pub runs: usize,
    /// Events in their journals.
    pub events: usize,
    /// Workers that died.
    pub crashes: usize,
}

/// So many things happen before there is peace.
const STEPS: usize = 700;
const WORKERS: usize = 3;
const RUNS_MAX: usize = 8;

/// Lives through one seed over a store in memory. A `broken` store must be caught
/// by some seed.
pub async fn run_seed(seed: u64, broken: Option<BrokenRule>) -> Result<SimResult, SimError> {
    let clock = SimClock::new();
    let store = match broken {
        None => MemStore::new(clock.clone()),
        Some(broken) => MemStore::with_broken_rule(clock.clone(), broken),
    };
    run_seed_on(seed, &Harness::new(store, clock)).await
}

/// Lives through one seed over any store, and checks every invariant at the end.
pub async fn run_seed_on(seed: u64, harness: &Harness) -> Result<SimResult, SimError> {
    run_seed_with(DriverFactory::reference(), seed, harness).await
}

/// The same in the hands of other drivers.
pub async fn run_seed_with(
    staff: DriverFactory,
    seed: u64,
    harness: &Harness,
) -> Result<SimResult, SimError> {
    let outside = ExternalWorld::default();
    let ports = SimServices {
        store: harness.store.clone(),
        records: harness.records.clone(),
        auth: harness.auth.clone(),
        world: outside.clone(),
    };
    let ids = SeededIds::new(seed as u32);
    let clock = harness.clock.clone();
    let mut fate = Simulation {
        rng: SeededRng::new(seed),
        cluster: Cluster::new(ports, clock, ids.clone(), scenario::inbox()?).with_factory(staff),
        ids,
        opened: Vec::new(),
        crashes: 0,
    };
    for _ in 0..WORKERS {
        fate.cluster.add_worker().await?;
    }
    for _ in 0..STEPS {
        fate.random_step().await?;
    }
    let peace = fate.cluster.run_to_completion().await;
    let seen = SimHistory {
        journals: fate.journals().await?,
        effects: outside.effects(),
        model_calls: outside.model_calls(),
    };
    let repairs = fate.cluster.services.records.repair().await?;
    let clean = repairs
        .is_clean()
        .then_some(())
        .ok_or_else(|| format!("rows crossed each other: {repairs:?}").into());
    let debts = check_lost_results(&fate.cluster.services, &seen.journals).await;
    peace
        .and(clean)
        .and_then(|()| check(&seen))
        .and(debts)
        .map_err(|fault| format!("{fault}\n{}", seen.timeline()))?;
    let events = seen.journals.iter().map(|(_, entries)| entries.len()).sum();
    Ok(SimResult { runs: seen.journals.len(), events, crashes: fate.crashes })
}

struct Simulation {
    rng: SeededRng,
    cluster: Cluster,
    ids: SeededIds,
    opened: Vec<RunId>,
    crashes: usize,
}

impl Simulation {
    /// The journal of every run that was acknowledged.
    async fn journals(&self) -> Result<Vec<(RunId, Vec<Entry>)>, SimError> {
        let mut journals = Vec::new();
        for run in &self.opened {
            let journal = external_actors::journal(&self.cluster.services, *run).await?;
            if journal.is_empty() {
                return Err(format!("{run} was acknowledged and is missing").into());
            }
            journals.push((*run, journal));
        }
        Ok(journals)
    }

    /// One thing happens. Time always moves, so that facts of two ticks never
    /// bear the same time.
    async fn random_step(&mut self) -> Result<(), SimError> {
        self.cluster.clock.advance(Millis(1));
        let place = self.rng.below(self.cluster.len());
        match self.rng.below(1_000) {
            0..650 => {
                let mut dice = self.rng.clone();
                self.cluster.step(place, &mut |bound| dice.below(bound)).await?;
                self.rng = dice;
            }
            650..750 => self.cluster.heartbeat_all().await?,
            750..800 => self.submit().await?,
            800..850 => {
                external_actors::fire_due_timers(&self.cluster.services).await?;
            }
            850..880 => {
                self.cluster.clock.advance(Millis(self.rng.below(4_000) as u64));
            }
            880..890 => {
                self.cluster.clock.advance(Millis::from_secs(10 + self.rng.below(100) as u64));
            }
            890..905 => {
                self.crashes += 1;
                self.cluster.crash(place).await?;
            }
            905..915 => {
                let span = Millis::from_secs(5 + self.rng.below(30) as u64);
                self.cluster.stall(place, span);
            }
            _ => self.random_external_action().await?,
        }
        Ok(())
    }

    async fn submit(&mut self) -> Result<(), SimError> {
        if self.opened.len() >= RUNS_MAX {
            return Ok(());
        }
        let id = self.ids.run();
        let task = scenario::random_task(&mut self.rng, id)?;
        let ask = self.cluster.factory.open_request(id, task)?;
        if matches!(self.cluster.services.store.open_runs(ask).await?, OpenOutcome::Created(_)) {
            self.opened.push(id);
        }
        Ok(())
    }

    async fn random_external_action(&mut self) -> Result<(), SimError> {
        let ports = self.cluster.services.clone();
        let way = self.rng.below(24);
        let gates = external_actors::open_gates(&ports).await?;
        if !gates.is_empty() && self.rng.one_in(2) {
            let gate = self.rng.pick(&gates);
            external_actors::answer(&ports, gate, way).await?;
            return Ok(());
        }
        if self.opened.is_empty() {
            return Ok(());
        }
        let run = *self.rng.pick(&self.opened);
        match self.rng.below(20) {
            0 => external_actors::cancel(&ports, run).await?,
            1 | 2 => external_actors::pause(&ports, run).await?,
            3..7 => external_actors::resume(&ports, run).await?,
            7..14 => {
                external_actors::steer(&ports, run, self.ids.steer(), way).await?;
            }
            _ => {}
        }
        Ok(())
    }
}
