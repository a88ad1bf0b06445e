//! The blocks that a whole item is made of.
//!
//! Never: loses a field that it does not know, or the spelling of one.

use longhaul_core::message::{Block, TextBlock, ThinkingBlock, ToolCall};
use longhaul_core::raw::RawJson;

use crate::json_object::JsonObject;
use crate::lenient_json::{arguments_text, is_too_deep, parse_arguments};
use crate::responses::wire::FragmentKind;

/// The words of a part for the reader, if it has any.
pub(super) fn visible_text(part: &str) -> Option<(FragmentKind, String)> {
    let mut fields = JsonObject::parse(part)?;
    let kind = fields.take_text("type")?;
    let piece = match kind.as_str() {
        "output_text" => FragmentKind::Text,
        "refusal" => FragmentKind::Refusal,
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
pub(super) fn content_parts(content: &RawJson) -> Option<Vec<RawJson>> {
    if content.as_str() == "null" {
        return Some(Vec::new());
    }
    if let Ok(text) = serde_json::from_str::<String>(content.as_str()) {
        let part = serde_json::json!({"type": "output_text", "text": text, "annotations": []});
        return Some(vec![RawJson::from_serialize(&part)]);
    }
    let parts: Vec<RawJson> = serde_json::from_str(content.as_str()).ok()?;
    let objects = parts.iter().all(|part| part.as_str().starts_with('{'));
    objects.then_some(parts)
}

/// The blocks that an item is made of.
pub(super) fn item_blocks(item: RawJson, shown: String) -> Vec<Block> {
    let Some(mut fields) = JsonObject::parse(item.as_str()) else {
        return vec![Block::Other(item)];
    };
    match fields.take_text("type").as_deref() {
        Some("message") => message_blocks(fields).unwrap_or_else(|| vec![Block::Other(item)]),
        Some("function_call") => vec![call_block(fields)],
        Some("reasoning") => vec![thinking_block(item, &fields, shown)],
        Some(_) | None => vec![Block::Other(item)],
    }
}

/// The words of a message. The first of them carry what else the message is, and
/// each what else its part is.
fn message_blocks(mut fields: JsonObject) -> Option<Vec<Block>> {
    let content = fields.take("content").unwrap_or_else(RawJson::null);
    let parts = content_parts(&content)?;
    remove_fields(&mut fields, &["type", "content"]);
    let mut head = Some(fields.to_raw().unwrap_or_else(empty_object));
    let mut blocks = Vec::new();
    for part in parts {
        let mut extra = JsonObject::default();
        if let Some(head) = head.take() {
            extra.set("message", head);
        }
        let (text, part) = split_text(part);
        extra.set("part", part);
        blocks.push(Block::Text(TextBlock { text: text.into(), extra: extra.to_raw() }));
    }
    if let Some(head) = head {
        let mut extra = JsonObject::default();
        extra.set("message", head);
        blocks.push(Block::Text(TextBlock { text: "".into(), extra: extra.to_raw() }));
    }
    Some(blocks)
}

/// The words of a part, and the rest of it; of an unknown one it is all rest.
fn split_text(part: RawJson) -> (String, RawJson) {
    let Some(mut fields) = JsonObject::parse(part.as_str()) else {
        return (String::new(), part);
    };
    let kind = fields.get("type").map(RawJson::as_str).unwrap_or_default();
    let field = match kind {
        r#""output_text""# => text_field("output_text"),
        r#""refusal""# => text_field("refusal"),
        _ => return (String::new(), part),
    };
    let text = fields.take_text(field).unwrap_or_default();
    remove_fields(&mut fields, &[field]);
    (text, fields.to_raw().unwrap_or_else(empty_object))
}

fn empty_object() -> RawJson {
    RawJson::from_serialize(&serde_json::Map::new())
}

/// A thought, with the whole item: it is only valid as it came.
fn thinking_block(item: RawJson, fields: &JsonObject, shown: String) -> Block {
    #[derive(serde::Deserialize)]
    struct SummaryText {
        text: String,
    }
    let list = |name: &str| {
        let texts: Vec<SummaryText> = serde_json::from_str(fields.get(name)?.as_str()).ok()?;
        let texts: Vec<String> = texts.into_iter().map(|shown| shown.text).collect();
        Some(texts.join("\n\n")).filter(|text| !text.is_empty())
    };
    let text = list("summary").or_else(|| list("content"));
    Block::Thinking(ThinkingBlock {
        text: text.unwrap_or(shown).into(),
        signature: None,
        extra: Some(item),
    })
}

fn call_block(mut fields: JsonObject) -> Block {
    let id = fields.take_text("call_id").unwrap_or_default();
    let name = fields.take_text("name").unwrap_or_default();
    let text = fields.take_text("arguments");
    // Some servers send an object in the place of its text.
    let object = match text {
        Some(_) => None,
        None => fields.take("arguments"),
    };
    let input = parse_arguments(object, text.as_deref().unwrap_or_default());
    remove_fields(&mut fields, &["type", "call_id", "name", "arguments"]);
    // Blanks around the arguments are no part of them, but of what the model wrote.
    let same = |text: &String| {
        text.trim().is_empty() || is_too_deep(text) || arguments_text(&input) == **text
    };
    if let Some(text) = text.filter(|text| !same(text)) {
        fields.set("arguments", RawJson::from_serialize(&text));
    }
    Block::ToolCall(ToolCall { id, name, input, extra: fields.to_raw() })
}

/// Takes out fields that are written from what is known, however often they came.
fn remove_fields(fields: &mut JsonObject, names: &[&str]) {
    for name in names {
        while fields.take(name).is_some() {}
    }
}
