//! Models behind the Messages API of Anthropic and of compatible servers.

mod block;
mod decode;
mod encode;
mod wire;

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{EncodedRequestParts, ModelAdapter, ProviderApi};
use crate::anthropic::decode::StreamDecoder;
use crate::anthropic::encode::{MessageRole, build_api_messages, text_block, with_cache_control};
use crate::anthropic::wire::{API_NAME, MessagesApi, NAME_MAX, USAGE};
use crate::http::HttpClient;
use crate::json_object::JsonObject;
use crate::settings::{AuthScheme, ModelSettings, SettingsError};
use crate::token_counts::UsageJsonPaths;
use crate::tool_table::ToolTableRow;

/// Creates a model that uses the Messages API. `clock` is used to interpret times in response
/// headers.
pub fn new_model(
    http: HttpClient,
    settings: ModelSettings,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, SettingsError> {
    let api = settings.api_label(API_NAME);
    let wire = MessagesApi { label: api };
    Ok(Arc::new(ModelAdapter::new(wire, http, settings, clock)?))
}

/// Returns an error if the user has set a request field that only the adapter may set. Sends no
/// request.
pub fn check_request_fields(settings: &ModelSettings) -> Result<(), SettingsError> {
    settings.reject_reserved_fields(MessagesApi::RESERVED_FIELDS)
}

impl ProviderApi for MessagesApi {
    type Decoder = StreamDecoder;

    const USAGE: &'static UsageJsonPaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("v1", "messages");

    const AUTH_SCHEME: AuthScheme = AuthScheme::ApiKeyHeader;

    const HEADERS: &'static [(&'static str, &'static str)] = &[("anthropic-version", "2023-06-01")];

    const RESERVED_FIELDS: &'static [&'static str] =
        &["model", "max_tokens", "messages", "stream", "system", "tools"];

    const CONVERSATION_FIELD: &'static str = "messages";

    fn api_label(&self) -> &str {
        &self.label
    }

    fn encode_system_prompt(&self, prompt: &str) -> RawJson {
        RawJson::from_serialize(&[with_cache_control(text_block(prompt))])
    }

    fn encode_tools(&self, tools: &[ToolTableRow]) -> RawJson {
        let last = tools.len().saturating_sub(1);
        let tools = tools.iter().enumerate().map(|(index, row)| {
            let tool = row.encode_tool(NAME_MAX, "input_schema");
            match index == last {
                true => with_cache_control(tool),
                false => RawJson::from_serialize(&tool),
            }
        });
        RawJson::from_serialize(&tools.collect::<Vec<_>>())
    }

    fn request_head(&self, parts: &EncodedRequestParts<'_, MessageRole>) -> JsonObject {
        JsonObject::default()
            .with_field("model", parts.model)
            .with_field("max_tokens", &parts.max_tokens)
            .with_field("stream", &true)
            .with_fields_of_object(parts.fields)
            .with_optional_field("system", parts.prompt)
            .with_optional_field("tools", parts.tools)
    }

    fn encode_conversation(&self, parts: &EncodedRequestParts<'_, MessageRole>) -> impl Serialize {
        build_api_messages(parts)
    }
}
