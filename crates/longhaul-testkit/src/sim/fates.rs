//! One seed, one history: who does what next is drawn from it, and nothing else.
//!
//! Never: two histories from one seed. A seed that fails is a test case.

use longhaul_core::event::entry::Entry;
use longhaul_core::id::RunId;
use longhaul_core::port::store::Opened;
use longhaul_core::time::Millis;

use crate::clock::SimClock;
use crate::conformance::harness::Harness;
use crate::ids::Ids;
use crate::mem_store::{Broken, MemStore};
use crate::sim::Fault;
use crate::sim::check::{Seen, check, check_debts};
use crate::sim::dice::Dice;
use crate::sim::driver::Ports;
use crate::sim::outside::Outside;
use crate::sim::shepherd::Crew;
use crate::sim::staff::Staff;
use crate::sim::{people, scenario};

/// What one history came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lived {
    /// Runs that ended.
    pub runs: usize,
    /// Events in their journals.
    pub events: usize,
    /// Workers that died.
    pub crashes: usize,
}

/// So many things happen before there is peace.
const TICKS: usize = 700;
const WORKERS: usize = 3;
const RUNS_MAX: usize = 8;

/// Lives through one seed over a store in memory. A `broken` store must be caught
/// by some seed.
pub async fn live(seed: u64, broken: Option<Broken>) -> Result<Lived, Fault> {
    let clock = SimClock::new();
    let store = match broken {
        None => MemStore::new(clock.clone()),
        Some(broken) => MemStore::broken(clock.clone(), broken),
    };
    live_over(seed, &Harness::new(store, clock)).await
}

/// Lives through one seed over any store, and checks every invariant at the end.
pub async fn live_over(seed: u64, harness: &Harness) -> Result<Lived, Fault> {
    live_by(Staff::stand_in(), seed, harness).await
}

/// The same in the hands of other drivers.
pub async fn live_by(staff: Staff, seed: u64, harness: &Harness) -> Result<Lived, Fault> {
    let outside = Outside::default();
    let ports = Ports {
        store: harness.store.clone(),
        shelves: harness.shelves.clone(),
        keyring: harness.keyring.clone(),
        outside: outside.clone(),
    };
    let ids = Ids::new(seed as u32);
    let clock = harness.clock.clone();
    let mut fate = Fate {
        dice: Dice::new(seed),
        crew: Crew::new(ports, clock, ids.clone(), scenario::inbox()?).of(staff),
        ids,
        opened: Vec::new(),
        crashes: 0,
    };
    for _ in 0..WORKERS {
        fate.crew.hire().await?;
    }
    for _ in 0..TICKS {
        fate.tick().await?;
    }
    let peace = fate.crew.bring_home().await;
    let seen = Seen {
        journals: fate.journals().await?,
        deeds: outside.deeds(),
        asked: outside.asked(),
    };
    let repairs = fate.crew.ports.shelves.repair().await?;
    let clean = repairs
        .is_clean()
        .then_some(())
        .ok_or_else(|| format!("rows crossed each other: {repairs:?}").into());
    let debts = check_debts(&fate.crew.ports, &seen.journals).await;
    peace
        .and(clean)
        .and_then(|()| check(&seen))
        .and(debts)
        .map_err(|fault| format!("{fault}\n{}", seen.timeline()))?;
    let events = seen.journals.iter().map(|(_, entries)| entries.len()).sum();
    Ok(Lived {
        runs: seen.journals.len(),
        events,
        crashes: fate.crashes,
    })
}

struct Fate {
    dice: Dice,
    crew: Crew,
    ids: Ids,
    opened: Vec<RunId>,
    crashes: usize,
}

impl Fate {
    /// The journal of every run that was acknowledged.
    async fn journals(&self) -> Result<Vec<(RunId, Vec<Entry>)>, Fault> {
        let mut journals = Vec::new();
        for run in &self.opened {
            let journal = people::journal(&self.crew.ports, *run).await?;
            if journal.is_empty() {
                return Err(format!("{run} was acknowledged and is missing").into());
            }
            journals.push((*run, journal));
        }
        Ok(journals)
    }

    /// One thing happens. Time always moves, so that facts of two ticks never
    /// bear the same time.
    async fn tick(&mut self) -> Result<(), Fault> {
        self.crew.clock.advance(Millis(1));
        let place = self.dice.below(self.crew.len());
        match self.dice.below(1_000) {
            0..650 => {
                let mut dice = self.dice.clone();
                self.crew
                    .step(place, &mut |bound| dice.below(bound))
                    .await?;
                self.dice = dice;
            }
            650..750 => self.crew.beat_all().await?,
            750..800 => self.submit().await?,
            800..850 => {
                people::sweep(&self.crew.ports).await?;
            }
            850..880 => {
                self.crew
                    .clock
                    .advance(Millis(self.dice.below(4_000) as u64));
            }
            880..890 => {
                self.crew
                    .clock
                    .advance(Millis::from_secs(10 + self.dice.below(100) as u64));
            }
            890..905 => {
                self.crashes += 1;
                self.crew.crash(place).await?;
            }
            905..915 => {
                let span = Millis::from_secs(5 + self.dice.below(30) as u64);
                self.crew.stall(place, span);
            }
            _ => self.somebody_says_something().await?,
        }
        Ok(())
    }

    async fn submit(&mut self) -> Result<(), Fault> {
        if self.opened.len() >= RUNS_MAX {
            return Ok(());
        }
        let id = self.ids.run();
        let task = scenario::random(&mut self.dice, id)?;
        let ask = self.crew.staff.opening(id, task)?;
        if matches!(self.crew.ports.store.open(ask).await?, Opened::New(_)) {
            self.opened.push(id);
        }
        Ok(())
    }

    async fn somebody_says_something(&mut self) -> Result<(), Fault> {
        let ports = self.crew.ports.clone();
        let way = self.dice.below(24);
        let gates = people::open_gates(&ports).await?;
        if !gates.is_empty() && self.dice.one_in(2) {
            let gate = self.dice.pick(&gates);
            people::answer(&ports, gate, way).await?;
            return Ok(());
        }
        if self.opened.is_empty() {
            return Ok(());
        }
        let run = *self.dice.pick(&self.opened);
        match self.dice.below(20) {
            0 => people::cancel(&ports, run).await?,
            1 | 2 => people::pause(&ports, run).await?,
            3..7 => people::resume(&ports, run).await?,
            7..14 => {
                people::steer(&ports, run, self.ids.steer(), way).await?;
            }
            _ => {}
        }
        Ok(())
    }
}
