//! Models behind the Responses API of OpenAI, and of servers that speak it.
//!
//! Never: asks the provider to keep a conversation. All of it is sent each time.

mod blocks;
mod counts;
mod draft;
mod include;
mod item;
mod spell;
mod talk;
mod wire;

use std::io::Write as _;
use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::time::Clock;

use crate::adapter::{Adapter, Wire};
use crate::guess::Guess;
use crate::http::Http;
use crate::ids;
use crate::responses::draft::Reading;
use crate::responses::wire::{NAME_MAX, Responses, WIRE};
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

    fn opening(&self, out: &mut Vec<u8>, max_tokens: u64) {
        let tokens = max_tokens.max(TOKENS_MIN);
        // Writing to memory can't fail.
        _ = write!(
            out,
            r#","max_output_tokens":{tokens},"stream":true,"store":false"#
        );
    }

    fn head(&self, out: &mut Vec<u8>, prompt: &str, tools: &[Row<'_>]) {
        if let Some(include) = &self.include {
            out.extend_from_slice(br#","include":"#);
            out.extend_from_slice(include.as_str().as_bytes());
        }
        if !prompt.trim().is_empty() {
            out.extend_from_slice(br#","instructions":"#);
            crate::spell::text(out, prompt);
        }
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
        out.extend_from_slice(br#","input":["#);
    }

    fn draft(&self, guess: Guess) -> Reading {
        Reading::new(self.dialect.clone(), guess)
    }
}

/// A tool. Where `strict` is left out, the API may rewrite the schema to its own
/// taste; ours is checked here anyway.
fn tool(out: &mut Vec<u8>, row: &Row<'_>) {
    out.extend_from_slice(br#"{"type":"function","name":"#);
    crate::spell::text(out, &ids::name(&row.name, NAME_MAX));
    if !row.description.is_empty() {
        out.extend_from_slice(br#","description":"#);
        crate::spell::text(out, &row.description);
    }
    out.extend_from_slice(br#","parameters":"#);
    out.extend_from_slice(row.schema().as_bytes());
    out.extend_from_slice(br#","strict":false}"#);
}
