//! Renders a reply of the Anthropic Messages API. Empty fields are included where the provider
//! includes them.

use bytes::Bytes;
use longhaul_core::message::{Block, StopReason};
use serde_json::{Value, json};

use crate::mock::event;
use crate::mock::mock_reply::{MockReply, argument_chunks};
use crate::scripted::reply;

/// Renders the reply as one complete response body.
pub(super) fn render_body(mock_reply: &MockReply<'_>) -> String {
    let blocks = mock_reply.reply.blocks.iter().enumerate();
    let content = blocks.filter_map(|(index, block)| match block {
        Block::Text(block_text) => Some(text_block(&block_text.text)),
        Block::ToolCall(call) => {
            let id = mock_reply.ids.item_id("toolu_", index);
            Some(tool_use_block(&id, &call.name, &call.input.to_value()))
        }
        // Scripts never contain these blocks.
        Block::Thinking(_) | Block::Other(_) => None,
    });
    let mut message = message_json_without_content(mock_reply);
    message["content"] = content.collect();
    message["stop_reason"] = stop_reason_name(&mock_reply.stop).into();
    message["usage"] = render_usage(mock_reply, mock_reply.usage.output_tokens);
    message.to_string()
}

/// Renders the reply as the server-sent events of a stream.
pub(super) fn render_events(mock_reply: &MockReply<'_>) -> Vec<Bytes> {
    let mut events = vec![
        event::encode_named_sse_event(
            &json!({ "type": "message_start", "message": message_json_without_content(mock_reply) }),
        ),
        event::encode_named_sse_event(&json!({ "type": "ping" })),
    ];
    for (index, block) in mock_reply.reply.blocks.iter().enumerate() {
        let (start_block, deltas) = match block {
            Block::Text(block_text) => (text_block(""), text_deltas(&block_text.text)),
            Block::ToolCall(call) => {
                let id = mock_reply.ids.item_id("toolu_", index);
                let start_block = tool_use_block(&id, &call.name, &json!({}));
                (start_block, tool_input_deltas(call.input.as_str()))
            }
            Block::Thinking(_) | Block::Other(_) => continue,
        };
        let start_event =
            json!({ "type": "content_block_start", "index": index, "content_block": start_block });
        events.push(event::encode_named_sse_event(&start_event));
        events.extend(deltas.into_iter().map(|delta| {
            event::encode_named_sse_event(
                &json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            )
        }));
        events.push(event::encode_named_sse_event(
            &json!({ "type": "content_block_stop", "index": index }),
        ));
    }
    events.push(event::encode_named_sse_event(&message_delta(mock_reply)));
    events.push(event::encode_named_sse_event(&json!({ "type": "message_stop" })));
    events
}

/// Returns a message without content, as the `message_start` event contains it.
fn message_json_without_content(mock_reply: &MockReply<'_>) -> Value {
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

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text, "citations": null })
}

fn tool_use_block(id: &str, name: &str, input: &Value) -> Value {
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

/// Returns the deltas that stream the input of a tool call. The first delta is empty, as in the
/// provider's streams.
fn tool_input_deltas(arguments: &str) -> Vec<Value> {
    let pieces = std::iter::once("").chain(argument_chunks(arguments));
    pieces.map(|piece| json!({ "type": "input_json_delta", "partial_json": piece })).collect()
}

fn message_delta(mock_reply: &MockReply<'_>) -> Value {
    let usage = &mock_reply.usage;
    json!({
        "type": "message_delta",
        "delta": {
            "stop_reason": stop_reason_name(&mock_reply.stop),
            "stop_sequence": null,
            "stop_details": null,
            "container": null,
        },
        "usage": {
            "input_tokens": usage.input_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "server_tool_use": null,
        },
    })
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
