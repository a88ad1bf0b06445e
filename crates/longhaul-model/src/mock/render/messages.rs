//! Renders a reply of the Anthropic Messages API.

use longhaul_core::message::StopReason;
use serde_json::{Value, json};

use crate::mock::mock_reply::{MockReply, ReplyItem};

/// Renders the reply as one complete response body.
pub(super) fn render_body(mock_reply: &MockReply<'_>) -> Value {
    let mut message = message_without_content(mock_reply);
    let blocks = mock_reply.items().map(|item| content_block(mock_reply, &item, true));
    message["content"] = blocks.collect();
    message["stop_reason"] = stop_reason_name(&mock_reply.stop).into();
    message["usage"]["output_tokens"] = mock_reply.usage.output_tokens.into();
    message
}

/// Renders the reply as the events of a stream.
pub(super) fn render_events(mock_reply: &MockReply<'_>) -> Vec<Value> {
    let mut events = vec![
        json!({ "type": "message_start", "message": message_without_content(mock_reply) }),
        json!({ "type": "ping" }),
    ];
    for item in mock_reply.items() {
        let index = item.index;
        let block = content_block(mock_reply, &item, false);
        events
            .push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        let delta = |piece: &str| match item.call {
            None => json!({ "type": "text_delta", "text": piece }),
            Some(_) => json!({ "type": "input_json_delta", "partial_json": piece }),
        };
        // The first delta of a call is empty, as in the provider's streams.
        let pieces = item.call.map(|_| "").into_iter().chain(item.chunks());
        events.extend(pieces.map(
            |piece| json!({ "type": "content_block_delta", "index": index, "delta": delta(piece) }),
        ));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let mut usage = render_usage(mock_reply, mock_reply.usage.output_tokens);
    for field in ["cache_creation", "service_tier", "inference_geo"] {
        _ = usage.as_object_mut().and_then(|usage| usage.shift_remove(field));
    }
    events.push(json!({
        "type": "message_delta",
        "delta": {
            "stop_reason": stop_reason_name(&mock_reply.stop),
            "stop_sequence": null,
            "stop_details": null,
            "container": null,
        },
        "usage": usage,
    }));
    events.push(json!({ "type": "message_stop" }));
    events
}

/// Returns a message without content, as the `message_start` event contains it.
fn message_without_content(mock_reply: &MockReply<'_>) -> Value {
    json!({
        "id": mock_reply.ids.item_id("msg_", 0),
        "type": "message",
        "role": "assistant",
        "model": mock_reply.request.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "stop_details": null,
        "usage": render_usage(mock_reply, 1),
        "container": null,
    })
}

/// Returns the content block of an item, complete or without its text or input.
fn content_block(mock_reply: &MockReply<'_>, item: &ReplyItem<'_>, is_complete: bool) -> Value {
    match item.call {
        None => {
            let text = if is_complete { item.text } else { "" };
            json!({ "type": "text", "text": text, "citations": null })
        }
        Some(call) => json!({
            "type": "tool_use",
            "id": mock_reply.ids.item_id("toolu_", item.index),
            "name": call.name,
            "input": if is_complete { call.input.to_value() } else { json!({}) },
            "caller": { "type": "direct" },
        }),
    }
}

fn render_usage(mock_reply: &MockReply<'_>, output_tokens: u64) -> Value {
    let usage = &mock_reply.usage;
    json!({
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": output_tokens,
        "server_tool_use": null,
        "service_tier": "standard",
        "inference_geo": null,
    })
}

fn stop_reason_name(reason: &StopReason) -> &str {
    match reason {
        StopReason::EndTurn => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
        StopReason::PauseTurn => "pause_turn",
        StopReason::Refusal => "refusal",
        StopReason::Other(other) => other,
    }
}
