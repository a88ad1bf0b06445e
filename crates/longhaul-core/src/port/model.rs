//! A model: asked once, answers once, speaks on the way.
//!
//! Never: retries, remembers or decides. A failure is data that goes back.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::RunId;
use crate::message::{Message, Reply, StopReason};
use crate::raw::StoredText;
use crate::usage::{Hold, MicroUsd, ModelPricing, Usage};

/// A model that can be asked.
#[async_trait]
pub trait Model: Send + Sync + std::fmt::Debug {
    /// What this question may cost at worst, and what the model charges.
    fn estimate(&self, ask: &ModelRequest) -> CostEstimate;

    /// Answers once, streaming words to `ear` on the way.
    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure>;
}

/// What stands below this heading in a system prompt is of the moment, such as the
/// time: it is another in every run, and comparing it says nothing.
pub const CURRENT_STATE_HEADING: &str = "## Current state\n";

/// One question: the fold of everything before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRequest {
    /// For which run.
    pub run: RunId,
    /// Which turn, from 1.
    pub turn: u32,
    /// Which try of this turn, from 1.
    pub attempt: u32,
    /// The model, as `provider/model`.
    pub model: String,
    /// The system prompt.
    pub system: StoredText,
    /// The table of tools.
    pub tools: StoredText,
    /// The conversation, shared with the fold: asking copies pointers, not words.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The longest reply that is paid for.
    pub max_tokens: u64,
}

impl ModelRequest {
    /// The bytes of its conversation, about.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.estimated_bytes()).sum()
    }
}

/// What a question may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostEstimate {
    /// The worst case of this question.
    pub hold: Hold,
    /// What the heart needs to know to hold the next ones.
    pub pricing: ModelPricing,
}

impl CostEstimate {
    /// The quote of a model that charges this for the question.
    pub fn new(tariff: ModelPricing, ask: &ModelRequest) -> Self {
        let fixed = ask.system.size().saturating_add(ask.tools.size());
        let tariff =
            ModelPricing { fixed_tokens: fixed.div_ceil(tariff.bytes_per_token.max(1)), ..tariff };
        Self { hold: tariff.hold(ask.bytes(), ask.max_tokens), pricing: tariff }
    }
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelResponse {
    /// What was said.
    pub reply: Arc<Reply>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// What was used.
    pub usage: Usage,
    /// What it cost; none: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// The model, as it calls itself.
    pub model: String,
}

/// Who listens while a model speaks.
pub trait DeltaSink: Send + Sync {
    /// More words of the reply.
    fn on_text(&self, text: &str);
}
