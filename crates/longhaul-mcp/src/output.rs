//! Converts a server's response into text and images for the model.
//!
//! Invariant: the output is bounded, binary data is not inserted into text, and an image is shown
//! only if its bytes really are an image, whatever media type the server declares.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::message::Part;
use longhaul_core::port::image_sink::{ImageError, ImageSink};
use longhaul_core::port::tool::ToolFailure;
use serde_json::Value;

/// Maximum size of the text of a call's result, in bytes.
const TEXT_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Maximum length of a media type in messages.
const MEDIA_TYPE_BYTES_MAX: usize = 100;

/// Maximum size of the message about a failed call, in bytes.
const FAILURE_BYTES_MAX: usize = 64 * 1024;

/// Base64 decoder. Padding is optional, because some servers leave it out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Converts the response of a server into the result of a call. Images are added to the image sink.
pub(super) fn parse_output(answer: &Value, sink: &ImageSink) -> Result<ToolOutput, ToolFailure> {
    let blocks = answer["content"].as_array().map_or(&[][..], Vec::as_slice);
    let structured = answer.get("structuredContent");
    let structured = structured
        .filter(|value| !blocks.iter().any(|block| repeats_structured_content(block, value)));
    // A response of an unknown kind is still the result of the call.
    let is_unknown = blocks.is_empty() && structured.is_none() && answer.get("content").is_none();
    let rest = structured.or(is_unknown.then_some(answer)).map(Value::to_string);
    if answer["isError"] == true {
        // A failed call has text only.
        let texts: Vec<String> = blocks.iter().map(content_block_text).chain(rest).collect();
        let mut message = truncate_text(&texts.join("\n"), FAILURE_BYTES_MAX);
        if message.trim().is_empty() {
            "the tool failed without a message".clone_into(&mut message);
        }
        return Err(ToolFailure::new(message));
    }
    let parts = blocks.iter().map(|block| content_block_to_part(block, sink));
    let content = truncate_output_parts(parts.chain(rest.map(text_part)));
    Ok(ToolOutput { content, ..ToolOutput::default() })
}

/// Returns a response as truncated JSON text.
pub(super) fn truncated_json(answer: &Value) -> String {
    truncate_text(&answer.to_string(), FAILURE_BYTES_MAX)
}

/// Truncates the parts of a result to the maximum size of a result.
fn truncate_output_parts(parts: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut remaining_bytes = TEXT_BYTES_MAX;
    let mut content = Vec::new();
    for mut part in parts {
        if remaining_bytes == 0 {
            content.push(text_part("(the rest was truncated)".to_owned()));
            break;
        }
        if let Part::Text(text) = &part {
            let bytes = text.len();
            if bytes > remaining_bytes {
                part = text_part(truncate_text(text, remaining_bytes));
            }
            remaining_bytes = remaining_bytes.saturating_sub(bytes);
        }
        content.push(part);
    }
    if content.is_empty() {
        content.push(text_part("(done, no output)".to_owned()));
    }
    content
}

fn text_part(text: String) -> Part {
    Part::Text(text.into())
}

/// Converts a content block of a response: an image if it can be shown, else text.
fn content_block_to_part(block: &Value, sink: &ImageSink) -> Part {
    if block["type"] != "image" {
        return text_part(content_block_text(block));
    }
    match image_part(block["data"].as_str().unwrap_or_default(), sink) {
        Ok(part) => part,
        Err(error) => text_part(omitted_data_note("image", block, &format!("not shown: {error}"))),
    }
}

fn image_part(data: &str, sink: &ImageSink) -> Result<Part, ImageError> {
    let bytes = base64_decoded_len(data);
    if bytes > ImageSink::BYTES_MAX {
        return Err(ImageError::TooLarge(bytes));
    }
    let bytes = BASE64.decode(data).map_err(|_| ImageError::UnsupportedFormat)?;
    sink.add(bytes).map(Part::Image)
}

/// Returns the text that replaces binary data of a content block.
fn omitted_data_note(kind: &str, block: &Value, reason: &str) -> String {
    let bytes = base64_decoded_len(block["data"].as_str().unwrap_or_default());
    let media = match block["mimeType"].as_str().unwrap_or_default() {
        "" => "unknown",
        media => &media[..media.floor_char_boundary(MEDIA_TYPE_BYTES_MAX)],
    };
    format!("({kind} of type {media}, {bytes} bytes, {reason})")
}

/// Converts a content block of a response into text. Audio and other binary data is replaced by a
/// note.
fn content_block_text(block: &Value) -> String {
    let text = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
    match block["type"].as_str().unwrap_or_default() {
        "text" => text("text"),
        kind @ ("image" | "audio") => omitted_data_note(kind, block, "not shown"),
        "resource" => resource_text(&block["resource"]),
        "resource_link" => {
            let (name, uri, description) = (text("name"), text("uri"), text("description"));
            match description.is_empty() {
                true => format!("(link to {name}: {uri})"),
                false => format!("(link to {name}: {uri}: {description})"),
            }
        }
        _ => block.to_string(),
    }
}

fn resource_text(resource: &Value) -> String {
    let uri = resource["uri"].as_str().unwrap_or_default();
    let media = resource["mimeType"].as_str().unwrap_or("type unknown");
    match (resource["text"].as_str(), resource["blob"].as_str()) {
        (Some(text), _) => format!("(resource {uri})\n{text}"),
        (None, Some(blob)) => {
            let bytes = base64_decoded_len(blob);
            format!("(resource {uri}, {media}, {bytes} bytes, not shown)")
        }
        (None, None) => format!("(resource {uri}, empty)"),
    }
}

/// Returns the number of bytes that base64 text decodes to.
fn base64_decoded_len(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// Returns whether a text block repeats the structured content, as servers do for older clients. A
/// single text is often wrapped in an object with one field.
fn repeats_structured_content(block: &Value, structured: &Value) -> bool {
    let Some(text) = block["text"].as_str() else {
        return false;
    };
    let fields = structured.as_object().filter(|fields| fields.len() == 1);
    let single_field = fields.and_then(|fields| fields.values().next());
    let equals_text = |value: &Value| {
        value.as_str() == Some(text)
            || serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *value)
    };
    equals_text(structured) || single_field.is_some_and(equals_text)
}

/// Truncates a text to `max_bytes` bytes and appends a note about the truncation.
fn truncate_text(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let (head, total_bytes) = (&text[..text.floor_char_boundary(max_bytes)], text.len());
    format!("{head}\n(truncated: the text was {total_bytes} bytes long)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn assert_output_text(answer: Value, expected: &str) {
        let sink = ImageSink::default();
        let rendered = match parse_output(&answer, &sink) {
            Ok(output) => output
                .content
                .iter()
                .map(|part| match part {
                    Part::Text(text) => text.to_string(),
                    Part::Image(image) => {
                        assert_eq!(sink.drain()[0].blob_ref, image.blob);
                        format!("<{}>", image.media_type)
                    }
                })
                .collect::<Vec<_>>()
                .join("|"),
            Err(failure) => format!("failed: {failure}"),
        };
        assert_eq!(rendered, expected, "{answer}");
    }

    #[test]
    fn every_content_type_is_rendered_as_text() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        assert_output_text(json!({ "content": [text("a"), text("b")] }), "a|b");
        assert_output_text(json!({ "content": [] }), "(done, no output)");
        assert_output_text(json!({ "content": [text("no")], "isError": true }), "failed: no");
        assert_output_text(
            json!({ "content": [], "isError": true }),
            "failed: the tool failed without a message",
        );
        assert_output_text(
            json!({ "content": [text("{\"a\": 1}")], "structuredContent": { "a": 1 } }),
            "{\"a\": 1}",
        );
        assert_output_text(
            json!({ "content": [text("one")], "structuredContent": { "a": "one" } }),
            "one",
        );
        assert_output_text(
            json!({ "content": [text("one")], "structuredContent": { "a": 1 } }),
            "one|{\"a\":1}",
        );
        assert_output_text(
            json!({ "content": [{ "type": "resource", "resource": { "uri": "a:b", "text": "t" } }] }),
            "(resource a:b)\nt",
        );
        assert_output_text(
            json!({ "content": [{ "type": "resource", "resource": { "uri": "a:b", "blob": "AA==" } }] }),
            "(resource a:b, type unknown, 1 bytes, not shown)",
        );
        assert_output_text(
            json!({ "content": [{ "type": "resource_link", "uri": "a:b", "name": "n" }] }),
            "(link to n: a:b)",
        );
        assert_output_text(
            json!({ "content": [{ "type": "smell", "of": "rain" }] }),
            "{\"type\":\"smell\",\"of\":\"rain\"}",
        );
        assert_output_text(json!({ "sum": 5 }), "{\"sum\":5}");
    }

    #[test]
    fn only_valid_images_are_shown() {
        let image =
            |data: &str, media: &str| json!({ "type": "image", "data": data, "mimeType": media });
        let text = json!({ "type": "text", "text": "a" });
        // A GIF of 1 x 1 pixels, with and without padding, and with a wrong media type.
        for (data, media) in [
            ("R0lGODlhAQABAAAAADs=", "image/gif"),
            ("R0lGODlhAQABAAAAADs", "image/gif"),
            ("R0lGODlhAQABAAAAADs=", "image/png"),
        ] {
            let content = [text.clone(), image(data, media), text.clone()];
            assert_output_text(json!({ "content": content }), "a|<image/gif>|a");
        }
        assert_output_text(
            json!({ "content": [image("AAAA", "image/png")] }),
            "(image of type image/png, 3 bytes, not shown: the data is not a complete PNG, JPEG, GIF or WebP)",
        );
        assert_output_text(
            json!({ "content": [image("not base64 of an image", "")] }),
            "(image of type unknown, 16 bytes, not shown: the data is not a complete PNG, JPEG, GIF or WebP)",
        );
        assert_output_text(
            json!({ "content": [image("R0lGODlhAQABAAAAADs=", "image/gif")], "isError": true }),
            "failed: (image of type image/gif, 14 bytes, not shown)",
        );
        assert_output_text(
            json!({ "content": [{ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" }] }),
            "(audio of type audio/wav, 3 bytes, not shown)",
        );
        let long = "A".repeat(ImageSink::BYTES_MAX / 3 * 4 + 8);
        assert_output_text(
            json!({ "content": [image(&long, "image/png")] }),
            "(image of type image/png, 3750006 bytes, not shown: the image has 3750006 bytes, \
             but at most 3750000 are allowed)",
        );
        let images = vec![image("R0lGODlhAQABAAAAADs=", "image/gif"); ImageSink::IMAGES_MAX + 1];
        let sink = ImageSink::default();
        let output = parse_output(&json!({ "content": images }), &sink).unwrap();
        assert_eq!(sink.drain().len(), ImageSink::IMAGES_MAX);
        assert!(
            matches!(&output.content[8], Part::Text(text) if text.contains("at most 8 images"))
        );
    }

    #[test]
    fn too_long_output_is_truncated_with_a_notice() {
        let long = "é".repeat(TEXT_BYTES_MAX / 2 + 1);
        let block = json!({ "type": "text", "text": long });
        let answer = json!({ "content": [block.clone(), block] });
        let output = parse_output(&answer, &ImageSink::default()).unwrap();
        let Part::Text(first) = &output.content[0] else {
            panic!("no text");
        };
        assert!(first.ends_with("bytes long)"));
        assert_eq!(output.content.len(), 2);
    }
}
