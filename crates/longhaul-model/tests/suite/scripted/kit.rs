//! Asks, a clock that jumps, and one line of text for one answer.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::failure::Failure;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::message::{Block, Message, Part, ToolResult};
use longhaul_core::port::model::{Answered, Ask, Ear, Model as _};
use longhaul_core::raw::Body;
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_model::scripted::{Script, ScriptedModel};

/// The script of the design, word for word.
pub(crate) const TIDY: &str = include_str!("tidy.yaml");

/// A clock that is where it is asked to be, at once.
#[derive(Debug, Default)]
pub(crate) struct Jump(Mutex<Timestamp>);

#[async_trait]
impl Clock for Jump {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    async fn sleep(&self, span: Millis) {
        let mut time = self.0.lock().unwrap();
        *time = time.plus(span);
    }
}

/// An ear that keeps the pieces.
#[derive(Debug, Default)]
pub(crate) struct Heard(pub(crate) Mutex<Vec<String>>);

impl Ear for Heard {
    fn words(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

pub(crate) fn model(script: &str) -> ScriptedModel {
    let script = Script::parse("tidy.yaml", script).unwrap();
    ScriptedModel::new("tidy", script, Arc::new(Jump::default()))
}

/// The question of a turn after these messages.
pub(crate) fn ask(turn: u32, attempt: u32, messages: Vec<Message>) -> Ask {
    Ask {
        run: RunId::from_bytes([7; 16]),
        turn,
        attempt,
        model: "scripted/tidy".into(),
        system: Body::inline("Be tidy."),
        tools: Body::inline("[]"),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        max_tokens: 100,
    }
}

/// A conversation that began with `input` and whose tools said `results`.
pub(crate) fn talk(input: &str, results: &[&str]) -> Vec<Message> {
    let results = results.iter().zip(1..).map(|(text, turn)| {
        Message::Results(vec![ToolResult {
            call: CallId { turn, index: 1 },
            id: String::new(),
            content: vec![Part::Text((*text).into())],
            is_error: false,
        }])
    });
    std::iter::once(Message::user(input))
        .chain(results)
        .collect()
}

pub(crate) async fn answer(model: &ScriptedModel, ask: &Ask) -> Result<Answered, Failure> {
    model.reply(ask, &Heard::default()).await
}

/// An answer in one line: its text, its calls, and why it stopped.
pub(crate) fn line(answered: &Result<Answered, Failure>) -> String {
    let answered = match answered {
        Ok(answered) => answered,
        Err(failure) => {
            let status = failure
                .status
                .map_or(String::new(), |status| format!(" {status}"));
            return format!("!{}{status}: {}", failure.class.as_str(), failure.message);
        }
    };
    let blocks = answered.reply.blocks.iter().map(|block| match block {
        Block::Text(words) => words.text.to_string(),
        Block::ToolCall(call) => format!("{}={} {}", call.id, call.name, call.input.as_str()),
        Block::Thinking(_) | Block::Other(_) => "?".to_owned(),
    });
    let blocks: Vec<String> = blocks.collect();
    format!("{} -> {:?}", blocks.join(" | "), answered.stop)
}
