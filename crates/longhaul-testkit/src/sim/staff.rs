//! Who drives in a history: the small stand-in of this crate, or the engine.
//!
//! Never: drives. It hires those who do, and opens the runs as they need them.

use std::fmt;

use async_trait::async_trait;
use longhaul_core::change::Blob;
use longhaul_core::id::{RunId, WorkerId};
use longhaul_core::port::store::{Claimed, OpenAsk};
use longhaul_core::task::TaskSpec;
use longhaul_run::Moment;

use crate::clock::SimClock;
use crate::sim::Fault;
use crate::sim::driver::{Drive, Going, Ports};

/// One claimed run in a worker's hands. To drop it is to crash.
#[async_trait(?Send)]
pub trait Driving: fmt::Debug {
    /// Does one small step. `choose` draws a number below its argument.
    async fn step(&mut self, choose: &mut dyn FnMut(usize) -> usize) -> Result<Going, Fault>;

    /// Whether a step would do anything now.
    fn is_ready(&self) -> bool {
        true
    }

    /// Whether it may go on although its worker was silent for long, or counts
    /// as dead already: it only tells what it has in its hands.
    fn goes_on_unheard(&self) -> bool;
}

/// What the drives of one worker share, and lose together.
#[async_trait(?Send)]
pub trait Process: fmt::Debug {
    /// A sign of life under this id has just arrived.
    async fn lives(&mut self, _worker: WorkerId) -> Result<(), Fault> {
        Ok(())
    }

    /// Others count it as dead: it goes on under another id.
    fn begins_anew(&mut self) {}

    /// Takes up a claimed run.
    fn take_up(&mut self, worker: WorkerId, claimed: &Claimed, moment: Moment) -> Box<dyn Driving>;
}

/// Who drives, and what their runs are opened with.
#[derive(Debug, Clone)]
pub struct Staff {
    /// Starts a worker's process.
    pub hire: fn(&Ports, &SimClock) -> Box<dyn Process>,
    /// What every run is pinned to, for drivers that look it up.
    pub definition: Option<Blob>,
}

impl Staff {
    /// The small driver of this crate.
    pub fn stand_in() -> Self {
        Self {
            hire: |ports, _| Box::new(StandIn(ports.clone())),
            definition: None,
        }
    }

    /// How a task is opened for these drivers.
    pub fn opening(&self, run: RunId, mut task: TaskSpec) -> Result<OpenAsk, Fault> {
        if let Some(definition) = &self.definition {
            task.definition = definition.hash();
        }
        Ok(OpenAsk {
            runs: vec![longhaul_run::submit::submit(run, task)?],
            blobs: self.definition.iter().cloned().collect(),
            idempotency: None,
        })
    }
}

/// A process of the small driver: its drives share nothing.
#[derive(Debug)]
struct StandIn(Ports);

impl Process for StandIn {
    fn take_up(&mut self, worker: WorkerId, claimed: &Claimed, moment: Moment) -> Box<dyn Driving> {
        Box::new(Drive::new(self.0.clone(), worker, claimed, moment))
    }
}

#[async_trait(?Send)]
impl Driving for Drive {
    async fn step(&mut self, choose: &mut dyn FnMut(usize) -> usize) -> Result<Going, Fault> {
        Self::step(self, choose).await
    }

    fn goes_on_unheard(&self) -> bool {
        self.is_telling()
    }
}
