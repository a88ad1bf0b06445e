//! Writes a reply as Anthropic Messages.
//!
//! Never: leaves out a field because it is empty, where the provider would not.

use bytes::Bytes;
use longhaul_core::message::{Block, StopReason};
use serde_json::{Value, json};

use crate::mock::event;
use crate::mock::mock_reply::{MockReply, argument_chunks};
use crate::scripted::reply;

/// The reply as one body.
pub(super) fn body(speech: &MockReply<'_>) -> String {
    let blocks = speech.reply.blocks.iter().enumerate();
    let content = blocks.filter_map(|(place, block)| match block {
        Block::Text(words) => Some(text(&words.text)),
        Block::ToolCall(call) => {
            let id = speech.ids.id("toolu_", place);
            Some(tool_use(&id, &call.name, &call.input.to_value()))
        }
        // A script says neither.
        Block::Thinking(_) | Block::Other(_) => None,
    });
    let mut message = initial_message(speech);
    message["content"] = content.collect();
    message["stop_reason"] = stop_reason(&speech.stop).into();
    message["usage"] = usage(speech, speech.usage.output_tokens);
    message.to_string()
}

/// The reply as events.
pub(super) fn events(speech: &MockReply<'_>) -> Vec<Bytes> {
    let mut events = vec![
        event::named(&json!({ "type": "message_start", "message": initial_message(speech) })),
        event::named(&json!({ "type": "ping" })),
    ];
    for (place, block) in speech.reply.blocks.iter().enumerate() {
        let (begin, deltas) = match block {
            Block::Text(words) => (text(""), text_deltas(&words.text)),
            Block::ToolCall(call) => {
                let id = speech.ids.id("toolu_", place);
                let begin = tool_use(&id, &call.name, &json!({}));
                (begin, input_deltas(call.input.as_str()))
            }
            Block::Thinking(_) | Block::Other(_) => continue,
        };
        let begin =
            json!({ "type": "content_block_start", "index": place, "content_block": begin });
        events.push(event::named(&begin));
        events.extend(deltas.into_iter().map(|delta| {
            event::named(&json!({ "type": "content_block_delta", "index": place, "delta": delta }))
        }));
        events.push(event::named(&json!({ "type": "content_block_stop", "index": place })));
    }
    events.push(event::named(&message_delta(speech)));
    events.push(event::named(&json!({ "type": "message_stop" })));
    events
}

/// A message as it begins.
fn initial_message(speech: &MockReply<'_>) -> Value {
    json!({
        "id": speech.ids.id("msg_", 0),
        "type": "message",
        "role": "assistant",
        "model": speech.request.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "stop_details": null,
        "usage": usage(speech, 1),
        "container": null,
    })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text, "citations": null })
}

fn tool_use(id: &str, name: &str, input: &Value) -> Value {
    json!({
        "type": "tool_use",
        "id": id,
        "name": name,
        "input": input,
        "caller": { "type": "direct" },
    })
}

fn text_deltas(text: &str) -> Vec<Value> {
    let pieces = reply::text_chunks(text).into_iter();
    pieces.map(|piece| json!({ "type": "text_delta", "text": piece })).collect()
}

/// The first piece is empty, as the provider's is.
fn input_deltas(arguments: &str) -> Vec<Value> {
    let pieces = std::iter::once("").chain(argument_chunks(arguments));
    pieces.map(|piece| json!({ "type": "input_json_delta", "partial_json": piece })).collect()
}

fn message_delta(speech: &MockReply<'_>) -> Value {
    let used = &speech.usage;
    json!({
        "type": "message_delta",
        "delta": {
            "stop_reason": stop_reason(&speech.stop),
            "stop_sequence": null,
            "stop_details": null,
            "container": null,
        },
        "usage": {
            "input_tokens": used.input_tokens,
            "cache_creation_input_tokens": used.cache_write_tokens,
            "cache_read_input_tokens": used.cached_tokens,
            "output_tokens": used.output_tokens,
            "server_tool_use": null,
        },
    })
}

fn usage(speech: &MockReply<'_>, output_tokens: u64) -> Value {
    let used = &speech.usage;
    json!({
        "input_tokens": used.input_tokens,
        "cache_creation_input_tokens": used.cache_write_tokens,
        "cache_read_input_tokens": used.cached_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": used.cache_write_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": output_tokens,
        "server_tool_use": null,
        "service_tier": "standard",
        "inference_geo": null,
    })
}

fn stop_reason(reason: &StopReason) -> &str {
    match reason {
        StopReason::EndTurn => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
        StopReason::PauseTurn => "pause_turn",
        StopReason::Refusal => "refusal",
        StopReason::Other(other) => other,
    }
}
