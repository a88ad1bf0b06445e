//! Kill it before and after every append, go on, end the same.
//!
//! Never: a lucky moment. Every point between two writes is tried.

use longhaul_core::event::entry::Entry;
use longhaul_core::status::Outcome;
use longhaul_core::time::Millis;

use crate::conformance::harness::Harness;
use crate::ids::Ids;
use crate::sim::Fault;
use crate::sim::check::{Seen, check, check_debts};
use crate::sim::driver::Ports;
use crate::sim::outside::Outside;
use crate::sim::people;
use crate::sim::scenario::{self, Scenario};
use crate::sim::shepherd::{Crew, TTL};
use crate::sim::staff::Staff;

/// Where a driver dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// It lives to the end.
    None,
    /// After this many small steps of its own.
    AfterSteps(usize),
}

/// How a scenario ended.
#[derive(Debug)]
pub struct Ended {
    /// The whole journal.
    pub journal: Vec<Entry>,
    /// The outcome.
    pub outcome: Outcome,
    /// The tools that the model had called.
    pub tools: Vec<String>,
    /// The small steps that the first driver made.
    pub steps: usize,
    /// The batches that drivers wrote: each is a commit.
    pub written: usize,
}

/// Plays a scenario over a fresh store, with one death, to its end.
pub async fn play(harness: &Harness, scenario: &Scenario, death: Death) -> Result<Ended, Fault> {
    play_by(Staff::stand_in(), harness, scenario, death).await
}

/// The same in the hands of other drivers.
pub async fn play_by(
    staff: Staff,
    harness: &Harness,
    scenario: &Scenario,
    death: Death,
) -> Result<Ended, Fault> {
    let outside = Outside::default();
    let ports = Ports {
        store: harness.store.clone(),
        shelves: harness.shelves.clone(),
        keyring: harness.keyring.clone(),
        outside: outside.clone(),
    };
    let ids = Ids::new(1);
    let run = ids.run();
    let task = scenario::task(run, &scenario.script, scenario.policy.clone())?;
    ports.store.open(staff.opening(run, task)?).await?;
    let mut crew = Crew::new(
        ports.clone(),
        harness.clock.clone(),
        ids,
        scenario::inbox()?,
    )
    .of(staff);
    crew.hire().await?;
    let steps = until_death(&mut crew, death).await?;
    if death != Death::None {
        crew.crash_all();
        crew.hire().await?;
        // The dead one is noticed when the new one has been there for a while.
        for _ in 0..5 {
            harness.clock.advance(Millis(TTL.0 / 3));
            crew.beat_all().await?;
        }
    }
    crew.bring_home().await?;
    let journal = people::journal(&ports, run).await?;
    let folded = people::fold(&ports, run).await?.ok_or("the run is gone")?;
    let seen = Seen {
        journals: vec![(run, journal.clone())],
        deeds: outside.deeds(),
        asked: outside.asked(),
    };
    check(&seen)?;
    check_debts(&ports, &seen.journals).await?;
    let outcome = folded.outcome().cloned().ok_or("the run never ended")?;
    Ok(Ended {
        journal,
        outcome,
        tools: folded.tools_called().to_vec(),
        steps,
        written: crew.written,
    })
}

/// The first driver goes on until it dies, or until everything rests; people
/// and timers are quick.
async fn until_death(crew: &mut Crew, death: Death) -> Result<usize, Fault> {
    let mut choose = |_| 0;
    let mut steps = 0;
    let mut idle = 0;
    while idle < 3 {
        if death == Death::AfterSteps(steps) {
            return Ok(steps);
        }
        crew.clock.advance(Millis(1));
        if crew.step(0, &mut choose).await? {
            steps += 1;
            idle = 0;
            continue;
        }
        idle += 1;
        crew.beat_all().await?;
        for gate in people::open_gates(&crew.ports).await? {
            people::answer(&crew.ports, &gate, 1).await?;
        }
        if let Some(due) = crew.ports.shelves.next_due().await?
            && due.since(longhaul_core::time::Clock::now(&crew.clock)) < Millis::from_secs(9)
        {
            crew.clock
                .advance(due.since(longhaul_core::time::Clock::now(&crew.clock)));
            crew.clock.advance(Millis(1));
        }
        people::sweep(&crew.ports).await?;
    }
    Ok(steps)
}

/// Kills the driver between any two of its steps, which is before and after
/// every effect and every append, and expects the same end. `fresh` gives an
/// empty store for each life. How many lives were lived.
pub async fn kill_after_every_append<Fresh, Made>(
    scenario: &Scenario,
    fresh: Fresh,
) -> Result<usize, Fault>
where
    Fresh: Fn() -> Made,
    Made: Future<Output = Harness>,
{
    kill_everywhere(&Staff::stand_in(), scenario, fresh).await
}

/// The same in the hands of other drivers.
pub async fn kill_everywhere<Fresh, Made>(
    staff: &Staff,
    scenario: &Scenario,
    fresh: Fresh,
) -> Result<usize, Fault>
where
    Fresh: Fn() -> Made,
    Made: Future<Output = Harness>,
{
    let whole = play_by(staff.clone(), &fresh().await, scenario, Death::None).await?;
    for cut in 0..=whole.steps {
        let death = Death::AfterSteps(cut);
        let ended = play_by(staff.clone(), &fresh().await, scenario, death)
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
