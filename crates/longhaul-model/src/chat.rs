//! Models behind the Chat Completions API of OpenAI and of compatible servers: Moonshot, Ollama,
//! vLLM, llama.cpp, OpenRouter and many others.
//!
//! Invariant: fields that a quirk excludes are never sent.

mod calls;
mod decode;
mod encode;
mod quirks;
mod reasoning_details;
mod wire;

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{EncodedRequestParts, ModelAdapter, ProviderApi};
use crate::chat::decode::StreamDecoder;
use crate::chat::encode::{ChatMessageKind, build_chat_messages, message_with_role};
use crate::chat::wire::{API_NAME, ChatCompletionsApi, NAME_MAX, USAGE};
use crate::http::HttpClient;
use crate::json_object::JsonObject;
use crate::settings::{AuthScheme, ModelSettings, SettingsError};
use crate::token_counts::UsageJsonPaths;
use crate::tool_table::ToolTableRow;

pub use crate::chat::quirks::ServerQuirks;

/// Creates a model that uses the Chat Completions API. The base URL includes the API version, as in
/// `https://api.moonshot.ai/v1`, and is used unchanged. `clock` is used to interpret times in
/// response headers.
pub fn new_model(
    http: HttpClient,
    settings: ModelSettings,
    quirks: ServerQuirks,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, SettingsError> {
    let wire = ChatCompletionsApi::new(settings.api_label(API_NAME), quirks);
    Ok(Arc::new(ModelAdapter::new(wire, http, settings, clock)?))
}

/// Returns an error if the user has set a request field that only the adapter may set. Sends no
/// request.
pub fn check_request_fields(settings: &ModelSettings) -> Result<(), SettingsError> {
    settings.reject_reserved_fields(ChatCompletionsApi::RESERVED_FIELDS)
}

impl ProviderApi for ChatCompletionsApi {
    type Decoder = StreamDecoder;

    const USAGE: &'static UsageJsonPaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("", "chat/completions");

    const AUTH_SCHEME: AuthScheme = AuthScheme::Bearer;

    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    const RESERVED_FIELDS: &'static [&'static str] = &[
        "model",
        "max_tokens",
        "max_completion_tokens",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "functions",
        // Only the first choice is decoded.
        "n",
    ];

    const CONVERSATION_FIELD: &'static str = "messages";

    fn api_label(&self) -> &str {
        &self.label
    }

    fn encode_system_prompt(&self, prompt: &str) -> RawJson {
        let role = match self.quirks.developer_role {
            true => "developer",
            false => "system",
        };
        RawJson::from_serialize(&message_with_role(role, prompt))
    }

    fn encode_tools(&self, tools: &[ToolTableRow]) -> RawJson {
        let tools = tools.iter().map(|row| {
            let function = row.encode_tool(NAME_MAX, "parameters");
            JsonObject::with_type_field("function").with_field("function", &function)
        });
        RawJson::from_serialize(&tools.collect::<Vec<_>>())
    }

    fn request_head(&self, parts: &EncodedRequestParts<'_, ChatMessageKind>) -> JsonObject {
        let limit = match self.quirks.max_completion_tokens {
            true => "max_completion_tokens",
            false => "max_tokens",
        };
        let options = JsonObject::default().with_field("include_usage", &true);
        let options = Some(&options).filter(|_| !self.quirks.no_stream_options);
        JsonObject::default()
            .with_field("model", parts.model)
            .with_field(limit, &parts.max_tokens)
            .with_field("stream", &true)
            .with_optional_field("stream_options", options)
            .with_fields_of_object(parts.fields)
            .with_optional_field("tools", parts.tools)
    }

    fn encode_conversation(
        &self,
        parts: &EncodedRequestParts<'_, ChatMessageKind>,
    ) -> impl Serialize {
        let prompt = parts.prompt.cloned().into_iter();
        prompt.chain(build_chat_messages(parts)).collect::<Vec<_>>()
    }
}
