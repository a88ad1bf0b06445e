//! A model that reads its replies from a script: for tests, demos and benchmarks.
//!
//! Never: pretends to be AI, or remembers. The reply depends on the script, the
//! turn, the try and the conversation, and on nothing else.

mod error;
mod load;
mod parse;
mod place;
pub(crate) mod render;
pub(crate) mod reply;
pub(crate) mod script;

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{Answered, Ask, Ear, Model, Quote};
use longhaul_core::time::{Clock, Millis};
use longhaul_core::usage::Tariff;

use crate::prices::Entry;
use crate::scripted::render::Renderer;

pub use crate::scripted::error::{ScriptError, Spot};
pub use crate::scripted::parse::SCRIPT_BYTES_MAX;
pub use crate::scripted::place::{Loop, place};
pub(crate) use crate::scripted::reply::pieces;
pub use crate::scripted::script::Script;

/// What every place that shows a scripted model says of it.
pub const BANNER: &str = "scripted model: its replies are read from a script, no AI is asked";

/// A model that plays a script.
#[derive(Debug)]
pub struct ScriptedModel {
    /// With its provider, such as `scripted/tidy`.
    name: String,
    script: Script,
    tariff: Tariff,
    renderer: Renderer,
    clock: Arc<dyn Clock>,
}

impl ScriptedModel {
    /// The model `scripted/NAME`, which waits on this clock where its script says so.
    pub fn new(name: &str, script: Script, clock: Arc<dyn Clock>) -> Self {
        Self {
            name: format!("{}/{name}", reply::DIALECT),
            script,
            tariff: reply::FREE,
            renderer: Renderer::new(),
            clock,
        }
    }

    /// The same with what a user says of it: how much fits into it, and what it would
    /// cost. So a script can show what happens when a window is full.
    #[must_use]
    pub fn with(self, own: &Entry) -> Self {
        let said = own.tariff();
        Self {
            tariff: Tariff {
                price: own.price.or(self.tariff.price),
                window_tokens: own.window.unwrap_or(self.tariff.window_tokens),
                max_output_tokens: said.max_output_tokens,
                ..self.tariff
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

    async fn wait(&self, span: Millis) {
        if span > Millis::ZERO {
            self.clock.sleep(span).await;
        }
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn quote(&self, ask: &Ask) -> Quote {
        Quote::new(self.tariff, ask)
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        let place = self.script.place(ask.turn);
        let broken = |fault: &str| {
            let message = format!("{}: replies[{place}]: {fault}", self.name);
            Failure::new(FailureClass::InvalidRequest, message)
        };
        let line = self.script.replies.get(place);
        let line = line.ok_or_else(|| broken("there is no such reply"))?;
        self.wait(line.delay).await;
        if let Some(outage) = line.outage
            && let Some(failure) = reply::failure(outage, ask.attempt)
        {
            return Err(failure);
        }
        let said = reply::reply(line, ask, &self.renderer).map_err(|fault| broken(&fault))?;
        let said = Arc::new(said);
        for piece in reply::pieces(&said.text()) {
            ear.words(piece);
        }
        let usage = line.usage.unwrap_or_else(|| reply::guess(ask, &said));
        Ok(Answered {
            stop: reply::stop(&said),
            usage,
            cost: self.tariff.price.map(|price| price.of(usage)),
            model: self.name.clone(),
            reply: said,
        })
    }
}
