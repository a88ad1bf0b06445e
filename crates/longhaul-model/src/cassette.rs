//! Cassettes: recorded model conversations that are replayed without a provider.
//!
//! A cassette records the requests to a `Model` and its responses, in a provider-neutral form that
//! includes the provider's own fields. A run that was recorded over one API replays byte for byte.
//!
//! Invariant: replay never contacts a model. In strict mode a request that differs from the
//! recording is an error.

mod diff;
mod format;
mod recorder;

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::Message;
use longhaul_core::port::model::{
    CURRENT_STATE_HEADING, CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse,
};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::redact::Redactor;
use longhaul_core::usage::{MicroUsd, ModelPricing, Price};

use crate::cassette::format::{RecordedExchange, RecordedResponse};
use crate::scripted::text_chunks;

pub use crate::cassette::format::{Cassette, CassetteError, CassetteHeader};
pub use crate::cassette::recorder::{CassetteRecorder, RecordingModel};

/// A model that replays the recorded responses of a cassette.
#[derive(Debug)]
pub struct CassetteModel {
    name: String,
    cassette: Cassette,
    redactor: Redactor,
    strict: bool,
}

impl CassetteModel {
    /// Creates a model that replies only to the recorded requests. `redactor` must be the redactor
    /// that was used for the recording.
    pub const fn new(name: String, cassette: Cassette, redactor: Redactor) -> Self {
        Self { name, cassette, redactor, strict: true }
    }

    /// Makes the model accept any request: the recorded response is chosen by turn and attempt
    /// alone.
    #[must_use]
    pub fn with_lenient_matching(self) -> Self {
        Self { strict: false, ..self }
    }

    /// Returns the recorded exchange for a request, chosen by turn and attempt.
    ///
    /// An attempt whose response was lost during the recording has no exchange. If a fallback model
    /// replied in the end, the failures of the first model are skipped: attempts are counted among
    /// the exchanges of the last model of the turn.
    fn find_exchange(&self, request: &ModelRequest) -> Result<&RecordedExchange, String> {
        let exchanges = self.cassette.exchanges_in_turn(request.turn);
        let model = exchanges.last().map(|last| &last.model);
        let exchanges = exchanges.iter().filter(|one| Some(&one.model) == model);
        let exchanges: Vec<&RecordedExchange> = exchanges.collect();
        let index = usize::try_from(request.attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        let last = exchanges.len().checked_sub(1);
        let exchange = last.and_then(|last| exchanges.get(index.min(last)).copied());
        exchange.ok_or_else(|| match self.cassette.last_recorded_turn() {
            0 => "the cassette is empty".to_owned(),
            turns => format!(
                "turn {} is not recorded: the cassette ends after turn {turns}",
                request.turn
            ),
        })
    }

    fn check(&self, exchange: &RecordedExchange, request: &ModelRequest) -> Result<(), String> {
        let Some(recorded_request) = exchange.request.as_ref().filter(|_| self.strict) else {
            return Ok(());
        };
        if let Some(system) = &recorded_request.system {
            let current_prompt = self.redactor.redact(inline_text_or_empty(&request.system));
            diff::compare_texts(
                "the system prompt",
                without_time_section(system),
                without_time_section(&current_prompt),
            )?;
        }
        if let Some(tools) = &recorded_request.tools {
            diff::compare_json(
                "the table of tools",
                tools.as_str(),
                &self.redactor.redact_json_strings(inline_text_or_empty(&request.tools)),
            )?;
        }
        let encode = |message: &Arc<Message>| {
            let message = RawJson::from_serialize(message);
            self.redactor.redact_json_strings(message.as_str())
        };
        let current_messages: Vec<String> =
            request.messages.iter().skip(recorded_request.reused_messages).map(encode).collect();
        let recorded: Vec<&str> =
            recorded_request.new_messages.iter().map(RawJson::as_str).collect();
        diff::compare_messages(recorded_request.reused_messages, &recorded, &current_messages)?;
        match request.messages.len() < recorded_request.reused_messages {
            true => Err(format!(
                "the request has {} messages, but the recording has {}",
                request.messages.len(),
                recorded_request.reused_messages + recorded_request.new_messages.len()
            )),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Model for CassetteModel {
    fn estimate(&self, request: &ModelRequest) -> CostEstimate {
        let pricing = ModelPricing { price: Some(Price::FREE), ..ModelPricing::default() };
        CostEstimate::new(pricing, request)
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let to_failure = |reason: String| {
            let message = format!("{}: {reason}", self.name);
            Failure::new(FailureClass::InvalidRequest, message)
        };
        let exchange = self.find_exchange(request).map_err(to_failure)?;
        self.check(exchange, request).map_err(|reason| {
            let turn = request.turn;
            to_failure(format!("turn {turn} differs from the recording\n{reason}"))
        })?;
        match &exchange.response {
            RecordedResponse::Reply(response) => {
                for piece in text_chunks(&response.reply.text()) {
                    sink.on_text(piece);
                }
                Ok(ModelResponse { cost: Some(MicroUsd::ZERO), ..response.clone() })
            }
            RecordedResponse::Failure(failure) => {
                Err(Failure { retry_after: None, ..failure.clone() })
            }
            RecordedResponse::Interrupted => Err(to_failure(format!(
                "turn {} was interrupted when it was recorded",
                request.turn
            ))),
        }
    }
}

/// Returns the system prompt without its section about the current time, which differs in every
/// request.
fn without_time_section(system_prompt: &str) -> &str {
    let until = system_prompt.rfind(CURRENT_STATE_HEADING);
    system_prompt[..until.unwrap_or(system_prompt.len())].trim_end()
}

/// Returns a text that is stored inline. For a text that is stored as a blob, returns an empty
/// string, which differs from every recorded text.
fn inline_text_or_empty(stored_text: &StoredText) -> &str {
    match stored_text {
        StoredText::Inline(text) => text,
        StoredText::Blob(_) => "",
    }
}
