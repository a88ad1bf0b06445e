//! Models behind the Chat Completions API of OpenAI, as most servers speak it:
//! Moonshot, Ollama, vLLM, llama.cpp, OpenRouter and many others.
//!
//! Never: a field that nobody asked for, or one that a quirk says is not taken.

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

use crate::adapter::{Adapter, RequestParts, Wire};
use crate::chat::decode::StreamDecoder;
use crate::chat::encode::{PieceKind, message, messages};
use crate::chat::wire::{ChatCompletionsApi, NAME_MAX, USAGE, WIRE};
use crate::http::Http;
use crate::json_object::JsonObject;
use crate::settings::{AuthScheme, Settings, SettingsError};
use crate::token_counts::UsagePaths;
use crate::tool_table::ToolRow;

pub use crate::chat::quirks::Quirks;

/// A model behind the Chat Completions API. The address of the server ends in
/// the version, as in `https://api.moonshot.ai/v1`, and is used as it is. Times
/// in headers are read by this clock.
pub fn model(
    http: Http,
    settings: Settings,
    quirks: Quirks,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Model>, SettingsError> {
    let wire = ChatCompletionsApi::new(settings.api_name(WIRE), quirks);
    Ok(Arc::new(Adapter::new(wire, http, settings, clock)?))
}

/// Whether a request can have the fields that the user has set, before anybody is asked.
pub fn check_fields(settings: &Settings) -> Result<(), SettingsError> {
    settings.check_fields(ChatCompletionsApi::RESERVED_FIELDS)
}

impl Wire for ChatCompletionsApi {
    type Decoder = StreamDecoder;

    const USAGE: &'static UsagePaths = &USAGE;

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
        // One reply is what is heard.
        "n",
    ];

    const CONVERSATION_FIELD: &'static str = "messages";

    fn api(&self) -> &str {
        &self.api
    }

    fn encode_prompt(&self, prompt: &str) -> RawJson {
        let role = match self.quirks.developer_role {
            true => "developer",
            false => "system",
        };
        RawJson::from_serialize(&message(role, prompt))
    }

    fn encode_tools(&self, tools: &[ToolRow]) -> RawJson {
        let tools = tools.iter().map(|row| {
            let function = row.encode(NAME_MAX, "parameters");
            JsonObject::of_type("function").with("function", &function)
        });
        RawJson::from_serialize(&tools.collect::<Vec<_>>())
    }

    fn leading_fields(&self, parts: &RequestParts<'_, PieceKind>) -> JsonObject {
        let limit = match self.quirks.max_completion_tokens {
            true => "max_completion_tokens",
            false => "max_tokens",
        };
        let options = JsonObject::default().with("include_usage", &true);
        let options = Some(&options).filter(|_| !self.quirks.no_stream_options);
        JsonObject::default()
            .with("model", parts.model)
            .with(limit, &parts.max_tokens)
            .with("stream", &true)
            .with_some("stream_options", options)
            .with_fields(parts.fields)
            .with_some("tools", parts.tools)
    }

    fn encode_conversation(&self, parts: &RequestParts<'_, PieceKind>) -> impl Serialize {
        let prompt = parts.prompt.cloned().into_iter();
        prompt.chain(messages(parts)).collect::<Vec<_>>()
    }
}
