//! Writes a reply as OpenAI Chat Completions.
//!
//! Never: more than one choice.

use bytes::Bytes;
use longhaul_core::message::{Block, StopReason};
use serde_json::{Value, json};

use crate::mock::event;
use crate::mock::mock_reply::{MockReply, argument_chunks};
use crate::scripted::reply;

/// What stands for the provider's own build.
const FINGERPRINT: &str = "fp_longhaul_mock";

/// The reply as one body.
pub(super) fn body(speech: &MockReply<'_>) -> String {
    let text = speech.reply.text();
    let calls: Vec<Value> = calls(speech).collect();
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
        "id": speech.ids.id("chatcmpl-", 0),
        "object": "chat.completion",
        "created": speech.unix_seconds(),
        "model": speech.request.model,
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason(&speech.stop),
        }],
        "usage": usage(speech),
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    })
    .to_string()
}

fn calls(speech: &MockReply<'_>) -> impl Iterator<Item = Value> {
    let calls = speech.reply.calls().enumerate();
    calls.map(|(place, call)| {
        json!({
            "id": speech.ids.id("call_", place),
            "type": "function",
            "function": { "name": call.name, "arguments": call.input.as_str() },
        })
    })
}

/// The reply as events.
pub(super) fn events(speech: &MockReply<'_>) -> Vec<Bytes> {
    let mut chunks =
        Chunks { reply: speech, id: speech.ids.id("chatcmpl-", 0), events: Vec::new() };
    let begins_with_words = matches!(speech.reply.blocks.first(), Some(Block::Text(_)));
    let content = begins_with_words.then_some("");
    chunks.delta(&json!({ "role": "assistant", "content": content, "refusal": null }));
    for piece in reply::text_chunks(&speech.reply.text()) {
        chunks.delta(&json!({ "content": piece }));
    }
    for (place, mut call) in calls(speech).enumerate() {
        let arguments = call["function"]["arguments"].take();
        call["function"]["arguments"] = "".into();
        call["index"] = place.into();
        chunks.delta(&json!({ "tool_calls": [call] }));
        for piece in argument_chunks(arguments.as_str().unwrap_or_default()) {
            let call = json!({ "index": place, "function": { "arguments": piece } });
            chunks.delta(&json!({ "tool_calls": [call] }));
        }
    }
    chunks.choice(&json!({}), Some(finish_reason(&speech.stop)));
    if speech.request.wants_usage {
        chunks.push(json!([]), usage(speech));
    }
    chunks.events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    chunks.events
}

/// Chunks of one completion.
struct Chunks<'a> {
    reply: &'a MockReply<'a>,
    id: String,
    events: Vec<Bytes>,
}

impl Chunks<'_> {
    fn delta(&mut self, delta: &Value) {
        self.choice(delta, None);
    }

    fn choice(&mut self, delta: &Value, finish: Option<&str>) {
        let choice =
            json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        self.push(json!([choice]), Value::Null);
    }

    fn push(&mut self, choices: Value, usage: Value) {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.reply.unix_seconds(),
            "model": self.reply.request.model,
            "service_tier": "default",
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        });
        // Whoever wants to know it at the end hears on the way that it isn't known yet.
        if self.reply.request.wants_usage {
            chunk["usage"] = usage;
        }
        self.events.push(event::unnamed(&chunk));
    }
}

fn usage(speech: &MockReply<'_>) -> Value {
    let used = &speech.usage;
    let prompt = used.sent_tokens();
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": used.output_tokens,
        "total_tokens": prompt.saturating_add(used.output_tokens),
        "prompt_tokens_details": {
            "cached_tokens": used.cached_tokens,
            "cache_write_tokens": used.cache_write_tokens,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": used.reasoning_tokens,
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
