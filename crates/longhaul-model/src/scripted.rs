//! A model that plays replies from a script, for tests, demos and benchmarks.
//!
//! Invariant: the model has no state. A reply depends only on the script, the turn, the attempt and
//! the conversation.

mod parse;
pub(crate) mod render;
pub(crate) mod reply;
pub(crate) mod script;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::time::{Clock, Millis};
use longhaul_core::usage::ModelPricing;

use crate::prices::ModelPriceEntry;
use crate::scripted::render::TemplateRenderer;
use crate::scripted::script::ScriptedUsage;

pub use crate::scripted::parse::SCRIPT_BYTES_MAX;
pub(crate) use crate::scripted::reply::text_chunks;
pub use crate::scripted::script::{Script, ScriptError, ScriptLoop, reply_index};

/// A model that plays the replies of a script.
#[derive(Debug)]
pub struct ScriptedModel {
    /// Full name of the model, such as `scripted/tidy`.
    name: String,
    script: Script,
    pricing: ModelPricing,
    renderer: TemplateRenderer,
    clock: Arc<dyn Clock>,
}

impl ScriptedModel {
    /// Creates the model `scripted/NAME`. The delays of the script are measured with `clock`.
    pub fn new(name: &str, script: Script, clock: Arc<dyn Clock>) -> Self {
        Self {
            name: format!("{}/{name}", reply::API),
            script,
            pricing: reply::FREE_PRICING,
            renderer: TemplateRenderer::new(),
            clock,
        }
    }

    /// Sets the price and limits of the model, so that a script can show what happens when a
    /// context window is full.
    #[must_use]
    pub fn with_pricing(self, entry: &ModelPriceEntry) -> Self {
        let entry_pricing = entry.pricing();
        Self {
            pricing: ModelPricing {
                price: entry.price.or(self.pricing.price),
                window_tokens: entry.window.unwrap_or(self.pricing.window_tokens),
                max_output_tokens: entry_pricing.max_output_tokens,
                ..self.pricing
            },
            ..self
        }
    }

    /// Returns the full name of the model, such as `scripted/tidy`.
    pub fn model_name(&self) -> &str {
        &self.name
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn estimate(&self, request: &ModelRequest) -> CostEstimate {
        CostEstimate::new(self.pricing, request)
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let index = self.script.reply_index(request.turn);
        let broken = |error: &str| {
            let message = format!("{}: replies[{index}]: {error}", self.name);
            Failure::new(FailureClass::InvalidRequest, message)
        };
        let line = self.script.replies.get(index);
        let line = line.ok_or_else(|| broken("no such reply"))?;
        if line.delay > Millis::ZERO {
            self.clock.sleep(line.delay).await;
        }
        if let Some(outage) = line.error
            && let Some(failure) = reply::failure_of_attempt(outage, request.attempt)
        {
            return Err(failure);
        }
        let rendered =
            reply::render_reply(line, request, &self.renderer).map_err(|error| broken(&error))?;
        let rendered = Arc::new(rendered);
        for piece in reply::text_chunks(&rendered.text()) {
            sink.on_text(piece);
        }
        let estimate = || reply::estimate_usage(request, &rendered);
        let usage = line.usage.map_or_else(estimate, ScriptedUsage::to_usage);
        Ok(ModelResponse {
            stop: reply::stop_reason(&rendered),
            usage,
            cost: self.pricing.price.map(|price| price.cost(usage)),
            model: self.name.clone(),
            reply: rendered,
            output: None,
        })
    }
}

impl Script {
    /// Loads and parses the script in this file.
    pub fn load_script_file(path: &Path) -> Result<Self, ScriptError> {
        let origin = path.display().to_string();
        let mut bytes = Vec::new();
        // One byte more than the maximum shows that the file is too large.
        let max_bytes = SCRIPT_BYTES_MAX as u64 + 1;
        let result = File::open(path).and_then(|file| file.take(max_bytes).read_to_end(&mut bytes));
        let to_error = |message: String| ScriptError { location: origin.clone(), message };
        result.map_err(|error| to_error(format!("the script can't be read: {error}")))?;
        let text = std::str::from_utf8(&bytes);
        // Checked first: truncation inside a character would be reported as invalid UTF-8.
        if bytes.len() > SCRIPT_BYTES_MAX {
            return Err(to_error(format!("the script is larger than {SCRIPT_BYTES_MAX} bytes")));
        }
        let text = text.map_err(|_| to_error("the script is not UTF-8".to_owned()))?;
        Self::parse_yaml(&origin, text)
    }
}
