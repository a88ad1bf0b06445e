//! Writes the blocks of a request, each once.
//!
//! Never: touches the bytes of arguments, of sealed thoughts, or of a block that
//! is not understood.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::message::{ImageRef, Message, Part, Thinking, ToolCall, ToolResult, Words};
use longhaul_core::raw::{Hash, RawJson};

use crate::anthropic::ids;
use crate::pictures::Pictures;

/// The kinds of picture that are looked at.
const MEDIA_TYPES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// The longest picture that is taken, as base64.
const PICTURE_MAX: u64 = 5 * 1024 * 1024;

/// Where arguments stand that are no object: the provider takes nothing else,
/// and the model recognises its own slip by this name.
const BAD_INPUT: &[u8] = br#"{"INVALID_JSON":"#;

/// Pictures by their hash, as base64.
#[derive(Debug, Default)]
pub(super) struct Album(HashMap<Hash, String>);

impl Album {
    /// Gets the pictures that a message shows.
    pub(super) async fn fill(&mut self, message: &Message, from: &dyn Pictures) {
        let parts: Vec<&Part> = match message {
            Message::User(parts) => parts.iter().collect(),
            Message::Results(results) => results.iter().flat_map(|one| &one.content).collect(),
            Message::Assistant(_) => return,
        };
        for part in parts {
            let Part::Image(image) = part else { continue };
            if may_be_shown(image)
                && let Some(bytes) = from.bytes(image).await
            {
                self.0.insert(image.blob.hash, STANDARD.encode(bytes));
            }
        }
    }
}

fn may_be_shown(image: &ImageRef) -> bool {
    let known = MEDIA_TYPES.contains(&image.media_type.as_str());
    known && image.blob.size / 3 < PICTURE_MAX / 4
}

/// A JSON string.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    // Writing to memory can't fail.
    _ = serde_json::to_writer(out, text);
}

/// A part of what is said to the model.
pub(super) fn part(out: &mut Vec<u8>, part: &Part, album: &Album) {
    match part {
        Part::Text(words) => words_block(out, words),
        Part::Image(image) => picture(out, image, album),
    }
}

/// Whether a part says anything: the provider refuses a block that does not.
pub(super) fn says_something(part: &Part) -> bool {
    match part {
        Part::Text(words) => !words.trim().is_empty(),
        Part::Image(_) => true,
    }
}

/// A block of text.
pub(super) fn words_block(out: &mut Vec<u8>, words: &str) {
    out.extend_from_slice(br#"{"type":"text","text":"#);
    text(out, words);
    out.push(b'}');
}

fn picture(out: &mut Vec<u8>, image: &ImageRef, album: &Album) {
    let data = album.0.get(&image.blob.hash);
    let Some(data) = data.filter(|_| may_be_shown(image)) else {
        let (kind, size) = (&image.media_type, image.blob.size);
        words_block(
            out,
            &format!("[a picture that can't be shown: {kind}, {size} bytes]"),
        );
        return;
    };
    out.extend_from_slice(br#"{"type":"image","source":{"type":"base64","media_type":"#);
    text(out, &image.media_type);
    out.extend_from_slice(br#","data":""#);
    out.extend_from_slice(data.as_bytes());
    out.extend_from_slice(br#""}}"#);
}

/// Words of a reply. What the provider added to them goes back only to itself.
pub(super) fn words(out: &mut Vec<u8>, words: &Words, own: bool) {
    out.extend_from_slice(br#"{"type":"text","text":"#);
    text(out, &words.text);
    close(out, words.extra.as_ref().filter(|_| own));
}

/// A thought, which the caller knows to be the provider's own.
pub(super) fn thinking(out: &mut Vec<u8>, thought: &Thinking) {
    out.extend_from_slice(br#"{"type":"thinking","thinking":"#);
    text(out, &thought.text);
    out.extend_from_slice(br#","signature":"#);
    text(out, thought.signature.as_deref().unwrap_or_default());
    close(out, thought.extra.as_ref());
}

/// A call under the id it goes by.
pub(super) fn call(out: &mut Vec<u8>, call: &ToolCall, id: &str, own: bool) {
    out.extend_from_slice(br#"{"type":"tool_use","id":"#);
    text(out, id);
    out.extend_from_slice(br#","name":"#);
    text(out, &ids::name(&call.name));
    out.extend_from_slice(br#","input":"#);
    let input = call.input.as_str();
    match input.trim_start().starts_with('{') {
        true => out.extend_from_slice(input.as_bytes()),
        false => {
            out.extend_from_slice(BAD_INPUT);
            out.extend_from_slice(input.as_bytes());
            out.push(b'}');
        }
    }
    close(out, call.extra.as_ref().filter(|_| own));
}

/// The result of a call that goes by this id.
pub(super) fn result(out: &mut Vec<u8>, id: &str, result: &ToolResult, album: &Album) {
    out.extend_from_slice(br#"{"type":"tool_result","tool_use_id":"#);
    text(out, id);
    let mut parts = result.content.iter().filter(|part| says_something(part));
    if let Some(first) = parts.next() {
        out.extend_from_slice(br#","content":["#);
        part(out, first, album);
        for next in parts {
            out.push(b',');
            part(out, next, album);
        }
        out.push(b']');
    }
    if result.is_error {
        out.extend_from_slice(br#","is_error":true"#);
    }
    out.push(b'}');
}

/// The result of a call of which nothing is known: the provider refuses a
/// conversation in which a call has none.
pub(super) fn missing_result(out: &mut Vec<u8>, id: &str) {
    out.extend_from_slice(br#"{"type":"tool_result","tool_use_id":"#);
    text(out, id);
    out.extend_from_slice(
        br#","content":[{"type":"text","text":"no result of this call is known"}],"is_error":true}"#,
    );
}

/// Ends an object, with the fields of another one.
fn close(out: &mut Vec<u8>, extra: Option<&RawJson>) {
    let inner = extra.and_then(inside).unwrap_or_default();
    if !inner.is_empty() {
        out.push(b',');
        out.extend_from_slice(inner.as_bytes());
    }
    out.push(b'}');
}

/// What stands between the braces of an object.
pub(super) fn inside(object: &RawJson) -> Option<&str> {
    let text = object.as_str().trim();
    Some(text.strip_prefix('{')?.strip_suffix('}')?.trim())
}
