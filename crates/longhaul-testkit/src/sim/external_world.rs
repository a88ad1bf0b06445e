//! The external world that tools act on. It records all effects and survives crashes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::spend_cap::CapCounterKey;
use longhaul_core::time::Timestamp;

use crate::fake_sandboxes::FakeSandboxes;

/// One effect on the external world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolEffect {
    /// Run that caused the effect.
    pub run: RunId,
    /// Run in the idempotency key of the call. It differs if a retry makes a call of a failed run.
    pub key_run: RunId,
    /// Call that caused the effect.
    pub call: CallId,
    /// Epoch of the driver.
    pub epoch: Epoch,
    /// Effect class of the call.
    pub class: EffectClass,
}

/// One model request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCall {
    pub run: RunId,
    pub turn: u32,
    pub attempt: u32,
}

/// The external world. Cheap to clone; clones share state.
#[derive(Debug, Clone, Default)]
pub struct ExternalWorld {
    /// Provider of all sandboxes.
    pub sandboxes: FakeSandboxes,
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
    raised_caps: BTreeMap<CapCounterKey, u64>,
    children: u128,
}

impl ExternalWorld {
    fn with_state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn next_child_id(&self) -> RunId {
        let number = self.with_state(|state| {
            state.children += 1;
            state.children
        });
        RunId::derive(number, "child", Timestamp::default())
    }

    /// Returns the result of a successful call.
    pub fn result(run: RunId, call: CallId) -> ToolOutput {
        ToolOutput::text(format!("{call} of {run} done"))
    }

    /// Records an effect and returns its result.
    pub fn perform(&self, effect: ToolEffect) -> ToolOutput {
        let output = Self::result(effect.run, effect.call);
        self.with_state(|state| state.effects.push(effect));
        output
    }

    /// Checks whether the call with this run in its idempotency key has had its effect.
    pub fn verify(&self, run: RunId, call: CallId) -> VerifyOutcome {
        let has_happened = self.with_state(|state| {
            let mut effects = state.effects.iter();
            effects.any(|effect| effect.key_run == run && effect.call == call)
        });
        if has_happened {
            VerifyOutcome::Happened(Self::result(run, call))
        } else {
            VerifyOutcome::NotHappened
        }
    }

    /// Returns whether a fencing-aware tool accepts this driver. It rejects a driver after
    /// another one with a higher epoch.
    pub fn admits(&self, run: RunId, call: CallId, epoch: Epoch) -> bool {
        self.with_state(|state| {
            let highest = state.fences.entry((run, call)).or_insert(epoch);
            *highest = epoch.max(*highest);
            *highest == epoch
        })
    }

    /// Records that a driver has received the result of a call.
    pub fn record_delivered(&self, run: RunId, call: CallId, epoch: Epoch) {
        self.with_state(|state| state.delivered.push((run, call, epoch)));
    }

    /// Records that a driver has stopped without a crash, after which all its results must be
    /// stored.
    pub fn record_driver_end(&self, run: RunId, epoch: Epoch) {
        self.with_state(|state| {
            let delivered =
                |delivery: &(RunId, CallId, Epoch)| (delivery.0, delivery.2) == (run, epoch);
            let delivered = state.delivered.iter().filter(|delivery| delivered(delivery));
            state.expected.extend(delivered.map(|(run, call, _)| (*run, *call)));
        });
    }

    /// Returns the results that drivers had received and did not lose in a crash.
    pub fn expected_results(&self) -> Vec<(RunId, CallId)> {
        self.with_state(|state| state.expected.clone())
    }

    pub fn record_violation(&self, violation: String) {
        self.with_state(|state| state.violations.push(violation));
    }

    /// Returns the recorded violations.
    pub fn violations(&self) -> Vec<String> {
        self.with_state(|state| state.violations.clone())
    }

    /// Records that somebody raises the limit of a spend cap.
    pub fn record_raised_cap(&self, key: CapCounterKey, limit: u64) {
        self.with_state(|state| state.raised_caps.insert(key, limit));
    }

    /// Returns the limits of the spend caps that somebody has raised.
    pub fn raised_caps(&self) -> BTreeMap<CapCounterKey, u64> {
        self.with_state(|state| state.raised_caps.clone())
    }

    pub fn record_model_call(&self, call: ModelCall) {
        self.with_state(|state| state.model_calls.push(call));
    }

    /// Returns all effects in order.
    pub fn effects(&self) -> Vec<ToolEffect> {
        self.with_state(|state| state.effects.clone())
    }

    /// Returns all model requests in order.
    pub fn model_calls(&self) -> Vec<ModelCall> {
        self.with_state(|state| state.model_calls.clone())
    }
}
