//! One item of a reply while it comes in.
//!
//! Never: says a word to the reader twice, or takes a piece for the whole.

use std::collections::BTreeMap;

use longhaul_core::message::{Block, Thinking};
use longhaul_core::port::model::Ear;
use longhaul_core::raw::RawJson;

use crate::exchange::say;
use crate::fields::Fields;
use crate::responses::blocks::{blocks, parts, spoken};
use crate::responses::wire::Piece;

/// An item that may still grow.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Its place among the items, as the provider counts.
    pub(super) index: u64,
    /// What is known of it; none: it began with a piece of it.
    item: Option<RawJson>,
    /// What it calls itself, where it is known.
    kind: String,
    /// It came whole, and nothing that was heard before counts any more.
    pub(super) is_whole: bool,
    /// The parts of a message.
    parts: BTreeMap<u64, Part>,
    /// The arguments of a call.
    arguments: String,
    /// Thoughts as far as they are shown.
    thoughts: BTreeMap<(Piece, u64), String>,
}

/// A part of a message: words, and all of them were said to the reader.
#[derive(Debug, Default)]
struct Part {
    is_refusal: bool,
    text: String,
}

impl Open {
    /// An item of which nothing is known yet but its place.
    pub(super) fn late(index: u64) -> Self {
        Self {
            index,
            ..Self::default()
        }
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.item.is_some()
    }

    /// Whether it came whole, as this.
    pub(super) fn is_just(&self, item: &RawJson) -> bool {
        self.is_whole && self.item.as_ref() == Some(item)
    }

    /// Whether it is a call.
    pub(super) fn is_call(&self) -> bool {
        self.kind == "function_call"
    }

    /// Whether arguments came for a call that nobody knows.
    pub(super) const fn is_nameless_call(&self) -> bool {
        self.item.is_none() && !self.arguments.is_empty()
    }

    /// Whether the model declines in it.
    pub(super) fn refuses(&self) -> bool {
        self.parts
            .values()
            .any(|part| part.is_refusal && !part.text.is_empty())
    }

    /// About so many bytes of it have come.
    pub(super) fn bytes(&self) -> u64 {
        let texts = self.parts.values().map(|part| part.text.len());
        let texts = texts.chain(self.thoughts.values().map(String::len));
        let pieces = texts.sum::<usize>() + self.arguments.len();
        let item = self.item.as_ref().map_or(0, |item| item.as_str().len());
        pieces.max(item) as u64
    }

    /// Whether a piece can belong to it.
    pub(super) fn fits(&self, piece: Piece) -> bool {
        let wants = match piece {
            Piece::Text | Piece::Refusal => "message",
            Piece::Arguments => "function_call",
            Piece::Summary | Piece::Thought => "reasoning",
        };
        self.item.is_none() || self.kind == wants
    }

    /// Hears the item as it begins.
    pub(super) fn begin(&mut self, item: RawJson, ear: &dyn Ear) {
        self.load(item, ear);
    }

    /// Hears the item whole.
    pub(super) fn finish(&mut self, item: RawJson, ear: &dyn Ear) {
        self.load(item, ear);
        self.is_whole = true;
    }

    fn load(&mut self, item: RawJson, ear: &dyn Ear) {
        let mut fields = Fields::read(item.as_str()).unwrap_or_default();
        let kind = fields.take_text("type").unwrap_or_default();
        if kind == "message" {
            let parts = fields.take("content").and_then(|content| parts(&content));
            for (place, part) in (0..).zip(parts.unwrap_or_default()) {
                if let Some((piece, text)) = spoken(part.as_str()) {
                    self.set((piece, place), text, ear);
                }
            }
        }
        if kind == "function_call"
            && let Some(arguments) = fields.take_text("arguments")
        {
            self.set((Piece::Arguments, 0), arguments, ear);
        }
        self.item = Some(item);
        self.kind = kind;
    }

    /// Grows by a piece.
    pub(super) fn grow(&mut self, at: (Piece, u64), more: &str, ear: &dyn Ear) {
        let (piece, place) = at;
        match piece {
            Piece::Text | Piece::Refusal => {
                let part = self.parts.entry(place).or_default();
                part.is_refusal = piece == Piece::Refusal;
                part.text.push_str(more);
                say(more, ear);
            }
            Piece::Arguments => self.arguments.push_str(more),
            Piece::Summary | Piece::Thought => {
                self.thoughts.entry(at).or_default().push_str(more);
            }
        }
    }

    /// Hears the whole of a piece; the reader hears what is new in it. Where it
    /// is empty, the pieces that came are all there is.
    pub(super) fn set(&mut self, at: (Piece, u64), whole: String, ear: &dyn Ear) {
        let (piece, place) = at;
        if whole.is_empty() {
            return;
        }
        match piece {
            Piece::Text | Piece::Refusal => {
                let part = self.parts.entry(place).or_default();
                part.is_refusal = piece == Piece::Refusal;
                if let Some(rest) = whole.strip_prefix(&*part.text) {
                    say(rest, ear);
                }
                part.text = whole;
            }
            Piece::Arguments => self.arguments = whole,
            Piece::Summary | Piece::Thought => {
                _ = self.thoughts.insert(at, whole);
            }
        }
    }

    /// The item as it stands at the end.
    pub(super) fn close(mut self) -> Vec<Block> {
        let shown = self.shown();
        match self.item.take() {
            Some(item) if self.is_whole => blocks(item, shown),
            Some(item) => blocks(self.put_together(item), shown),
            None => self.without_item(shown),
        }
    }

    /// What is shown of the thoughts: their summary, or else themselves.
    fn shown(&self) -> String {
        let of = |wanted: Piece| {
            let texts = self.thoughts.iter();
            let texts = texts.filter(|((piece, _), _)| *piece == wanted);
            let texts: Vec<&str> = texts.map(|(_, text)| &**text).collect();
            texts.join("\n\n")
        };
        match of(Piece::Summary) {
            summary if summary.is_empty() => of(Piece::Thought),
            summary => summary,
        }
    }

    /// The item as it began, with all that was heard of it since.
    fn put_together(self, item: RawJson) -> RawJson {
        let Some(mut fields) = Fields::read(item.as_str()) else {
            return item;
        };
        let untouched = self.parts.is_empty() && self.arguments.is_empty();
        if untouched {
            return item;
        }
        if !self.parts.is_empty() {
            let parts: Vec<serde_json::Value> = self.parts.into_values().map(Part::json).collect();
            fields.set("content", RawJson::of(&parts));
        }
        if !self.arguments.is_empty() {
            fields.set("arguments", RawJson::of(&self.arguments));
        }
        fields.raw().unwrap_or(item)
    }

    fn without_item(self, shown: String) -> Vec<Block> {
        let thought = (!shown.is_empty()).then(|| {
            Block::Thinking(Thinking {
                text: shown.into(),
                signature: None,
                extra: None,
            })
        });
        let words = self.parts.into_values().map(|part| Block::text(part.text));
        thought.into_iter().chain(words).collect()
    }
}

impl Part {
    fn json(self) -> serde_json::Value {
        match self.is_refusal {
            true => serde_json::json!({"type": "refusal", "refusal": self.text}),
            false => {
                serde_json::json!({"type": "output_text", "text": self.text, "annotations": []})
            }
        }
    }
}
