//! Models behind the Messages API of Anthropic, and of servers that speak it.
//!
//! Never: a field that nobody asked for.

mod block;
mod counts;
mod draft;
mod spell;
mod talk;
mod wire;

use std::io::Write as _;
use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::time::Clock;

use crate::adapter::{Adapter, Wire};
use crate::anthropic::draft::Reading;
use crate::anthropic::talk::MARK;
use crate::anthropic::wire::{Messages, NAME_MAX, WIRE};
use crate::guess::Guess;
use crate::http::Http;
use crate::ids;
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

    fn opening(&self, out: &mut Vec<u8>, max_tokens: u64) {
        // Writing to memory can't fail.
        _ = write!(out, r#","max_tokens":{max_tokens},"stream":true"#);
    }

    fn head(&self, out: &mut Vec<u8>, prompt: &str, tools: &[Row<'_>]) {
        if !prompt.trim().is_empty() {
            out.extend_from_slice(br#","system":["#);
            spell::words_block(out, prompt);
            mark(out);
            out.push(b']');
        }
        if !tools.is_empty() {
            out.extend_from_slice(br#","tools":["#);
            for (place, row) in tools.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                tool(out, row);
            }
            mark(out);
            out.push(b']');
        }
        out.extend_from_slice(br#","messages":["#);
    }

    fn draft(&self, guess: Guess) -> Reading {
        Reading::new(self.dialect.clone(), guess)
    }
}

fn tool(out: &mut Vec<u8>, row: &Row<'_>) {
    out.extend_from_slice(br#"{"name":"#);
    crate::spell::text(out, &ids::name(&row.name, NAME_MAX));
    if !row.description.is_empty() {
        out.extend_from_slice(br#","description":"#);
        crate::spell::text(out, &row.description);
    }
    out.extend_from_slice(br#","input_schema":"#);
    out.extend_from_slice(row.schema().as_bytes());
    out.push(b'}');
}

/// Marks the object that was just written.
fn mark(out: &mut Vec<u8>) {
    if out.pop().is_some() {
        out.extend_from_slice(MARK);
        out.push(b'}');
    }
}
