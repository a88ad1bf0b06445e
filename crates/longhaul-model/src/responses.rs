//! Models behind the Responses API of OpenAI, and of servers that speak it.
//!
//! Never: asks the provider to keep a conversation. All of it is sent each time.

mod blocks;
mod decode;
mod encode;
mod include;
mod item;
mod wire;

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{Adapter, RequestParts, Wire};
use crate::http::Http;
use crate::json_object::JsonObject;
use crate::responses::decode::StreamDecoder;
use crate::responses::wire::{NAME_MAX, ResponsesApi, USAGE, WIRE};
use crate::settings::{AuthScheme, Settings, SettingsError};
use crate::token_counts::UsagePaths;
use crate::tool_table::ToolRow;

/// The API refuses to be asked for fewer tokens.
const OUTPUT_TOKENS_MIN: u64 = 16;

/// A model behind the Responses API. Times in headers are read by this clock.
pub fn model(
    http: Http,
    mut settings: Settings,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, SettingsError> {
    let include = include::take_include(&mut settings)?;
    let dialect = settings.api_name(WIRE);
    let wire = ResponsesApi { include, api: dialect };
    Ok(Arc::new(Adapter::new(wire, http, settings, clock)?))
}

/// Whether a request can have the fields that the user has set, before anybody is asked.
pub fn check_fields(settings: &Settings) -> Result<(), SettingsError> {
    include::take_include(&mut settings.clone())?;
    settings.check_fields(ResponsesApi::RESERVED_FIELDS)
}

impl Wire for ResponsesApi {
    type Decoder = StreamDecoder;

    const USAGE: &'static UsagePaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("v1", "responses");

    const AUTH_SCHEME: AuthScheme = AuthScheme::Bearer;

    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    /// The last ones would have the provider keep the conversation, or answer
    /// when nobody listens any more.
    const RESERVED_FIELDS: &'static [&'static str] = &[
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

    const CONVERSATION_FIELD: &'static str = "input";

    fn api(&self) -> &str {
        &self.api
    }

    fn encode_prompt(&self, prompt: &str) -> RawJson {
        RawJson::from_serialize(&prompt)
    }

    /// Where `strict` is left out, the API may rewrite the schema to its own taste; ours is
    /// checked here anyway.
    fn encode_tools(&self, tools: &[ToolRow]) -> RawJson {
        let tools = tools.iter().map(|row| {
            let tool = row.encode(NAME_MAX, "parameters").to_raw();
            let tool = JsonObject::of_type("function").with_fields(tool.as_ref());
            tool.with("strict", &false)
        });
        RawJson::from_serialize(&tools.collect::<Vec<_>>())
    }

    fn leading_fields(&self, parts: &RequestParts<'_, ()>) -> JsonObject {
        JsonObject::default()
            .with("model", parts.model)
            .with("max_output_tokens", &parts.max_tokens.max(OUTPUT_TOKENS_MIN))
            .with("stream", &true)
            .with("store", &false)
            .with_fields(parts.fields)
            .with_some("include", self.include.as_ref())
            .with_some("instructions", parts.prompt)
            .with_some("tools", parts.tools)
    }

    fn encode_conversation(&self, parts: &RequestParts<'_, ()>) -> impl Serialize {
        let items = parts.pieces().map(|piece| piece.json.clone());
        items.collect::<Vec<_>>()
    }
}
