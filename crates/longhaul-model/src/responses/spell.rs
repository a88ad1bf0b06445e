//! Writes the items of a request, each once.
//!
//! Never: touches the bytes of arguments, of sealed thoughts, or of an item that
//! is not understood.

use std::borrow::Cow;

use longhaul_core::message::{ImageRef, Part, ToolCall, ToolResult, Words};
use longhaul_core::raw::RawJson;

use crate::album::{Album, in_words};
use crate::arguments::written;
use crate::fields::Fields;
use crate::ids;
use crate::owed::{NO_RESULT, says_something};
use crate::responses::wire::NAME_MAX;
use crate::spell::{close, text};

/// How a result is marked that is an error: the API has no field for it.
const ERROR: &str = "error";

/// What is said to the model; none of it may be blank.
pub(super) fn user(out: &mut Vec<u8>, parts: &[&Part], album: &Album) {
    out.extend_from_slice(br#"{"type":"message","role":"user","content":"#);
    list(out, parts, album);
    out.push(b'}');
}

fn list(out: &mut Vec<u8>, parts: &[&Part], album: &Album) {
    out.push(b'[');
    for (place, part) in parts.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        match part {
            Part::Text(words) => words_part(out, words),
            Part::Image(image) => picture(out, image, album),
        }
    }
    out.push(b']');
}

fn words_part(out: &mut Vec<u8>, words: &str) {
    out.extend_from_slice(br#"{"type":"input_text","text":"#);
    text(out, words);
    out.push(b'}');
}

fn picture(out: &mut Vec<u8>, image: &ImageRef, album: &Album) {
    let Some(data) = album.picture(image) else {
        return words_part(out, &in_words(image));
    };
    out.extend_from_slice(br#"{"type":"input_image","image_url":"data:"#);
    out.extend_from_slice(image.media_type.as_bytes());
    out.extend_from_slice(b";base64,");
    out.extend_from_slice(data.as_bytes());
    out.extend_from_slice(br#"","detail":"auto"}"#);
}

/// Words of a reply in the form that needs no id: another provider's, or ours
/// when their item can't be named.
pub(super) fn plain_words(out: &mut Vec<u8>, words: &str) {
    out.extend_from_slice(br#"{"type":"message","role":"assistant","content":"#);
    text(out, words);
    out.push(b'}');
}

/// A part of a message of the provider's own.
#[derive(Debug)]
pub(super) struct Spoken<'a> {
    words: &'a str,
    kind: String,
    /// Its other fields.
    rest: Option<RawJson>,
}

impl<'a> Spoken<'a> {
    /// The part that these words came as.
    pub(super) fn of(words: &'a Words, extra: &mut Fields) -> Self {
        let part = extra.take("part");
        let part = part.and_then(|part| Fields::read(part.as_str()));
        let mut part = part.unwrap_or_default();
        Self {
            words: &words.text,
            kind: part
                .take_text("type")
                .unwrap_or_else(|| "output_text".to_owned()),
            rest: part.raw(),
        }
    }

    /// Whether nothing is in it.
    pub(super) fn is_blank(&self) -> bool {
        matches!(self.kind.as_str(), "output_text" | "refusal") && self.words.trim().is_empty()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"type":"#);
        text(out, &self.kind);
        match self.kind.as_str() {
            "output_text" => {
                out.extend_from_slice(br#","text":"#);
                text(out, self.words);
                if self.rest.is_none() {
                    out.extend_from_slice(br#","annotations":[]"#);
                }
            }
            "refusal" => {
                out.extend_from_slice(br#","refusal":"#);
                text(out, self.words);
            }
            // All that it holds is among its other fields.
            _ => {}
        }
        close(out, self.rest.as_ref());
    }
}

/// A message of the provider's own, with the fields it came with.
pub(super) fn message(out: &mut Vec<u8>, fields: &RawJson, parts: &[Spoken<'_>]) {
    out.extend_from_slice(br#"{"type":"message","content":["#);
    for (place, part) in parts.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        part.write(out);
    }
    out.push(b']');
    close(out, Some(fields));
}

/// A call under the id it goes by, with those of its fields that it may keep.
pub(super) fn call(out: &mut Vec<u8>, call: &ToolCall, id: &str, extra: Option<Fields>) {
    let mut extra = extra.unwrap_or_default();
    out.extend_from_slice(br#"{"type":"function_call","call_id":"#);
    text(out, id);
    out.extend_from_slice(br#","name":"#);
    text(out, &ids::name(&call.name, NAME_MAX));
    out.extend_from_slice(br#","arguments":"#);
    match extra.take("arguments") {
        Some(came) => out.extend_from_slice(came.as_str().as_bytes()),
        None => text(out, &written(&call.input)),
    }
    close(out, extra.raw().as_ref());
}

/// The result of a call that goes by this id.
pub(super) fn result(out: &mut Vec<u8>, id: &str, result: &ToolResult, album: &Album) {
    open_result(out, id);
    let parts = result.content.iter().filter(|part| says_something(part));
    let parts: Vec<&Part> = parts.collect();
    let marked = result.is_error && !parts.first().is_some_and(|part| says_error(part));
    let shown = |part: &&&Part| match part {
        Part::Image(image) => album.picture(image).is_some(),
        Part::Text(_) => false,
    };
    if parts.iter().find(shown).is_some() {
        let mark = Part::Text(format!("{ERROR}:").into());
        let all: Vec<&Part> = marked.then_some(&mark).into_iter().chain(parts).collect();
        list(out, &all, album);
    } else {
        let words: Vec<Cow<'_, str>> = parts.iter().map(|part| in_text(part)).collect();
        let words = words.join("\n");
        match (marked, words.is_empty()) {
            (false, _) => text(out, &words),
            (true, false) => text(out, &format!("{ERROR}: {words}")),
            (true, true) => text(out, ERROR),
        }
    }
    out.push(b'}');
}

/// The result of a call of which nothing is known.
pub(super) fn missing_result(out: &mut Vec<u8>, id: &str) {
    open_result(out, id);
    text(out, NO_RESULT);
    out.push(b'}');
}

fn open_result(out: &mut Vec<u8>, id: &str) {
    out.extend_from_slice(br#"{"type":"function_call_output","call_id":"#);
    text(out, id);
    out.extend_from_slice(br#","output":"#);
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
