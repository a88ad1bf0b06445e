//! Decoder for replies of the Messages API.
//!
//! Invariant: a stream is complete only after its `message_stop` event.

use std::collections::BTreeMap;

use longhaul_core::message::StopReason;

use crate::anthropic::block::BlockBuilder;
use crate::decode_error::{DecodeError, Decoded};
use crate::exchange::{
    DecodedReply, EventEffect, NOT_JSON, ReplyDecoder, build_reply, decode_event_objects,
    event_type, required_field,
};
use crate::lenient_json::{check_tool_call_count, is_non_empty_json_value};
use crate::lenient_object::LenientObject;
use crate::sse::SseEvent;
use crate::token_counts::{TokenCounts, UsageJsonPaths};

/// JSON paths of the token counts in the `usage` object of a response.
pub(super) const USAGE: UsageJsonPaths = UsageJsonPaths {
    input: "/input_tokens",
    output: "/output_tokens",
    total: None,
    cached: &["/cache_read_input_tokens"],
    cache_write: "/cache_creation_input_tokens",
    reasoning: "/output_tokens_details/thinking_tokens",
    input_includes_cache: false,
};

/// Decoder for one reply of the Messages API, with everything received so far.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    model: Option<String>,
    counts: TokenCounts,
    stop_reason: Option<String>,
    blocks: Vec<BlockBuilder>,
    /// User-visible text that was decoded, but not yet taken.
    new_text: String,
    /// Number of tool calls in `blocks`.
    call_count: usize,
    /// Maps the provider's block index to the position in `blocks`. A new block with the same index
    /// replaces the old entry.
    block_by_index: BTreeMap<u64, usize>,
    /// Number of bytes of reply content received so far.
    bytes: u64,
}

impl StreamDecoder {
    /// Handles a stream event of the given type. Returns `None` if the type is unknown.
    fn on_event(&mut self, kind: &str, event: &LenientObject<'_>) -> Decoded<Option<EventEffect>> {
        match kind {
            // A reply without this event is accepted.
            "message_start" => {
                if let Some(message) = event.object_field("message") {
                    self.model = message.string_field("model").or_else(|| self.model.take());
                    if let Some(usage) = message.raw_field("usage") {
                        self.counts.update_from_initial_usage(&USAGE, usage.get());
                    }
                }
            }
            "content_block_start" => self.on_block_start(event)?,
            "content_block_delta" => self.on_block_delta(event)?,
            "message_delta" => {
                let delta = event.object_field("delta");
                let reason = delta.and_then(|delta| delta.string_or_number_field("stop_reason"));
                self.stop_reason = reason.or_else(|| self.stop_reason.take());
                if let Some(usage) = event.raw_field("usage") {
                    self.counts.update_from_usage(&USAGE, usage.get());
                }
            }
            "message_stop" => return Ok(Some(EventEffect::Done)),
            // All blocks are finished together with the message.
            "content_block_stop" => {}
            "ping" => return Ok(Some(EventEffect::Ignored)),
            _ => return Ok(None),
        }
        Ok(Some(EventEffect::Progress))
    }

    fn on_block_start(&mut self, event: &LenientObject<'_>) -> Decoded {
        let raw = required_field(event, "content_block")?;
        let index = event.number_field("index").unwrap_or(self.blocks.len() as u64);
        self.push_block(raw)?;
        self.block_by_index.insert(index, self.blocks.len() - 1);
        Ok(())
    }

    fn push_block(&mut self, block_json: &str) -> Decoded {
        let block = BlockBuilder::from_json(block_json)?;
        self.call_count += usize::from(block.is_tool_call());
        check_tool_call_count(self.call_count)?;
        self.bytes += block_json.len() as u64;
        self.new_text.push_str(block.visible_text());
        self.blocks.push(block);
        Ok(())
    }

    fn on_block_delta(&mut self, event: &LenientObject<'_>) -> Decoded {
        let raw = required_field(event, "delta")?;
        let kind = event.object_field("delta").and_then(|delta| delta.string_field("type"));
        let kind = kind.unwrap_or_default();
        let position = match event.number_field("index") {
            Some(index) => self.block_by_index.get(&index).copied(),
            // Without an index the delta belongs to the block that started last.
            None => self.blocks.len().checked_sub(1),
        };
        let position = match position {
            Some(position) => position,
            // Only a text block can start without a start event; a tool call would lack its name.
            None if kind == "text_delta" => {
                self.block_by_index
                    .insert(event.number_field("index").unwrap_or(0), self.blocks.len());
                self.blocks.push(BlockBuilder::default());
                self.blocks.len() - 1
            }
            None => {
                return Err(DecodeError::Malformed(format!(
                    "received `{kind}` for a block that was never started"
                )));
            }
        };
        if let Some(block) = self.blocks.get_mut(position) {
            let (text, bytes) = block.apply_delta(&kind, raw)?;
            self.new_text.push_str(&text);
            self.bytes += bytes;
        }
        Ok(())
    }
}

impl ReplyDecoder for StreamDecoder {
    fn decode_event(&mut self, event: &SseEvent) -> Decoded<EventEffect> {
        decode_event_objects(event, |raw| {
            let frame =
                LenientObject::parse(raw.get()).map_err(DecodeError::invalid_json(NOT_JSON))?;
            let kind = event_type(&frame, event);
            let provider_error = || Err(DecodeError::ProviderError(raw.get().to_owned()));
            if kind == "error" {
                return provider_error();
            }
            match self.on_event(&kind, &frame)? {
                Some(effect) => Ok(effect),
                // Some compatible servers omit the event type of an error.
                None if frame.raw_field("error").is_some_and(is_non_empty_json_value) => {
                    provider_error()
                }
                None => Ok(EventEffect::Ignored),
            }
        })
    }

    fn decode_body(&mut self, body_text: &str) -> Decoded {
        let malformed = || DecodeError::malformed("the body is neither a stream nor a message");
        let body = LenientObject::parse(body_text).map_err(|_| malformed())?;
        let content = body.list_field("content");
        let is_bare_error =
            content.is_none() && body.raw_field("error").is_some_and(is_non_empty_json_value);
        if is_bare_error || body.string_field("type").as_deref() == Some("error") {
            return Err(DecodeError::ProviderError(body_text.to_owned()));
        }
        for block in content.ok_or_else(malformed)? {
            self.push_block(block.get())?;
        }
        if let Some(usage) = body.raw_field("usage") {
            self.counts.update_from_usage(&USAGE, usage.get());
        }
        self.stop_reason = body.string_or_number_field("stop_reason");
        self.model = body.string_field("model");
        Ok(())
    }

    fn take_new_text(&mut self) -> String {
        std::mem::take(&mut self.new_text)
    }

    fn token_counts(&self) -> TokenCounts {
        self.counts
    }

    fn received_byte_count(&self) -> u64 {
        self.bytes
    }

    fn into_decoded_reply(self, api_label: &str) -> DecodedReply {
        let blocks = self.blocks.into_iter().map(BlockBuilder::into_content_block);
        let (reply, has_calls) = build_reply(api_label, blocks);
        let stop = stop_reason(self.stop_reason.as_deref(), has_calls);
        DecodedReply { stop, reply, model: self.model }
    }
}

/// Maps the provider's stop reason to a `StopReason`. A full context window counts as a token
/// limit, and a reply that ends at a stop sequence counts as complete.
fn stop_reason(provider_reason: Option<&str>, has_calls: bool) -> StopReason {
    match provider_reason {
        Some("end_turn" | "stop_sequence") | None if has_calls => StopReason::ToolUse,
        Some("end_turn" | "stop_sequence") | None => StopReason::EndTurn,
        Some("tool_use") => StopReason::ToolUse,
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
        Some("pause_turn") => StopReason::PauseTurn,
        Some("refusal") => StopReason::Refusal,
        Some(other) => StopReason::Other(other.to_owned()),
    }
}
