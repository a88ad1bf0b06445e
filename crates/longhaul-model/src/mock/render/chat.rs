//! Renders a reply of the OpenAI Chat Completions API.

use bytes::Bytes;
use longhaul_core::message::{Block, StopReason};
use serde_json::{Value, json};

use crate::mock::event;
use crate::mock::mock_reply::{MockReply, argument_chunks};
use crate::scripted::reply;

/// Value of the field `system_fingerprint` in every reply.
const FINGERPRINT: &str = "fp_longhaul_mock";

/// Renders the reply as one complete response body.
pub(super) fn render_body(mock_reply: &MockReply<'_>) -> String {
    let text = mock_reply.reply.text();
    let calls: Vec<Value> = render_tool_calls(mock_reply).collect();
    let mut message = json!({
        "role": "assistant",
        "content": (!text.is_empty()).then_some(text),
        "refusal": null,
        "annotations": [],
    });
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
    .to_string()
}

fn render_tool_calls(mock_reply: &MockReply<'_>) -> impl Iterator<Item = Value> {
    let calls = mock_reply.reply.tool_calls().enumerate();
    calls.map(|(index, call)| {
        json!({
            "id": mock_reply.ids.item_id("call_", index),
            "type": "function",
            "function": { "name": call.name, "arguments": call.input.as_str() },
        })
    })
}

/// Renders the reply as the server-sent events of a stream.
pub(super) fn render_events(mock_reply: &MockReply<'_>) -> Vec<Bytes> {
    let mut chunks = ChunkBuilder {
        reply: mock_reply,
        id: mock_reply.ids.item_id("chatcmpl-", 0),
        events: Vec::new(),
    };
    let starts_with_text = matches!(mock_reply.reply.blocks.first(), Some(Block::Text(_)));
    let content = starts_with_text.then_some("");
    chunks.push_delta(&json!({ "role": "assistant", "content": content, "refusal": null }));
    for piece in reply::text_chunks(&mock_reply.reply.text()) {
        chunks.push_delta(&json!({ "content": piece }));
    }
    for (index, mut call) in render_tool_calls(mock_reply).enumerate() {
        let arguments = call["function"]["arguments"].take();
        call["function"]["arguments"] = "".into();
        call["index"] = index.into();
        chunks.push_delta(&json!({ "tool_calls": [call] }));
        for piece in argument_chunks(arguments.as_str().unwrap_or_default()) {
            let call = json!({ "index": index, "function": { "arguments": piece } });
            chunks.push_delta(&json!({ "tool_calls": [call] }));
        }
    }
    chunks.push_choice(&json!({}), Some(finish_reason(&mock_reply.stop)));
    if mock_reply.request.wants_usage {
        chunks.push_chunk(json!([]), render_usage(mock_reply));
    }
    chunks.events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    chunks.events
}

/// Builder for the stream events of one reply. The API calls each event a chunk.
struct ChunkBuilder<'a> {
    reply: &'a MockReply<'a>,
    id: String,
    events: Vec<Bytes>,
}

impl ChunkBuilder<'_> {
    fn push_delta(&mut self, delta: &Value) {
        self.push_choice(delta, None);
    }

    fn push_choice(&mut self, delta: &Value, finish_reason: Option<&str>) {
        let choice =
            json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        self.push_chunk(json!([choice]), Value::Null);
    }

    fn push_chunk(&mut self, choices: Value, usage: Value) {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.reply.unix_seconds(),
            "model": self.reply.request.model,
            "service_tier": "default",
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        });
        // A stream with usage has a `null` usage in every chunk but the last.
        if self.reply.request.wants_usage {
            chunk["usage"] = usage;
        }
        self.events.push(event::encode_unnamed_sse_event(&chunk));
    }
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
