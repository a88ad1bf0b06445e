//! Renders a reply of the OpenAI Responses API.

use bytes::Bytes;
use longhaul_core::message::{Block, StopReason};
use serde_json::{Map, Value, json};

use crate::mock::event;
use crate::mock::mock_reply::{MockReply, argument_chunks};
use crate::scripted::reply;

/// Value of the field `status` of a response that is not complete yet, and of its items.
const IN_PROGRESS: &str = "in_progress";
const COMPLETED: &str = "completed";

/// Renders the reply as one complete response body.
pub(super) fn render_body(mock_reply: &MockReply<'_>) -> String {
    completed_response(mock_reply).to_string()
}

/// Renders the reply as the server-sent events of a stream.
pub(super) fn render_events(mock_reply: &MockReply<'_>) -> Vec<Bytes> {
    let mut list = NumberedEventList::default();
    let started = response_object(mock_reply, IN_PROGRESS, Vec::new());
    list.push_event("response.created", [("response", started.clone())]);
    list.push_event("response.in_progress", [("response", started)]);
    let mut output = 0;
    for (position, block) in mock_reply.reply.blocks.iter().enumerate() {
        let Some(item) = OutputItem::from_block(mock_reply, position, block) else {
            continue;
        };
        let index = ("output_index", json!(output));
        list.push_event(
            "response.output_item.added",
            [index.clone(), ("item", item.to_json(IN_PROGRESS, ""))],
        );
        item.push_delta_events(&mut list, output);
        let item = item.to_json(COMPLETED, item.text);
        list.push_event("response.output_item.done", [index, ("item", item)]);
        output += 1;
    }
    let (name, response) = (final_status(&mock_reply.stop).1, completed_response(mock_reply));
    list.push_event(name, [("response", response)]);
    list.events
}

/// List of stream events, numbered in the order in which they are added.
#[derive(Default)]
struct NumberedEventList {
    events: Vec<Bytes>,
}

impl NumberedEventList {
    fn push_event<const N: usize>(&mut self, event_type: &str, fields: [(&str, Value); N]) {
        let mut event = Map::with_capacity(N + 2);
        event.insert("type".to_owned(), event_type.into());
        let number = self.events.len();
        event.insert("sequence_number".to_owned(), number.into());
        let fields = fields.into_iter();
        event.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        self.events.push(event::encode_named_sse_event(&Value::Object(event)));
    }
}

/// An output item of a response: a message or a tool call.
struct OutputItem<'a> {
    id: String,
    /// Text of the message, or arguments of the tool call.
    text: &'a str,
    call: Option<(String, &'a str)>,
}

impl<'a> OutputItem<'a> {
    fn from_block(
        mock_reply: &'a MockReply<'_>,
        position: usize,
        block: &'a Block,
    ) -> Option<Self> {
        let ids = &mock_reply.ids;
        match block {
            Block::Text(block_text) => {
                Some(Self { id: ids.item_id("msg_", position), text: &block_text.text, call: None })
            }
            Block::ToolCall(call) => Some(Self {
                id: ids.item_id("fc_", position),
                text: call.input.as_str(),
                call: Some((ids.item_id("call_", position), &call.name)),
            }),
            // Scripts never contain these blocks.
            Block::Thinking(_) | Block::Other(_) => None,
        }
    }

    fn to_json(&self, status: &str, text: &str) -> Value {
        match &self.call {
            None => {
                let content = match status {
                    COMPLETED => vec![output_text_part(text)],
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
                "arguments": text,
            }),
        }
    }

    /// Adds the events that stream the content of the item, between its start and end events.
    fn push_delta_events(&self, list: &mut NumberedEventList, output_index: usize) {
        let id = ("item_id", json!(self.id));
        let index = ("output_index", json!(output_index));
        let content_index = ("content_index", json!(0));
        let logprobs = ("logprobs", json!([]));
        if let Some((_, name)) = &self.call {
            for piece in argument_chunks(self.text) {
                let delta = ("delta", json!(piece));
                let fields = [id.clone(), index.clone(), delta];
                list.push_event("response.function_call_arguments.delta", fields);
            }
            let (name, arguments) = (("name", json!(name)), ("arguments", json!(self.text)));
            list.push_event("response.function_call_arguments.done", [id, index, name, arguments]);
            return;
        }
        let part_fields = [id, index, content_index];
        let [id, index, content_index] = part_fields.clone();
        let fields = [id, index, content_index, ("part", output_text_part(""))];
        list.push_event("response.content_part.added", fields);
        for piece in reply::text_chunks(self.text) {
            let [id, index, content_index] = part_fields.clone();
            let fields = [id, index, content_index, ("delta", json!(piece)), logprobs.clone()];
            list.push_event("response.output_text.delta", fields);
        }
        let [id, index, content_index] = part_fields.clone();
        let fields = [id, index, content_index, ("text", json!(self.text)), logprobs];
        list.push_event("response.output_text.done", fields);
        let [id, index, content_index] = part_fields;
        let fields = [id, index, content_index, ("part", output_text_part(self.text))];
        list.push_event("response.content_part.done", fields);
    }
}

fn output_text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// Returns the complete response with its final status.
fn completed_response(mock_reply: &MockReply<'_>) -> Value {
    let blocks = mock_reply.reply.blocks.iter().enumerate();
    let items =
        blocks.filter_map(|(position, block)| OutputItem::from_block(mock_reply, position, block));
    let output = items.map(|item| item.to_json(COMPLETED, item.text)).collect();
    let mut response = response_object(mock_reply, final_status(&mock_reply.stop).0, output);
    response["completed_at"] = mock_reply.unix_seconds().into();
    response["usage"] = render_usage(mock_reply);
    response
}

/// Returns a response object with the given status and output items, including the fields that
/// repeat the request.
fn response_object(mock_reply: &MockReply<'_>, status: &str, output: Vec<Value>) -> Value {
    // Returns the value of a request field, or the provider's default.
    let request_field_or = |name: &str, default: Value| {
        let requested = mock_reply.request.echo.get(name);
        let requested = requested.and_then(|raw| serde_json::from_str(raw.get()).ok());
        requested.filter(|value| *value != Value::Null).unwrap_or(default)
    };
    json!({
        "id": mock_reply.ids.response_id(),
        "object": "response",
        "created_at": mock_reply.unix_seconds(),
        "status": status,
        "background": false,
        "completed_at": null,
        "error": null,
        "incomplete_details": null,
        "instructions": request_field_or("instructions", Value::Null),
        "max_output_tokens": request_field_or("max_output_tokens", Value::Null),
        "model": mock_reply.request.model,
        "output": output,
        "parallel_tool_calls": request_field_or("parallel_tool_calls", json!(true)),
        "previous_response_id": request_field_or("previous_response_id", Value::Null),
        "reasoning": request_field_or("reasoning", json!({ "effort": null, "summary": null })),
        "service_tier": "default",
        "store": request_field_or("store", json!(true)),
        "temperature": request_field_or("temperature", json!(1.0)),
        "text": request_field_or("text", json!({ "format": { "type": "text" } })),
        "tool_choice": request_field_or("tool_choice", json!("auto")),
        "tools": request_field_or("tools", json!([])),
        "top_p": request_field_or("top_p", json!(1.0)),
        "truncation": request_field_or("truncation", json!("disabled")),
        "metadata": request_field_or("metadata", json!({})),
    })
}

fn render_usage(mock_reply: &MockReply<'_>) -> Value {
    let usage = &mock_reply.usage;
    let input = usage.sent_tokens();
    json!({
        "input_tokens": input,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
        "total_tokens": input.saturating_add(usage.output_tokens),
    })
}

/// Returns the final status of a response and the name of the event that ends its stream.
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
