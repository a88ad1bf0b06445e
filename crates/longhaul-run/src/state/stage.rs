//! Where a run stands between its first look and its end.
//!
//! Never: a field that only some stages need. Each carries its own data.

use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::id::{Epoch, GateId};
use longhaul_core::status::{Outcome, Output};
use longhaul_core::usage::Hold;
use serde::{Deserialize, Serialize};

use crate::state::call::Call;

pub use crate::state::pending_timer::PendingTimer;

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// The world was not looked at yet.
    New,
    /// The model is to be asked.
    ModelPending(ModelPending),
    /// The model has been asked.
    ModelRunning(ModelRunning),
    /// The calls of a reply are made.
    ToolsRunning(ToolsRunning),
    /// The run would end with this.
    Concluding(Concluding),
    /// Nothing follows.
    Ended(Outcome),
}

impl Stage {
    /// The stage in a word, for refusals.
    pub const fn description(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::ModelPending(_) => "about to ask the model",
            Self::ModelRunning(_) => "asking the model",
            Self::ToolsRunning(_) => "using tools",
            Self::Concluding(_) => "about to end",
            Self::Ended(_) => "at its end",
        }
    }
}

/// The model is to be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelPending {
    /// So often this turn was started.
    pub attempts: u32,
    /// So many of those failed in a way that counts.
    pub failures: u32,
    /// Not before this timer has fired.
    pub pending_timer: Option<PendingTimer>,
    /// The provider wants fewer requests: that is why it sleeps.
    pub rate_limited: bool,
    /// The run's attempt that begins then.
    pub retry_attempt: Option<u32>,
    /// The conversation must be shortened first.
    pub must_compact: bool,
    /// It has been shortened, and no turn has completed since.
    pub compacted: bool,
    /// The model that sums up has failed: the run's own does it.
    pub compactor_failed: bool,
    /// The world was looked at for this turn.
    #[serde(default)]
    pub perception_refreshed: bool,
}

/// The model has been asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRunning {
    /// Which turn.
    pub turn: u32,
    /// Which try of it.
    pub attempt: u32,
    /// How many of the tries before failed in a way that counts.
    pub failures: u32,
    /// By which driver.
    pub epoch: Epoch,
    /// What for.
    pub purpose: ModelCallPurpose,
    /// What is held for it.
    pub hold: Hold,
    /// The longest reply that is paid for.
    pub max_tokens: u64,
    /// The conversation has been shortened for this turn.
    pub compacted: bool,
    /// The model that is asked, where it is not the run's own.
    pub model: Option<String>,
    /// Nothing else can be done before the conversation is shortened.
    pub must_compact: bool,
    /// The model that sums up has failed: the run's own does it.
    pub compactor_failed: bool,
    /// The world was looked at for this turn.
    #[serde(default)]
    pub perception_refreshed: bool,
}

impl ModelRunning {
    /// The model that is asked, where this is the run's own.
    pub fn model_or<'a>(&'a self, own: &'a str) -> &'a str {
        self.model.as_deref().unwrap_or(own)
    }

    /// Whether the conversation is shortened before it must be: if that fails,
    /// the run goes on with what it has.
    pub fn is_early_compaction(&self) -> bool {
        self.purpose == ModelCallPurpose::Compact && !self.must_compact
    }
}

/// The calls of a reply are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolsRunning {
    /// Of which turn.
    pub turn: u32,
    /// In the model's order.
    pub calls: Vec<Call>,
    /// What `finish` gives, judged when the reply came; none: what the first rule reads.
    pub final_output: Option<Output>,
    /// The reply asked to end the run with this.
    pub finish_output: Option<Output>,
}

/// The run would end with this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concluding {
    /// The result.
    pub output: Output,
    /// The agent itself said that it is done: it is not kept open.
    pub by_finish_tool: bool,
    /// A person has agreed.
    pub approved: bool,
    /// The gate that asks whether it is good.
    pub gate: Option<GateId>,
    /// How long it stays open for a message.
    pub pending_timer: Option<PendingTimer>,
}

impl Concluding {
    /// The end that this output makes, which nobody has agreed to yet.
    pub const fn new(output: Output, finished: bool) -> Self {
        Self { output, by_finish_tool: finished, approved: false, gate: None, pending_timer: None }
    }
}
