//! A model: asked once, answers once, speaks on the way.
//!
//! Never: retries, remembers or decides. A failure is data that goes back.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::RunId;
use crate::message::{Message, Reply, StopReason};
use crate::raw::Body;
use crate::usage::{Hold, Micros, Tariff, Usage};

/// A model that can be asked.
#[async_trait]
pub trait Model: Send + Sync + std::fmt::Debug {
    /// What this question may cost at worst, and what the model charges.
    fn quote(&self, ask: &Ask) -> Quote;

    /// Answers once, streaming words to `ear` on the way.
    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure>;
}

/// What stands below this heading in a system prompt is of the moment, such as the
/// time: it is another in every run, and comparing it says nothing.
pub const NOW_HEADING: &str = "## Current state\n";

/// One question: the fold of everything before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// For which run.
    pub run: RunId,
    /// Which turn, from 1.
    pub turn: u32,
    /// Which try of this turn, from 1.
    pub attempt: u32,
    /// The model, as `provider/model`.
    pub model: String,
    /// The system prompt.
    pub system: Body,
    /// The table of tools.
    pub tools: Body,
    /// The conversation, shared with the fold: asking copies pointers, not words.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The longest reply that is paid for.
    pub max_tokens: u64,
}

impl Ask {
    /// The bytes of its conversation, about.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.bytes()).sum()
    }
}

/// What a question may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// The worst case of this question.
    pub hold: Hold,
    /// What the heart needs to know to hold the next ones.
    pub tariff: Tariff,
}

impl Quote {
    /// The quote of a model that charges this for the question.
    pub fn new(tariff: Tariff, ask: &Ask) -> Self {
        let fixed = ask.system.size().saturating_add(ask.tools.size());
        let tariff = Tariff {
            fixed_tokens: fixed.div_ceil(tariff.bytes_per_token.max(1)),
            ..tariff
        };
        Self {
            hold: tariff.hold(ask.bytes(), ask.max_tokens),
            tariff,
        }
    }
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// What was said.
    pub reply: Arc<Reply>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// What was used.
    pub usage: Usage,
    /// What it cost; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Micros>,
    /// The model, as it calls itself.
    pub model: String,
}

/// Who listens while a model speaks.
pub trait Ear: Send + Sync {
    /// More words of the reply.
    fn words(&self, text: &str);
}
