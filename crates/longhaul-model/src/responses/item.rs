//! One item of a reply while it comes in.
//!
//! Never: loses a field that it does not know, or the spelling of one.

use std::collections::BTreeMap;

use longhaul_core::message::{Block, Thinking, ToolCall, Words};
use longhaul_core::port::model::Ear;
use longhaul_core::raw::RawJson;

use crate::fields::Fields;
use crate::responses::spell;
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
        let words = self.parts.into_values().map(|part| {
            Block::Text(Words {
                text: part.text.into(),
                extra: None,
            })
        });
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

fn say(words: &str, ear: &dyn Ear) {
    if !words.is_empty() {
        ear.words(words);
    }
}

/// The words of a part for the reader, if it has any.
pub(super) fn spoken(part: &str) -> Option<(Piece, String)> {
    let mut fields = Fields::read(part)?;
    let kind = fields.take_text("type")?;
    let piece = match kind.as_str() {
        "output_text" => Piece::Text,
        "refusal" => Piece::Refusal,
        _ => return None,
    };
    Some((piece, fields.take_text(text_field(&kind))?))
}

/// Where a part of this kind has its words.
fn text_field(kind: &str) -> &'static str {
    match kind {
        "refusal" => "refusal",
        _ => "text",
    }
}

/// The parts of a message; none: it has a shape of its own.
fn parts(content: &RawJson) -> Option<Vec<RawJson>> {
    if content.as_str() == "null" {
        return Some(Vec::new());
    }
    if let Ok(text) = serde_json::from_str::<String>(content.as_str()) {
        let part = serde_json::json!({"type": "output_text", "text": text, "annotations": []});
        return Some(vec![RawJson::of(&part)]);
    }
    let parts: Vec<RawJson> = serde_json::from_str(content.as_str()).ok()?;
    let objects = parts.iter().all(|part| part.as_str().starts_with('{'));
    objects.then_some(parts)
}

/// The blocks that an item is made of.
fn blocks(item: RawJson, shown: String) -> Vec<Block> {
    let Some(mut fields) = Fields::read(item.as_str()) else {
        return vec![Block::Other(item)];
    };
    match fields.take_text("type").as_deref() {
        Some("message") => message(fields).unwrap_or_else(|| vec![Block::Other(item)]),
        Some("function_call") => vec![call(fields)],
        Some("reasoning") => vec![thinking(item, &fields, shown)],
        Some(_) | None => vec![Block::Other(item)],
    }
}

/// The words of a message. The first of them carry what else the message is, and
/// each what else its part is.
fn message(mut fields: Fields) -> Option<Vec<Block>> {
    let content = fields.take("content").unwrap_or_else(RawJson::null);
    let parts = parts(&content)?;
    clear(&mut fields, &["type", "content"]);
    let mut head = Some(fields.raw().unwrap_or_else(nothing));
    let mut blocks = Vec::new();
    for part in parts {
        let mut extra = Fields::default();
        if let Some(head) = head.take() {
            extra.set("message", head);
        }
        let (text, part) = words(part);
        extra.set("part", part);
        blocks.push(Block::Text(Words {
            text: text.into(),
            extra: extra.raw(),
        }));
    }
    if let Some(head) = head {
        let mut extra = Fields::default();
        extra.set("message", head);
        blocks.push(Block::Text(Words {
            text: "".into(),
            extra: extra.raw(),
        }));
    }
    Some(blocks)
}

/// The words of a part, and the rest of it; of an unknown one it is all rest.
fn words(part: RawJson) -> (String, RawJson) {
    let Some(mut fields) = Fields::read(part.as_str()) else {
        return (String::new(), part);
    };
    let kind = fields.get("type").map(RawJson::as_str).unwrap_or_default();
    let field = match kind {
        r#""output_text""# => text_field("output_text"),
        r#""refusal""# => text_field("refusal"),
        _ => return (String::new(), part),
    };
    let text = fields.take_text(field).unwrap_or_default();
    clear(&mut fields, &[field]);
    (text, fields.raw().unwrap_or_else(nothing))
}

fn nothing() -> RawJson {
    RawJson::of(&serde_json::Map::new())
}

/// A thought, with the whole item: it is only valid as it came.
fn thinking(item: RawJson, fields: &Fields, shown: String) -> Block {
    #[derive(serde::Deserialize)]
    struct Shown {
        text: String,
    }
    let list = |name: &str| {
        let texts: Vec<Shown> = serde_json::from_str(fields.get(name)?.as_str()).ok()?;
        let texts: Vec<String> = texts.into_iter().map(|shown| shown.text).collect();
        Some(texts.join("\n\n")).filter(|text| !text.is_empty())
    };
    let text = list("summary").or_else(|| list("content"));
    Block::Thinking(Thinking {
        text: text.unwrap_or(shown).into(),
        signature: None,
        extra: Some(item),
    })
}

fn call(mut fields: Fields) -> Block {
    let id = fields.take_text("call_id").unwrap_or_default();
    let name = fields.take_text("name").unwrap_or_default();
    let text = fields.take_text("arguments");
    let input = match &text {
        Some(text) => arguments(text),
        // Some servers send an object in the place of its text.
        None => fields
            .take("arguments")
            .filter(|input| input.as_str() != "null")
            .unwrap_or_else(nothing),
    };
    clear(&mut fields, &["type", "call_id", "name", "arguments"]);
    // Blanks around the arguments are no part of them, but of what the model wrote.
    let same = |text: &String| text.trim().is_empty() || spell::arguments(&input) == **text;
    if let Some(text) = text.filter(|text| !same(text)) {
        fields.set("arguments", RawJson::of(&text));
    }
    Block::ToolCall(ToolCall {
        id,
        name,
        input,
        extra: fields.raw(),
    })
}

/// The arguments of a call, byte for byte. What is no JSON becomes a JSON string
/// with the model's text: the appraisal of the call finds that a text does not
/// fit the tool's schema, nothing is run, and the model is told so as the result
/// of its call. What is a JSON string already is wrapped once more, so that the
/// model's text can always be had back. No text at all is no arguments: servers
/// that read them again want JSON.
fn arguments(text: &str) -> RawJson {
    if text.trim().is_empty() {
        return nothing();
    }
    RawJson::parse(text)
        .ok()
        .filter(|parsed| !parsed.as_str().starts_with('"'))
        .unwrap_or_else(|| RawJson::of(&text))
}

/// Takes out fields that are written from what is known, however often they came.
fn clear(fields: &mut Fields, names: &[&str]) {
    for name in names {
        while fields.take(name).is_some() {}
    }
}
