//! The world that tools touch: it remembers everything that was done to it.
//!
//! Never: forgets in a crash. That is the point of it.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::event::tool::{Finding, ToolOutput};
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect::EffectClass;

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// By which run.
    pub run: RunId,
    /// In which call.
    pub call: CallId,
    /// Which start of it.
    pub attempt: u32,
    /// By which driver.
    pub epoch: Epoch,
    /// Of which class.
    pub class: EffectClass,
}

/// One question to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// By which run.
    pub run: RunId,
    /// In which turn.
    pub turn: u32,
    /// Which try.
    pub attempt: u32,
}

/// The world outside. Clones are the same world.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    deeds: Vec<Deed>,
    asked: Vec<Asked>,
}

impl Outside {
    fn with<T>(&self, use_it: impl FnOnce(&mut State) -> T) -> T {
        use_it(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does something to the world.
    pub fn act(&self, deed: Deed) -> ToolOutput {
        let output = ToolOutput::text(format!("{} of {} done", deed.call, deed.run));
        self.with(|state| state.deeds.push(deed));
        output
    }

    /// Looks whether a call has happened.
    pub fn verify(&self, run: RunId, call: CallId) -> Finding {
        let happened = self.with(|state| {
            let mut deeds = state.deeds.iter();
            deeds.any(|deed| deed.run == run && deed.call == call)
        });
        if happened {
            Finding::Happened(ToolOutput::text(format!("{call} of {run} done")))
        } else {
            Finding::NotHappened
        }
    }

    /// Remembers a question to the model.
    pub fn ask(&self, asked: Asked) {
        self.with(|state| state.asked.push(asked));
    }

    /// Everything that was done, in order.
    pub fn deeds(&self) -> Vec<Deed> {
        self.with(|state| state.deeds.clone())
    }

    /// Every question to the model, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.with(|state| state.asked.clone())
    }
}
