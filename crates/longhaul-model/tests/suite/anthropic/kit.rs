//! A model behind a server of ours, questions for it, and a recorded stream.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::failure::Failure;
use longhaul_core::id::RunId;
use longhaul_core::message::{Block, Message};
use longhaul_core::port::model::{Answered, Ask, Model as _};
use longhaul_core::raw::Body;
use longhaul_core::usage::{Price, Tariff};
use longhaul_model::anthropic::{Anthropic, Settings};
use longhaul_model::http::{Http, Limits};
use longhaul_model::key::ApiKey;

use super::spec;
use crate::suite::kit::{Heard, Noon, Server};

pub(crate) const KEY: &str = "sk-ant-very-secret-0123456789";

/// A reply with everything in it: a thought, words with a citation, a tool of the
/// provider's own, a block nobody knows, and two calls.
pub(crate) const RECORDED: &str = include_str!("recorded.sse");

pub(crate) const TOOLS: &str = r#"[{"name":"read_file","description":"Reads a file.","schema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}},{"name":"clock","description":"","schema":{"properties":{}}}]"#;

pub(crate) fn settings() -> Settings {
    Settings {
        tariff: Tariff {
            price: Some(Price {
                input: 3_000_000,
                output: 15_000_000,
                cached: 300_000,
                cache_write: 3_750_000,
            }),
            max_output_tokens: 64_000,
            ..Tariff::default()
        },
        ..Settings::new("claude-sonnet-4-6", Some(ApiKey::new(KEY)))
    }
}

/// Short enough for a test, and long enough for a machine that has much to do.
pub(crate) fn limits() -> Limits {
    Limits {
        first_byte: Duration::from_secs(20),
        idle: Duration::from_secs(20),
        ..Limits::default()
    }
}

pub(crate) fn at(base: &str, limits: Limits) -> Anthropic {
    let http = Http::new(base, limits).unwrap();
    Anthropic::new(http, settings(), Arc::new(Noon)).unwrap()
}

pub(crate) fn model(server: &Server) -> Anthropic {
    at(&server.base(), limits())
}

pub(crate) fn ask(messages: &[Arc<Message>]) -> Ask {
    Ask {
        run: RunId::from_bytes([7; 16]),
        turn: 1,
        attempt: 1,
        model: "anthropic/claude-sonnet-4-6".into(),
        system: Body::inline("Be tidy."),
        tools: Body::inline(TOOLS),
        messages: Arc::new(messages.to_vec()),
        max_tokens: 1_024,
    }
}

pub(crate) fn hello() -> Vec<Arc<Message>> {
    vec![Arc::new(Message::user("Hello"))]
}

/// Asks, and looks at every request as the provider would.
pub(crate) async fn answer(
    server: &Server,
    model: &Anthropic,
    messages: &[Arc<Message>],
) -> (Result<Answered, Failure>, String) {
    let heard = Heard::default();
    let answered = model.reply(&ask(messages), &heard).await;
    for seen in server.seen() {
        spec::check(&seen.body);
    }
    (answered, heard.text())
}

/// An answer in a few lines: its blocks, why it stopped and what it used.
pub(crate) fn lines(answered: &Result<Answered, Failure>) -> String {
    let answered = match answered {
        Ok(answered) => answered,
        Err(failure) => return format!("!{}: {}", failure.class.as_str(), failure.message),
    };
    let blocks = answered.reply.blocks.iter().map(|block| match block {
        Block::Text(words) => format!("text {:?} {:?}", words.text, words.extra),
        Block::Thinking(thought) => format!("thinking {:?} {:?}", thought.text, thought.signature),
        Block::ToolCall(call) => {
            format!(
                "call {}={} {} {:?}",
                call.id,
                call.name,
                call.input.as_str(),
                call.extra
            )
        }
        Block::Other(raw) => format!("other {}", raw.as_str()),
    });
    let mut lines: Vec<String> = blocks.collect();
    let (stop, usage, cost) = (&answered.stop, answered.usage, answered.cost);
    lines.push(format!("{stop:?} {usage:?} {cost:?} {}", answered.model));
    lines.join("\n")
}
