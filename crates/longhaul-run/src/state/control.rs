//! The small part of a run: everything but the words.
//!
//! Never: grows with the length of a run. A decision copies it, so it must
//! cost the same at turn 1 and at turn 10,000.

use std::sync::Arc;

use longhaul_core::event::run::Compactor;
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{Epoch, GateId, RuleId, RunId, SteerId, TimerId};
use longhaul_core::policy::Policy;
use longhaul_core::policy::budget::{Budget, Cap};
use longhaul_core::policy::gate::{GateSpec, RulePattern};
use longhaul_core::status::{RunError, Wait};
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, MicroUsd, ModelPricing, Usage};
use serde::{Deserialize, Serialize};

use crate::state::call::Call;
use crate::state::loop_guard::LoopGuard;
use crate::state::output_retries::OutputRetries;
use crate::state::stage::{ModelRunning, Stage, ToolsRunning};

/// A conversation that was shortened has room for so many turns, or shortening
/// was in vain.
pub(crate) const COMPACTION_TURNS_MIN: u32 = 2;

/// Everything of a run but the words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Control {
    pub(crate) id: RunId,
    pub(crate) policy: Arc<Policy>,
    /// The caps in force, raised ones included.
    pub caps: Budget,
    pub(crate) pricing: ModelPricing,
    pub epoch: Epoch,
    /// Somebody drives it, or died doing so.
    pub(crate) driven: bool,
    /// The driver before this one died in the middle.
    pub(crate) crashed_epoch: Option<Epoch>,
    /// How many drivers have died since the run last made progress.
    #[serde(default)]
    pub crashes: u32,
    pub stage: Stage,
    pub idle: Option<Idle>,
    pub(crate) cancel: Option<String>,
    pub(crate) pause: Option<String>,
    /// It can't go on, and ends with this.
    pub(crate) pending_failure: Option<RunError>,
    /// A part is missing: somebody is asked at this gate.
    pub(crate) blocked_on: Option<GateId>,
    pub attempt: u32,
    /// Completed turns.
    pub turns: u32,
    /// The last turn that ended, completed or interrupted.
    pub(crate) turn: u32,
    pub steers: Vec<QueuedSteer>,
    pub gates: Vec<GateSpec>,
    pub(crate) approvals: Vec<(RuleId, RulePattern)>,
    pub totals: UsageTotals,
    /// The bytes of the conversation, for holds.
    pub(crate) transcript_bytes: u64,
    pub(crate) compactor: Option<Arc<Compactor>>,
    pub(crate) compaction: CompactionState,
    pub(crate) warned: Vec<Cap>,
    /// The account was empty, and nobody has filled it since.
    pub(crate) exhausted_cap: Option<Cap>,
    /// The model was cut off in the middle of its words, and nobody has spoken since.
    pub(crate) interrupted: bool,
    /// Whether it turns in circles.
    #[serde(default)]
    pub(crate) loop_guard: LoopGuard,
    /// Final answers that did not fit.
    #[serde(default)]
    pub(crate) output_retries: OutputRetries,
}

/// Why nobody drives a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Idle {
    /// It waits.
    Parked {
        /// For what.
        wait: Wait,
        /// The timer that ends the wait by itself.
        timer: Option<TimerId>,
    },
    /// A person has stopped it.
    Paused,
}

/// What shortening the conversation has come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionState {
    /// The completed turns when it was shortened last.
    pub last_turns: u32,
    /// So many times in a row nearly nothing was done in between.
    pub consecutive: u32,
    /// The bytes that were left, or that could not be made fewer.
    pub remaining_bytes: u64,
}

/// A message that waits to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedSteer {
    /// Which.
    pub id: SteerId,
    /// What it says.
    pub text: Arc<str>,
    /// When it is to be read.
    pub delivery: Delivery,
    /// A person was asked when it came: it is the answer.
    pub answers: bool,
}

/// What a run has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Tokens.
    pub usage: Usage,
    /// Money, as far as it is known.
    pub cost: MicroUsd,
    /// The cost of some call is not known.
    pub unpriced: bool,
    /// Time between claim and park.
    pub active: Millis,
    /// What is held for the call in flight.
    pub held: Hold,
    /// What was used by calls whose end nobody saw.
    pub lost: Hold,
}

impl Control {
    pub(crate) fn new(id: RunId, task: &TaskSpec) -> Self {
        Self {
            id,
            policy: Arc::new(task.policy.clone()),
            caps: task.policy.budget,
            pricing: ModelPricing::default(),
            epoch: Epoch::default(),
            driven: false,
            crashed_epoch: None,
            crashes: 0,
            stage: Stage::New,
            idle: None,
            cancel: None,
            pause: None,
            pending_failure: None,
            blocked_on: None,
            attempt: 1,
            turns: 0,
            turn: 0,
            steers: Vec::new(),
            gates: Vec::new(),
            approvals: Vec::new(),
            totals: UsageTotals::default(),
            transcript_bytes: 0,
            compactor: None,
            compaction: CompactionState::default(),
            warned: Vec::new(),
            exhausted_cap: None,
            interrupted: false,
            loop_guard: LoopGuard::default(),
            output_retries: OutputRetries::default(),
        }
    }

    /// What the model charges that was asked.
    pub(crate) fn pricing_for(&self, asking: &ModelRunning) -> ModelPricing {
        match (&asking.model, &self.compactor) {
            (Some(_), Some(compactor)) => compactor.pricing,
            (None, _) | (_, None) => self.pricing,
        }
    }

    /// The conversation was shortened to so many bytes.
    pub(crate) fn set_compacted_bytes(&mut self, bytes: u64) {
        self.transcript_bytes = bytes;
        self.compaction.remaining_bytes = bytes;
    }

    /// The turn that is under way or comes next, from 1, as the journal counts them.
    pub const fn turn(&self) -> u32 {
        self.turn + 1
    }

    pub(crate) fn has_interrupting_steer(&self) -> bool {
        self.steers.iter().any(|steer| steer.delivery == Delivery::Interrupt)
    }

    /// The calls being made, if that is what it does.
    pub(crate) const fn running_tools(&self) -> Option<&ToolsRunning> {
        if let Stage::ToolsRunning(acting) = &self.stage {
            return Some(acting);
        }
        None
    }

    pub(crate) const fn running_tools_mut(&mut self) -> Option<&mut ToolsRunning> {
        if let Stage::ToolsRunning(acting) = &mut self.stage {
            return Some(acting);
        }
        None
    }

    /// The calls being made; none where no tool is used.
    pub(crate) fn calls(&self) -> &[Call] {
        self.running_tools().map_or(&[], |acting| &acting.calls)
    }

    pub(crate) fn calls_mut(&mut self) -> &mut [Call] {
        self.running_tools_mut().map_or(&mut [], |acting| &mut acting.calls)
    }

    pub(crate) fn open_gate(&self, gate: GateId) -> Option<&GateSpec> {
        self.gates.iter().find(|open| open.id == gate)
    }

    /// Whether the driver has something under way outside.
    pub(crate) fn is_busy(&self) -> bool {
        match &self.stage {
            Stage::ModelRunning(asking) => asking.epoch == self.epoch,
            Stage::ToolsRunning(acting) => {
                acting.calls.iter().any(|call| call.is_running_in(self.epoch))
            }
            Stage::New | Stage::ModelPending(_) | Stage::Concluding(_) | Stage::Ended(_) => false,
        }
    }

    /// Whether something under way must end before the driver lets go. A call that may
    /// be repeated need not: the next driver begins it again.
    pub(crate) fn has_unrepeatable_work(&self) -> bool {
        let repeats = self.running_tools().is_some_and(|acting| {
            let mut started = acting.calls.iter();
            started.all(|call| {
                !call.is_running_in(self.epoch) || call.classification.class.may_repeat()
            })
        });
        self.is_busy() && !repeats
    }
}
