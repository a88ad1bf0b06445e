//! Writes the blocks of a request, each once.
//!
//! Never: touches the bytes of arguments, of sealed thoughts, or of a block that
//! is not understood.

use longhaul_core::message::{ImageRef, Part, Thinking, ToolCall, ToolResult, Words};

use crate::album::{Album, in_words};
use crate::anthropic::wire::NAME_MAX;
use crate::ids;
use crate::owed::{NO_RESULT, says_something};
use crate::spell::{close, text};

/// Where arguments stand that are no object: the provider takes nothing else,
/// and the model recognises its own slip by this name.
const BAD_INPUT: &[u8] = br#"{"INVALID_JSON":"#;

/// A part of what is said to the model.
pub(super) fn part(out: &mut Vec<u8>, part: &Part, album: &Album) {
    match part {
        Part::Text(words) => words_block(out, words),
        Part::Image(image) => picture(out, image, album),
    }
}

/// A block of text.
pub(super) fn words_block(out: &mut Vec<u8>, words: &str) {
    out.extend_from_slice(br#"{"type":"text","text":"#);
    text(out, words);
    out.push(b'}');
}

fn picture(out: &mut Vec<u8>, image: &ImageRef, album: &Album) {
    let Some(data) = album.picture(image) else {
        return words_block(out, &in_words(image));
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
    text(out, &ids::name(&call.name, NAME_MAX));
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

/// The result of a call of which nothing is known.
pub(super) fn missing_result(out: &mut Vec<u8>, id: &str) {
    out.extend_from_slice(br#"{"type":"tool_result","tool_use_id":"#);
    text(out, id);
    out.extend_from_slice(br#","content":["#);
    words_block(out, NO_RESULT);
    out.extend_from_slice(br#"],"is_error":true}"#);
}
