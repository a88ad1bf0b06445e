//! The model port: sends one request to a language model, streams the text of the reply and returns
//! the complete reply.
//!
//! A model adapter does not retry and keeps no state. It returns failures as data.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::RunId;
use crate::message::{Message, Reply, StopReason};
use crate::raw::StoredText;
use crate::status::RunOutput;
use crate::usage::{BudgetAmount, MicroUsd, ModelPricing, Usage};

/// A language model that generates replies.
#[async_trait]
pub trait Model: Send + Sync + std::fmt::Debug {
    /// Estimates the worst-case cost of a request, and returns it with the model's pricing.
    fn estimate(&self, request: &ModelRequest) -> CostEstimate;

    /// Generates one reply to the request and streams its text to the sink.
    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure>;
}

/// Heading of the volatile section of a system prompt, such as the current time. The text below
/// it differs from run to run, so comparisons of prompts ignore it.
pub const CURRENT_STATE_HEADING: &str = "## Current state\n";

/// One model request, built from the events in the run's journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelRequest {
    /// Run that sends the request.
    pub run: RunId,
    /// Number of the turn that the request belongs to, from 1.
    pub turn: u32,
    /// Number of the attempt within the turn, from 1.
    pub attempt: u32,
    /// Model that receives the request, as `provider/model`.
    pub model: String,
    /// System prompt of the request.
    pub system: StoredText,
    /// Table of the tools that the model may call.
    pub tools: StoredText,
    /// Messages of the conversation, shared with the run's state: building a request copies
    /// pointers, not text.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// Maximum length of the reply in tokens. The budget is reserved for a reply of this length.
    pub max_tokens: u64,
}

impl ModelRequest {
    /// Returns the approximate size of the conversation in bytes.
    pub fn conversation_bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.estimated_bytes()).sum()
    }
}

/// Estimated cost of a model request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostEstimate {
    /// Worst-case cost of this request, to be held (reserved) in the budget.
    pub hold: BudgetAmount,
    /// Pricing of the model, from which the state machine computes the cost of later requests.
    pub pricing: ModelPricing,
}

impl CostEstimate {
    /// Estimates the cost of a request under the given pricing.
    pub fn new(pricing: ModelPricing, request: &ModelRequest) -> Self {
        let fixed_bytes =
            request.system.text_size_bytes().saturating_add(request.tools.text_size_bytes());
        let pricing = ModelPricing {
            fixed_tokens: fixed_bytes.div_ceil(pricing.bytes_per_token.max(1)),
            ..pricing
        };
        Self {
            hold: pricing.worst_case_hold(request.conversation_bytes(), request.max_tokens),
            pricing,
        }
    }
}

/// A complete reply of a model.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelResponse {
    /// Content of the model's reply.
    pub reply: Arc<Reply>,
    /// Reason why the model stopped generating.
    pub stop: StopReason,
    /// Tokens used by the request.
    pub usage: Usage,
    /// Cost of the request. `None` means that the cost is unknown.
    pub cost: Option<MicroUsd>,
    /// Model name as reported by the provider.
    pub model: String,
    /// Result of the run, if the model sets it directly, as a handler (a Rust function) does.
    /// `None` means that the result is derived from the reply.
    pub output: Option<RunOutput>,
}

/// Receives the text of a reply while it is generated.
pub trait DeltaSink: Send + Sync {
    /// Handles the next piece of the reply's text.
    fn on_text(&self, text_delta: &str);
}
