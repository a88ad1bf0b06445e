//! Decoder for replies of the Chat Completions API.
//!
//! Invariant: a reply is complete only when the server has sent a finish reason.

use longhaul_core::message::{Block, StopReason, ThinkingBlock};
use longhaul_core::raw::RawJson;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::chat::calls::ToolCallsBuilder;
use crate::decode_error::{DecodeError, Decoded};
use crate::exchange::{DecodedReply, EventEffect, NOT_JSON, ReplyDecoder, build_reply};
use crate::json_object::{JsonObject, StreamedFieldFragments};
use crate::lenient_json::is_non_empty_json_value;
use crate::lenient_object::LenientObject;
use crate::sse::SseEvent;
use crate::token_counts::{TokenCounts, UsageJsonPaths};

/// Name that most servers use for the field with the reasoning text.
pub(super) const REASONING_CONTENT: &str = "reasoning_content";

/// Name that some servers use for the field with the reasoning text.
pub(super) const REASONING: &str = "reasoning";

/// Field of a stored thinking block that says which response field contained the text of the block.
pub(super) const REASONING_FIELD: &str = "field";

/// JSON paths of the token counts in the `usage` object of a response. Cached tokens are read as
/// OpenAI, Moonshot and DeepSeek report them.
pub(super) const USAGE: UsageJsonPaths = UsageJsonPaths {
    input: "/prompt_tokens",
    output: "/completion_tokens",
    total: Some("/total_tokens"),
    cached: &["/prompt_tokens_details/cached_tokens", "/cached_tokens", "/prompt_cache_hit_tokens"],
    cache_write: "/prompt_tokens_details/cache_write_tokens",
    reasoning: "/completion_tokens_details/reasoning_tokens",
    input_includes_cache: true,
};

const DONE: &str = "[DONE]";

const REASONING_DETAILS: &str = "reasoning_details";

/// Decoder for one reply of the Chat Completions API, with everything received so far.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    model: Option<String>,
    counts: TokenCounts,
    finish_reason: Option<String>,
    text: String,
    /// Length of the part of `text` that was taken as new text.
    taken_text_len: usize,
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
    fn decode_chunk(&mut self, chunk: &LenientObject<'_>) -> Decoded<bool> {
        if self.model.is_none() {
            self.model = chunk.string_field("model").filter(|name| !name.is_empty());
        }
        let mut has_progress = self.update_token_counts(chunk.raw_field("usage"));
        for choice in parse_choices(chunk)?.iter().filter(|choice| is_first_choice(choice)) {
            has_progress |= self.decode_choice(choice)?;
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
    fn decode_choice(&mut self, choice: &LenientObject<'_>) -> Decoded<bool> {
        if let Some(error) = choice_error(choice) {
            return Err(DecodeError::ProviderError(error));
        }
        let bytes_before = self.bytes;
        let has_usage = self.update_token_counts(choice.raw_field("usage"));
        let delta = choice.raw_field("delta").filter(|delta| is_non_empty_json_value(delta));
        if let Some(delta) = delta {
            self.decode_delta(delta.get(), false)?;
        } else if let Some(message) = choice.raw_field("message") {
            self.decode_delta(message.get(), true)?;
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
    fn decode_delta(&mut self, raw: &str, is_complete: bool) -> Decoded {
        let mut fields = JsonObject::parse(raw)
            .ok_or_else(|| DecodeError::malformed("a message is not an object"))?;
        let mut take =
            |name: &str| fields.take_field(name).filter(|value| value.as_str() != "null");
        for field in [REASONING_CONTENT, REASONING] {
            let reasoning = take(field).and_then(|reasoning| parse_json_string(&reasoning));
            self.bytes += self.reasoning.append_reasoning(field, &reasoning.unwrap_or_default());
        }
        if let Some(content) = take("content") {
            self.decode_content(&content)?;
        }
        if let Some(refusal) = take("refusal").and_then(|refusal| parse_json_string(&refusal)) {
            self.is_refusal |= !refusal.is_empty();
            self.append_text(&refusal);
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
        _ = take("role");
        for (name, value) in fields.into_fields() {
            if !matches!(value.as_str(), "null" | r#""""# | "{}" | "[]") {
                self.bytes += value.as_str().len() as u64;
                self.deferred.add_fragment(&name, value);
            }
        }
        Ok(())
    }

    /// Handles the `content` of a message: a text, or a list of parts with text and reasoning.
    fn decode_content(&mut self, content: &RawJson) -> Decoded {
        if let Some(content_text) = parse_json_string(content) {
            self.append_text(&content_text);
            return Ok(());
        }
        let parts: Vec<Value> = serde_json::from_str(content.as_str())
            .map_err(DecodeError::invalid_json("a message has invalid content"))?;
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
                Some(_) | None => self.append_text(&text(&part).unwrap_or_default()),
            }
        }
        Ok(())
    }

    fn append_text(&mut self, text: &str) {
        self.text.push_str(text);
        self.bytes += text.len() as u64;
    }
}

impl ReplyDecoder for StreamDecoder {
    fn decode_event(&mut self, event: &SseEvent) -> Decoded<EventEffect> {
        match event.data.trim() {
            "" => return Ok(EventEffect::Ignored),
            // Gateways send this even when the model behind them failed.
            DONE if !self.is_complete_at_eof() => return Ok(EventEffect::Ignored),
            DONE => return Ok(EventEffect::Done),
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
        if is_error || matches!(&frames, Ok(frames) if frames.iter().any(is_error_chunk)) {
            return Err(DecodeError::ProviderError(event.data.clone()));
        }
        let frames = frames.map_err(DecodeError::invalid_json(NOT_JSON))?;
        let mut has_progress = false;
        for frame in &frames {
            has_progress |= self.decode_chunk(frame)?;
        }
        Ok(match (data_before_done.is_some() && self.is_complete_at_eof(), has_progress) {
            (true, _) => EventEffect::Done,
            (false, true) => EventEffect::Progress,
            (false, false) => EventEffect::Ignored,
        })
    }

    fn decode_body(&mut self, body: &str) -> Decoded {
        let malformed = || DecodeError::malformed("the body is neither a stream nor a completion");
        let frame = LenientObject::parse(body).map_err(|_| malformed())?;
        let choices = parse_choices(&frame).map_err(|_| malformed())?;
        if is_error_chunk(&frame) {
            return Err(DecodeError::ProviderError(body.to_owned()));
        }
        let is_reply = |choice: &LenientObject<'_>| {
            is_first_choice(choice)
                && (choice.raw_field("message").is_some() || choice_error(choice).is_some())
        };
        if !choices.iter().any(is_reply) {
            return Err(malformed());
        }
        self.decode_chunk(&frame).map(drop)
    }

    fn is_complete_at_eof(&self) -> bool {
        self.finish_reason.is_some()
    }

    fn take_new_text(&mut self) -> String {
        let new_text = self.text[self.taken_text_len..].to_owned();
        self.taken_text_len = self.text.len();
        new_text
    }

    fn token_counts(&self) -> TokenCounts {
        self.counts
    }

    fn received_byte_count(&self) -> u64 {
        self.bytes
    }

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

fn parse_choices<'a>(chunk: &LenientObject<'a>) -> Decoded<Vec<LenientObject<'a>>> {
    let Some(choices) = chunk.raw_field("choices") else {
        return Ok(Vec::new());
    };
    serde_json::from_str(choices.get())
        .map_err(DecodeError::invalid_json("an event has invalid `choices`"))
}

fn parse_json_string(value: &RawJson) -> Option<String> {
    serde_json::from_str(value.as_str()).ok()
}

/// Whether a chunk of the stream is an error, in any of the known formats.
fn is_error_chunk(chunk: &LenientObject<'_>) -> bool {
    let object = chunk.raw_field("object");
    let is_error_object = object.is_some_and(|kind| kind.get() == r#""error""#);
    is_error_object || chunk.raw_field("error").is_some_and(is_non_empty_json_value)
}

/// Whether a choice of a response is the first choice. Only one choice is requested.
fn is_first_choice(choice: &LenientObject<'_>) -> bool {
    choice.number_field("index").is_none_or(|index| index == 0)
}

/// Returns the error that a choice of a response contains. `None` means that it contains no error.
fn choice_error(choice: &LenientObject<'_>) -> Option<String> {
    let error = choice.raw_field("error").filter(|error| is_non_empty_json_value(error))?;
    Some(format!(r#"{{"error":{}}}"#, error.get()))
}

/// Maps the finish reason to a `StopReason`. Servers confuse `stop` and `tool_calls`, so the
/// content of the reply decides between them.
fn stop_reason(finish_reason: Option<&str>, has_calls: bool, is_refusal: bool) -> StopReason {
    match finish_reason {
        Some("length" | "max_tokens" | "model_length") => StopReason::MaxTokens,
        Some("content_filter" | "sensitive" | "refusal") => StopReason::Refusal,
        Some("stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn") | None => {
            match (is_refusal, has_calls) {
                (true, _) => StopReason::Refusal,
                (false, true) => StopReason::ToolUse,
                (false, false) => StopReason::EndTurn,
            }
        }
        Some("tool_calls" | "function_call") => StopReason::ToolUse,
        Some(other) => StopReason::Other(other.to_owned()),
    }
}

/// Returns the error for a finish reason that means that the reply failed. `None` means that the
/// finish reason is not an error.
fn error_for_finish_reason(finish_reason: &str) -> Option<String> {
    let kind = match finish_reason {
        "error" | "abort" | "network_error" => "server_error",
        "insufficient_system_resource" => "server_overloaded",
        _ => return None,
    };
    let message = format!("the reply ended for the reason `{finish_reason}`");
    Some(json!({ "error": { "type": kind, "message": message } }).to_string())
}

/// Fields of a detail whose fragments are appended to each other. Of any other field the last value
/// is used.
const APPENDED_FIELDS: &[&str] = &["text", "summary", "data"];

/// Maximum number of reasoning details per reply. Further details are ignored.
const DETAILS_MAX: usize = 1_024;

/// Reasoning details of a reply, as far as received. They come in fragments and are sent back
/// complete, because the signature in a detail is only valid for the complete detail. Only fragments
/// of the same detail are joined, and their content is not interpreted.
#[derive(Debug, Default)]
struct ReasoningDetails(Vec<ReasoningDetail>);

#[derive(Debug, Default)]
struct ReasoningDetail {
    fields: JsonObject,
    deferred: StreamedFieldFragments,
}

impl ReasoningDetails {
    /// Applies a JSON list of fragments of reasoning details. Returns false if the value is not a
    /// list.
    fn try_apply_fragments(&mut self, fragments_json: &str) -> bool {
        let Ok(pieces) = serde_json::from_str::<Vec<&RawValue>>(fragments_json) else {
            return false;
        };
        for piece in pieces {
            if let Some(piece) = JsonObject::parse(piece.get()) {
                self.add_fragment_to_detail(piece);
            }
        }
        true
    }

    fn add_fragment_to_detail(&mut self, fragment: JsonObject) {
        let is_same_detail = |detail: &&mut ReasoningDetail| {
            let has_same = |name: &str| detail.fields.get(name) == fragment.get(name);
            fragment.get("index").is_some() && has_same("index") && has_same("type")
        };
        let is_full = self.0.len() >= DETAILS_MAX;
        match self.0.last_mut().filter(is_same_detail) {
            Some(last) => last.append_fragment(fragment),
            None if is_full => {}
            None => self.0.push(ReasoningDetail {
                fields: fragment,
                deferred: StreamedFieldFragments::default(),
            }),
        }
    }

    /// Returns all reasoning details as one JSON list. `None` means that there are no details.
    fn into_json(self) -> Option<RawJson> {
        let details = self.0.into_iter().filter_map(ReasoningDetail::into_detail_json);
        let details: Vec<String> = details.map(|detail| detail.as_str().to_owned()).collect();
        let list = (!details.is_empty()).then(|| format!("[{}]", details.join(",")));
        RawJson::parse(list?).ok()
    }
}

impl ReasoningDetail {
    fn append_fragment(&mut self, fragment: JsonObject) {
        for (name, value) in fragment.into_fields() {
            match value.as_str() {
                "null" => {}
                _ if APPENDED_FIELDS.contains(&&*name) => self.deferred.add_fragment(&name, value),
                _ => self.fields.set_field(&name, value),
            }
        }
    }

    fn into_detail_json(mut self) -> Option<RawJson> {
        self.deferred.merge_into(&mut self.fields);
        self.fields.to_json()
    }
}
