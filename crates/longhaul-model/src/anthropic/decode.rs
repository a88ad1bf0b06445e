//! A reply while it comes in over the stream of the Messages API.
//!
//! Never: finished before the provider says so.

use std::collections::BTreeMap;

use longhaul_core::port::model::DeltaSink;

use crate::adapter::{DecodedReply, ResponseDecoder, build_reply};
use crate::anthropic::block::BlockBuilder;
use crate::anthropic::wire::{USAGE, stop_reason};
use crate::decode_error::DecodeError;
use crate::exchange::{
    EventDecoder, EventEffect, decode_objects, emit_text, event_type, invalid_json, required_field,
};
use crate::lenient_json::{check_call_count, is_present};
use crate::lenient_object::LenientObject;
use crate::sse::SseEvent;
use crate::token_counts::TokenCounts;

/// A reply in the making.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    model: Option<String>,
    counts: TokenCounts,
    stop_reason: Option<String>,
    blocks: Vec<BlockBuilder>,
    /// So many of them are calls.
    call_count: usize,
    /// Which block has which index; a new one takes it from an old one.
    block_by_index: BTreeMap<u64, usize>,
    /// So much of a reply has come.
    bytes: u64,
}

impl StreamDecoder {
    /// Hears a frame of this kind; `None`: the kind means nothing.
    fn on_stream_event(
        &mut self,
        kind: &str,
        frame: &LenientObject<'_>,
        ear: &dyn DeltaSink,
    ) -> Result<Option<EventEffect>, DecodeError> {
        match kind {
            "message_start" => self.on_message_start(frame),
            "content_block_start" => self.on_block_start(frame, ear)?,
            "content_block_delta" => self.on_block_delta(frame, ear)?,
            "message_delta" => self.on_message_delta(frame),
            "message_stop" => return Ok(Some(EventEffect::Done)),
            // A block's end adds nothing: all of them end with the message.
            "content_block_stop" => {}
            "ping" => return Ok(Some(EventEffect::Ignored)),
            _ => return Ok(None),
        }
        Ok(Some(EventEffect::Progress))
    }

    /// Hears the beginning, which a reply can do without.
    fn on_message_start(&mut self, frame: &LenientObject<'_>) {
        let Some(message) = frame.object("message") else {
            return;
        };
        self.model = message.text("model").or_else(|| self.model.take());
        if let Some(usage) = message.raw("usage") {
            self.counts.update_initial(&USAGE, usage.get());
        }
    }

    fn on_block_start(
        &mut self,
        frame: &LenientObject<'_>,
        ear: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let raw = required_field(frame, "content_block")?;
        let index = frame.count("index").unwrap_or(self.blocks.len() as u64);
        self.push_block(raw, ear)?;
        self.block_by_index.insert(index, self.blocks.len() - 1);
        Ok(())
    }

    fn push_block(&mut self, raw: &str, ear: &dyn DeltaSink) -> Result<(), DecodeError> {
        let block = BlockBuilder::new(raw).map_err(DecodeError::Malformed)?;
        self.call_count += usize::from(block.is_call());
        check_call_count(self.call_count)?;
        self.bytes += raw.len() as u64;
        emit_text(block.visible_text(), ear);
        self.blocks.push(block);
        Ok(())
    }

    fn on_block_delta(
        &mut self,
        frame: &LenientObject<'_>,
        ear: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let raw = required_field(frame, "delta")?;
        let delta = LenientObject::parse(raw)
            .map_err(|bad| DecodeError::Malformed(format!("the `delta` of an event: {bad}")))?;
        let kind = delta.text("type").unwrap_or_default();
        let place = match frame.count("index") {
            Some(index) => self.block_by_index.get(&index).copied(),
            // Without an index it can only be the block that began last.
            None => self.blocks.len().checked_sub(1),
        };
        let block = match place.and_then(|place| self.blocks.get_mut(place)) {
            Some(block) => block,
            None => self.start_text_block(frame, &kind)?,
        };
        let (words, bytes) = block.apply_delta(&kind, &delta, raw)?;
        emit_text(&words, ear);
        self.bytes += bytes;
        Ok(())
    }

    /// A text can do without its beginning; a call can't.
    fn start_text_block(
        &mut self,
        frame: &LenientObject<'_>,
        kind: &str,
    ) -> Result<&mut BlockBuilder, DecodeError> {
        if kind != "text_delta" {
            return Err(DecodeError::Malformed(format!("`{kind}` for a block that never began")));
        }
        let place = self.blocks.len();
        self.block_by_index.insert(frame.count("index").unwrap_or(0), place);
        self.blocks.push(BlockBuilder::new_text());
        self.blocks
            .get_mut(place)
            .ok_or_else(|| DecodeError::Malformed("a block that is nowhere".to_owned()))
    }

    fn on_message_delta(&mut self, frame: &LenientObject<'_>) {
        let reason = frame.object("delta").and_then(|delta| delta.text_or_number("stop_reason"));
        self.stop_reason = reason.or_else(|| self.stop_reason.take());
        if let Some(usage) = frame.raw("usage") {
            self.counts.update(&USAGE, usage.get());
        }
    }
}

impl ResponseDecoder for StreamDecoder {
    fn finish(self, dialect: &str) -> DecodedReply {
        let blocks = self.blocks.into_iter().map(BlockBuilder::finish);
        let (reply, has_calls) = build_reply(dialect, blocks);
        DecodedReply {
            stop: stop_reason(self.stop_reason.as_deref(), has_calls),
            reply,
            model: self.model,
        }
    }
}

impl EventDecoder for StreamDecoder {
    fn decode_event(
        &mut self,
        event: &SseEvent,
        ear: &dyn DeltaSink,
    ) -> Result<EventEffect, DecodeError> {
        decode_objects(event, |raw| {
            let frame = LenientObject::parse(raw.get()).map_err(invalid_json)?;
            let kind = event_type(&frame, event);
            let told = || Err(DecodeError::ProviderError(raw.get().to_owned()));
            if kind == "error" {
                return told();
            }
            match self.on_stream_event(&kind, &frame, ear)? {
                Some(heed) => Ok(heed),
                // Servers that only speak this API leave out the kind around an error.
                None if frame.raw("error").is_some_and(is_present) => told(),
                None => Ok(EventEffect::Ignored),
            }
        })
    }

    fn decode_body(&mut self, text: &str, ear: &dyn DeltaSink) -> Result<(), DecodeError> {
        let strange = || DecodeError::Malformed("neither a stream nor a message".to_owned());
        let letter = LenientObject::parse(text).map_err(|_| strange())?;
        let content = letter.list("content");
        let bare = content.is_none() && letter.raw("error").is_some_and(is_present);
        if bare || letter.text("type").as_deref() == Some("error") {
            return Err(DecodeError::ProviderError(text.to_owned()));
        }
        for block in content.ok_or_else(strange)? {
            self.push_block(block.get(), ear)?;
        }
        if let Some(usage) = letter.raw("usage") {
            self.counts.update(&USAGE, usage.get());
        }
        self.stop_reason = letter.text_or_number("stop_reason");
        self.model = letter.text("model");
        Ok(())
    }

    fn counts(&self) -> TokenCounts {
        self.counts
    }

    fn received_bytes(&self) -> u64 {
        self.bytes
    }
}
