//! A conversation in the items of the Responses API.
//!
//! Never: a thought without what it led to, or a change to the bytes of arguments, of sealed
//! thoughts, or of an item that is not understood.

use std::borrow::Cow;

use longhaul_core::message::{Block, Part, Reply, TextBlock, ThinkingBlock, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;

use crate::call_ids::{self, CallIds};
use crate::conversation::{self, MessageEncoder};
use crate::images::{EncodedImages, placeholder_text};
use crate::json_object::JsonObject;
use crate::lenient_json::arguments_text;
use crate::responses::wire::{NAME_MAX, ResponsesApi};
use crate::tool_results::{NO_RESULT, has_content};

/// How a result is marked that is an error: the API has no field for it.
const ERROR_PREFIX: &str = "error";

/// All pieces are items.
type EncodeTarget<'a> = conversation::EncodeTarget<'a, ()>;

impl MessageEncoder for ResponsesApi {
    type Kind = ();

    fn encode_user(&self, page: &mut EncodeTarget<'_>, parts: &[Part]) {
        let parts = parts.iter().filter(|part| has_content(part));
        let parts: Vec<JsonObject> = parts.map(|part| encode_part(part, page.images)).collect();
        if !parts.is_empty() {
            let message = JsonObject::of_type("message").with("role", "user");
            page.add((), &message.with("content", &parts));
        }
    }

    fn encode_result(&self, page: &mut EncodeTarget<'_>, id: &str, result: &ToolResult) {
        let output = result_output(result, page.images);
        page.add((), &call_output(id).with("output", &output));
    }

    fn encode_missing_result(&self, page: &mut EncodeTarget<'_>, id: &str) {
        page.add((), &call_output(id).with("output", NO_RESULT));
    }

    fn encode_reply(&self, page: &mut EncodeTarget<'_>, reply: &Reply) {
        let mut telling = ReplyEncoder::new(reply.api == self.api);
        let mut blocks = reply.blocks.as_slice();
        while let Some((block, rest)) = blocks.split_first() {
            blocks = rest;
            match block {
                Block::Text(words) => {
                    let more = telling.following_texts(rest);
                    blocks = &rest[more.len()..];
                    telling.encode_text(page, words, &more);
                }
                Block::Thinking(thought) => telling.add_reasoning(thought),
                Block::Other(raw) => telling.encode_other(page, raw),
                Block::ToolCall(call) => telling.encode_call(page, call),
            }
        }
    }
}

/// A part of what is said to the model.
fn encode_part(part: &Part, album: &EncodedImages) -> JsonObject {
    if let Part::Image(image) = part
        && let Some(data) = album.base64(image)
    {
        let url = format!("data:{};base64,{data}", image.media_type);
        let picture = JsonObject::of_type("input_image").with("image_url", &url);
        return picture.with("detail", "auto");
    }
    JsonObject::of_type("input_text").with("text", &part_text(part))
}

fn call_output(id: &str) -> JsonObject {
    JsonObject::of_type("function_call_output").with("call_id", id)
}

/// What a call brought: words, or a list of parts where a picture is shown.
fn result_output(result: &ToolResult, album: &EncodedImages) -> RawJson {
    let parts = result.content.iter().filter(|part| has_content(part));
    let parts: Vec<&Part> = parts.collect();
    let marked = result.is_error && !parts.first().is_some_and(|part| starts_with_error(part));
    let is_shown = |part: &&Part| match part {
        Part::Image(image) => album.base64(image).is_some(),
        Part::Text(_) => false,
    };
    if parts.iter().any(is_shown) {
        let mark = JsonObject::of_type("input_text").with("text", &format!("{ERROR_PREFIX}:"));
        let parts = parts.iter().map(|part| encode_part(part, album));
        let mark = marked.then_some(mark).into_iter();
        return RawJson::from_serialize(&mark.chain(parts).collect::<Vec<_>>());
    }
    let words: Vec<Cow<'_, str>> = parts.into_iter().map(part_text).collect();
    let words = words.join("\n");
    RawJson::from_serialize(&match (marked, words.is_empty()) {
        (false, _) => words,
        (true, false) => format!("{ERROR_PREFIX}: {words}"),
        (true, true) => ERROR_PREFIX.to_owned(),
    })
}

fn part_text(part: &Part) -> Cow<'_, str> {
    match part {
        Part::Text(words) => Cow::Borrowed(words),
        Part::Image(image) => Cow::Owned(placeholder_text(image)),
    }
}

fn starts_with_error(part: &Part) -> bool {
    let words = match part {
        Part::Text(words) => words.trim_start(),
        Part::Image(_) => return false,
    };
    words.get(..ERROR_PREFIX.len()).is_some_and(|first| first.eq_ignore_ascii_case(ERROR_PREFIX))
}

/// The part that words of the provider's own came as, and whether nothing is in it.
fn text_part(words: &TextBlock, extra: &mut JsonObject) -> (JsonObject, bool) {
    let part = extra.take("part");
    let part = part.and_then(|part| JsonObject::parse(part.as_str()));
    let mut rest = part.unwrap_or_default();
    let kind = rest.take_text("type");
    let kind = kind.unwrap_or_else(|| "output_text".to_owned());
    let part = JsonObject::of_type(&kind);
    let part = match kind.as_str() {
        "output_text" => {
            let no_annotations: Option<&[(); 0]> = rest.is_empty().then_some(&[]);
            let part = part.with("text", &words.text);
            part.with_some("annotations", no_annotations)
        }
        "refusal" => part.with("refusal", &words.text),
        // All that it holds is among its other fields.
        _ => return (part.with_fields(rest.to_raw().as_ref()), false),
    };
    let is_blank = words.text.trim().is_empty();
    (part.with_fields(rest.to_raw().as_ref()), is_blank)
}

/// A reply while it is told again.
struct ReplyEncoder<'a> {
    /// It came over this wire.
    is_own: bool,
    /// Thoughts that wait for what they led to.
    pending_reasoning: Vec<&'a RawJson>,
    /// A thought is missing. The provider knows by their ids which items came of
    /// which thought, and refuses those whose thought is not there.
    is_reasoning_missing: bool,
}

impl<'a> ReplyEncoder<'a> {
    const fn new(own: bool) -> Self {
        Self { is_own: own, pending_reasoning: Vec::new(), is_reasoning_missing: false }
    }

    fn add_reasoning(&mut self, thought: &'a ThinkingBlock) {
        if !self.is_own {
            return;
        }
        match thought.extra.as_ref().filter(|item| is_replayable(item)) {
            Some(item) => self.pending_reasoning.push(item),
            None => self.is_reasoning_missing = true,
        }
    }

    /// Writes the thoughts before the item that they led to.
    fn flush_reasoning(&mut self, page: &mut EncodeTarget<'_>) {
        for thought in self.pending_reasoning.drain(..) {
            page.add_raw((), thought);
            self.is_reasoning_missing = false;
        }
    }

    /// The words that follow in the same message.
    fn following_texts(&self, blocks: &'a [Block]) -> Vec<&'a TextBlock> {
        let more = blocks.iter().map_while(|block| match block {
            Block::Text(words) if self.is_own => Some(words),
            Block::Text(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        });
        more.take_while(|words| {
            let extra = parse_extra(words.extra.as_ref());
            extra.get("message").is_none() && extra.get("part").is_some()
        })
        .collect()
    }

    fn encode_text(&mut self, page: &mut EncodeTarget<'_>, first: &TextBlock, more: &[&TextBlock]) {
        if !self.is_own {
            return encode_plain_text(page, &[first]);
        }
        let mut fields = parse_extra(first.extra.as_ref());
        let message = fields.take("message");
        let first_part = text_part(first, &mut fields);
        let more_parts = more.iter();
        let more_parts =
            more_parts.map(|words| text_part(words, &mut parse_extra(words.extra.as_ref())));
        let (parts, blank): (Vec<JsonObject>, Vec<bool>) =
            [first_part].into_iter().chain(more_parts).unzip();
        if blank.into_iter().all(|is_blank| is_blank) {
            // A message that says nothing is refused, and so is a thought that
            // led to it alone.
            self.is_reasoning_missing |= !self.pending_reasoning.is_empty();
            self.pending_reasoning.clear();
            return;
        }
        self.flush_reasoning(page);
        match message.and_then(message_fields).filter(|_| !self.is_reasoning_missing) {
            Some(fields) => {
                let message = JsonObject::of_type("message").with("content", &parts);
                page.add((), &message.with_fields(fields.to_raw().as_ref()));
            }
            None => encode_plain_text(page, &[&[first], more].concat()),
        }
    }

    fn encode_call(&mut self, page: &mut EncodeTarget<'_>, call: &ToolCall) {
        self.flush_reasoning(page);
        let mut kept = parse_extra(call.extra.as_ref().filter(|_| self.is_own));
        if self.is_reasoning_missing {
            _ = kept.take("id");
        }
        let id = page.register_call(call, &call.id, CallIds::assign);
        let arguments = kept.take("arguments");
        let arguments =
            arguments.unwrap_or_else(|| RawJson::from_serialize(&arguments_text(&call.input)));
        let item = JsonObject::of_type("function_call")
            .with("call_id", &id)
            .with("name", &call_ids::tool_name(&call.name, NAME_MAX))
            .with("arguments", &arguments)
            .with_fields(kept.to_raw().as_ref());
        page.add((), &item);
    }

    fn encode_other(&mut self, page: &mut EncodeTarget<'_>, raw: &RawJson) {
        if self.is_own {
            self.flush_reasoning(page);
            page.add_raw((), raw);
        }
    }
}

fn encode_plain_text(page: &mut EncodeTarget<'_>, words: &[&TextBlock]) {
    for words in words.iter().filter(|words| !words.text.trim().is_empty()) {
        let message = JsonObject::of_type("message").with("role", "assistant");
        page.add((), &message.with("content", &words.text));
    }
}

fn parse_extra(raw: Option<&RawJson>) -> JsonObject {
    let fields = raw.and_then(|raw| JsonObject::parse(raw.as_str()));
    fields.unwrap_or_default()
}

/// The fields of a message as the API wants them back; none: it has no id, without
/// which it can't go back in its own form.
fn message_fields(message: RawJson) -> Option<JsonObject> {
    let mut fields = parse_extra(Some(&message));
    if !fields.get("id")?.as_str().starts_with('"') {
        return None;
    }
    for (name, usual) in [("role", "assistant"), ("status", "completed")] {
        if fields.get(name).is_none() {
            fields.set(name, RawJson::from_serialize(&usual));
        }
    }
    Some(fields)
}

/// Whether the provider can know this thought again: it is sealed, or spelled
/// out as servers do that seal nothing. It looks for any other in its store,
/// where nothing of ours is.
fn is_replayable(item: &RawJson) -> bool {
    let fields = parse_extra(Some(item));
    let empty = ["null", r#""""#, "[]"];
    let has = |name: &str| {
        let value = fields.get(name).map(RawJson::as_str);
        value.is_some_and(|value| !empty.contains(&value))
    };
    has("encrypted_content") || has("content")
}
