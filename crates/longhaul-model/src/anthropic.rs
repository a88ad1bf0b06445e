//! Models behind the Messages API of Anthropic, and of servers that speak it.
//!
//! Never: a field that nobody asked for.

mod block;
mod decode;
mod encode;
mod wire;

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{Adapter, RequestParts, Wire};
use crate::anthropic::decode::StreamDecoder;
use crate::anthropic::encode::{MessageRole, api_messages, text_block, with_cache_control};
use crate::anthropic::wire::{MessagesApi, NAME_MAX, USAGE, WIRE};
use crate::http::Http;
use crate::json_object::JsonObject;
use crate::settings::{AuthScheme, Settings, SettingsError};
use crate::token_counts::UsagePaths;
use crate::tool_table::ToolRow;

/// A model behind the Messages API. Times in headers are read by this clock.
pub fn model(
    http: Http,
    settings: Settings,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, SettingsError> {
    let dialect = settings.api_name(WIRE);
    let wire = MessagesApi { api: dialect };
    Ok(Arc::new(Adapter::new(wire, http, settings, clock)?))
}

/// Whether a request can have the fields that the user has set, before anybody is asked.
pub fn check_fields(settings: &Settings) -> Result<(), SettingsError> {
    settings.check_fields(MessagesApi::RESERVED_FIELDS)
}

impl Wire for MessagesApi {
    type Decoder = StreamDecoder;

    const USAGE: &'static UsagePaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("v1", "messages");

    const AUTH_SCHEME: AuthScheme = AuthScheme::ApiKeyHeader;

    const HEADERS: &'static [(&'static str, &'static str)] = &[("anthropic-version", "2023-06-01")];

    const RESERVED_FIELDS: &'static [&'static str] =
        &["model", "max_tokens", "messages", "stream", "system", "tools"];

    const CONVERSATION_FIELD: &'static str = "messages";

    fn api(&self) -> &str {
        &self.api
    }

    fn encode_prompt(&self, prompt: &str) -> RawJson {
        RawJson::from_serialize(&[with_cache_control(text_block(prompt))])
    }

    fn encode_tools(&self, tools: &[ToolRow]) -> RawJson {
        let last = tools.len().saturating_sub(1);
        let tools = tools.iter().enumerate().map(|(place, row)| {
            let tool = row.encode(NAME_MAX, "input_schema");
            match place == last {
                true => with_cache_control(tool),
                false => RawJson::from_serialize(&tool),
            }
        });
        RawJson::from_serialize(&tools.collect::<Vec<_>>())
    }

    fn leading_fields(&self, parts: &RequestParts<'_, MessageRole>) -> JsonObject {
        JsonObject::default()
            .with("model", parts.model)
            .with("max_tokens", &parts.max_tokens)
            .with("stream", &true)
            .with_fields(parts.fields)
            .with_some("system", parts.prompt)
            .with_some("tools", parts.tools)
    }

    fn encode_conversation(&self, parts: &RequestParts<'_, MessageRole>) -> impl Serialize {
        api_messages(parts)
    }
}
