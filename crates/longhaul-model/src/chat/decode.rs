//! A reply while it comes in over a stream of completions.
//!
//! Never: finished before the server says why the model stopped.

use longhaul_core::message::{Block, ThinkingBlock};
use longhaul_core::port::model::DeltaSink;
use longhaul_core::raw::RawJson;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::adapter::{DecodedReply, ResponseDecoder, build_reply};
use crate::chat::calls::CallsBuilder;
use crate::chat::reasoning_details::ReasoningDetails;
use crate::chat::wire::{self, error_for_reason, error_of, is_first, stop_reason};
use crate::chat::wire::{REASONING, REASONING_CONTENT, REASONING_FIELD, USAGE};
use crate::decode_error::DecodeError;
use crate::exchange::{EventDecoder, EventEffect};
use crate::json_object::{DeferredFields, JsonObject};
use crate::lenient_json::is_present;
use crate::lenient_object::LenientObject;
use crate::sse::SseEvent;
use crate::token_counts::TokenCounts;

const DONE: &str = "[DONE]";

const REASONING_DETAILS: &str = "reasoning_details";

/// The fields of a message that are written from what is known.
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

/// A reply in the making.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    model: Option<String>,
    counts: TokenCounts,
    finish_reason: Option<String>,
    text: String,
    is_refusal: bool,
    reasoning: ReasoningText,
    calls: CallsBuilder,
    details: ReasoningDetails,
    /// What comes in fields that nobody knows.
    deferred: DeferredFields,
    /// So much of a reply has come.
    bytes: u64,
}

/// A thought, and where it stands: some servers send it under two names.
#[derive(Debug, Default)]
struct ReasoningText {
    field: Option<&'static str>,
    text: String,
}

impl ReasoningText {
    fn append(&mut self, field: &'static str, text: &str) -> u64 {
        if text.is_empty() || *self.field.get_or_insert(field) != field {
            return 0;
        }
        self.text.push_str(text);
        text.len() as u64
    }

    fn finish(self) -> Option<Block> {
        let field = self.field?;
        let named = (field != REASONING_CONTENT).then(|| {
            let mut extra = JsonObject::default();
            extra.set(REASONING_FIELD, RawJson::from_serialize(&field));
            extra.to_raw()
        });
        Some(Block::Thinking(ThinkingBlock {
            text: self.text.into(),
            signature: None,
            extra: named.flatten(),
        }))
    }
}

impl StreamDecoder {
    /// Hears a frame, and says whether anything of the reply was in it.
    fn on_chunk(
        &mut self,
        frame: &LenientObject<'_>,
        ear: &dyn DeltaSink,
    ) -> Result<bool, DecodeError> {
        if self.model.is_none() {
            self.model = frame.text("model").filter(|name| !name.is_empty());
        }
        let mut moved = self.update_usage(frame.raw("usage"));
        for choice in parse_choices(frame)?.iter().filter(|choice| is_first(choice)) {
            moved |= self.on_choice(choice, ear)?;
        }
        Ok(moved)
    }

    fn update_usage(&mut self, usage: Option<&RawValue>) -> bool {
        if let Some(usage) = usage {
            self.counts.update(&USAGE, usage.get());
        }
        usage.is_some()
    }

    fn on_choice(
        &mut self,
        choice: &LenientObject<'_>,
        ear: &dyn DeltaSink,
    ) -> Result<bool, DecodeError> {
        if let Some(error) = error_of(choice) {
            return Err(DecodeError::ProviderError(error));
        }
        let before = self.bytes;
        let counted = self.update_usage(choice.raw("usage"));
        if let Some(delta) = choice.raw("delta").filter(|delta| is_present(delta)) {
            self.on_delta(delta.get(), false, ear)?;
        } else if let Some(message) = choice.raw("message") {
            self.on_delta(message.get(), true, ear)?;
        }
        let reason = choice.text_or_number("finish_reason");
        let reason = reason.filter(|reason| !reason.is_empty());
        if let Some(error) = reason.as_deref().and_then(error_for_reason) {
            return Err(DecodeError::ProviderError(error));
        }
        let is_over = reason.is_some();
        self.finish_reason = reason.or_else(|| self.finish_reason.take());
        Ok(counted || is_over || self.bytes > before)
    }

    /// Hears what is added to the message, or all of it at once.
    fn on_delta(&mut self, raw: &str, whole: bool, ear: &dyn DeltaSink) -> Result<(), DecodeError> {
        let nonsense = || DecodeError::Malformed("a message that is no object".to_owned());
        let mut fields = JsonObject::parse(raw).ok_or_else(nonsense)?;
        let mut take = |name: &str| fields.take(name).filter(|value| value.as_str() != "null");
        for field in [REASONING_CONTENT, REASONING] {
            let thought = take(field).and_then(|thought| parse_text(&thought));
            self.bytes += self.reasoning.append(field, &thought.unwrap_or_default());
        }
        let content = take("content");
        if let Some(content) = content {
            self.on_content(&content, ear)?;
        }
        if let Some(refusal) = take("refusal").and_then(|refusal| parse_text(&refusal)) {
            self.is_refusal |= !refusal.is_empty();
            self.emit_text(&refusal, ear);
        }
        if let Some(calls) = take("tool_calls") {
            self.bytes += self.calls.apply(calls.as_str(), whole)?;
        }
        if let Some(call) = take("function_call") {
            self.bytes += self.calls.apply_function_call(call.as_str())?;
        }
        if let Some(details) = take(REASONING_DETAILS)
            && self.details.apply(details.as_str())
        {
            self.bytes += details.as_str().len() as u64;
        }
        for (name, value) in fields.into_pairs() {
            let is_known = KNOWN_FIELDS.contains(&&*name);
            if !is_known && !matches!(value.as_str(), "null" | r#""""# | "{}" | "[]") {
                self.bytes += value.as_str().len() as u64;
                self.deferred.add(&name, value);
            }
        }
        Ok(())
    }

    /// Hears a content: a text, or a list of parts, of which words and thoughts
    /// are understood.
    fn on_content(&mut self, content: &RawJson, ear: &dyn DeltaSink) -> Result<(), DecodeError> {
        if let Some(words) = parse_text(content) {
            self.emit_text(&words, ear);
            return Ok(());
        }
        let parts: Vec<Value> = serde_json::from_str(content.as_str())
            .map_err(|bad| DecodeError::Malformed(format!("the content of a message: {bad}")))?;
        for part in parts {
            let text = |value: &Value| value.get("text").and_then(Value::as_str).map(str::to_owned);
            match part.get("type").and_then(Value::as_str) {
                Some("thinking" | "reasoning") => {
                    let inner = part.get("thinking").unwrap_or(&part);
                    let pieces = inner.as_array().into_iter().flatten().filter_map(text);
                    let thought = inner.as_str().map(str::to_owned).or_else(|| text(inner));
                    let thought: String = thought.into_iter().chain(pieces).collect();
                    self.bytes += self.reasoning.append("content", &thought);
                }
                Some(_) | None => self.emit_text(&text(&part).unwrap_or_default(), ear),
            }
        }
        Ok(())
    }

    fn emit_text(&mut self, words: &str, ear: &dyn DeltaSink) {
        if !words.is_empty() {
            self.text.push_str(words);
            self.bytes += words.len() as u64;
            ear.on_text(words);
        }
    }
}

impl ResponseDecoder for StreamDecoder {
    fn finish(self, dialect: &str) -> DecodedReply {
        let mut extra = JsonObject::default();
        if let Some(details) = self.details.into_raw() {
            extra.set(REASONING_DETAILS, details);
        }
        self.deferred.apply_to(&mut extra);
        let words = (!self.text.is_empty()).then(|| Block::text(self.text));
        let mut blocks: Vec<Block> = self.reasoning.finish().into_iter().collect();
        blocks.extend(extra.to_raw().map(Block::Other));
        blocks.extend(words);
        blocks.extend(self.calls.finish().map(Block::ToolCall));
        let (reply, has_calls) = build_reply(dialect, blocks);
        DecodedReply {
            stop: stop_reason(self.finish_reason.as_deref(), has_calls, self.is_refusal),
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
        match event.data.trim() {
            "" => return Ok(EventEffect::Ignored),
            // Gateways say this even where the model was cut off behind them.
            DONE if !self.is_complete() => return Ok(EventEffect::Ignored),
            DONE => return Ok(EventEffect::Done),
            _ => {}
        }
        let is_error = event.name.as_deref() == Some("error");
        // Servers that leave out the blank lines leave them out here too.
        let done = event.data.trim_end().strip_suffix(DONE);
        let done = done.filter(|before| before.ends_with('\n'));
        let lines =
            done.map(|before| SseEvent { data: before.trim_end().to_owned(), ..event.clone() });
        let frames = lines.as_ref().unwrap_or(event).parse::<LenientObject<'_>>();
        if is_error || matches!(&frames, Ok(frames) if frames.iter().any(wire::is_error)) {
            return Err(DecodeError::ProviderError(event.data.clone()));
        }
        let frames =
            frames.map_err(|bad| DecodeError::Malformed(format!("an event is no JSON: {bad}")))?;
        let mut moved = false;
        for frame in &frames {
            moved |= self.on_chunk(frame, ear)?;
        }
        Ok(match (done.is_some() && self.is_complete(), moved) {
            (true, _) => EventEffect::Done,
            (false, true) => EventEffect::Progress,
            (false, false) => EventEffect::Ignored,
        })
    }

    fn decode_body(&mut self, text: &str, ear: &dyn DeltaSink) -> Result<(), DecodeError> {
        let strange = || DecodeError::Malformed("neither a stream nor a completion".to_owned());
        let frame = LenientObject::parse(text).map_err(|_| strange())?;
        let choices = parse_choices(&frame).map_err(|_| strange())?;
        if wire::is_error(&frame) {
            return Err(DecodeError::ProviderError(text.to_owned()));
        }
        let is_reply = |choice: &LenientObject<'_>| {
            is_first(choice) && (choice.raw("message").is_some() || error_of(choice).is_some())
        };
        if !choices.iter().any(is_reply) {
            return Err(strange());
        }
        self.on_chunk(&frame, ear).map(|_| ())
    }

    fn is_complete(&self) -> bool {
        self.finish_reason.is_some()
    }

    fn counts(&self) -> TokenCounts {
        self.counts
    }

    fn received_bytes(&self) -> u64 {
        self.bytes
    }
}

fn parse_choices<'a>(frame: &LenientObject<'a>) -> Result<Vec<LenientObject<'a>>, DecodeError> {
    let Some(choices) = frame.raw("choices") else {
        return Ok(Vec::new());
    };
    serde_json::from_str(choices.get())
        .map_err(|bad| DecodeError::Malformed(format!("the `choices` of an event: {bad}")))
}

fn parse_text(value: &RawJson) -> Option<String> {
    serde_json::from_str(value.as_str()).ok()
}
