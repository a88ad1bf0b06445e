//! Models behind the Responses API of OpenAI and of compatible servers.
//!
//! Invariant: the provider is never asked to store a conversation. Every request contains the whole
//! conversation.

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

use crate::adapter::{EncodedRequestParts, ModelAdapter, ProviderApi};
use crate::http::HttpClient;
use crate::json_object::JsonObject;
use crate::responses::decode::StreamDecoder;
use crate::responses::wire::{API_NAME, NAME_MAX, ResponsesApi, USAGE};
use crate::settings::{AuthScheme, ModelSettings, SettingsError};
use crate::token_counts::UsageJsonPaths;
use crate::tool_table::ToolTableRow;

/// Minimum value of `max_output_tokens` that the API accepts in a request.
const OUTPUT_TOKENS_MIN: u64 = 16;

/// Creates a model that uses the Responses API. `clock` is used to interpret times in response
/// headers.
pub fn new_model(
    http: HttpClient,
    mut settings: ModelSettings,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, SettingsError> {
    let include = include::take_include(&mut settings)?;
    let api = settings.api_label(API_NAME);
    let wire = ResponsesApi { include, label: api };
    Ok(Arc::new(ModelAdapter::new(wire, http, settings, clock)?))
}

/// Returns an error if the user has set a request field that only the adapter may set. Sends no
/// request.
pub fn check_request_fields(settings: &ModelSettings) -> Result<(), SettingsError> {
    include::take_include(&mut settings.clone())?;
    settings.reject_reserved_fields(ResponsesApi::RESERVED_FIELDS)
}

impl ProviderApi for ResponsesApi {
    type Decoder = StreamDecoder;

    const USAGE: &'static UsageJsonPaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("v1", "responses");

    const AUTH_SCHEME: AuthScheme = AuthScheme::Bearer;

    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    /// Request fields that the user can't set. The last four would make the provider store the
    /// conversation, or run the request in the background.
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

    fn api_label(&self) -> &str {
        &self.label
    }

    fn encode_system_prompt(&self, prompt: &str) -> RawJson {
        RawJson::from_serialize(&prompt)
    }

    /// Encodes the tools with `strict: false`. Without this field the API may rewrite a tool's
    /// schema; the input of a call is checked against the original schema anyway.
    fn encode_tools(&self, tools: &[ToolTableRow]) -> RawJson {
        let tools = tools.iter().map(|row| {
            let tool = row.encode_tool(NAME_MAX, "parameters").to_json();
            let tool = JsonObject::with_type_field("function").with_fields_of_object(tool.as_ref());
            tool.with_field("strict", &false)
        });
        RawJson::from_serialize(&tools.collect::<Vec<_>>())
    }

    fn request_head(&self, parts: &EncodedRequestParts<'_, ()>) -> JsonObject {
        JsonObject::default()
            .with_field("model", parts.model)
            .with_field("max_output_tokens", &parts.max_tokens.max(OUTPUT_TOKENS_MIN))
            .with_field("stream", &true)
            .with_field("store", &false)
            .with_fields_of_object(parts.fields)
            .with_optional_field("include", self.include.as_ref())
            .with_optional_field("instructions", parts.prompt)
            .with_optional_field("tools", parts.tools)
    }

    fn encode_conversation(&self, parts: &EncodedRequestParts<'_, ()>) -> impl Serialize {
        let items = parts.conversation_pieces().map(|piece| piece.json.clone());
        items.collect::<Vec<_>>()
    }
}
