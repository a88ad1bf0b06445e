//! Conversations for requests, and a short text format for responses.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::failure::Failure;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::message::{
    Block, Message, Part, Reply, TextBlock, ThinkingBlock, ToolCall, ToolResult,
};
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_model::http::HttpLimits;
use serde_json::Value;

pub(crate) const TOOLS: &str = r#"[{"name":"read_file","description":"Reads a file.","schema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}},{"name":"clock","description":"","schema":{"properties":{}}}]"#;

/// Short enough for a test, and long enough for a busy machine.
pub(crate) fn limits() -> HttpLimits {
    HttpLimits {
        first_byte: Duration::from_secs(20),
        idle: Duration::from_secs(20),
        ..HttpLimits::default()
    }
}

pub(crate) fn model_request(messages: &[Arc<Message>]) -> ModelRequest {
    ModelRequest {
        run: RunId::from_bytes([7; 16]),
        turn: 1,
        attempt: 1,
        model: "provider/model".into(),
        system: StoredText::new_inline("Be tidy."),
        tools: StoredText::new_inline(TOOLS),
        messages: Arc::new(messages.to_vec()),
        max_tokens: 1_024,
    }
}

pub(crate) fn hello_messages() -> Vec<Arc<Message>> {
    vec![user("Hello")]
}

pub(crate) fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::user(text))
}

pub(crate) fn call(id: &str, name: &str, input: &str) -> Block {
    Block::ToolCall(ToolCall {
        id: id.into(),
        name: name.into(),
        input: RawJson::parse(input).unwrap(),
        extra: None,
    })
}

pub(crate) fn text(content: &str) -> Block {
    Block::Text(TextBlock {
        text: content.into(),
        extra: Some(RawJson::parse(r#"{"citations":null}"#).unwrap()),
    })
}

pub(crate) fn thinking_block(signature: Option<&str>) -> Block {
    Block::Thinking(ThinkingBlock {
        text: "Hm.".into(),
        signature: signature.map(Into::into),
        extra: None,
    })
}

pub(crate) fn assistant(api: &str, blocks: Vec<Block>) -> Arc<Message> {
    let api = api.to_owned();
    Arc::new(Message::Assistant(Arc::new(Reply { api, blocks })))
}

pub(crate) fn result(index: u16, id: &str, text: &str) -> ToolResult {
    ToolResult {
        call: CallId { turn: 1, index },
        id: id.into(),
        content: vec![Part::Text(text.into())],
        is_error: false,
    }
}

pub(crate) fn results(results: Vec<ToolResult>) -> Arc<Message> {
    Arc::new(Message::Results(results))
}

pub(crate) fn pretty(body: &str) -> String {
    serde_json::to_string_pretty(&serde_json::from_str::<Value>(body).unwrap()).unwrap()
}

/// Formats a response on a few lines: blocks, stop reason and usage.
pub(crate) fn lines(response: &Result<ModelResponse, Failure>) -> String {
    let response = match response {
        Ok(response) => response,
        Err(failure) => return format!("!{}: {}", failure.class.as_str(), failure.message),
    };
    let blocks = response.reply.blocks.iter().map(|block| match block {
        Block::Text(block_text) => format!("text {:?} {:?}", block_text.text, block_text.extra),
        Block::Thinking(thought) => format!("thinking {:?} {:?}", thought.text, thought.signature),
        Block::ToolCall(call) => {
            format!("call {}={} {} {:?}", call.id, call.name, call.input.as_str(), call.extra)
        }
        Block::Other(raw) => format!("other {}", raw.as_str()),
    });
    let mut lines: Vec<String> = blocks.collect();
    let (stop, usage, cost) = (&response.stop, response.usage, response.cost);
    lines.push(format!("{stop:?} {usage:?} {cost:?} {}", response.model));
    lines.join("\n")
}
