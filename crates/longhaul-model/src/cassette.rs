//! Conversations with models on tape: recorded once, replayed without asking anybody.
//!
//! A cassette stands at the level of the port: what was asked and what was said, in
//! the form that no provider owns, with the provider's own fields in it. So a run
//! that was recorded over one wire replays to the byte.
//!
//! Never: asks a model, or answers another question than the one that was recorded.

mod diff;
mod record;
mod tape;

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::message::Message;
use longhaul_core::port::model::{Answered, Ask, Ear, Model, NOW_HEADING, Quote};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::raw::{Body, RawJson};
use longhaul_core::redact::Redactor;
use longhaul_core::usage::{Micros, Price, Tariff};

use crate::cassette::tape::{Answer, Exchange};
use crate::scripted::pieces;

pub use crate::cassette::record::{Recorder, Recording};
pub use crate::cassette::tape::{Header, Tape, TapeError};

/// A model that answers from a cassette.
#[derive(Debug)]
pub struct CassetteModel {
    name: String,
    tape: Tape,
    redactor: Redactor,
    strict: bool,
}

impl CassetteModel {
    /// Answers from this tape only what was asked when it was recorded; the redactor is
    /// the one that took secrets out of it.
    pub const fn new(name: String, tape: Tape, redactor: Redactor) -> Self {
        Self {
            name,
            tape,
            redactor,
            strict: true,
        }
    }

    /// The same, but whatever is asked: the turn alone says what is answered.
    #[must_use]
    pub fn loose(self) -> Self {
        Self {
            strict: false,
            ..self
        }
    }

    /// The exchange of this question. A try that was lost when it was recorded has
    /// no answer, and where another model was asked in the end nobody waits for the
    /// first, so tries are counted among the answers of the last one.
    fn exchange(&self, ask: &Ask) -> Result<&Exchange, String> {
        let of_turn = self.tape.of_turn(ask.turn);
        let model = of_turn.last().map(|last| &last.model);
        let of_turn = of_turn.iter().filter(|one| Some(&one.model) == model);
        let of_turn: Vec<&Exchange> = of_turn.collect();
        let place = usize::try_from(ask.attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        let last = of_turn.len().checked_sub(1);
        let exchange = last.and_then(|last| of_turn.get(place.min(last)).copied());
        exchange.ok_or_else(|| match self.tape.turns() {
            0 => "nothing is recorded on it".to_owned(),
            turns => format!("turn {} is not on it: it ends after turn {turns}", ask.turn),
        })
    }

    fn check(&self, exchange: &Exchange, ask: &Ask) -> Result<(), String> {
        let Some(question) = exchange.question.as_ref().filter(|_| self.strict) else {
            return Ok(());
        };
        if let Some(system) = &question.system {
            let now = self.redactor.redact(words(&ask.system));
            diff::texts("the system prompt", steady(system), steady(&now))?;
        }
        if let Some(tools) = &question.tools {
            diff::json(
                "the table of tools",
                tools.as_str(),
                &self.redactor.redact_json_texts(words(&ask.tools)),
            )?;
        }
        let spelled = |message: &Arc<Message>| {
            let message = RawJson::of(message);
            self.redactor.redact_json_texts(message.as_str())
        };
        let now: Vec<String> = ask
            .messages
            .iter()
            .skip(question.keeps)
            .map(spelled)
            .collect();
        let recorded: Vec<&str> = question.adds.iter().map(RawJson::as_str).collect();
        diff::messages(question.keeps, &recorded, &now)?;
        match ask.messages.len() < question.keeps {
            true => Err(format!(
                "{} messages are asked, {} were recorded",
                ask.messages.len(),
                question.keeps + question.adds.len()
            )),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Model for CassetteModel {
    fn quote(&self, ask: &Ask) -> Quote {
        let tariff = Tariff {
            price: Some(Price::FREE),
            ..Tariff::default()
        };
        Quote::new(tariff, ask)
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        let refuse = |why: String| {
            let message = format!("{}: {why}", self.name);
            Failure::new(FailureClass::InvalidRequest, message)
        };
        let exchange = self.exchange(ask).map_err(refuse)?;
        self.check(exchange, ask).map_err(|why| {
            let turn = ask.turn;
            refuse(format!(
                "turn {turn} asks something else than was recorded\n{why}"
            ))
        })?;
        match &exchange.answer {
            Answer::Reply(replied) => {
                for piece in pieces(&replied.reply.text()) {
                    ear.words(piece);
                }
                Ok(Answered {
                    cost: Some(Micros::ZERO),
                    ..replied.clone()
                })
            }
            Answer::Failure(failure) => Err(Failure {
                retry_after: None,
                ..failure.clone()
            }),
            Answer::CutOff => Err(refuse(format!(
                "in turn {} a person cut the model off when it was recorded",
                ask.turn
            ))),
        }
    }
}

/// A system prompt without what is of the moment in it: the time is never the same.
fn steady(system: &str) -> &str {
    let until = system.rfind(NOW_HEADING);
    system[..until.unwrap_or(system.len())].trim_end()
}

/// A text that is spelled out; a blob's is not, and is then another.
fn words(body: &Body) -> &str {
    match body {
        Body::Inline(text) => text,
        Body::Blob(_) => "",
    }
}
