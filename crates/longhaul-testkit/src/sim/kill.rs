//! Kill it before and after every append, go on, end the same.
//!
//! Never: a lucky moment. Every point between two writes is tried.

use longhaul_core::event::entry::Entry;
use longhaul_core::status::Outcome;
use longhaul_core::time::Millis;

use crate::conformance::harness::Harness;
use crate::ids::SeededIds;
use crate::sim::SimError;
use crate::sim::check::{SimHistory, check, check_lost_results};
use crate::sim::cluster::{Cluster, TTL};
use crate::sim::driver::SimServices;
use crate::sim::driver_factory::DriverFactory;
use crate::sim::external_actors;
use crate::sim::external_world::ExternalWorld;
use crate::sim::scenario::{self, Scenario};

/// Where a driver dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// It lives to the end.
    None,
    /// After this many small steps of its own.
    AfterSteps(usize),
}

/// How a scenario ended.
#[derive(Debug)]
pub struct ScenarioResult {
    /// The whole journal.
    pub journal: Vec<Entry>,
    /// The outcome.
    pub outcome: Outcome,
    /// The tools that the model had called.
    pub tools: Vec<String>,
    /// The small steps that the first driver made.
    pub steps: usize,
    /// The batches that drivers wrote: each is a commit.
    pub commits: usize,
}

/// Plays a scenario over a fresh store, with one death, to its end.
pub async fn run_scenario(
    harness: &Harness,
    scenario: &Scenario,
    death: Crash,
) -> Result<ScenarioResult, SimError> {
    run_scenario_with(DriverFactory::reference(), harness, scenario, death).await
}

/// The same in the hands of other drivers.
pub async fn run_scenario_with(
    staff: DriverFactory,
    harness: &Harness,
    scenario: &Scenario,
    death: Crash,
) -> Result<ScenarioResult, SimError> {
    let outside = ExternalWorld::default();
    let ports = SimServices {
        store: harness.store.clone(),
        records: harness.records.clone(),
        auth: harness.auth.clone(),
        world: outside.clone(),
    };
    let ids = SeededIds::new(1);
    let run = ids.run();
    let task = scenario::task(run, &scenario.script, scenario.policy.clone())?;
    ports.store.open_runs(staff.open_request(run, task)?).await?;
    let mut crew = Cluster::new(ports.clone(), harness.clock.clone(), ids, scenario::inbox()?)
        .with_factory(staff);
    crew.add_worker().await?;
    let steps = run_until_crash(&mut crew, death).await?;
    if death != Crash::None {
        crew.crash_all();
        crew.add_worker().await?;
        // The dead one is noticed when the new one has been there for a while.
        for _ in 0..5 {
            harness.clock.advance(Millis(TTL.0 / 3));
            crew.heartbeat_all().await?;
        }
    }
    crew.run_to_completion().await?;
    let journal = external_actors::journal(&ports, run).await?;
    let folded = external_actors::fold(&ports, run).await?.ok_or("the run is gone")?;
    let seen = SimHistory {
        journals: vec![(run, journal.clone())],
        effects: outside.effects(),
        model_calls: outside.model_calls(),
    };
    check(&seen)?;
    check_lost_results(&ports, &seen.journals).await?;
    let outcome = folded.outcome().cloned().ok_or("the run never ended")?;
    Ok(ScenarioResult {
        journal,
        outcome,
        tools: folded.tools_called().to_vec(),
        steps,
        commits: crew.commits,
    })
}

/// The first driver goes on until it dies, or until everything rests; people
/// and timers are quick.
async fn run_until_crash(crew: &mut Cluster, death: Crash) -> Result<usize, SimError> {
    let mut choose = |_| 0;
    let mut steps = 0;
    let mut idle = 0;
    while idle < 3 {
        if death == Crash::AfterSteps(steps) {
            return Ok(steps);
        }
        crew.clock.advance(Millis(1));
        if crew.step(0, &mut choose).await? {
            steps += 1;
            idle = 0;
            continue;
        }
        idle += 1;
        crew.heartbeat_all().await?;
        for gate in external_actors::open_gates(&crew.services).await? {
            external_actors::answer(&crew.services, &gate, 1).await?;
        }
        if let Some(due) = crew.services.records.next_timer_due().await?
            && due.since(longhaul_core::time::Clock::now(&crew.clock)) < Millis::from_secs(9)
        {
            crew.clock.advance(due.since(longhaul_core::time::Clock::now(&crew.clock)));
            crew.clock.advance(Millis(1));
        }
        external_actors::fire_due_timers(&crew.services).await?;
    }
    Ok(steps)
}

/// Kills the driver between any two of its steps, which is before and after
/// every effect and every append, and expects the same end. `fresh` gives an
/// empty store for each life. How many lives were lived.
pub async fn kill_after_every_append<Fresh, Made>(
    scenario: &Scenario,
    fresh: Fresh,
) -> Result<usize, SimError>
where
    Fresh: Fn() -> Made,
    Made: Future<Output = Harness>,
{
    kill_after_every_append_with(&DriverFactory::reference(), scenario, fresh).await
}

/// The same in the hands of other drivers.
pub async fn kill_after_every_append_with<Fresh, Made>(
    staff: &DriverFactory,
    scenario: &Scenario,
    fresh: Fresh,
) -> Result<usize, SimError>
where
    Fresh: Fn() -> Made,
    Made: Future<Output = Harness>,
{
    let whole = run_scenario_with(staff.clone(), &fresh().await, scenario, Crash::None).await?;
    for cut in 0..=whole.steps {
        let death = Crash::AfterSteps(cut);
        let ended = run_scenario_with(staff.clone(), &fresh().await, scenario, death)
            .await
            .map_err(|fault| format!("{} killed after step {cut}: {fault}", scenario.name))?;
        let same = ended.outcome == whole.outcome && ended.tools == whole.tools;
        if !same {
            let name = scenario.name;
            return Err(format!(
                "{name} killed after step {cut} ended as {:?} with {:?}, not as {:?} with {:?}",
                ended.outcome, ended.tools, whole.outcome, whole.tools
            )
            .into());
        }
    }
    Ok(whole.steps + 1)
}
