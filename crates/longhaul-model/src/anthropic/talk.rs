//! A conversation in the words of the Messages API.
//!
//! Never: two messages of the same side in a row, or a change to the bytes of arguments, of
//! sealed thoughts, or of a block that is not understood.

use longhaul_core::message::{Block, Part, Reply, ToolResult};
use longhaul_core::raw::RawJson;
use serde::Serialize;

use crate::adapter::Parts;
use crate::album::{Album, in_words};
use crate::anthropic::wire::{Messages, NAME_MAX};
use crate::arguments::object;
use crate::fields::Fields;
use crate::ids::{self, Ids};
use crate::owed::{NO_RESULT, says_something};
use crate::talk::{Page, Piece, Tongue};

/// So many of the last messages from our side are marked: the newest, so that
/// the next turn finds it, and the one before, which this turn finds.
const MARKED: usize = 2;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    User,
    Assistant,
}

impl Tongue for Messages {
    type Kind = Side;

    fn user(&self, page: &mut Page<'_, Side>, parts: &[Part]) {
        for part in parts.iter().filter(|part| says_something(part)) {
            page.add(Side::User, &said(part, page.album));
        }
    }

    fn result(&self, page: &mut Page<'_, Side>, id: &str, result: &ToolResult) {
        let parts = result.content.iter().filter(|part| says_something(part));
        let parts: Vec<Fields> = parts.map(|part| said(part, page.album)).collect();
        let block = Fields::of_type("tool_result")
            .with("tool_use_id", id)
            .with_some("content", (!parts.is_empty()).then_some(&parts))
            .with_some("is_error", result.is_error.then_some(&true));
        page.add(Side::User, &block);
    }

    fn missing_result(&self, page: &mut Page<'_, Side>, id: &str) {
        let block = Fields::of_type("tool_result")
            .with("tool_use_id", id)
            .with("content", &[text(NO_RESULT)])
            .with("is_error", &true);
        page.add(Side::User, &block);
    }

    fn reply(&self, page: &mut Page<'_, Side>, reply: &Reply) {
        let is_own = reply.dialect == self.dialect;
        // What the provider added to a block goes back only to itself.
        let own = |extra: &'_ Option<RawJson>| extra.clone().filter(|_| is_own);
        for block in &reply.blocks {
            let block = match block {
                Block::Text(words) if words.text.trim().is_empty() => continue,
                Block::Text(words) => text(&words.text).with_fields(own(&words.extra).as_ref()),
                // Another provider's seal is broken here, and so is its grammar.
                Block::Thinking(_) | Block::Other(_) if !is_own => continue,
                Block::Thinking(thought) => Fields::of_type("thinking")
                    .with("thinking", &thought.text)
                    .with(
                        "signature",
                        thought.signature.as_deref().unwrap_or_default(),
                    )
                    .with_fields(thought.extra.as_ref()),
                Block::Other(raw) => {
                    page.add_raw(Side::Assistant, raw);
                    continue;
                }
                Block::ToolCall(call) => Fields::of_type("tool_use")
                    .with("id", &page.call(call, &call.id, Ids::give))
                    .with("name", &ids::name(&call.name, NAME_MAX))
                    .with("input", &object(&call.input))
                    .with_fields(own(&call.extra).as_ref()),
            };
            page.add(Side::Assistant, &block);
        }
    }
}

/// A block of text.
pub(super) fn text(words: &str) -> Fields {
    Fields::of_type("text").with("text", words)
}

/// A part of what is said to the model.
fn said(part: &Part, album: &Album) -> Fields {
    let image = match part {
        Part::Text(words) => return text(words),
        Part::Image(image) => image,
    };
    let Some(data) = album.picture(image) else {
        return text(&in_words(image));
    };
    let source = Fields::of_type("base64")
        .with("media_type", &image.media_type)
        .with("data", data);
    Fields::of_type("image").with("source", &source)
}

/// What makes the provider keep everything up to the end of a block in its cache.
pub(super) fn marked(block: Fields) -> RawJson {
    RawJson::of(&block.with("cache_control", &Fields::of_type("ephemeral")))
}

/// What one side says in a row.
#[derive(Serialize)]
pub(super) struct Turn {
    role: Side,
    content: Vec<RawJson>,
}

/// All turns, of which the last ones are marked.
pub(super) fn turns(parts: &Parts<'_, Side>) -> Vec<Turn> {
    let last = parts.entries.iter().rev();
    let last = last.filter_map(|entry| entry.pieces.last());
    let ours = last.filter(|piece| piece.kind == Side::User);
    let marks: Vec<&Piece<Side>> = ours.take(MARKED).collect();
    let mut turns: Vec<Turn> = Vec::new();
    for piece in parts.pieces() {
        let content = match marks.iter().any(|mark| std::ptr::eq(*mark, piece)) {
            true => marked(Fields::default().with_fields(Some(&piece.json))),
            false => piece.json.clone(),
        };
        match turns.last_mut().filter(|turn| turn.role == piece.kind) {
            Some(turn) => turn.content.push(content),
            None => turns.push(Turn {
                role: piece.kind,
                content: vec![content],
            }),
        }
    }
    turns
}
