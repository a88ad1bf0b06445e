//! Builder for one item of a streamed reply.
//!
//! Invariant: no text is returned as new text twice.

use std::collections::BTreeMap;

use longhaul_core::message::{Block, ThinkingBlock};
use longhaul_core::raw::RawJson;

use crate::json_object::JsonObject;
use crate::responses::blocks::{output_item_to_blocks, parse_content_parts, parse_text_part};
use crate::responses::wire::TextKind;

/// Builder of an output item. The item may still receive fragments.
#[derive(Debug, Default)]
pub(super) struct ItemBuilder {
    /// Index of the item in the output of the response.
    pub(super) index: u64,
    /// JSON of the item. `None` means that only fragments of the item have been received.
    item: Option<RawJson>,
    /// Type of the item, or an empty string if the type is unknown.
    kind: String,
    /// Whether the complete item was received. The complete item replaces all earlier fragments.
    pub(super) is_complete: bool,
    /// Content parts of a message item, by index.
    parts: BTreeMap<u64, TextPart>,
    /// Arguments of a tool call as JSON text, collected from fragments. Empty for other items.
    arguments: String,
    /// User-visible reasoning texts, by kind (summary or reasoning) and index.
    reasoning: BTreeMap<(TextKind, u64), String>,
    /// User-visible text that was decoded, but not yet taken.
    pub(super) new_text: String,
}

/// A content part of a message item: text or a refusal.
#[derive(Debug, Default)]
struct TextPart {
    is_refusal: bool,
    text: String,
}

impl ItemBuilder {
    /// Creates an item of which only the output index is known.
    pub(super) fn from_output_index(index: u64) -> Self {
        Self { index, ..Self::default() }
    }

    pub(super) const fn has_started(&self) -> bool {
        self.item.is_some()
    }

    /// Whether the complete item was already received and is identical to the given item.
    pub(super) fn has_complete_item(&self, item: &RawJson) -> bool {
        self.is_complete && self.item.as_ref() == Some(item)
    }

    pub(super) fn is_tool_call(&self) -> bool {
        self.kind == "function_call"
    }

    /// Whether only the arguments of a tool call were received, and not the call itself.
    pub(super) const fn is_unknown_call(&self) -> bool {
        self.item.is_none() && !self.arguments.is_empty()
    }

    /// Whether the item contains a refusal of the model.
    pub(super) fn is_refusal(&self) -> bool {
        self.parts.values().any(|part| part.is_refusal && !part.text.is_empty())
    }

    /// Returns the approximate number of bytes received for the item.
    pub(super) fn received_byte_count(&self) -> u64 {
        let texts = self.parts.values().map(|part| part.text.len());
        let texts = texts.chain(self.reasoning.values().map(String::len));
        let pieces = texts.sum::<usize>() + self.arguments.len();
        let item = self.item.as_ref().map_or(0, |item| item.as_str().len());
        pieces.max(item) as u64
    }

    /// Whether a fragment of this kind can belong to this item.
    pub(super) fn accepts_fragment(&self, kind: TextKind) -> bool {
        let item_type = match kind {
            TextKind::Text | TextKind::Refusal => "message",
            TextKind::Arguments => "function_call",
            TextKind::Summary | TextKind::Reasoning => "reasoning",
        };
        self.item.is_none() || self.kind == item_type
    }

    /// Handles the complete item, which replaces all fragments.
    pub(super) fn complete(&mut self, item: RawJson) {
        self.start(item);
        self.is_complete = true;
    }

    /// Handles the incomplete item of a start event.
    pub(super) fn start(&mut self, item: RawJson) {
        let mut fields = JsonObject::parse(item.as_str()).unwrap_or_default();
        let kind = fields.take_string_field("type").unwrap_or_default();
        if kind == "message" {
            let parts =
                fields.take_field("content").and_then(|content| parse_content_parts(&content));
            for (index, part) in (0..).zip(parts.unwrap_or_default()) {
                if let Some((piece, text)) = parse_text_part(part.as_str()) {
                    self.replace_part((piece, index), text);
                }
            }
        }
        if kind == "function_call"
            && let Some(arguments) = fields.take_string_field("arguments")
        {
            self.replace_part((TextKind::Arguments, 0), arguments);
        }
        self.item = Some(item);
        self.kind = kind;
    }

    /// Appends a text fragment to a part of the item. `part_key` is the kind and the index of the
    /// part.
    pub(super) fn append_fragment(&mut self, part_key: (TextKind, u64), text: &str) {
        let (piece, index) = part_key;
        match piece {
            TextKind::Text | TextKind::Refusal => {
                let part = self.parts.entry(index).or_default();
                part.is_refusal = piece == TextKind::Refusal;
                part.text.push_str(text);
                self.new_text.push_str(text);
            }
            TextKind::Arguments => self.arguments.push_str(text),
            TextKind::Summary | TextKind::Reasoning => {
                self.reasoning.entry(part_key).or_default().push_str(text);
            }
        }
    }

    /// Replaces the fragments of a part by its full text. An empty text is ignored: then the
    /// fragments received so far are the full text.
    pub(super) fn replace_part(&mut self, part_key: (TextKind, u64), full_text: String) {
        let (piece, index) = part_key;
        if full_text.is_empty() {
            return;
        }
        match piece {
            TextKind::Text | TextKind::Refusal => {
                let part = self.parts.entry(index).or_default();
                part.is_refusal = piece == TextKind::Refusal;
                if let Some(rest) = full_text.strip_prefix(&*part.text) {
                    self.new_text.push_str(rest);
                }
                part.text = full_text;
            }
            TextKind::Arguments => self.arguments = full_text,
            TextKind::Summary | TextKind::Reasoning => {
                _ = self.reasoning.insert(part_key, full_text);
            }
        }
    }

    /// Converts the item to blocks of the reply.
    pub(super) fn into_blocks(mut self) -> Vec<Block> {
        let reasoning = self.reasoning_text();
        match self.item.take() {
            Some(item) if self.is_complete => output_item_to_blocks(item, reasoning),
            Some(item) => output_item_to_blocks(self.merge_fragments(item), reasoning),
            None => self.blocks_from_fragments(reasoning),
        }
    }

    /// Returns the user-visible reasoning: the summary, or else the reasoning text.
    fn reasoning_text(&self) -> String {
        let join_texts = |kind: TextKind| {
            let texts = self.reasoning.iter();
            let texts = texts.filter(|((piece, _), _)| *piece == kind);
            let texts: Vec<&str> = texts.map(|(_, text)| &**text).collect();
            texts.join("\n\n")
        };
        match join_texts(TextKind::Summary) {
            summary if summary.is_empty() => join_texts(TextKind::Reasoning),
            summary => summary,
        }
    }

    /// Returns the JSON of the item from its start event, with all later fragments merged in.
    fn merge_fragments(self, item: RawJson) -> RawJson {
        let Some(mut fields) = JsonObject::parse(item.as_str()) else {
            return item;
        };
        let is_unchanged = self.parts.is_empty() && self.arguments.is_empty();
        if is_unchanged {
            return item;
        }
        if !self.parts.is_empty() {
            let parts: Vec<serde_json::Value> =
                self.parts.into_values().map(TextPart::into_json).collect();
            fields.set_field("content", RawJson::from_serialize(&parts));
        }
        if !self.arguments.is_empty() {
            fields.set_field("arguments", RawJson::from_serialize(&self.arguments));
        }
        fields.to_json().unwrap_or(item)
    }

    fn blocks_from_fragments(self, reasoning: String) -> Vec<Block> {
        let thinking_block = (!reasoning.is_empty()).then(|| {
            Block::Thinking(ThinkingBlock { text: reasoning.into(), signature: None, extra: None })
        });
        let texts = self.parts.into_values().map(|part| Block::from_text(part.text));
        thinking_block.into_iter().chain(texts).collect()
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
