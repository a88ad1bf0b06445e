//! Models behind the Chat Completions API of OpenAI, as most servers speak it:
//! Moonshot, Ollama, vLLM, llama.cpp, OpenRouter and many others.
//!
//! Never: a field that nobody asked for, or one that a quirk says is not taken.

mod calls;
mod counts;
mod details;
mod draft;
mod quirks;
mod spell;
mod talk;
mod wire;

use std::io::Write as _;
use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::time::Clock;

use crate::adapter::{Adapter, Wire};
use crate::chat::draft::Reading;
use crate::chat::wire::{Completions, NAME_MAX, WIRE};
use crate::guess::Guess;
use crate::http::Http;
use crate::ids;
use crate::settings::{BadSettings, Login, Settings};
use crate::spell::text;
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

    fn opening(&self, out: &mut Vec<u8>, max_tokens: u64) {
        let limit = match self.quirks.max_completion_tokens {
            true => "max_completion_tokens",
            false => "max_tokens",
        };
        // Writing to memory can't fail.
        _ = write!(out, r#","{limit}":{max_tokens},"stream":true"#);
        if !self.quirks.no_stream_options {
            out.extend_from_slice(br#","stream_options":{"include_usage":true}"#);
        }
    }

    fn head(&self, out: &mut Vec<u8>, prompt: &str, tools: &[Row<'_>]) {
        if !tools.is_empty() {
            out.extend_from_slice(br#","tools":["#);
            for (place, row) in tools.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                tool(out, row);
            }
            out.push(b']');
        }
        out.extend_from_slice(br#","messages":["#);
        if !prompt.trim().is_empty() {
            let role = match self.quirks.developer_role {
                true => "developer",
                false => "system",
            };
            _ = write!(out, r#"{{"role":"{role}","content":"#);
            text(out, prompt);
            out.push(b'}');
        }
    }

    fn draft(&self, guess: Guess) -> Reading {
        Reading::new(self.dialect.clone(), guess)
    }
}

fn tool(out: &mut Vec<u8>, row: &Row<'_>) {
    out.extend_from_slice(br#"{"type":"function","function":{"name":"#);
    text(out, &ids::name(&row.name, NAME_MAX));
    if !row.description.is_empty() {
        out.extend_from_slice(br#","description":"#);
        text(out, &row.description);
    }
    out.extend_from_slice(br#","parameters":"#);
    out.extend_from_slice(row.schema().as_bytes());
    out.extend_from_slice(b"}}");
}
