//! Writes the messages of a request, each once.
//!
//! Never: touches the bytes of arguments, or of a field that is not understood.

use longhaul_core::message::{ImageRef, Part, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;

use crate::album::{Album, in_words};
use crate::arguments::written;
use crate::chat::quirks::Quirks;
use crate::chat::wire::NAME_MAX;
use crate::ids;
use crate::owed::{NO_RESULT, says_something};
use crate::spell::{close, inside, text};

/// Where thoughts stand, as most servers call it.
pub(super) const REASONING_CONTENT: &str = "reasoning_content";

/// As the others do.
pub(super) const REASONING: &str = "reasoning";

/// Where a thought notes which of these names it came under.
pub(super) const FIELD: &str = "field";

/// What stands for thoughts that were never had here: servers that demand some
/// take an empty text for none.
const NO_THOUGHT: &str = " ";

/// Where arguments stand that are no object: the model recognises its own slip
/// by this name.
const BAD_INPUT: &str = r#"{"INVALID_JSON":"#;

/// What is said of a result that says nothing: some servers refuse a message
/// without content.
const NOTHING: &str = "[nothing]";

/// What stands in a result for a picture: only a user may show one.
const SHOWN_BELOW: &str = "[a picture, shown below]";

/// What the model said, sorted by where it goes.
#[derive(Debug, Default)]
pub(super) struct Turn<'a> {
    pub(super) words: String,
    /// The field it came under, and the thought.
    pub(super) thought: Option<(&'static str, &'a str)>,
    /// Objects whose fields go back as they came.
    pub(super) extras: Vec<&'a RawJson>,
    /// The calls under the ids they go by.
    pub(super) calls: Vec<(String, &'a ToolCall)>,
    /// Whether what the server added to a call goes back to it.
    pub(super) is_own: bool,
}

impl Turn<'_> {
    /// Whether there is anything to send: servers refuse a message that says
    /// nothing and wants nothing.
    pub(super) fn says_something(&self) -> bool {
        !self.words.trim().is_empty() || !self.calls.is_empty()
    }
}

/// A message of the model's.
pub(super) fn turn(out: &mut Vec<u8>, turn: &Turn<'_>, quirks: Quirks) {
    out.extend_from_slice(br#"{"role":"assistant","content":"#);
    match turn.words.trim().is_empty() {
        false => text(out, &turn.words),
        true if quirks.empty_content => out.extend_from_slice(br#""""#),
        true => out.extend_from_slice(b"null"),
    }
    if quirks.send_reasoning && !turn.calls.is_empty() {
        let (field, thought) = turn.thought.unwrap_or((REASONING_CONTENT, NO_THOUGHT));
        out.push(b',');
        text(out, field);
        out.push(b':');
        text(out, thought);
    }
    for extra in turn.extras.iter().filter_map(|extra| inside(extra)) {
        if !extra.is_empty() {
            out.push(b',');
            out.extend_from_slice(extra.as_bytes());
        }
    }
    for (place, (id, call)) in turn.calls.iter().enumerate() {
        let opening: &[u8] = match place {
            0 => br#","tool_calls":["#,
            _ => b",",
        };
        out.extend_from_slice(opening);
        self::call(out, id, call, quirks);
        close(out, call.extra.as_ref().filter(|_| turn.is_own));
    }
    if !turn.calls.is_empty() {
        out.push(b']');
    }
    out.push(b'}');
}

/// A call but for its last brace.
fn call(out: &mut Vec<u8>, id: &str, call: &ToolCall, quirks: Quirks) {
    out.extend_from_slice(br#"{"id":"#);
    text(out, id);
    out.extend_from_slice(br#","type":"function","function":{"name":"#);
    text(out, &ids::name(&call.name, NAME_MAX));
    out.extend_from_slice(br#","arguments":"#);
    let input = call.input.as_str();
    match quirks.json_arguments && !input.trim_start().starts_with('{') {
        true => text(out, &format!("{BAD_INPUT}{input}}}")),
        false => text(out, &written(&call.input)),
    }
    out.push(b'}');
}

/// The result of a call that goes by this id.
pub(super) fn result(out: &mut Vec<u8>, id: &str, words: &str) {
    out.extend_from_slice(br#"{"role":"tool","tool_call_id":"#);
    text(out, id);
    out.extend_from_slice(br#","content":"#);
    text(out, words);
    out.push(b'}');
}

/// The result of a call of which nothing is known.
pub(super) fn missing_result(out: &mut Vec<u8>, id: &str) {
    result(out, id, &format!("error: {NO_RESULT}"));
}

/// A result in words. This API knows no failed calls, so the words must say it.
pub(super) fn result_words(result: &ToolResult, eyes: Eyes<'_>) -> String {
    let parts = result.content.iter().filter(|part| says_something(part));
    let words: Vec<String> = parts
        .map(|part| match part {
            Part::Text(words) => words.to_string(),
            Part::Image(image) => match eyes.see(image) {
                Some(_) => SHOWN_BELOW.to_owned(),
                None => in_words(image),
            },
        })
        .collect();
    let words = match words.is_empty() {
        true => NOTHING.to_owned(),
        false => words.join("\n"),
    };
    let start = words.trim_start().get(..5).unwrap_or_default();
    match result.is_error && !start.eq_ignore_ascii_case("error") {
        true => format!("error: {words}"),
        false => words,
    }
}

/// The pictures that a model can see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Eyes<'a> {
    pub(super) album: &'a Album,
    pub(super) quirks: Quirks,
}

impl Eyes<'_> {
    /// A picture as base64; none: it is told of in words.
    pub(super) fn see(&self, image: &ImageRef) -> Option<&str> {
        let picture = self.album.picture(image);
        picture.filter(|_| !self.quirks.text_only)
    }
}

/// A picture as a part of a user's message.
pub(super) fn picture(out: &mut Vec<u8>, image: &ImageRef, data: &str) {
    out.extend_from_slice(br#"{"type":"image_url","image_url":{"url":"data:"#);
    // It is one of a few kinds that need no escapes.
    out.extend_from_slice(image.media_type.as_bytes());
    out.extend_from_slice(b";base64,");
    out.extend_from_slice(data.as_bytes());
    out.extend_from_slice(br#""}}"#);
}
