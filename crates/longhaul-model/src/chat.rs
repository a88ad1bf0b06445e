//! Models behind the Chat Completions API of OpenAI, as most servers speak it:
//! Moonshot, Ollama, vLLM, llama.cpp, OpenRouter and many others.
//!
//! Never: a field that nobody asked for, or one that a quirk says is not taken.

mod calls;
mod details;
mod draft;
mod quirks;
mod talk;
mod wire;

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{Adapter, Parts, Wire};
use crate::chat::draft::Reading;
use crate::chat::talk::{Kind, message, messages};
use crate::chat::wire::{Completions, NAME_MAX, USAGE, WIRE};
use crate::counts::UsagePaths;
use crate::fields::Fields;
use crate::http::Http;
use crate::settings::{BadSettings, Login, Settings};
use crate::table::Row;

pub use crate::chat::quirks::Quirks;

/// A model behind the Chat Completions API. The address of the server ends in
/// the version, as in `https://api.moonshot.ai/v1`, and is used as it is. Times
/// in headers are read by this clock.
pub fn model(
    http: Http,
    settings: Settings,
    quirks: Quirks,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, BadSettings> {
    let wire = Completions::new(settings.dialect(WIRE), quirks);
    Ok(Arc::new(Adapter::new(wire, http, settings, clock)?))
}

/// Whether a request can have the fields that the user has set, before anybody is asked.
pub fn check_fields(settings: &Settings) -> Result<(), BadSettings> {
    settings.check_fields(Completions::OURS)
}

impl Wire for Completions {
    type Draft = Reading;

    const USAGE: &'static UsagePaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("", "chat/completions");

    const LOGIN: Login = Login::Bearer;

    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    const OURS: &'static [&'static str] = &[
        "model",
        "max_tokens",
        "max_completion_tokens",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "functions",
        // One reply is what is heard.
        "n",
    ];

    const LIST: &'static str = "messages";

    fn dialect(&self) -> &str {
        &self.dialect
    }

    fn prompt(&self, prompt: &str) -> RawJson {
        let role = match self.quirks.developer_role {
            true => "developer",
            false => "system",
        };
        RawJson::of(&message(role, prompt))
    }

    fn tools(&self, tools: &[Row]) -> RawJson {
        let tools = tools.iter().map(|row| {
            let function = row.tool(NAME_MAX, "parameters");
            Fields::of_type("function").with("function", &function)
        });
        RawJson::of(&tools.collect::<Vec<_>>())
    }

    fn head(&self, parts: &Parts<'_, Kind>) -> Fields {
        let limit = match self.quirks.max_completion_tokens {
            true => "max_completion_tokens",
            false => "max_tokens",
        };
        let options = Fields::default().with("include_usage", &true);
        let options = Some(&options).filter(|_| !self.quirks.no_stream_options);
        Fields::default()
            .with("model", parts.model)
            .with(limit, &parts.max_tokens)
            .with("stream", &true)
            .with_some("stream_options", options)
            .with_fields(parts.fields)
            .with_some("tools", parts.tools)
    }

    fn list(&self, parts: &Parts<'_, Kind>) -> impl Serialize {
        let prompt = parts.prompt.cloned().into_iter();
        prompt.chain(messages(parts)).collect::<Vec<_>>()
    }
}
