//! Reads from the state of a run whether its model provider has an outage, and whether a failed
//! model call belongs to that outage.

use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::policy::retry::is_provider_unavailable;

use crate::state::control::ControlState;
use crate::state::stage::{ProviderOutage, RunStage, TurnState};

impl ControlState {
    /// Returns whether the run waits for the provider after this failure, instead of counting it as
    /// a failed attempt. During an outage every transient failure belongs to the outage. A fallback
    /// model whose key or account is refused does not end the wait for the preferred model.
    pub(crate) fn must_wait_for_provider(&self, failure: &Failure) -> bool {
        let is_refused_access = matches!(failure.class, FailureClass::Auth | FailureClass::Quota);
        let is_part_of_outage = is_provider_unavailable(failure)
            || (self.current_outage().is_some() && failure.class.is_transient())
            || (is_refused_access && self.unavailable_model().is_some());
        self.policy.retry.outage.0 > 0 && is_part_of_outage
    }

    /// Returns what the model calls of the current turn have in common. `None` if the run neither
    /// calls the model nor is about to.
    fn turn_state(&self) -> Option<&TurnState> {
        if let RunStage::ModelRunning(running) = &self.stage {
            return Some(&running.turn);
        }
        self.pending_call().map(|pending| &pending.turn)
    }

    /// Returns the outage of the provider for which the run waits or during which it calls the
    /// model. `None` means that no outage is known.
    pub(crate) fn current_outage(&self) -> Option<ProviderOutage> {
        self.turn_state()?.outage
    }

    /// Returns the class of the failure that made the run switch to its fallback model instead of
    /// waiting for the provider of the preferred model. `None` means that there was no such switch
    /// in this turn, or that the run has waited for the provider since.
    pub(crate) fn unavailable_model(&self) -> Option<FailureClass> {
        self.turn_state()?.unavailable_model
    }

    /// Returns the value of `unavailable_model` after this failed model call: the value before, if
    /// there is one, or else the class of the failure if it makes the run switch to the fallback
    /// model instead of waiting.
    pub(crate) fn unavailable_model_after(&self, failed: &TurnFailed) -> Option<FailureClass> {
        let class = failed.failure.class;
        let is_switch = failed.fallback_model.is_some() && class.is_transient();
        let is_switch_due_to_outage = is_switch && self.must_wait_for_provider(&failed.failure);
        self.unavailable_model().or(is_switch_due_to_outage.then_some(class))
    }
}
