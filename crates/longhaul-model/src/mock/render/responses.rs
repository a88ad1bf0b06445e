//! Writes a reply as OpenAI Responses.
//!
//! Never: keeps a response for later.

use bytes::Bytes;
use longhaul_core::message::{Block, StopReason};
use serde_json::{Map, Value, json};

use crate::mock::event;
use crate::mock::mock_reply::{MockReply, argument_chunks};
use crate::scripted::reply;

/// How far a thing is.
const IN_PROGRESS: &str = "in_progress";
const COMPLETED: &str = "completed";

/// The reply as one body.
pub(super) fn body(speech: &MockReply<'_>) -> String {
    completed_response(speech).to_string()
}

/// The reply as events.
pub(super) fn events(speech: &MockReply<'_>) -> Vec<Bytes> {
    let mut telling = EventList::default();
    let begun = response(speech, IN_PROGRESS, Vec::new());
    telling.push("response.created", [("response", begun.clone())]);
    telling.push("response.in_progress", [("response", begun)]);
    let mut output = 0;
    for (place, block) in speech.reply.blocks.iter().enumerate() {
        let Some(item) = Item::from_block(speech, place, block) else {
            continue;
        };
        let index = ("output_index", json!(output));
        telling.push(
            "response.output_item.added",
            [index.clone(), ("item", item.to_json(IN_PROGRESS, ""))],
        );
        item.push_deltas(&mut telling, output);
        let item = item.to_json(COMPLETED, item.text);
        telling.push("response.output_item.done", [index, ("item", item)]);
        output += 1;
    }
    let (name, response) = (final_status(&speech.stop).1, completed_response(speech));
    telling.push(name, [("response", response)]);
    telling.events
}

/// Events, each with its number.
#[derive(Default)]
struct EventList {
    events: Vec<Bytes>,
}

impl EventList {
    fn push<const N: usize>(&mut self, kind: &str, fields: [(&str, Value); N]) {
        let mut event = Map::with_capacity(N + 2);
        event.insert("type".to_owned(), kind.into());
        let number = self.events.len();
        event.insert("sequence_number".to_owned(), number.into());
        let fields = fields.into_iter();
        event.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        self.events.push(event::named(&Value::Object(event)));
    }
}

/// An item of a response: a message, or the call of this name.
struct Item<'a> {
    id: String,
    /// The text or the arguments.
    text: &'a str,
    call: Option<(String, &'a str)>,
}

impl<'a> Item<'a> {
    fn from_block(speech: &'a MockReply<'_>, place: usize, block: &'a Block) -> Option<Self> {
        let seal = &speech.ids;
        match block {
            Block::Text(words) => {
                Some(Self { id: seal.id("msg_", place), text: &words.text, call: None })
            }
            Block::ToolCall(call) => Some(Self {
                id: seal.id("fc_", place),
                text: call.input.as_str(),
                call: Some((seal.id("call_", place), &call.name)),
            }),
            // A script says neither.
            Block::Thinking(_) | Block::Other(_) => None,
        }
    }

    fn to_json(&self, status: &str, said: &str) -> Value {
        match &self.call {
            None => {
                let content = match status {
                    COMPLETED => vec![part(said)],
                    _ => Vec::new(),
                };
                json!({
                    "id": self.id,
                    "type": "message",
                    "status": status,
                    "role": "assistant",
                    "content": content,
                })
            }
            Some((call, name)) => json!({
                "id": self.id,
                "type": "function_call",
                "status": status,
                "call_id": call,
                "name": name,
                "arguments": said,
            }),
        }
    }

    /// What is said between its beginning and its end.
    fn push_deltas(&self, telling: &mut EventList, output: usize) {
        let id = ("item_id", json!(self.id));
        let index = ("output_index", json!(output));
        let first = ("content_index", json!(0));
        let likely = ("logprobs", json!([]));
        if let Some((_, name)) = &self.call {
            for piece in argument_chunks(self.text) {
                let delta = ("delta", json!(piece));
                let fields = [id.clone(), index.clone(), delta];
                telling.push("response.function_call_arguments.delta", fields);
            }
            let (name, all) = (("name", json!(name)), ("arguments", json!(self.text)));
            telling.push("response.function_call_arguments.done", [id, index, name, all]);
            return;
        }
        let place = [id, index, first];
        let [id, index, first] = place.clone();
        let fields = [id, index, first, ("part", part(""))];
        telling.push("response.content_part.added", fields);
        for piece in reply::text_chunks(self.text) {
            let [id, index, first] = place.clone();
            let fields = [id, index, first, ("delta", json!(piece)), likely.clone()];
            telling.push("response.output_text.delta", fields);
        }
        let [id, index, first] = place.clone();
        let fields = [id, index, first, ("text", json!(self.text)), likely];
        telling.push("response.output_text.done", fields);
        let [id, index, first] = place;
        let fields = [id, index, first, ("part", part(self.text))];
        telling.push("response.content_part.done", fields);
    }
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// The response when all is said.
fn completed_response(speech: &MockReply<'_>) -> Value {
    let blocks = speech.reply.blocks.iter().enumerate();
    let items = blocks.filter_map(|(place, block)| Item::from_block(speech, place, block));
    let output = items.map(|item| item.to_json(COMPLETED, item.text)).collect();
    let mut response = response(speech, final_status(&speech.stop).0, output);
    response["completed_at"] = speech.unix_seconds().into();
    response["usage"] = usage(speech);
    response
}

/// A response, with what it repeats of its request.
fn response(speech: &MockReply<'_>, status: &str, output: Vec<Value>) -> Value {
    // A field as it came, or what the provider says where none came.
    let again = |name: &str, otherwise: Value| {
        let came = speech.request.echo.get(name);
        let came = came.and_then(|raw| serde_json::from_str(raw.get()).ok());
        came.filter(|value| *value != Value::Null).unwrap_or(otherwise)
    };
    json!({
        "id": speech.ids.response_id(),
        "object": "response",
        "created_at": speech.unix_seconds(),
        "status": status,
        "background": false,
        "completed_at": null,
        "error": null,
        "incomplete_details": null,
        "instructions": again("instructions", Value::Null),
        "max_output_tokens": again("max_output_tokens", Value::Null),
        "model": speech.request.model,
        "output": output,
        "parallel_tool_calls": again("parallel_tool_calls", json!(true)),
        "previous_response_id": again("previous_response_id", Value::Null),
        "reasoning": again("reasoning", json!({ "effort": null, "summary": null })),
        "service_tier": "default",
        "store": again("store", json!(true)),
        "temperature": again("temperature", json!(1.0)),
        "text": again("text", json!({ "format": { "type": "text" } })),
        "tool_choice": again("tool_choice", json!("auto")),
        "tools": again("tools", json!([])),
        "top_p": again("top_p", json!(1.0)),
        "truncation": again("truncation", json!("disabled")),
        "metadata": again("metadata", json!({})),
    })
}

fn usage(speech: &MockReply<'_>) -> Value {
    let used = &speech.usage;
    let input = used.sent_tokens();
    json!({
        "input_tokens": input,
        "input_tokens_details": {
            "cached_tokens": used.cached_tokens,
            "cache_write_tokens": used.cache_write_tokens,
        },
        "output_tokens": used.output_tokens,
        "output_tokens_details": { "reasoning_tokens": used.reasoning_tokens },
        "total_tokens": input.saturating_add(used.output_tokens),
    })
}

/// How a response stands at its end, and the event that says so.
const fn final_status(reason: &StopReason) -> (&'static str, &'static str) {
    match reason {
        StopReason::MaxTokens => ("incomplete", "response.incomplete"),
        StopReason::EndTurn
        | StopReason::ToolUse
        | StopReason::PauseTurn
        | StopReason::Refusal
        | StopReason::Other(_) => (COMPLETED, "response.completed"),
    }
}
