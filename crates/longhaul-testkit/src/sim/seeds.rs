//! Simulated histories: one seed determines the complete history, so a failing seed can be
//! replayed as a test.

use std::collections::BTreeSet;

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::RunId;
use longhaul_core::port::store::CreateRunsOutcome;
use longhaul_core::time::Millis;

use crate::clock::SimClock;
use crate::conformance::harness::Harness;
use crate::ids::SeededIds;
use crate::mem_store::{BrokenRule, MemStore};
use crate::sim::SimError;
use crate::sim::caps::random_caps;
use crate::sim::check::{
    SimHistory, check, check_caps, check_chains, check_lost_results, check_rules, check_sandboxes,
};
use crate::sim::children::started_runs;
use crate::sim::cluster::Cluster;
use crate::sim::driver::SimServices;
use crate::sim::driver_factory::DriverFactory;
use crate::sim::external_world::ExternalWorld;
use crate::sim::rng::SeededRng;
use crate::sim::sandboxes::stop_idle_sandboxes;
use crate::sim::{external_actors, scenario};

/// Summary of one history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimResult {
    /// Number of runs that ended.
    pub runs: usize,
    /// Number of events in their journals.
    pub events: usize,
    /// Number of worker crashes.
    pub crashes: usize,
}

/// Number of random actions before the simulation lets all runs finish.
const STEPS: usize = 700;
const WORKERS: usize = 3;
const RUNS_MAX: usize = 8;
const RETRIES_MAX: usize = 8;

/// Simulates one seed on an in-memory store. At least one seed must fail for a store with a
/// broken rule.
pub async fn run_seed(seed: u64, broken_rule: Option<BrokenRule>) -> Result<SimResult, SimError> {
    let clock = SimClock::new();
    let store = match broken_rule {
        None => MemStore::new(clock.clone()),
        Some(broken_rule) => MemStore::with_broken_rule(clock.clone(), broken_rule),
    };
    run_seed_on(seed, &Harness::new(store, clock)).await
}

/// Simulates one seed on any store and checks all invariants at the end.
pub async fn run_seed_on(seed: u64, harness: &Harness) -> Result<SimResult, SimError> {
    run_seed_with(DriverFactory::reference(), seed, harness).await
}

/// Like [`run_seed_on`], but with drivers of this factory.
pub async fn run_seed_with(
    factory: DriverFactory,
    seed: u64,
    harness: &Harness,
) -> Result<SimResult, SimError> {
    let world = ExternalWorld::default();
    let mut rng = SeededRng::new(seed);
    let services = SimServices {
        store: harness.store.clone(),
        records: harness.records.clone(),
        auth: harness.auth.clone(),
        schedules: harness.schedules.clone(),
        world: world.clone(),
        caps: random_caps(&mut rng),
    };
    let ids = SeededIds::new(seed as u32);
    let clock = harness.clock.clone();
    let mut simulation = Simulation {
        rng,
        cluster: Cluster::new(services, clock, ids.clone(), scenario::inbox()?)
            .with_factory(factory),
        ids,
        opened: Vec::new(),
        crashes: 0,
    };
    for _ in 0..WORKERS {
        simulation.cluster.add_worker().await?;
    }
    for _ in 0..STEPS {
        simulation.random_step().await?;
    }
    let completion = simulation.cluster.run_to_completion().await;
    let history = SimHistory {
        journals: simulation.journals().await?,
        effects: world.effects(),
        model_calls: world.model_calls(),
    };
    let repairs = simulation.cluster.services.records.repair_inconsistent_rows().await?;
    let consistency = repairs
        .is_all_zero()
        .then_some(())
        .ok_or_else(|| format!("repaired inconsistent rows: {repairs:?}").into());
    let lost_results = check_lost_results(&simulation.cluster.services, &history.journals).await;
    let caps = check_caps(&simulation.cluster.services, &history).await;
    let rules = check_rules(&simulation.cluster.services, &history).await;
    let sandboxes = match completion {
        Ok(()) => check_sandboxes(&simulation.cluster.services).await,
        Err(_) => Ok(()),
    };
    let chains = check_chains(&simulation.cluster.services, &history).await;
    completion
        .and(consistency)
        .and_then(|()| check(&history))
        .and(lost_results)
        .and(caps)
        .and(rules)
        .and(chains)
        .and(sandboxes)
        .map_err(|error| format!("{error}\n{}", history.timeline()))?;
    let events = history.journals.iter().map(|(_, entries)| entries.len()).sum();
    Ok(SimResult { runs: history.journals.len(), events, crashes: simulation.crashes })
}

struct Simulation {
    rng: SeededRng,
    cluster: Cluster,
    ids: SeededIds,
    opened: Vec<RunId>,
    crashes: usize,
}

impl Simulation {
    /// Returns the journals of all acknowledged runs, their children and the steps of their chains.
    async fn journals(&self) -> Result<Vec<(RunId, Vec<JournalEntry>)>, SimError> {
        let mut journals = Vec::new();
        let mut pending: Vec<RunId> = self.opened.iter().rev().copied().collect();
        let mut seen: BTreeSet<RunId> = pending.iter().copied().collect();
        while let Some(run) = pending.pop() {
            let journal = external_actors::journal(&self.cluster.services, run).await?;
            if journal.is_empty() {
                return Err(format!("{run} was acknowledged and is missing").into());
            }
            pending.extend(started_runs(&journal).into_iter().filter(|child| seen.insert(*child)));
            journals.push((run, journal));
        }
        Ok(journals)
    }

    /// Executes one random action. Time always advances, so that events of different ticks have
    /// different times.
    async fn random_step(&mut self) -> Result<(), SimError> {
        self.cluster.clock.advance(Millis(1));
        let index = self.rng.below(self.cluster.len());
        match self.rng.below(1_000) {
            0..650 => {
                let mut rng = self.rng.clone();
                self.cluster.step(index, &mut |bound| rng.below(bound)).await?;
                self.rng = rng;
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
                self.cluster.crash(index).await?;
            }
            915..935 => {
                let mut rng = self.rng.clone();
                let services = &self.cluster.services;
                stop_idle_sandboxes(services, &mut |bound| rng.below(bound)).await?;
                self.rng = rng;
            }
            905..915 => {
                let duration = Millis::from_secs(5 + self.rng.below(30) as u64);
                self.cluster.stall(index, duration);
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
        let mut request = self.cluster.factory.open_request(id, task)?;
        let lane_entry = scenario::random_lane_entry(&mut self.rng);
        for run in &mut request.runs {
            run.lane_entry = lane_entry;
        }
        let services = &self.cluster.services;
        match services.store.create_runs(request).await? {
            CreateRunsOutcome::Created(_) => self.opened.push(id),
            CreateRunsOutcome::LaneBusy(busy_lane) => {
                let steer = self.ids.steer();
                external_actors::add_task(services, &busy_lane, lane_entry, steer).await?;
            }
            CreateRunsOutcome::Existing(_)
            | CreateRunsOutcome::KeyReused
            | CreateRunsOutcome::LaneFull(_)
            | CreateRunsOutcome::OverCap(_) => {}
        }
        Ok(())
    }

    async fn random_external_action(&mut self) -> Result<(), SimError> {
        let services = self.cluster.services.clone();
        let variant = self.rng.below(24);
        let gates = external_actors::open_gates(&services).await?;
        if !gates.is_empty() && self.rng.one_in(2) {
            let gate = self.rng.pick(&gates);
            external_actors::answer(&services, gate, variant).await?;
            return Ok(());
        }
        if self.opened.is_empty() {
            return Ok(());
        }
        let run = external_actors::newest_of_chain(&services, *self.rng.pick(&self.opened)).await?;
        match self.rng.below(24) {
            0 => external_actors::cancel(&services, run).await?,
            1 | 2 => external_actors::pause(&services, run).await?,
            3..7 => external_actors::resume(&services, run).await?,
            7..14 => {
                external_actors::steer(&services, run, self.ids.steer(), variant).await?;
            }
            14..17 if self.opened.len() < RUNS_MAX + RETRIES_MAX => {
                let new = self.ids.run();
                self.opened.extend(external_actors::retry(&services, run, new).await?);
            }
            17 => drop(external_actors::raise_caps(&services, Millis::ZERO).await?),
            18..20 => external_actors::raise_signal_gate(&services, run, self.ids.gate()).await?,
            20 => external_actors::revoke_rule(&services).await?,
            21..23 => external_actors::close(&services, run).await?,
            _ => {}
        }
        Ok(())
    }
}
