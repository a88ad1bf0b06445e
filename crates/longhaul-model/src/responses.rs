//! Models behind the Responses API of OpenAI, and of servers that speak it.
//!
//! Never: asks the provider to keep a conversation. All of it is sent each time.

mod blocks;
mod draft;
mod include;
mod item;
mod talk;
mod wire;

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{Adapter, Parts, Wire};
use crate::counts::UsagePaths;
use crate::fields::Fields;
use crate::http::Http;
use crate::responses::draft::Reading;
use crate::responses::wire::{NAME_MAX, Responses, USAGE, WIRE};
use crate::settings::{BadSettings, Login, Settings};
use crate::table::Row;

/// The API refuses to be asked for fewer tokens.
const TOKENS_MIN: u64 = 16;

/// A model behind the Responses API. Times in headers are read by this clock.
pub fn model(
    http: Http,
    mut settings: Settings,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, BadSettings> {
    let include = include::settle(&mut settings)?;
    let dialect = settings.dialect(WIRE);
    let wire = Responses { include, dialect };
    Ok(Arc::new(Adapter::new(wire, http, settings, clock)?))
}

/// Whether a request can have the fields that the user has set, before anybody is asked.
pub fn check_fields(settings: &Settings) -> Result<(), BadSettings> {
    include::settle(&mut settings.clone())?;
    settings.check_fields(Responses::OURS)
}

impl Wire for Responses {
    type Draft = Reading;

    const USAGE: &'static UsagePaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("v1", "responses");

    const LOGIN: Login = Login::Bearer;

    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    /// The last ones would have the provider keep the conversation, or answer
    /// when nobody listens any more.
    const OURS: &'static [&'static str] = &[
        "model",
        "max_output_tokens",
        "input",
        "instructions",
        "stream",
        "tools",
        "store",
        "previous_response_id",
        "conversation",
        "background",
    ];

    const LIST: &'static str = "input";

    fn dialect(&self) -> &str {
        &self.dialect
    }

    fn prompt(&self, prompt: &str) -> RawJson {
        RawJson::of(&prompt)
    }

    /// Where `strict` is left out, the API may rewrite the schema to its own taste; ours is
    /// checked here anyway.
    fn tools(&self, tools: &[Row]) -> RawJson {
        let tools = tools.iter().map(|row| {
            let tool = row.tool(NAME_MAX, "parameters").raw();
            let tool = Fields::of_type("function").with_fields(tool.as_ref());
            tool.with("strict", &false)
        });
        RawJson::of(&tools.collect::<Vec<_>>())
    }

    fn head(&self, parts: &Parts<'_, ()>) -> Fields {
        Fields::default()
            .with("model", parts.model)
            .with("max_output_tokens", &parts.max_tokens.max(TOKENS_MIN))
            .with("stream", &true)
            .with("store", &false)
            .with_fields(parts.fields)
            .with_some("include", self.include.as_ref())
            .with_some("instructions", parts.prompt)
            .with_some("tools", parts.tools)
    }

    fn list(&self, parts: &Parts<'_, ()>) -> impl Serialize {
        let items = parts.pieces().map(|piece| piece.json.clone());
        items.collect::<Vec<_>>()
    }
}
