//! Helpers: requests, a clock that jumps, and a one-line format for responses.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::failure::Failure;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::message::{Block, Message, Part, ToolResult};
use longhaul_core::port::model::{DeltaSink, Model as _, ModelRequest, ModelResponse};
use longhaul_core::raw::StoredText;
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_model::scripted::{Script, ScriptedModel};

/// The example script of the design document, unchanged.
pub(crate) const TIDY: &str = include_str!("tidy.yaml");

/// A clock whose sleep returns immediately and advances the time.
#[derive(Debug, Default)]
pub(crate) struct JumpClock(Mutex<Timestamp>);

#[async_trait]
impl Clock for JumpClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    async fn sleep(&self, duration: Millis) {
        let mut time = self.0.lock().unwrap();
        *time = time.plus(duration);
    }
}

/// A sink that collects the chunks it receives.
#[derive(Debug, Default)]
pub(crate) struct TextSink(pub(crate) Mutex<Vec<String>>);

impl DeltaSink for TextSink {
    fn on_text(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

pub(crate) fn model(script: &str) -> ScriptedModel {
    let script = Script::parse_yaml("tidy.yaml", script).unwrap();
    ScriptedModel::new("tidy", script, Arc::new(JumpClock::default()))
}

/// Returns the request of a turn with these messages.
pub(crate) fn model_request(turn: u32, attempt: u32, messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        run: RunId::from_bytes([7; 16]),
        turn,
        attempt,
        model: "scripted/tidy".into(),
        system: StoredText::new_inline("Be tidy."),
        tools: StoredText::new_inline("[]"),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        max_tokens: 100,
    }
}

/// Returns a conversation that starts with `input` and has these tool results.
pub(crate) fn conversation(input: &str, results: &[&str]) -> Vec<Message> {
    let results = results.iter().zip(1..).map(|(text, turn)| {
        Message::Results(vec![ToolResult {
            call: CallId { turn, index: 1 },
            id: String::new(),
            content: vec![Part::Text((*text).into())],
            is_error: false,
        }])
    });
    std::iter::once(Message::user(input)).chain(results).collect()
}

pub(crate) async fn answer(
    model: &ScriptedModel,
    request: &ModelRequest,
) -> Result<ModelResponse, Failure> {
    model.generate(request, &TextSink::default()).await
}

/// Formats a response on one line: its text, calls and stop reason.
pub(crate) fn summary(response: &Result<ModelResponse, Failure>) -> String {
    let response = match response {
        Ok(response) => response,
        Err(failure) => {
            let status = failure.status.map_or(String::new(), |status| format!(" {status}"));
            return format!("!{}{status}: {}", failure.class.as_str(), failure.message);
        }
    };
    let blocks = response.reply.blocks.iter().map(|block| match block {
        Block::Text(block_text) => block_text.text.to_string(),
        Block::ToolCall(call) => format!("{}={} {}", call.id, call.name, call.input.as_str()),
        Block::Thinking(_) | Block::Other(_) => "?".to_owned(),
    });
    let blocks: Vec<String> = blocks.collect();
    format!("{} -> {:?}", blocks.join(" | "), response.stop)
}
