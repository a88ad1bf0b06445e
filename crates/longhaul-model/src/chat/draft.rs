//! A reply while it comes in over a stream of completions.
//!
//! Never: finished before the server says why the model stopped.

use longhaul_core::message::{Block, Thinking};
use longhaul_core::port::model::Ear;
use longhaul_core::raw::RawJson;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::adapter::{Draft, Said, reply};
use crate::arguments::says;
use crate::chat::calls::Calls;
use crate::chat::details::Details;
use crate::chat::wire::{self, broken_off, error_of, is_first, stop};
use crate::chat::wire::{FIELD, REASONING, REASONING_CONTENT, USAGE};
use crate::counts::Counts;
use crate::exchange::{Codec, Heed};
use crate::fault::Fault;
use crate::fields::{Fields, Later};
use crate::object::Object;
use crate::sse::Event;

const DONE: &str = "[DONE]";

const DETAILS: &str = "reasoning_details";

/// The fields of a message that are written from what is known.
const KNOWN: &[&str] = &[
    "role",
    "content",
    "refusal",
    REASONING,
    REASONING_CONTENT,
    DETAILS,
    "tool_calls",
    "function_call",
];

/// A reply in the making.
#[derive(Debug, Default)]
pub(super) struct Reading {
    model: Option<String>,
    counts: Counts,
    reason: Option<String>,
    text: String,
    refused: bool,
    thought: Thought,
    calls: Calls,
    details: Details,
    /// What comes in fields that nobody knows.
    later: Later,
    /// So much of a reply has come.
    bytes: u64,
}

/// A thought, and where it stands: some servers send it under two names.
#[derive(Debug, Default)]
struct Thought {
    field: Option<&'static str>,
    text: String,
}

impl Thought {
    fn hear(&mut self, field: &'static str, text: &str) -> u64 {
        if text.is_empty() || *self.field.get_or_insert(field) != field {
            return 0;
        }
        self.text.push_str(text);
        text.len() as u64
    }

    fn close(self) -> Option<Block> {
        let field = self.field?;
        let named = (field != REASONING_CONTENT).then(|| {
            let mut extra = Fields::default();
            extra.set(FIELD, RawJson::of(&field));
            extra.raw()
        });
        Some(Block::Thinking(Thinking {
            text: self.text.into(),
            signature: None,
            extra: named.flatten(),
        }))
    }
}

impl Reading {
    /// Hears a frame, and says whether anything of the reply was in it.
    fn hear(&mut self, frame: &Object<'_>, ear: &dyn Ear) -> Result<bool, Fault> {
        if self.model.is_none() {
            self.model = frame.text("model").filter(|name| !name.is_empty());
        }
        let mut moved = self.count(frame.raw("usage"));
        for choice in choices(frame)?.iter().filter(|choice| is_first(choice)) {
            moved |= self.choice(choice, ear)?;
        }
        Ok(moved)
    }

    fn count(&mut self, usage: Option<&RawValue>) -> bool {
        if let Some(usage) = usage {
            self.counts.hear(&USAGE, usage.get());
        }
        usage.is_some()
    }

    fn choice(&mut self, choice: &Object<'_>, ear: &dyn Ear) -> Result<bool, Fault> {
        if let Some(error) = error_of(choice) {
            return Err(Fault::Told(error));
        }
        let before = self.bytes;
        let counted = self.count(choice.raw("usage"));
        if let Some(delta) = choice.raw("delta").filter(|delta| says(delta)) {
            self.delta(delta.get(), false, ear)?;
        } else if let Some(message) = choice.raw("message") {
            self.delta(message.get(), true, ear)?;
        }
        let reason = choice.word("finish_reason");
        let reason = reason.filter(|reason| !reason.is_empty());
        if let Some(error) = reason.as_deref().and_then(broken_off) {
            return Err(Fault::Told(error));
        }
        let is_over = reason.is_some();
        self.reason = reason.or_else(|| self.reason.take());
        Ok(counted || is_over || self.bytes > before)
    }

    /// Hears what is added to the message, or all of it at once.
    fn delta(&mut self, raw: &str, whole: bool, ear: &dyn Ear) -> Result<(), Fault> {
        let nonsense = || Fault::Nonsense("a message that is no object".to_owned());
        let mut fields = Fields::read(raw).ok_or_else(nonsense)?;
        let mut take = |name: &str| fields.take(name).filter(|value| value.as_str() != "null");
        for field in [REASONING_CONTENT, REASONING] {
            let thought = take(field).and_then(|thought| text(&thought));
            self.bytes += self.thought.hear(field, &thought.unwrap_or_default());
        }
        let content = take("content");
        if let Some(content) = content {
            self.content(&content, ear)?;
        }
        if let Some(refusal) = take("refusal").and_then(|refusal| text(&refusal)) {
            self.refused |= !refusal.is_empty();
            self.say(&refusal, ear);
        }
        if let Some(calls) = take("tool_calls") {
            self.bytes += self.calls.hear(calls.as_str(), whole)?;
        }
        if let Some(call) = take("function_call") {
            self.bytes += self.calls.hear_function(call.as_str())?;
        }
        if let Some(details) = take(DETAILS)
            && self.details.hear(details.as_str())
        {
            self.bytes += details.as_str().len() as u64;
        }
        for (name, value) in fields.into_pairs() {
            let is_known = KNOWN.contains(&&*name);
            if !is_known && !matches!(value.as_str(), "null" | r#""""# | "{}" | "[]") {
                self.bytes += value.as_str().len() as u64;
                self.later.add(&name, value);
            }
        }
        Ok(())
    }

    /// Hears a content: a text, or a list of parts, of which words and thoughts
    /// are understood.
    fn content(&mut self, content: &RawJson, ear: &dyn Ear) -> Result<(), Fault> {
        if let Some(words) = text(content) {
            self.say(&words, ear);
            return Ok(());
        }
        let parts: Vec<Value> = serde_json::from_str(content.as_str())
            .map_err(|bad| Fault::Nonsense(format!("the content of a message: {bad}")))?;
        for part in parts {
            let text = |value: &Value| value.get("text").and_then(Value::as_str).map(str::to_owned);
            match part.get("type").and_then(Value::as_str) {
                Some("thinking" | "reasoning") => {
                    let inner = part.get("thinking").unwrap_or(&part);
                    let pieces = inner.as_array().into_iter().flatten().filter_map(text);
                    let thought = inner.as_str().map(str::to_owned).or_else(|| text(inner));
                    let thought: String = thought.into_iter().chain(pieces).collect();
                    self.bytes += self.thought.hear("content", &thought);
                }
                Some(_) | None => self.say(&text(&part).unwrap_or_default(), ear),
            }
        }
        Ok(())
    }

    fn say(&mut self, words: &str, ear: &dyn Ear) {
        if !words.is_empty() {
            self.text.push_str(words);
            self.bytes += words.len() as u64;
            ear.words(words);
        }
    }
}

impl Draft for Reading {
    fn finish(self, dialect: &str) -> Said {
        let mut extra = Fields::default();
        if let Some(details) = self.details.raw() {
            extra.set(DETAILS, details);
        }
        self.later.settle(&mut extra);
        let words = (!self.text.is_empty()).then(|| Block::text(self.text));
        let mut blocks: Vec<Block> = self.thought.close().into_iter().collect();
        blocks.extend(extra.raw().map(Block::Other));
        blocks.extend(words);
        blocks.extend(self.calls.close().map(Block::ToolCall));
        let (reply, has_calls) = reply(dialect, blocks);
        Said {
            stop: stop(self.reason.as_deref(), has_calls, self.refused),
            reply,
            model: self.model,
        }
    }
}

impl Codec for Reading {
    fn event(&mut self, event: &Event, ear: &dyn Ear) -> Result<Heed, Fault> {
        match event.data.trim() {
            "" => return Ok(Heed::Idle),
            // Gateways say this even where the model was cut off behind them.
            DONE if !self.is_whole() => return Ok(Heed::Idle),
            DONE => return Ok(Heed::Over),
            _ => {}
        }
        let is_error = event.name.as_deref() == Some("error");
        // Servers that leave out the blank lines leave them out here too.
        let done = event.data.trim_end().strip_suffix(DONE);
        let done = done.filter(|before| before.ends_with('\n'));
        let lines = done.map(|before| Event {
            data: before.trim_end().to_owned(),
            ..event.clone()
        });
        let frames = lines.as_ref().unwrap_or(event).read::<Object<'_>>();
        if is_error || matches!(&frames, Ok(frames) if frames.iter().any(wire::is_error)) {
            return Err(Fault::Told(event.data.clone()));
        }
        let frames =
            frames.map_err(|bad| Fault::Nonsense(format!("an event is no JSON: {bad}")))?;
        let mut moved = false;
        for frame in &frames {
            moved |= self.hear(frame, ear)?;
        }
        Ok(match (done.is_some() && self.is_whole(), moved) {
            (true, _) => Heed::Over,
            (false, true) => Heed::Moved,
            (false, false) => Heed::Idle,
        })
    }

    fn whole(&mut self, text: &str, ear: &dyn Ear) -> Result<(), Fault> {
        let strange = || Fault::Nonsense("neither a stream nor a completion".to_owned());
        let frame = Object::read(text).map_err(|_| strange())?;
        let choices = choices(&frame).map_err(|_| strange())?;
        if wire::is_error(&frame) {
            return Err(Fault::Told(text.to_owned()));
        }
        let is_reply = |choice: &Object<'_>| {
            is_first(choice) && (choice.raw("message").is_some() || error_of(choice).is_some())
        };
        if !choices.iter().any(is_reply) {
            return Err(strange());
        }
        self.hear(&frame, ear).map(|_| ())
    }

    fn is_whole(&self) -> bool {
        self.reason.is_some()
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn choices<'a>(frame: &Object<'a>) -> Result<Vec<Object<'a>>, Fault> {
    let Some(choices) = frame.raw("choices") else {
        return Ok(Vec::new());
    };
    serde_json::from_str(choices.get())
        .map_err(|bad| Fault::Nonsense(format!("the `choices` of an event: {bad}")))
}

fn text(value: &RawJson) -> Option<String> {
    serde_json::from_str(value.as_str()).ok()
}
