//! A conversation in the items of the Responses API.
//!
//! Never: a thought without what it led to, or a change to the bytes of arguments, of sealed
//! thoughts, or of an item that is not understood.

use std::borrow::Cow;

use longhaul_core::message::{Block, Part, Reply, Thinking, ToolCall, ToolResult, Words};
use longhaul_core::raw::RawJson;

use crate::album::{Album, in_words};
use crate::arguments::written;
use crate::fields::Fields;
use crate::ids::{self, Ids};
use crate::owed::{NO_RESULT, says_something};
use crate::responses::wire::{NAME_MAX, Responses};
use crate::talk::{self, Tongue};

/// How a result is marked that is an error: the API has no field for it.
const ERROR: &str = "error";

/// All pieces are items.
type Page<'a> = talk::Page<'a, ()>;

impl Tongue for Responses {
    type Kind = ();

    fn user(&self, page: &mut Page<'_>, parts: &[Part]) {
        let parts = parts.iter().filter(|part| says_something(part));
        let parts: Vec<Fields> = parts.map(|part| said(part, page.album)).collect();
        if !parts.is_empty() {
            let message = Fields::of_type("message").with("role", "user");
            page.add((), &message.with("content", &parts));
        }
    }

    fn result(&self, page: &mut Page<'_>, id: &str, result: &ToolResult) {
        let output = output(result, page.album);
        page.add((), &call_output(id).with("output", &output));
    }

    fn missing_result(&self, page: &mut Page<'_>, id: &str) {
        page.add((), &call_output(id).with("output", NO_RESULT));
    }

    fn reply(&self, page: &mut Page<'_>, reply: &Reply) {
        let mut telling = Telling::new(reply.dialect == self.dialect);
        let mut blocks = reply.blocks.as_slice();
        while let Some((block, rest)) = blocks.split_first() {
            blocks = rest;
            match block {
                Block::Text(words) => {
                    let more = telling.more_of_it(rest);
                    blocks = &rest[more.len()..];
                    telling.words(page, words, &more);
                }
                Block::Thinking(thought) => telling.thought(thought),
                Block::Other(raw) => telling.other(page, raw),
                Block::ToolCall(call) => telling.call(page, call),
            }
        }
    }
}

/// A part of what is said to the model.
fn said(part: &Part, album: &Album) -> Fields {
    if let Part::Image(image) = part
        && let Some(data) = album.picture(image)
    {
        let url = format!("data:{};base64,{data}", image.media_type);
        let picture = Fields::of_type("input_image").with("image_url", &url);
        return picture.with("detail", "auto");
    }
    Fields::of_type("input_text").with("text", &in_text(part))
}

fn call_output(id: &str) -> Fields {
    Fields::of_type("function_call_output").with("call_id", id)
}

/// What a call brought: words, or a list of parts where a picture is shown.
fn output(result: &ToolResult, album: &Album) -> RawJson {
    let parts = result.content.iter().filter(|part| says_something(part));
    let parts: Vec<&Part> = parts.collect();
    let marked = result.is_error && !parts.first().is_some_and(|part| says_error(part));
    let is_shown = |part: &&Part| match part {
        Part::Image(image) => album.picture(image).is_some(),
        Part::Text(_) => false,
    };
    if parts.iter().any(is_shown) {
        let mark = Fields::of_type("input_text").with("text", &format!("{ERROR}:"));
        let parts = parts.iter().map(|part| said(part, album));
        let mark = marked.then_some(mark).into_iter();
        return RawJson::of(&mark.chain(parts).collect::<Vec<_>>());
    }
    let words: Vec<Cow<'_, str>> = parts.into_iter().map(in_text).collect();
    let words = words.join("\n");
    RawJson::of(&match (marked, words.is_empty()) {
        (false, _) => words,
        (true, false) => format!("{ERROR}: {words}"),
        (true, true) => ERROR.to_owned(),
    })
}

fn in_text(part: &Part) -> Cow<'_, str> {
    match part {
        Part::Text(words) => Cow::Borrowed(words),
        Part::Image(image) => Cow::Owned(in_words(image)),
    }
}

fn says_error(part: &Part) -> bool {
    let words = match part {
        Part::Text(words) => words.trim_start(),
        Part::Image(_) => return false,
    };
    words
        .get(..ERROR.len())
        .is_some_and(|first| first.eq_ignore_ascii_case(ERROR))
}

/// The part that words of the provider's own came as, and whether nothing is in it.
fn spoken(words: &Words, extra: &mut Fields) -> (Fields, bool) {
    let part = extra.take("part");
    let part = part.and_then(|part| Fields::read(part.as_str()));
    let mut rest = part.unwrap_or_default();
    let kind = rest.take_text("type");
    let kind = kind.unwrap_or_else(|| "output_text".to_owned());
    let part = Fields::of_type(&kind);
    let part = match kind.as_str() {
        "output_text" => {
            let no_annotations: Option<&[(); 0]> = rest.is_empty().then_some(&[]);
            let part = part.with("text", &words.text);
            part.with_some("annotations", no_annotations)
        }
        "refusal" => part.with("refusal", &words.text),
        // All that it holds is among its other fields.
        _ => return (part.with_fields(rest.raw().as_ref()), false),
    };
    let is_blank = words.text.trim().is_empty();
    (part.with_fields(rest.raw().as_ref()), is_blank)
}

/// A reply while it is told again.
struct Telling<'a> {
    /// It came over this wire.
    own: bool,
    /// Thoughts that wait for what they led to.
    thoughts: Vec<&'a RawJson>,
    /// A thought is missing. The provider knows by their ids which items came of
    /// which thought, and refuses those whose thought is not there.
    severed: bool,
}

impl<'a> Telling<'a> {
    const fn new(own: bool) -> Self {
        Self {
            own,
            thoughts: Vec::new(),
            severed: false,
        }
    }

    fn thought(&mut self, thought: &'a Thinking) {
        if !self.own {
            return;
        }
        match thought.extra.as_ref().filter(|item| can_go_back(item)) {
            Some(item) => self.thoughts.push(item),
            None => self.severed = true,
        }
    }

    /// Writes the thoughts before the item that they led to.
    fn think(&mut self, page: &mut Page<'_>) {
        for thought in self.thoughts.drain(..) {
            page.add_raw((), thought);
            self.severed = false;
        }
    }

    /// The words that follow in the same message.
    fn more_of_it(&self, blocks: &'a [Block]) -> Vec<&'a Words> {
        let more = blocks.iter().map_while(|block| match block {
            Block::Text(words) if self.own => Some(words),
            Block::Text(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        });
        more.take_while(|words| {
            let extra = extra(words.extra.as_ref());
            extra.get("message").is_none() && extra.get("part").is_some()
        })
        .collect()
    }

    fn words(&mut self, page: &mut Page<'_>, first: &Words, more: &[&Words]) {
        if !self.own {
            return plainly(page, &[first]);
        }
        let mut fields = extra(first.extra.as_ref());
        let message = fields.take("message");
        let first_part = spoken(first, &mut fields);
        let more_parts = more.iter();
        let more_parts = more_parts.map(|words| spoken(words, &mut extra(words.extra.as_ref())));
        let (parts, blank): (Vec<Fields>, Vec<bool>) =
            [first_part].into_iter().chain(more_parts).unzip();
        if blank.into_iter().all(|is_blank| is_blank) {
            // A message that says nothing is refused, and so is a thought that
            // led to it alone.
            self.severed |= !self.thoughts.is_empty();
            self.thoughts.clear();
            return;
        }
        self.think(page);
        match message.and_then(named).filter(|_| !self.severed) {
            Some(fields) => {
                let message = Fields::of_type("message").with("content", &parts);
                page.add((), &message.with_fields(fields.raw().as_ref()));
            }
            None => plainly(page, &[&[first], more].concat()),
        }
    }

    fn call(&mut self, page: &mut Page<'_>, call: &ToolCall) {
        self.think(page);
        let mut kept = extra(call.extra.as_ref().filter(|_| self.own));
        if self.severed {
            _ = kept.take("id");
        }
        let id = page.call(call, &call.id, Ids::give);
        let arguments = kept.take("arguments");
        let arguments = arguments.unwrap_or_else(|| RawJson::of(&written(&call.input)));
        let item = Fields::of_type("function_call")
            .with("call_id", &id)
            .with("name", &ids::name(&call.name, NAME_MAX))
            .with("arguments", &arguments)
            .with_fields(kept.raw().as_ref());
        page.add((), &item);
    }

    fn other(&mut self, page: &mut Page<'_>, raw: &RawJson) {
        if self.own {
            self.think(page);
            page.add_raw((), raw);
        }
    }
}

fn plainly(page: &mut Page<'_>, words: &[&Words]) {
    for words in words.iter().filter(|words| !words.text.trim().is_empty()) {
        let message = Fields::of_type("message").with("role", "assistant");
        page.add((), &message.with("content", &words.text));
    }
}

fn extra(raw: Option<&RawJson>) -> Fields {
    let fields = raw.and_then(|raw| Fields::read(raw.as_str()));
    fields.unwrap_or_default()
}

/// The fields of a message as the API wants them back; none: it has no id, without
/// which it can't go back in its own form.
fn named(message: RawJson) -> Option<Fields> {
    let mut fields = extra(Some(&message));
    if !fields.get("id")?.as_str().starts_with('"') {
        return None;
    }
    for (name, usual) in [("role", "assistant"), ("status", "completed")] {
        if fields.get(name).is_none() {
            fields.set(name, RawJson::of(&usual));
        }
    }
    Some(fields)
}

/// Whether the provider can know this thought again: it is sealed, or spelled
/// out as servers do that seal nothing. It looks for any other in its store,
/// where nothing of ours is.
fn can_go_back(item: &RawJson) -> bool {
    let fields = extra(Some(item));
    let empty = ["null", r#""""#, "[]"];
    let has = |name: &str| {
        let value = fields.get(name).map(RawJson::as_str);
        value.is_some_and(|value| !empty.contains(&value))
    };
    has("encrypted_content") || has("content")
}
