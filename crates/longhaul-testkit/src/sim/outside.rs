//! The world that tools touch: it remembers everything that was done to it.
//!
//! Never: forgets in a crash. That is the point of it.

use std::collections::BTreeMap;
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
    fences: BTreeMap<(RunId, CallId), Epoch>,
    handed: Vec<(RunId, CallId, Epoch)>,
    owed: Vec<(RunId, CallId)>,
    wrongs: Vec<String>,
}

impl Outside {
    fn with<T>(&self, use_it: impl FnOnce(&mut State) -> T) -> T {
        use_it(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a call that was made comes to.
    pub fn result(run: RunId, call: CallId) -> ToolOutput {
        ToolOutput::text(format!("{call} of {run} done"))
    }

    /// Does something to the world.
    pub fn act(&self, deed: Deed) -> ToolOutput {
        let output = Self::result(deed.run, deed.call);
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
            Finding::Happened(Self::result(run, call))
        } else {
            Finding::NotHappened
        }
    }

    /// Whether a tool that heeds the fence lets this driver in: one that comes
    /// after another with a higher epoch is refused.
    pub fn admits(&self, run: RunId, call: CallId, epoch: Epoch) -> bool {
        self.with(|state| {
            let highest = state.fences.entry((run, call)).or_insert(epoch);
            *highest = epoch.max(*highest);
            *highest == epoch
        })
    }

    /// A result is in the hands of this driver.
    pub fn hand_over(&self, run: RunId, call: CallId, epoch: Epoch) {
        self.with(|state| state.handed.push((run, call, epoch)));
    }

    /// A driver has ended by itself: what it had in its hands it has told.
    pub fn parted(&self, run: RunId, epoch: Epoch) {
        self.with(|state| {
            let told = |handed: &(RunId, CallId, Epoch)| (handed.0, handed.2) == (run, epoch);
            let told = state.handed.iter().filter(|handed| told(handed));
            state.owed.extend(told.map(|(run, call, _)| (*run, *call)));
        });
    }

    /// Results that drivers had in their hands and did not lose in a crash.
    pub fn owed(&self) -> Vec<(RunId, CallId)> {
        self.with(|state| state.owed.clone())
    }

    /// Something was done that must not be.
    pub fn wrong(&self, what: String) {
        self.with(|state| state.wrongs.push(what));
    }

    /// What was done that must not be.
    pub fn wrongs(&self) -> Vec<String> {
        self.with(|state| state.wrongs.clone())
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
