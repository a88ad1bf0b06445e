//! Decoder for replies of the Messages API.
//!
//! Invariant: a stream is complete only after its `message_stop` event.

use std::collections::BTreeMap;

use longhaul_core::port::model::DeltaSink;

use crate::adapter::{DecodedReply, ResponseDecoder, build_reply};
use crate::anthropic::block::BlockBuilder;
use crate::anthropic::wire::{USAGE, stop_reason};
use crate::decode_error::DecodeError;
use crate::exchange::{
    StreamEventDecoder, StreamEventEffect, decode_event_objects, emit_non_empty_text, event_type,
    invalid_json_error, required_field,
};
use crate::lenient_json::{check_tool_call_count, is_non_empty_json_value};
use crate::lenient_object::LenientObject;
use crate::sse::SseEvent;
use crate::token_counts::TokenCounts;

/// Decoder for one reply of the Messages API, with everything received so far.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    model: Option<String>,
    counts: TokenCounts,
    stop_reason: Option<String>,
    blocks: Vec<BlockBuilder>,
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
    fn decode_stream_event(
        &mut self,
        kind: &str,
        event_object: &LenientObject<'_>,
        sink: &dyn DeltaSink,
    ) -> Result<Option<StreamEventEffect>, DecodeError> {
        match kind {
            "message_start" => self.decode_message_start(event_object),
            "content_block_start" => self.decode_block_start(event_object, sink)?,
            "content_block_delta" => self.decode_block_delta(event_object, sink)?,
            "message_delta" => self.decode_message_delta(event_object),
            "message_stop" => return Ok(Some(StreamEventEffect::Done)),
            // All blocks are finished together with the message.
            "content_block_stop" => {}
            "ping" => return Ok(Some(StreamEventEffect::Ignored)),
            _ => return Ok(None),
        }
        Ok(Some(StreamEventEffect::Progress))
    }

    /// Handles the event `message_start`. A reply without this event is accepted.
    fn decode_message_start(&mut self, event_object: &LenientObject<'_>) {
        let Some(message) = event_object.object_field("message") else {
            return;
        };
        self.model = message.string_field("model").or_else(|| self.model.take());
        if let Some(usage) = message.raw_field("usage") {
            self.counts.update_from_initial_usage(&USAGE, usage.get());
        }
    }

    fn decode_block_start(
        &mut self,
        event_object: &LenientObject<'_>,
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let raw = required_field(event_object, "content_block")?;
        let index = event_object.number_field("index").unwrap_or(self.blocks.len() as u64);
        self.push_block(raw, sink)?;
        self.block_by_index.insert(index, self.blocks.len() - 1);
        Ok(())
    }

    fn push_block(&mut self, block_json: &str, sink: &dyn DeltaSink) -> Result<(), DecodeError> {
        let block = BlockBuilder::from_json(block_json).map_err(DecodeError::Malformed)?;
        self.call_count += usize::from(block.is_tool_call());
        check_tool_call_count(self.call_count)?;
        self.bytes += block_json.len() as u64;
        emit_non_empty_text(block.visible_text(), sink);
        self.blocks.push(block);
        Ok(())
    }

    fn decode_block_delta(
        &mut self,
        event_object: &LenientObject<'_>,
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let raw = required_field(event_object, "delta")?;
        let delta = LenientObject::parse(raw).map_err(|error| {
            DecodeError::Malformed(format!("an event has an invalid `delta`: {error}"))
        })?;
        let kind = delta.string_field("type").unwrap_or_default();
        let position = match event_object.number_field("index") {
            Some(index) => self.block_by_index.get(&index).copied(),
            // Without an index the delta belongs to the block that started last.
            None => self.blocks.len().checked_sub(1),
        };
        let block = match position.and_then(|position| self.blocks.get_mut(position)) {
            Some(block) => block,
            None => self.start_text_block(event_object, &kind)?,
        };
        let (text, bytes) = block.apply_delta(&kind, &delta, raw)?;
        emit_non_empty_text(&text, sink);
        self.bytes += bytes;
        Ok(())
    }

    /// Starts a block for a delta that came without a start event. Only a text block can be started
    /// this way; a tool call would lack its name.
    fn start_text_block(
        &mut self,
        event_object: &LenientObject<'_>,
        kind: &str,
    ) -> Result<&mut BlockBuilder, DecodeError> {
        if kind != "text_delta" {
            return Err(DecodeError::Malformed(format!(
                "received `{kind}` for a block that was never started"
            )));
        }
        let position = self.blocks.len();
        self.block_by_index.insert(event_object.number_field("index").unwrap_or(0), position);
        self.blocks.push(BlockBuilder::new_text_block());
        self.blocks
            .get_mut(position)
            .ok_or_else(|| DecodeError::Malformed("an event refers to a missing block".to_owned()))
    }

    fn decode_message_delta(&mut self, event_object: &LenientObject<'_>) {
        let reason = event_object
            .object_field("delta")
            .and_then(|delta| delta.string_or_number_field("stop_reason"));
        self.stop_reason = reason.or_else(|| self.stop_reason.take());
        if let Some(usage) = event_object.raw_field("usage") {
            self.counts.update_from_usage(&USAGE, usage.get());
        }
    }
}

impl ResponseDecoder for StreamDecoder {
    fn into_decoded_reply(self, api_label: &str) -> DecodedReply {
        let blocks = self.blocks.into_iter().map(BlockBuilder::into_content_block);
        let (reply, has_calls) = build_reply(api_label, blocks);
        DecodedReply {
            stop: stop_reason(self.stop_reason.as_deref(), has_calls),
            reply,
            model: self.model,
        }
    }
}

impl StreamEventDecoder for StreamDecoder {
    fn decode_event(
        &mut self,
        event: &SseEvent,
        sink: &dyn DeltaSink,
    ) -> Result<StreamEventEffect, DecodeError> {
        decode_event_objects(event, |raw| {
            let frame = LenientObject::parse(raw.get()).map_err(invalid_json_error)?;
            let kind = event_type(&frame, event);
            let provider_error = || Err(DecodeError::ProviderError(raw.get().to_owned()));
            if kind == "error" {
                return provider_error();
            }
            match self.decode_stream_event(&kind, &frame, sink)? {
                Some(effect) => Ok(effect),
                // Some compatible servers omit the event type of an error.
                None if frame.raw_field("error").is_some_and(is_non_empty_json_value) => {
                    provider_error()
                }
                None => Ok(StreamEventEffect::Ignored),
            }
        })
    }

    fn decode_body(&mut self, body_text: &str, sink: &dyn DeltaSink) -> Result<(), DecodeError> {
        let malformed_body_error =
            || DecodeError::Malformed("the body is neither a stream nor a message".to_owned());
        let body = LenientObject::parse(body_text).map_err(|_| malformed_body_error())?;
        let content = body.list_field("content");
        let is_bare_error =
            content.is_none() && body.raw_field("error").is_some_and(is_non_empty_json_value);
        if is_bare_error || body.string_field("type").as_deref() == Some("error") {
            return Err(DecodeError::ProviderError(body_text.to_owned()));
        }
        for block in content.ok_or_else(malformed_body_error)? {
            self.push_block(block.get(), sink)?;
        }
        if let Some(usage) = body.raw_field("usage") {
            self.counts.update_from_usage(&USAGE, usage.get());
        }
        self.stop_reason = body.string_or_number_field("stop_reason");
        self.model = body.string_field("model");
        Ok(())
    }

    fn token_counts(&self) -> TokenCounts {
        self.counts
    }

    fn received_byte_count(&self) -> u64 {
        self.bytes
    }
}
