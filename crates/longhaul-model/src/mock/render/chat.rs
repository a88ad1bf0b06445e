//! Renders a reply of the OpenAI Chat Completions API.

use longhaul_core::message::StopReason;
use serde_json::{Value, json};

use crate::mock::mock_reply::MockReply;

/// Renders the reply as one complete response body.
pub(super) fn render_body(mock_reply: &MockReply<'_>) -> Value {
    let text = mock_reply.reply.text();
    let mut message = json!({
        "role": "assistant",
        "content": (!text.is_empty()).then_some(text),
        "refusal": null,
        "annotations": [],
    });
    let calls: Vec<Value> = render_tool_calls(mock_reply).collect();
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({
        "id": mock_reply.ids.item_id("chatcmpl-", 0),
        "object": "chat.completion",
        "created": mock_reply.unix_seconds(),
        "model": mock_reply.request.model,
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason(&mock_reply.stop),
        }],
        "usage": render_usage(mock_reply),
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    })
}

/// Value of the field `system_fingerprint` in every reply.
const FINGERPRINT: &str = "fp_longhaul_mock";

fn render_tool_calls(mock_reply: &MockReply<'_>) -> impl Iterator<Item = Value> {
    mock_reply.reply.tool_calls().enumerate().map(|(index, call)| {
        json!({
            "id": mock_reply.ids.item_id("call_", index),
            "type": "function",
            "function": { "name": call.name, "arguments": call.input.as_str() },
        })
    })
}

/// Renders the reply as the events of a stream. The API calls each event a chunk.
pub(super) fn render_events(mock_reply: &MockReply<'_>) -> Vec<Value> {
    let mut chunks = Vec::new();
    let mut push_chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": mock_reply.ids.item_id("chatcmpl-", 0),
            "object": "chat.completion.chunk",
            "created": mock_reply.unix_seconds(),
            "model": mock_reply.request.model,
            "service_tier": "default",
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        });
        // A stream with usage has a `null` usage in every chunk but the last.
        if mock_reply.request.wants_usage() {
            chunk["usage"] = usage;
        }
        chunks.push(chunk);
    };
    let mut push_delta = |delta: Value, finish_reason: Option<&str>| {
        let choice =
            json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        push_chunk(json!([choice]), Value::Null);
    };
    let starts_with_text = mock_reply.items().next().is_some_and(|item| item.call.is_none());
    let content = starts_with_text.then_some("");
    push_delta(json!({ "role": "assistant", "content": content, "refusal": null }), None);
    let mut calls = render_tool_calls(mock_reply).enumerate();
    for item in mock_reply.items() {
        if item.call.is_none() {
            for piece in item.chunks() {
                push_delta(json!({ "content": piece }), None);
            }
        } else if let Some((index, mut call)) = calls.next() {
            call["function"]["arguments"] = "".into();
            call["index"] = index.into();
            push_delta(json!({ "tool_calls": [call] }), None);
            for piece in item.chunks() {
                let call = json!({ "index": index, "function": { "arguments": piece } });
                push_delta(json!({ "tool_calls": [call] }), None);
            }
        }
    }
    push_delta(json!({}), Some(finish_reason(&mock_reply.stop)));
    if mock_reply.request.wants_usage() {
        push_chunk(json!([]), render_usage(mock_reply));
    }
    chunks
}

fn render_usage(mock_reply: &MockReply<'_>) -> Value {
    let usage = &mock_reply.usage;
    let prompt = usage.sent_tokens();
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    })
}

const fn finish_reason(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::Refusal => "content_filter",
        StopReason::EndTurn | StopReason::PauseTurn | StopReason::Other(_) => "stop",
    }
}
