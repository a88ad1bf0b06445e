//! Conversations with models on tape: recorded once, replayed without asking anybody.
//!
//! A cassette stands at the level of the port: what was asked and what was said, in
//! the form that no provider owns, with the provider's own fields in it. So a run
//! that was recorded over one wire replays to the byte.
//!
//! Never: asks a model, or answers another question than the one that was recorded.

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

use crate::cassette::format::{Exchange, RecordedResponse};
use crate::scripted::text_chunks;

pub use crate::cassette::format::{Cassette, CassetteError, Header};
pub use crate::cassette::recorder::{Recorder, RecordingModel};

/// A model that answers from a cassette.
#[derive(Debug)]
pub struct CassetteModel {
    name: String,
    cassette: Cassette,
    redactor: Redactor,
    strict: bool,
}

impl CassetteModel {
    /// Answers from this tape only what was asked when it was recorded; the redactor is
    /// the one that took secrets out of it.
    pub const fn new(name: String, tape: Cassette, redactor: Redactor) -> Self {
        Self { name, cassette: tape, redactor, strict: true }
    }

    /// The same, but whatever is asked: the turn alone says what is answered.
    #[must_use]
    pub fn lenient(self) -> Self {
        Self { strict: false, ..self }
    }

    /// The exchange of this question. A try that was lost when it was recorded has
    /// no answer, and where another model was asked in the end nobody waits for the
    /// first, so tries are counted among the answers of the last one.
    fn find_exchange(&self, ask: &ModelRequest) -> Result<&Exchange, String> {
        let of_turn = self.cassette.exchanges_of(ask.turn);
        let model = of_turn.last().map(|last| &last.model);
        let of_turn = of_turn.iter().filter(|one| Some(&one.model) == model);
        let of_turn: Vec<&Exchange> = of_turn.collect();
        let place = usize::try_from(ask.attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        let last = of_turn.len().checked_sub(1);
        let exchange = last.and_then(|last| of_turn.get(place.min(last)).copied());
        exchange.ok_or_else(|| match self.cassette.last_turn() {
            0 => "nothing is recorded on it".to_owned(),
            turns => format!("turn {} is not on it: it ends after turn {turns}", ask.turn),
        })
    }

    fn check_request(&self, exchange: &Exchange, ask: &ModelRequest) -> Result<(), String> {
        let Some(question) = exchange.request.as_ref().filter(|_| self.strict) else {
            return Ok(());
        };
        if let Some(system) = &question.system {
            let now = self.redactor.redact(inline_text(&ask.system));
            diff::texts(
                "the system prompt",
                without_now_section(system),
                without_now_section(&now),
            )?;
        }
        if let Some(tools) = &question.tools {
            diff::json(
                "the table of tools",
                tools.as_str(),
                &self.redactor.redact_json_strings(inline_text(&ask.tools)),
            )?;
        }
        let spelled = |message: &Arc<Message>| {
            let message = RawJson::from_serialize(message);
            self.redactor.redact_json_strings(message.as_str())
        };
        let now: Vec<String> =
            ask.messages.iter().skip(question.reused_messages).map(spelled).collect();
        let recorded: Vec<&str> = question.new_messages.iter().map(RawJson::as_str).collect();
        diff::messages(question.reused_messages, &recorded, &now)?;
        match ask.messages.len() < question.reused_messages {
            true => Err(format!(
                "{} messages are asked, {} were recorded",
                ask.messages.len(),
                question.reused_messages + question.new_messages.len()
            )),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Model for CassetteModel {
    fn estimate(&self, ask: &ModelRequest) -> CostEstimate {
        let tariff = ModelPricing { price: Some(Price::FREE), ..ModelPricing::default() };
        CostEstimate::new(tariff, ask)
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let refuse = |why: String| {
            let message = format!("{}: {why}", self.name);
            Failure::new(FailureClass::InvalidRequest, message)
        };
        let exchange = self.find_exchange(ask).map_err(refuse)?;
        self.check_request(exchange, ask).map_err(|why| {
            let turn = ask.turn;
            refuse(format!("turn {turn} asks something else than was recorded\n{why}"))
        })?;
        match &exchange.response {
            RecordedResponse::Reply(replied) => {
                for piece in text_chunks(&replied.reply.text()) {
                    ear.on_text(piece);
                }
                Ok(ModelResponse { cost: Some(MicroUsd::ZERO), ..replied.clone() })
            }
            RecordedResponse::Failure(failure) => {
                Err(Failure { retry_after: None, ..failure.clone() })
            }
            RecordedResponse::Interrupted => Err(refuse(format!(
                "in turn {} a person cut the model off when it was recorded",
                ask.turn
            ))),
        }
    }
}

/// A system prompt without what is of the moment in it: the time is never the same.
fn without_now_section(system: &str) -> &str {
    let until = system.rfind(CURRENT_STATE_HEADING);
    system[..until.unwrap_or(system.len())].trim_end()
}

/// A text that is spelled out; a blob's is not, and is then another.
fn inline_text(body: &StoredText) -> &str {
    match body {
        StoredText::Inline(text) => text,
        StoredText::Blob(_) => "",
    }
}
