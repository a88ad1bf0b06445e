//! Where a run stands between its first look and its end.
//!
//! Never: a field that only some stages need. Each carries its own data.

use longhaul_core::event::turn::Purpose;
use longhaul_core::id::{Epoch, GateId};
use longhaul_core::status::{Outcome, Output};
use longhaul_core::usage::Hold;
use serde::{Deserialize, Serialize};

use crate::state::call::Call;

pub use crate::state::sleep::Sleep;

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// The world was not looked at yet.
    New,
    /// The model is to be asked.
    Thinking(Thinking),
    /// The model has been asked.
    Asking(Asking),
    /// The calls of a reply are made.
    Acting(Acting),
    /// The run would end with this.
    Concluding(Concluding),
    /// Nothing follows.
    Ended(Outcome),
}

impl Stage {
    /// The stage in a word, for refusals.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Thinking(_) => "about to ask the model",
            Self::Asking(_) => "asking the model",
            Self::Acting(_) => "using tools",
            Self::Concluding(_) => "about to end",
            Self::Ended(_) => "at its end",
        }
    }
}

/// The model is to be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinking {
    /// So often this turn was started.
    pub tries: u32,
    /// So many of those failed in a way that counts.
    pub failures: u32,
    /// Not before this timer has fired.
    pub sleep: Option<Sleep>,
    /// The provider wants fewer requests: that is why it sleeps.
    pub limited: bool,
    /// The run's attempt that begins then.
    pub retry: Option<u32>,
    /// The conversation must be shortened first.
    pub overflow: bool,
    /// It has been shortened, and no turn has completed since.
    pub shortened: bool,
    /// The model that sums up has failed: the run's own does it.
    pub unhelped: bool,
    /// The world was looked at for this turn.
    #[serde(default)]
    pub looked: bool,
}

/// The model has been asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// Which turn.
    pub turn: u32,
    /// Which try of it.
    pub attempt: u32,
    /// How many of the tries before failed in a way that counts.
    pub failures: u32,
    /// By which driver.
    pub epoch: Epoch,
    /// What for.
    pub purpose: Purpose,
    /// What is held for it.
    pub hold: Hold,
    /// The longest reply that is paid for.
    pub max_tokens: u64,
    /// The conversation has been shortened for this turn.
    pub shortened: bool,
    /// The model that is asked, where it is not the run's own.
    pub model: Option<String>,
    /// Nothing else can be done before the conversation is shortened.
    pub forced: bool,
    /// The model that sums up has failed: the run's own does it.
    pub unhelped: bool,
    /// The world was looked at for this turn.
    #[serde(default)]
    pub looked: bool,
}

impl Asking {
    /// The model that is asked, where this is the run's own.
    pub fn asks<'a>(&'a self, own: &'a str) -> &'a str {
        self.model.as_deref().unwrap_or(own)
    }

    /// Whether the conversation is shortened before it must be: if that fails,
    /// the run goes on with what it has.
    pub fn is_early(&self) -> bool {
        self.purpose == Purpose::Compact && !self.forced
    }
}

/// The calls of a reply are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acting {
    /// Of which turn.
    pub turn: u32,
    /// In the model's order.
    pub calls: Vec<Call>,
    /// What `finish` gives, judged when the reply came; none: what the first rule reads.
    pub judged: Option<Output>,
    /// The reply asked to end the run with this.
    pub finish: Option<Output>,
}

/// The run would end with this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concluding {
    /// The result.
    pub output: Output,
    /// The agent itself said that it is done: it is not kept open.
    pub finished: bool,
    /// A person has agreed.
    pub agreed: bool,
    /// The gate that asks whether it is good.
    pub gate: Option<GateId>,
    /// How long it stays open for a message.
    pub sleep: Option<Sleep>,
}

impl Concluding {
    /// The end that this output makes, which nobody has agreed to yet.
    pub const fn new(output: Output, finished: bool) -> Self {
        Self {
            output,
            finished,
            agreed: false,
            gate: None,
            sleep: None,
        }
    }
}
