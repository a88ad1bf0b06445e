//! Conversations to be sent, and answers in a few lines.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::failure::Failure;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::message::{
    Block, Message, Part, Reply, TextBlock, ThinkingBlock, ToolCall, ToolResult,
};
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_model::http::Limits;
use serde_json::Value;

pub(crate) const TOOLS: &str = r#"[{"name":"read_file","description":"Reads a file.","schema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}},{"name":"clock","description":"","schema":{"properties":{}}}]"#;

/// Short enough for a test, and long enough for a machine that has much to do.
pub(crate) fn limits() -> Limits {
    Limits {
        first_byte: Duration::from_secs(20),
        idle: Duration::from_secs(20),
        ..Limits::default()
    }
}

pub(crate) fn ask(messages: &[Arc<Message>]) -> ModelRequest {
    ModelRequest {
        run: RunId::from_bytes([7; 16]),
        turn: 1,
        attempt: 1,
        model: "provider/model".into(),
        system: StoredText::inline("Be tidy."),
        tools: StoredText::inline(TOOLS),
        messages: Arc::new(messages.to_vec()),
        max_tokens: 1_024,
    }
}

pub(crate) fn hello() -> Vec<Arc<Message>> {
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

pub(crate) fn text(words: &str) -> Block {
    Block::Text(TextBlock {
        text: words.into(),
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

pub(crate) fn assistant(dialect: &str, blocks: Vec<Block>) -> Arc<Message> {
    let dialect = dialect.to_owned();
    Arc::new(Message::Assistant(Arc::new(Reply { api: dialect, blocks })))
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

/// An answer in a few lines: its blocks, why it stopped and what it used.
pub(crate) fn lines(answered: &Result<ModelResponse, Failure>) -> String {
    let answered = match answered {
        Ok(answered) => answered,
        Err(failure) => return format!("!{}: {}", failure.class.as_str(), failure.message),
    };
    let blocks = answered.reply.blocks.iter().map(|block| match block {
        Block::Text(words) => format!("text {:?} {:?}", words.text, words.extra),
        Block::Thinking(thought) => format!("thinking {:?} {:?}", thought.text, thought.signature),
        Block::ToolCall(call) => {
            format!("call {}={} {} {:?}", call.id, call.name, call.input.as_str(), call.extra)
        }
        Block::Other(raw) => format!("other {}", raw.as_str()),
    });
    let mut lines: Vec<String> = blocks.collect();
    let (stop, usage, cost) = (&answered.stop, answered.usage, answered.cost);
    lines.push(format!("{stop:?} {usage:?} {cost:?} {}", answered.model));
    lines.join("\n")
}
