//! The world that tools touch: it remembers everything that was done to it.
//!
//! Never: forgets in a crash. That is the point of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect::EffectClass;

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolEffect {
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
pub struct ModelCall {
    /// By which run.
    pub run: RunId,
    /// In which turn.
    pub turn: u32,
    /// Which try.
    pub attempt: u32,
}

/// The world outside. Clones are the same world.
#[derive(Debug, Clone, Default)]
pub struct ExternalWorld {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    effects: Vec<ToolEffect>,
    model_calls: Vec<ModelCall>,
    fences: BTreeMap<(RunId, CallId), Epoch>,
    delivered: Vec<(RunId, CallId, Epoch)>,
    expected: Vec<(RunId, CallId)>,
    violations: Vec<String>,
}

impl ExternalWorld {
    fn with_state<T>(&self, use_it: impl FnOnce(&mut State) -> T) -> T {
        use_it(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a call that was made comes to.
    pub fn result(run: RunId, call: CallId) -> ToolOutput {
        ToolOutput::text(format!("{call} of {run} done"))
    }

    /// Does something to the world.
    pub fn perform(&self, deed: ToolEffect) -> ToolOutput {
        let output = Self::result(deed.run, deed.call);
        self.with_state(|state| state.effects.push(deed));
        output
    }

    /// Looks whether a call has happened.
    pub fn verify(&self, run: RunId, call: CallId) -> VerifyOutcome {
        let happened = self.with_state(|state| {
            let mut deeds = state.effects.iter();
            deeds.any(|deed| deed.run == run && deed.call == call)
        });
        if happened {
            VerifyOutcome::Happened(Self::result(run, call))
        } else {
            VerifyOutcome::NotHappened
        }
    }

    /// Whether a tool that heeds the fence lets this driver in: one that comes
    /// after another with a higher epoch is refused.
    pub fn admits(&self, run: RunId, call: CallId, epoch: Epoch) -> bool {
        self.with_state(|state| {
            let highest = state.fences.entry((run, call)).or_insert(epoch);
            *highest = epoch.max(*highest);
            *highest == epoch
        })
    }

    /// A result is in the hands of this driver.
    pub fn record_delivered(&self, run: RunId, call: CallId, epoch: Epoch) {
        self.with_state(|state| state.delivered.push((run, call, epoch)));
    }

    /// A driver has ended by itself: what it had in its hands it has told.
    pub fn record_driver_end(&self, run: RunId, epoch: Epoch) {
        self.with_state(|state| {
            let told = |handed: &(RunId, CallId, Epoch)| (handed.0, handed.2) == (run, epoch);
            let told = state.delivered.iter().filter(|handed| told(handed));
            state.expected.extend(told.map(|(run, call, _)| (*run, *call)));
        });
    }

    /// Results that drivers had in their hands and did not lose in a crash.
    pub fn expected_results(&self) -> Vec<(RunId, CallId)> {
        self.with_state(|state| state.expected.clone())
    }

    /// Something was done that must not be.
    pub fn record_violation(&self, what: String) {
        self.with_state(|state| state.violations.push(what));
    }

    /// What was done that must not be.
    pub fn violations(&self) -> Vec<String> {
        self.with_state(|state| state.violations.clone())
    }

    /// Remembers a question to the model.
    pub fn record_model_call(&self, asked: ModelCall) {
        self.with_state(|state| state.model_calls.push(asked));
    }

    /// Everything that was done, in order.
    pub fn effects(&self) -> Vec<ToolEffect> {
        self.with_state(|state| state.effects.clone())
    }

    /// Every question to the model, in order.
    pub fn model_calls(&self) -> Vec<ModelCall> {
        self.with_state(|state| state.model_calls.clone())
    }
}
