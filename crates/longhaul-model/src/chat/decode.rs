//! Decoder for replies of the Chat Completions API.
//!
//! Invariant: a reply is complete only when the server has sent a finish reason.

use longhaul_core::message::{Block, ThinkingBlock};
use longhaul_core::port::model::DeltaSink;
use longhaul_core::raw::RawJson;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::adapter::{DecodedReply, ResponseDecoder, build_reply};
use crate::chat::calls::ToolCallsBuilder;
use crate::chat::reasoning_details::ReasoningDetails;
use crate::chat::wire::{
    self, choice_error, error_for_finish_reason, is_first_choice, stop_reason,
};
use crate::chat::wire::{REASONING, REASONING_CONTENT, REASONING_FIELD, USAGE};
use crate::decode_error::DecodeError;
use crate::exchange::{StreamEventDecoder, StreamEventEffect, invalid_json_error};
use crate::json_object::{JsonObject, StreamedFieldFragments};
use crate::lenient_json::is_non_empty_json_value;
use crate::lenient_object::LenientObject;
use crate::sse::SseEvent;
use crate::token_counts::TokenCounts;

const DONE: &str = "[DONE]";

const REASONING_DETAILS: &str = "reasoning_details";

/// Fields of a message that the decoder interprets. All other fields are kept as unknown fields.
const KNOWN_FIELDS: &[&str] = &[
    "role",
    "content",
    "refusal",
    REASONING,
    REASONING_CONTENT,
    REASONING_DETAILS,
    "tool_calls",
    "function_call",
];

/// Decoder for one reply of the Chat Completions API, with everything received so far.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    model: Option<String>,
    counts: TokenCounts,
    finish_reason: Option<String>,
    text: String,
    is_refusal: bool,
    reasoning: ReasoningText,
    calls: ToolCallsBuilder,
    details: ReasoningDetails,
    /// Fields of the message that the decoder does not interpret.
    deferred: StreamedFieldFragments,
    /// Number of bytes of reply content received so far.
    bytes: u64,
}

/// Reasoning text of a reply and the name of the field that contained it. Some servers send the
/// same text in two fields; only the first field is used.
#[derive(Debug, Default)]
struct ReasoningText {
    field: Option<&'static str>,
    text: String,
}

impl ReasoningText {
    fn append_reasoning(&mut self, field: &'static str, text: &str) -> u64 {
        if text.is_empty() || *self.field.get_or_insert(field) != field {
            return 0;
        }
        self.text.push_str(text);
        text.len() as u64
    }

    fn into_thinking_block(self) -> Option<Block> {
        let field = self.field?;
        let field_extra = (field != REASONING_CONTENT).then(|| {
            let mut extra = JsonObject::default();
            extra.set_field(REASONING_FIELD, RawJson::from_serialize(&field));
            extra.to_json()
        });
        Some(Block::Thinking(ThinkingBlock {
            text: self.text.into(),
            signature: None,
            extra: field_extra.flatten(),
        }))
    }
}

impl StreamDecoder {
    /// Handles a chunk, one JSON object of the stream. Returns whether the chunk contained a part
    /// of the reply or token counts.
    fn decode_chunk(
        &mut self,
        chunk: &LenientObject<'_>,
        sink: &dyn DeltaSink,
    ) -> Result<bool, DecodeError> {
        if self.model.is_none() {
            self.model = chunk.string_field("model").filter(|name| !name.is_empty());
        }
        let mut has_progress = self.update_token_counts(chunk.raw_field("usage"));
        for choice in parse_choices(chunk)?.iter().filter(|choice| is_first_choice(choice)) {
            has_progress |= self.decode_choice(choice, sink)?;
        }
        Ok(has_progress)
    }

    /// Applies a `usage` object, if there is one. Returns whether there was one.
    fn update_token_counts(&mut self, usage: Option<&RawValue>) -> bool {
        if let Some(usage) = usage {
            self.counts.update_from_usage(&USAGE, usage.get());
        }
        usage.is_some()
    }

    /// Handles a choice of a chunk. Returns whether the choice contained a part of the reply, token
    /// counts or a finish reason.
    fn decode_choice(
        &mut self,
        choice: &LenientObject<'_>,
        sink: &dyn DeltaSink,
    ) -> Result<bool, DecodeError> {
        if let Some(error) = choice_error(choice) {
            return Err(DecodeError::ProviderError(error));
        }
        let bytes_before = self.bytes;
        let has_usage = self.update_token_counts(choice.raw_field("usage"));
        if let Some(delta) =
            choice.raw_field("delta").filter(|delta| is_non_empty_json_value(delta))
        {
            self.decode_delta(delta.get(), false, sink)?;
        } else if let Some(message) = choice.raw_field("message") {
            self.decode_delta(message.get(), true, sink)?;
        }
        let reason = choice.string_or_number_field("finish_reason");
        let reason = reason.filter(|reason| !reason.is_empty());
        if let Some(error) = reason.as_deref().and_then(error_for_finish_reason) {
            return Err(DecodeError::ProviderError(error));
        }
        let is_finished = reason.is_some();
        self.finish_reason = reason.or_else(|| self.finish_reason.take());
        Ok(has_usage || is_finished || self.bytes > bytes_before)
    }

    /// Applies a delta of the stream, or the complete message of a reply that is not streamed.
    fn decode_delta(
        &mut self,
        raw: &str,
        is_complete: bool,
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        let malformed_error = || DecodeError::Malformed("a message is not an object".to_owned());
        let mut fields = JsonObject::parse(raw).ok_or_else(malformed_error)?;
        let mut take =
            |name: &str| fields.take_field(name).filter(|value| value.as_str() != "null");
        for field in [REASONING_CONTENT, REASONING] {
            let reasoning = take(field).and_then(|reasoning| parse_json_string(&reasoning));
            self.bytes += self.reasoning.append_reasoning(field, &reasoning.unwrap_or_default());
        }
        let content = take("content");
        if let Some(content) = content {
            self.decode_content(&content, sink)?;
        }
        if let Some(refusal) = take("refusal").and_then(|refusal| parse_json_string(&refusal)) {
            self.is_refusal |= !refusal.is_empty();
            self.append_and_emit_text(&refusal, sink);
        }
        if let Some(calls) = take("tool_calls") {
            self.bytes += self.calls.apply_tool_calls(calls.as_str(), is_complete)?;
        }
        if let Some(call) = take("function_call") {
            self.bytes += self.calls.apply_function_call(call.as_str())?;
        }
        if let Some(details) = take(REASONING_DETAILS)
            && self.details.try_apply_fragments(details.as_str())
        {
            self.bytes += details.as_str().len() as u64;
        }
        for (name, value) in fields.into_fields() {
            let is_known = KNOWN_FIELDS.contains(&&*name);
            if !is_known && !matches!(value.as_str(), "null" | r#""""# | "{}" | "[]") {
                self.bytes += value.as_str().len() as u64;
                self.deferred.add_fragment(&name, value);
            }
        }
        Ok(())
    }

    /// Handles the `content` of a message: a text, or a list of parts with text and reasoning.
    fn decode_content(
        &mut self,
        content: &RawJson,
        sink: &dyn DeltaSink,
    ) -> Result<(), DecodeError> {
        if let Some(content_text) = parse_json_string(content) {
            self.append_and_emit_text(&content_text, sink);
            return Ok(());
        }
        let parts: Vec<Value> = serde_json::from_str(content.as_str()).map_err(|error| {
            DecodeError::Malformed(format!("a message has invalid content: {error}"))
        })?;
        for part in parts {
            let text = |value: &Value| value.get("text").and_then(Value::as_str).map(str::to_owned);
            match part.get("type").and_then(Value::as_str) {
                Some("thinking" | "reasoning") => {
                    let inner = part.get("thinking").unwrap_or(&part);
                    let pieces = inner.as_array().into_iter().flatten().filter_map(text);
                    let reasoning = inner.as_str().map(str::to_owned).or_else(|| text(inner));
                    let reasoning: String = reasoning.into_iter().chain(pieces).collect();
                    self.bytes += self.reasoning.append_reasoning("content", &reasoning);
                }
                Some(_) | None => self.append_and_emit_text(&text(&part).unwrap_or_default(), sink),
            }
        }
        Ok(())
    }

    fn append_and_emit_text(&mut self, text: &str, sink: &dyn DeltaSink) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.bytes += text.len() as u64;
            sink.on_text(text);
        }
    }
}

impl ResponseDecoder for StreamDecoder {
    fn into_decoded_reply(self, api_label: &str) -> DecodedReply {
        let mut extra = JsonObject::default();
        if let Some(details) = self.details.into_json() {
            extra.set_field(REASONING_DETAILS, details);
        }
        self.deferred.merge_into(&mut extra);
        let text_block = (!self.text.is_empty()).then(|| Block::from_text(self.text));
        let mut blocks: Vec<Block> = self.reasoning.into_thinking_block().into_iter().collect();
        blocks.extend(extra.to_json().map(Block::Other));
        blocks.extend(text_block);
        blocks.extend(self.calls.into_tool_calls().map(Block::ToolCall));
        let (reply, has_calls) = build_reply(api_label, blocks);
        DecodedReply {
            stop: stop_reason(self.finish_reason.as_deref(), has_calls, self.is_refusal),
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
        match event.data.trim() {
            "" => return Ok(StreamEventEffect::Ignored),
            // Gateways send this even when the model behind them failed.
            DONE if !self.is_complete_at_eof() => {
                return Ok(StreamEventEffect::Ignored);
            }
            DONE => return Ok(StreamEventEffect::Done),
            _ => {}
        }
        let is_error = event.name.as_deref() == Some("error");
        // Servers that omit the blank lines between events also omit the one before `[DONE]`.
        let data_before_done = event.data.trim_end().strip_suffix(DONE);
        let data_before_done = data_before_done.filter(|data| data.ends_with('\n'));
        let event_before_done = data_before_done
            .map(|data| SseEvent { data: data.trim_end().to_owned(), ..event.clone() });
        let frames =
            event_before_done.as_ref().unwrap_or(event).parse_json_data::<LenientObject<'_>>();
        if is_error || matches!(&frames, Ok(frames) if frames.iter().any(wire::is_error_chunk)) {
            return Err(DecodeError::ProviderError(event.data.clone()));
        }
        let frames = frames.map_err(invalid_json_error)?;
        let mut has_progress = false;
        for frame in &frames {
            has_progress |= self.decode_chunk(frame, sink)?;
        }
        Ok(match (data_before_done.is_some() && self.is_complete_at_eof(), has_progress) {
            (true, _) => StreamEventEffect::Done,
            (false, true) => StreamEventEffect::Progress,
            (false, false) => StreamEventEffect::Ignored,
        })
    }

    fn decode_body(&mut self, body: &str, sink: &dyn DeltaSink) -> Result<(), DecodeError> {
        let malformed_body_error =
            || DecodeError::Malformed("the body is neither a stream nor a completion".to_owned());
        let frame = LenientObject::parse(body).map_err(|_| malformed_body_error())?;
        let choices = parse_choices(&frame).map_err(|_| malformed_body_error())?;
        if wire::is_error_chunk(&frame) {
            return Err(DecodeError::ProviderError(body.to_owned()));
        }
        let is_reply = |choice: &LenientObject<'_>| {
            is_first_choice(choice)
                && (choice.raw_field("message").is_some() || choice_error(choice).is_some())
        };
        if !choices.iter().any(is_reply) {
            return Err(malformed_body_error());
        }
        self.decode_chunk(&frame, sink).map(|_| ())
    }

    fn is_complete_at_eof(&self) -> bool {
        self.finish_reason.is_some()
    }

    fn token_counts(&self) -> TokenCounts {
        self.counts
    }

    fn received_byte_count(&self) -> u64 {
        self.bytes
    }
}

fn parse_choices<'a>(chunk: &LenientObject<'a>) -> Result<Vec<LenientObject<'a>>, DecodeError> {
    let Some(choices) = chunk.raw_field("choices") else {
        return Ok(Vec::new());
    };
    serde_json::from_str(choices.get())
        .map_err(|error| DecodeError::Malformed(format!("an event has invalid `choices`: {error}")))
}

fn parse_json_string(value: &RawJson) -> Option<String> {
    serde_json::from_str(value.as_str()).ok()
}
