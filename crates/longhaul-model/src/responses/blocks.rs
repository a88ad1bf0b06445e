//! Converts the complete output items of a Responses API reply to content blocks (`Block`).
//!
//! Invariant: unknown fields are preserved byte for byte.

use longhaul_core::message::{Block, TextBlock, ThinkingBlock, ToolCall};
use longhaul_core::raw::RawJson;

use crate::json_object::JsonObject;
use crate::lenient_json::parse_tool_arguments;
use crate::responses::wire::TextKind;

/// Returns the user-visible text of a content part and whether it is text or a refusal. `None`
/// means that the part has no such text.
pub(super) fn parse_text_part(part_json: &str) -> Option<(TextKind, String)> {
    let mut fields = JsonObject::parse(part_json)?;
    let kind = fields.take_string_field("type")?;
    let piece = match kind.as_str() {
        "output_text" => TextKind::Text,
        "refusal" => TextKind::Refusal,
        _ => return None,
    };
    Some((piece, fields.take_string_field(text_field_name(&kind))?))
}

/// Returns the name of the field with the text, for a content part of this type.
fn text_field_name(part_type: &str) -> &'static str {
    match part_type {
        "refusal" => "refusal",
        _ => "text",
    }
}

/// Returns the content parts of a message item. `None` means that the content has an unknown
/// format.
pub(super) fn parse_content_parts(content: &RawJson) -> Option<Vec<RawJson>> {
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

/// Converts a complete output item to content blocks (`Block`). `reasoning_text` is the text of a
/// reasoning item.
pub(super) fn output_item_to_blocks(item: RawJson, reasoning_text: String) -> Vec<Block> {
    let Some(mut fields) = JsonObject::parse(item.as_str()) else {
        return vec![Block::Other(item)];
    };
    match fields.take_string_field("type").as_deref() {
        Some("message") => {
            message_item_to_blocks(fields).unwrap_or_else(|| vec![Block::Other(item)])
        }
        Some("function_call") => vec![tool_call_block(fields)],
        Some("reasoning") => vec![thinking_block(item, &fields, reasoning_text)],
        Some(_) | None => vec![Block::Other(item)],
    }
}

/// Returns the text blocks of a message item. The first block also keeps the other fields of the
/// message, and each block keeps the other fields of its content part.
fn message_item_to_blocks(mut fields: JsonObject) -> Option<Vec<Block>> {
    let content = fields.take_field("content").unwrap_or_else(RawJson::null);
    let parts = parse_content_parts(&content)?;
    remove_fields_by_name(&mut fields, &["type", "content"]);
    let mut head = Some(fields.to_json().unwrap_or_else(empty_json_object));
    let mut blocks = Vec::new();
    for part in parts {
        let mut extra = JsonObject::default();
        if let Some(head) = head.take() {
            extra.set_field("message", head);
        }
        let (text, part) = split_text_from_part(part);
        extra.set_field("part", part);
        blocks.push(Block::Text(TextBlock { text: text.into(), extra: extra.to_json() }));
    }
    if let Some(head) = head {
        let mut extra = JsonObject::default();
        extra.set_field("message", head);
        blocks.push(Block::Text(TextBlock { text: "".into(), extra: extra.to_json() }));
    }
    Some(blocks)
}

/// Splits a content part into its text and its other fields. A part of unknown type has no text.
fn split_text_from_part(part: RawJson) -> (String, RawJson) {
    let Some(mut fields) = JsonObject::parse(part.as_str()) else {
        return (String::new(), part);
    };
    let kind = fields.get("type").map(RawJson::as_str).unwrap_or_default();
    let field = match kind {
        r#""output_text""# => text_field_name("output_text"),
        r#""refusal""# => text_field_name("refusal"),
        _ => return (String::new(), part),
    };
    let text = fields.take_string_field(field).unwrap_or_default();
    remove_fields_by_name(&mut fields, &[field]);
    (text, fields.to_json().unwrap_or_else(empty_json_object))
}

fn empty_json_object() -> RawJson {
    RawJson::from_serialize(&serde_json::Map::new())
}

/// Returns a thinking block that keeps the complete item, because the provider accepts an item only
/// unchanged.
fn thinking_block(item: RawJson, fields: &JsonObject, reasoning_text: String) -> Block {
    #[derive(serde::Deserialize)]
    struct SummaryText {
        text: String,
    }
    let list = |name: &str| {
        let texts: Vec<SummaryText> = serde_json::from_str(fields.get(name)?.as_str()).ok()?;
        let texts: Vec<String> =
            texts.into_iter().map(|reasoning_text| reasoning_text.text).collect();
        Some(texts.join("\n\n")).filter(|text| !text.is_empty())
    };
    let text = list("summary").or_else(|| list("content"));
    Block::Thinking(ThinkingBlock {
        text: text.unwrap_or(reasoning_text).into(),
        signature: None,
        extra: Some(item),
    })
}

fn tool_call_block(mut fields: JsonObject) -> Block {
    let id = fields.take_string_field("call_id").unwrap_or_default();
    let name = fields.take_string_field("name").unwrap_or_default();
    let text = fields.take_string_field("arguments");
    // Some servers send an object instead of JSON text.
    let object = match text {
        Some(_) => None,
        None => fields.take_field("arguments"),
    };
    let input = parse_tool_arguments(object, text.as_deref().unwrap_or_default());
    remove_fields_by_name(&mut fields, &["type", "call_id", "name", "arguments"]);
    // Whitespace around the arguments is not part of the input, but must be sent back.
    let is_padded = |text: &String| text != input.as_str() && text.trim() == input.as_str();
    if let Some(text) = text.filter(|text| input.as_str().starts_with('{') && is_padded(text)) {
        fields.set_field("arguments", RawJson::from_serialize(&text));
    }
    Block::ToolCall(ToolCall { id, name, input, extra: fields.to_json() })
}

/// Removes all fields with these names, even if a name occurs several times.
fn remove_fields_by_name(fields: &mut JsonObject, names: &[&str]) {
    for name in names {
        _ = fields.take_field(name);
    }
}
