//! One item of a reply while it comes in.
//!
//! Never: says a word to the reader twice, or takes a piece for the whole.

use std::collections::BTreeMap;

use longhaul_core::message::{Block, ThinkingBlock};
use longhaul_core::port::model::DeltaSink;
use longhaul_core::raw::RawJson;

use crate::exchange::emit_text;
use crate::json_object::JsonObject;
use crate::responses::blocks::{content_parts, item_blocks, visible_text};
use crate::responses::wire::FragmentKind;

/// An item that may still grow.
#[derive(Debug, Default)]
pub(super) struct ItemBuilder {
    /// Its place among the items, as the provider counts.
    pub(super) index: u64,
    /// What is known of it; none: it began with a piece of it.
    item: Option<RawJson>,
    /// What it calls itself, where it is known.
    kind: String,
    /// It came whole, and nothing that was heard before counts any more.
    pub(super) is_complete: bool,
    /// The parts of a message.
    parts: BTreeMap<u64, TextPart>,
    /// The arguments of a call.
    arguments: String,
    /// Thoughts as far as they are shown.
    reasoning: BTreeMap<(FragmentKind, u64), String>,
}

/// A part of a message: words, and all of them were said to the reader.
#[derive(Debug, Default)]
struct TextPart {
    is_refusal: bool,
    text: String,
}

impl ItemBuilder {
    /// An item of which nothing is known yet but its place.
    pub(super) fn from_index(index: u64) -> Self {
        Self { index, ..Self::default() }
    }

    pub(super) const fn has_started(&self) -> bool {
        self.item.is_some()
    }

    /// Whether it came whole, as this.
    pub(super) fn is_same_item(&self, item: &RawJson) -> bool {
        self.is_complete && self.item.as_ref() == Some(item)
    }

    /// Whether it is a call.
    pub(super) fn is_call(&self) -> bool {
        self.kind == "function_call"
    }

    /// Whether arguments came for a call that nobody knows.
    pub(super) const fn is_unknown_call(&self) -> bool {
        self.item.is_none() && !self.arguments.is_empty()
    }

    /// Whether the model declines in it.
    pub(super) fn is_refusal(&self) -> bool {
        self.parts.values().any(|part| part.is_refusal && !part.text.is_empty())
    }

    /// About so many bytes of it have come.
    pub(super) fn bytes(&self) -> u64 {
        let texts = self.parts.values().map(|part| part.text.len());
        let texts = texts.chain(self.reasoning.values().map(String::len));
        let pieces = texts.sum::<usize>() + self.arguments.len();
        let item = self.item.as_ref().map_or(0, |item| item.as_str().len());
        pieces.max(item) as u64
    }

    /// Whether a piece can belong to it.
    pub(super) fn accepts(&self, piece: FragmentKind) -> bool {
        let wants = match piece {
            FragmentKind::Text | FragmentKind::Refusal => "message",
            FragmentKind::Arguments => "function_call",
            FragmentKind::Summary | FragmentKind::Reasoning => "reasoning",
        };
        self.item.is_none() || self.kind == wants
    }

    /// Hears the item as it begins.
    pub(super) fn start(&mut self, item: RawJson, ear: &dyn DeltaSink) {
        self.load_item(item, ear);
    }

    /// Hears the item whole.
    pub(super) fn finish(&mut self, item: RawJson, ear: &dyn DeltaSink) {
        self.load_item(item, ear);
        self.is_complete = true;
    }

    fn load_item(&mut self, item: RawJson, ear: &dyn DeltaSink) {
        let mut fields = JsonObject::parse(item.as_str()).unwrap_or_default();
        let kind = fields.take_text("type").unwrap_or_default();
        if kind == "message" {
            let parts = fields.take("content").and_then(|content| content_parts(&content));
            for (place, part) in (0..).zip(parts.unwrap_or_default()) {
                if let Some((piece, text)) = visible_text(part.as_str()) {
                    self.replace((piece, place), text, ear);
                }
            }
        }
        if kind == "function_call"
            && let Some(arguments) = fields.take_text("arguments")
        {
            self.replace((FragmentKind::Arguments, 0), arguments, ear);
        }
        self.item = Some(item);
        self.kind = kind;
    }

    /// Grows by a piece.
    pub(super) fn append(&mut self, at: (FragmentKind, u64), more: &str, ear: &dyn DeltaSink) {
        let (piece, place) = at;
        match piece {
            FragmentKind::Text | FragmentKind::Refusal => {
                let part = self.parts.entry(place).or_default();
                part.is_refusal = piece == FragmentKind::Refusal;
                part.text.push_str(more);
                emit_text(more, ear);
            }
            FragmentKind::Arguments => self.arguments.push_str(more),
            FragmentKind::Summary | FragmentKind::Reasoning => {
                self.reasoning.entry(at).or_default().push_str(more);
            }
        }
    }

    /// Hears the whole of a piece; the reader hears what is new in it. Where it
    /// is empty, the pieces that came are all there is.
    pub(super) fn replace(&mut self, at: (FragmentKind, u64), whole: String, ear: &dyn DeltaSink) {
        let (piece, place) = at;
        if whole.is_empty() {
            return;
        }
        match piece {
            FragmentKind::Text | FragmentKind::Refusal => {
                let part = self.parts.entry(place).or_default();
                part.is_refusal = piece == FragmentKind::Refusal;
                if let Some(rest) = whole.strip_prefix(&*part.text) {
                    emit_text(rest, ear);
                }
                part.text = whole;
            }
            FragmentKind::Arguments => self.arguments = whole,
            FragmentKind::Summary | FragmentKind::Reasoning => {
                _ = self.reasoning.insert(at, whole);
            }
        }
    }

    /// The item as it stands at the end.
    pub(super) fn into_blocks(mut self) -> Vec<Block> {
        let shown = self.reasoning_text();
        match self.item.take() {
            Some(item) if self.is_complete => item_blocks(item, shown),
            Some(item) => item_blocks(self.merge(item), shown),
            None => self.blocks_without_item(shown),
        }
    }

    /// What is shown of the thoughts: their summary, or else themselves.
    fn reasoning_text(&self) -> String {
        let of = |wanted: FragmentKind| {
            let texts = self.reasoning.iter();
            let texts = texts.filter(|((piece, _), _)| *piece == wanted);
            let texts: Vec<&str> = texts.map(|(_, text)| &**text).collect();
            texts.join("\n\n")
        };
        match of(FragmentKind::Summary) {
            summary if summary.is_empty() => of(FragmentKind::Reasoning),
            summary => summary,
        }
    }

    /// The item as it began, with all that was heard of it since.
    fn merge(self, item: RawJson) -> RawJson {
        let Some(mut fields) = JsonObject::parse(item.as_str()) else {
            return item;
        };
        let untouched = self.parts.is_empty() && self.arguments.is_empty();
        if untouched {
            return item;
        }
        if !self.parts.is_empty() {
            let parts: Vec<serde_json::Value> =
                self.parts.into_values().map(TextPart::into_json).collect();
            fields.set("content", RawJson::from_serialize(&parts));
        }
        if !self.arguments.is_empty() {
            fields.set("arguments", RawJson::from_serialize(&self.arguments));
        }
        fields.to_raw().unwrap_or(item)
    }

    fn blocks_without_item(self, shown: String) -> Vec<Block> {
        let thought = (!shown.is_empty()).then(|| {
            Block::Thinking(ThinkingBlock { text: shown.into(), signature: None, extra: None })
        });
        let words = self.parts.into_values().map(|part| Block::text(part.text));
        thought.into_iter().chain(words).collect()
    }
}

impl TextPart {
    fn into_json(self) -> serde_json::Value {
        match self.is_refusal {
            true => serde_json::json!({"type": "refusal", "refusal": self.text}),
            false => {
                serde_json::json!({"type": "output_text", "text": self.text, "annotations": []})
            }
        }
    }
}
