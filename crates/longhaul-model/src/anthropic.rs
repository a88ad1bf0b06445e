//! Models behind the Messages API of Anthropic, and of servers that speak it.
//!
//! Never: a field that nobody asked for.

mod block;
mod draft;
mod talk;
mod wire;

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{Adapter, Parts, Wire};
use crate::anthropic::draft::Reading;
use crate::anthropic::talk::{Side, marked, text, turns};
use crate::anthropic::wire::{Messages, NAME_MAX, USAGE, WIRE};
use crate::counts::UsagePaths;
use crate::fields::Fields;
use crate::http::Http;
use crate::settings::{BadSettings, Login, Settings};
use crate::table::Row;

/// A model behind the Messages API. Times in headers are read by this clock.
pub fn model(
    http: Http,
    settings: Settings,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, BadSettings> {
    let dialect = settings.dialect(WIRE);
    let wire = Messages { dialect };
    Ok(Arc::new(Adapter::new(wire, http, settings, clock)?))
}

/// Whether a request can have the fields that the user has set, before anybody is asked.
pub fn check_fields(settings: &Settings) -> Result<(), BadSettings> {
    settings.check_fields(Messages::OURS)
}

impl Wire for Messages {
    type Draft = Reading;

    const USAGE: &'static UsagePaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("v1", "messages");

    const LOGIN: Login = Login::Key;

    const HEADERS: &'static [(&'static str, &'static str)] = &[("anthropic-version", "2023-06-01")];

    const OURS: &'static [&'static str] = &[
        "model",
        "max_tokens",
        "messages",
        "stream",
        "system",
        "tools",
    ];

    const LIST: &'static str = "messages";

    fn dialect(&self) -> &str {
        &self.dialect
    }

    fn prompt(&self, prompt: &str) -> RawJson {
        RawJson::of(&[marked(text(prompt))])
    }

    fn tools(&self, tools: &[Row]) -> RawJson {
        let last = tools.len().saturating_sub(1);
        let tools = tools.iter().enumerate().map(|(place, row)| {
            let tool = row.tool(NAME_MAX, "input_schema");
            match place == last {
                true => marked(tool),
                false => RawJson::of(&tool),
            }
        });
        RawJson::of(&tools.collect::<Vec<_>>())
    }

    fn head(&self, parts: &Parts<'_, Side>) -> Fields {
        Fields::default()
            .with("model", parts.model)
            .with("max_tokens", &parts.max_tokens)
            .with("stream", &true)
            .with_fields(parts.fields)
            .with_some("system", parts.prompt)
            .with_some("tools", parts.tools)
    }

    fn list(&self, parts: &Parts<'_, Side>) -> impl Serialize {
        turns(parts)
    }
}
