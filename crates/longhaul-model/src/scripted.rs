//! A model that reads its replies from a script: for tests, demos and benchmarks.
//!
//! Never: pretends to be AI, or remembers. The reply depends on the script, the
//! turn, the try and the conversation, and on nothing else.

mod error;
mod load;
mod parse;
pub(crate) mod render;
pub(crate) mod reply;
mod reply_index;
pub(crate) mod script;

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::time::{Clock, Millis};
use longhaul_core::usage::ModelPricing;

use crate::prices::ModelEntry;
use crate::scripted::render::Renderer;

pub use crate::scripted::error::{Position, ScriptError};
pub use crate::scripted::parse::SCRIPT_BYTES_MAX;
pub(crate) use crate::scripted::reply::text_chunks;
pub use crate::scripted::reply_index::{Loop, reply_index};
pub use crate::scripted::script::Script;

/// What every place that shows a scripted model says of it.
pub const BANNER: &str = "scripted model: its replies are read from a script, no AI is asked";

/// A model that plays a script.
#[derive(Debug)]
pub struct ScriptedModel {
    /// With its provider, such as `scripted/tidy`.
    name: String,
    script: Script,
    pricing: ModelPricing,
    renderer: Renderer,
    clock: Arc<dyn Clock>,
}

impl ScriptedModel {
    /// The model `scripted/NAME`, which waits on this clock where its script says so.
    pub fn new(name: &str, script: Script, clock: Arc<dyn Clock>) -> Self {
        Self {
            name: format!("{}/{name}", reply::API),
            script,
            pricing: reply::FREE_PRICING,
            renderer: Renderer::new(),
            clock,
        }
    }

    /// The same with what a user says of it: how much fits into it, and what it would
    /// cost. So a script can show what happens when a window is full.
    #[must_use]
    pub fn with_pricing(self, own: &ModelEntry) -> Self {
        let said = own.pricing();
        Self {
            pricing: ModelPricing {
                price: own.price.or(self.pricing.price),
                window_tokens: own.window.unwrap_or(self.pricing.window_tokens),
                max_output_tokens: said.max_output_tokens,
                ..self.pricing
            },
            ..self
        }
    }

    /// The model as it stands in an `Ask`, such as `scripted/tidy`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What this is, for people: its name and that it is no AI.
    pub fn describe(&self) -> String {
        let replies = self.script.len();
        format!("{} ({BANNER}; {replies} replies)", self.name)
    }

    async fn delay(&self, span: Millis) {
        if span > Millis::ZERO {
            self.clock.sleep(span).await;
        }
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn estimate(&self, ask: &ModelRequest) -> CostEstimate {
        CostEstimate::new(self.pricing, ask)
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let place = self.script.reply_index(ask.turn);
        let broken = |fault: &str| {
            let message = format!("{}: replies[{place}]: {fault}", self.name);
            Failure::new(FailureClass::InvalidRequest, message)
        };
        let line = self.script.replies.get(place);
        let line = line.ok_or_else(|| broken("there is no such reply"))?;
        self.delay(line.delay).await;
        if let Some(outage) = line.failure
            && let Some(failure) = reply::scripted_failure(outage, ask.attempt)
        {
            return Err(failure);
        }
        let said =
            reply::render_reply(line, ask, &self.renderer).map_err(|fault| broken(&fault))?;
        let said = Arc::new(said);
        for piece in reply::text_chunks(&said.text()) {
            ear.on_text(piece);
        }
        let usage = line.usage.unwrap_or_else(|| reply::estimate_usage(ask, &said));
        Ok(ModelResponse {
            stop: reply::stop_reason(&said),
            usage,
            cost: self.pricing.price.map(|price| price.cost(usage)),
            model: self.name.clone(),
            reply: said,
        })
    }
}
