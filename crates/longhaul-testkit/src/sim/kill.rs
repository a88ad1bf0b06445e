//! Crash test: kills the driver between any two steps and checks that the run has the same
//! outcome.

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::status::RunOutcome;
use longhaul_core::time::Millis;

use crate::conformance::harness::Harness;
use crate::ids::SeededIds;
use crate::sim::SimError;
use crate::sim::check::{SimHistory, check, check_lost_results, check_rules};
use crate::sim::cluster::{Cluster, TTL};
use crate::sim::driver::SimServices;
use crate::sim::driver_factory::DriverFactory;
use crate::sim::external_actors;
use crate::sim::external_world::ExternalWorld;
use crate::sim::sandboxes::stop_idle_sandboxes;
use crate::sim::scenario::{self, Scenario};

/// Time at which a driver is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The driver is not killed.
    None,
    /// The driver is killed after this number of steps.
    AfterSteps(usize),
}

#[derive(Debug)]
pub struct ScenarioResult {
    /// The whole journal.
    pub journal: Vec<JournalEntry>,
    pub outcome: RunOutcome,
    /// Tools that the model has called.
    pub tools: Vec<String>,
    /// Number of steps of the first driver.
    pub steps: usize,
    /// Number of batches that drivers appended; each is one commit.
    pub commits: usize,
}

/// Executes a scenario on a new store until it ends, with at most one crash.
pub async fn run_scenario(
    harness: &Harness,
    scenario: &Scenario,
    crash: Crash,
) -> Result<ScenarioResult, SimError> {
    run_scenario_with(DriverFactory::reference(), harness, scenario, crash).await
}

/// Like [`run_scenario`], but with drivers of this factory.
pub async fn run_scenario_with(
    factory: DriverFactory,
    harness: &Harness,
    scenario: &Scenario,
    crash: Crash,
) -> Result<ScenarioResult, SimError> {
    let world = ExternalWorld::default();
    let services = SimServices {
        store: harness.store.clone(),
        records: harness.records.clone(),
        auth: harness.auth.clone(),
        schedules: harness.schedules.clone(),
        world: world.clone(),
        caps: Vec::new(),
    };
    let ids = SeededIds::new(1);
    let run = ids.run();
    let task = scenario::task(run, &scenario.script, scenario.policy.clone())?;
    services.store.create_runs(factory.open_request(run, task)?).await?;
    let mut cluster =
        Cluster::new(services.clone(), harness.clock.clone(), ids, scenario::inbox()?)
            .with_factory(factory);
    cluster.add_worker().await?;
    let steps = run_until_crash(&mut cluster, crash).await?;
    if crash != Crash::None {
        cluster.crash_all();
        cluster.add_worker().await?;
        // The dead worker is detected only after the new one has sent heartbeats for one TTL.
        for _ in 0..5 {
            harness.clock.advance(Millis(TTL.0 / 3));
            cluster.heartbeat_all().await?;
        }
    }
    cluster.run_to_completion().await?;
    let journal = external_actors::journal(&services, run).await?;
    let folded = external_actors::fold(&services, run).await?.ok_or("the run is missing")?;
    let history = SimHistory {
        journals: vec![(run, journal.clone())],
        effects: world.effects(),
        model_calls: world.model_calls(),
    };
    check(&history)?;
    check_lost_results(&services, &history.journals).await?;
    check_rules(&services, &history).await?;
    let outcome = folded.outcome().cloned().ok_or("the run never ended")?;
    Ok(ScenarioResult {
        journal,
        outcome,
        tools: folded.tools_called().to_vec(),
        steps,
        commits: cluster.commits,
    })
}

/// Steps the first driver until it is killed or everything is idle. Gates are answered and
/// timers fire immediately.
async fn run_until_crash(cluster: &mut Cluster, crash: Crash) -> Result<usize, SimError> {
    let mut choose = |_| 0;
    let mut steps = 0;
    let mut idle = 0;
    while idle < 3 {
        if crash == Crash::AfterSteps(steps) {
            return Ok(steps);
        }
        cluster.clock.advance(Millis(1));
        if cluster.step(0, &mut choose).await? {
            steps += 1;
            idle = 0;
            continue;
        }
        idle += 1;
        cluster.heartbeat_all().await?;
        for gate in external_actors::open_gates(&cluster.services).await? {
            external_actors::answer(&cluster.services, &gate, 1).await?;
        }
        if let Some(due) = cluster.services.records.next_timer_due().await?
            && due.duration_since(longhaul_core::time::Clock::now(&cluster.clock))
                < Millis::from_secs(9)
        {
            cluster
                .clock
                .advance(due.duration_since(longhaul_core::time::Clock::now(&cluster.clock)));
            cluster.clock.advance(Millis(1));
        }
        stop_idle_sandboxes(&cluster.services, &mut choose).await?;
        external_actors::fire_due_timers(&cluster.services).await?;
    }
    Ok(steps)
}

/// Kills the driver between any two of its steps, which is before and after every effect and
/// every append, and expects the same outcome each time. `new_harness` creates an empty store
/// for each execution. Returns the number of executions.
pub async fn kill_after_every_append<Fresh, Made>(
    scenario: &Scenario,
    new_harness: Fresh,
) -> Result<usize, SimError>
where
    Fresh: Fn() -> Made,
    Made: Future<Output = Harness>,
{
    kill_after_every_append_with(&DriverFactory::reference(), scenario, new_harness).await
}

/// Like [`kill_after_every_append`], but with drivers of this factory.
pub async fn kill_after_every_append_with<Fresh, Made>(
    factory: &DriverFactory,
    scenario: &Scenario,
    new_harness: Fresh,
) -> Result<usize, SimError>
where
    Fresh: Fn() -> Made,
    Made: Future<Output = Harness>,
{
    let baseline =
        run_scenario_with(factory.clone(), &new_harness().await, scenario, Crash::None).await?;
    for step in 0..=baseline.steps {
        let crash = Crash::AfterSteps(step);
        let result = run_scenario_with(factory.clone(), &new_harness().await, scenario, crash)
            .await
            .map_err(|error| format!("{} killed after step {step}: {error}", scenario.name))?;
        let is_same = result.outcome == baseline.outcome && result.tools == baseline.tools;
        if !is_same {
            let name = scenario.name;
            return Err(format!(
                "{name} killed after step {step} ended as {:?} with {:?}, not as {:?} with {:?}",
                result.outcome, result.tools, baseline.outcome, baseline.tools
            )
            .into());
        }
    }
    Ok(baseline.steps + 1)
}
