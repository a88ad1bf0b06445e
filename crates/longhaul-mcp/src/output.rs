//! What a server's answer means to a model.
//!
//! Never: more of it than a cap, no bytes where only words can stand, and no
//! picture by a server's word alone.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::message::Part;
use longhaul_core::port::image_sink::{ImageError, ImageSink};
use longhaul_core::port::tool::ToolFailure;
use serde_json::Value;

/// So much of a result is kept, in bytes of text.
const TEXT_BYTES_MAX: usize = 10 * 1024 * 1024;

/// So much of what bytes are called is told.
const MEDIA_TYPE_BYTES_MAX: usize = 100;

/// So much of a failure is kept.
const FAILURE_BYTES_MAX: usize = 64 * 1024;

/// Bytes in letters; some servers leave out the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The result of a call, as the answer of a server gives it; its pictures are put
/// up where they can be seen.
pub(super) fn parse(answer: &Value, easel: &ImageSink) -> Result<ToolOutput, ToolFailure> {
    let blocks = answer["content"].as_array().map(Vec::as_slice);
    let blocks = blocks.unwrap_or_default();
    let failed = answer["isError"] == true;
    // What a failed call says is words alone.
    let mut parts: Vec<Part> = match failed {
        true => blocks.iter().map(|block| text_part(block_text(block))).collect(),
        false => blocks.iter().map(|block| block_part(block, easel)).collect(),
    };
    if let Some(structured) = answer.get("structuredContent")
        && !blocks.iter().any(|block| is_same_as_text(block, structured))
    {
        parts.push(text_part(structured.to_string()));
    }
    if parts.is_empty() && answer.get("content").is_none() {
        // An answer of a kind that nobody knows is still what came of the call.
        parts.push(text_part(answer.to_string()));
    }
    if failed {
        let mut all = truncate(&joined_text(&parts), FAILURE_BYTES_MAX);
        if all.trim().is_empty() {
            "the tool failed and did not say why".clone_into(&mut all);
        }
        return Err(ToolFailure::new(all));
    }
    Ok(ToolOutput { content: bounded_parts(parts), full: None })
}

/// An answer as it came, within bounds.
pub(super) fn truncated_json(answer: &Value) -> String {
    truncate(&answer.to_string(), FAILURE_BYTES_MAX)
}

/// As many of the parts as a result may be long.
fn bounded_parts(parts: Vec<Part>) -> Vec<Part> {
    let mut left = TEXT_BYTES_MAX;
    let mut content = Vec::new();
    for part in parts {
        if left == 0 {
            content.push(Part::Text("(the rest was cut off)".into()));
            break;
        }
        let Part::Text(text) = &part else {
            content.push(part);
            continue;
        };
        match text.len() > left {
            true => content.push(Part::Text(truncate(text, left).into())),
            false => content.push(part.clone()),
        }
        left = left.saturating_sub(text.len());
    }
    if content.is_empty() {
        content.push(Part::Text("(done, and nothing was said)".into()));
    }
    content
}

fn text_part(words: String) -> Part {
    Part::Text(words.into())
}

fn joined_text(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A block of an answer: a picture where it is one that can be shown, else words.
fn block_part(block: &Value, easel: &ImageSink) -> Part {
    if block["type"] != "image" {
        return text_part(block_text(block));
    }
    match image_part(block["data"].as_str().unwrap_or_default(), easel) {
        Ok(part) => part,
        Err(why) => text_part(omitted_text("image", block, &format!("not shown: {why}"))),
    }
}

fn image_part(letters: &str, easel: &ImageSink) -> Result<Part, ImageError> {
    let bytes = decoded_len(letters);
    if bytes > ImageSink::BYTES_MAX {
        return Err(ImageError::TooLarge(bytes));
    }
    let bytes = BASE64.decode(letters).map_err(|_| ImageError::UnsupportedFormat)?;
    easel.add(bytes).map(Part::Image)
}

/// Words in the place of bytes.
fn omitted_text(kind: &str, block: &Value, why: &str) -> String {
    let bytes = decoded_len(block["data"].as_str().unwrap_or_default());
    let media = match block["mimeType"].as_str().unwrap_or_default() {
        "" => "no named type",
        media => &media[..media.floor_char_boundary(MEDIA_TYPE_BYTES_MAX)],
    };
    format!("({kind} of type {media}, {bytes} bytes, {why})")
}

/// A block of an answer in words. Of sounds and of bytes that are no picture the
/// model learns that there were some.
fn block_text(block: &Value) -> String {
    let text = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
    match block["type"].as_str().unwrap_or_default() {
        "text" => text("text"),
        kind @ ("image" | "audio") => omitted_text(kind, block, "not shown"),
        "resource" => resource_text(&block["resource"]),
        "resource_link" => {
            let (name, at, about) = (text("name"), text("uri"), text("description"));
            match about.is_empty() {
                true => format!("(link to {name}: {at})"),
                false => format!("(link to {name}: {at}: {about})"),
            }
        }
        _ => block.to_string(),
    }
}

fn resource_text(resource: &Value) -> String {
    let at = resource["uri"].as_str().unwrap_or_default();
    let media = resource["mimeType"].as_str().unwrap_or("of no named type");
    match (resource["text"].as_str(), resource["blob"].as_str()) {
        (Some(text), _) => format!("(resource {at})\n{text}"),
        (None, Some(blob)) => {
            let bytes = decoded_len(blob);
            format!("(resource {at}, {media}, {bytes} bytes, not shown)")
        }
        (None, None) => format!("(resource {at}, empty)"),
    }
}

/// How many bytes base64 stands for.
fn decoded_len(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// Servers say what is structured once more as text, for those who read only that;
/// what is one text alone, they put in an object with one field.
fn is_same_as_text(block: &Value, structured: &Value) -> bool {
    let Some(text) = block["text"].as_str() else {
        return false;
    };
    let fields = structured.as_object().filter(|fields| fields.len() == 1);
    let only = fields.and_then(|fields| fields.values().next());
    let is_said = |value: &Value| {
        value.as_str() == Some(text)
            || serde_json::from_str::<Value>(text).is_ok_and(|said| said == *value)
    };
    is_said(structured) || only.is_some_and(is_said)
}

/// A text of so many bytes at most, which says that it was cut.
fn truncate(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let (kept, whole) = (&text[..text.floor_char_boundary(max)], text.len());
    format!("{kept}\n(cut off here: it was {whole} bytes long)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(answer: Value, expect: &str) {
        let easel = ImageSink::default();
        let seen = match parse(&answer, &easel) {
            Ok(output) => output
                .content
                .iter()
                .map(|part| match part {
                    Part::Text(text) => text.to_string(),
                    Part::Image(image) => {
                        assert_eq!(easel.drain()[0].blob_ref, image.blob);
                        format!("<{}>", image.media_type)
                    }
                })
                .collect::<Vec<_>>()
                .join("|"),
            Err(failure) => format!("failed: {failure}"),
        };
        assert_eq!(seen, expect, "{answer}");
    }

    #[test]
    fn every_content_type_is_rendered_as_text() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        check(json!({ "content": [text("a"), text("b")] }), "a|b");
        check(json!({ "content": [] }), "(done, and nothing was said)");
        check(json!({ "content": [text("no")], "isError": true }), "failed: no");
        check(
            json!({ "content": [], "isError": true }),
            "failed: the tool failed and did not say why",
        );
        check(
            json!({ "content": [text("{\"a\": 1}")], "structuredContent": { "a": 1 } }),
            "{\"a\": 1}",
        );
        check(json!({ "content": [text("one")], "structuredContent": { "a": "one" } }), "one");
        check(
            json!({ "content": [text("one")], "structuredContent": { "a": 1 } }),
            "one|{\"a\":1}",
        );
        check(
            json!({ "content": [{ "type": "resource", "resource": { "uri": "a:b", "text": "t" } }] }),
            "(resource a:b)\nt",
        );
        check(
            json!({ "content": [{ "type": "resource", "resource": { "uri": "a:b", "blob": "AA==" } }] }),
            "(resource a:b, of no named type, 1 bytes, not shown)",
        );
        check(
            json!({ "content": [{ "type": "resource_link", "uri": "a:b", "name": "n" }] }),
            "(link to n: a:b)",
        );
        check(
            json!({ "content": [{ "type": "smell", "of": "rain" }] }),
            "{\"type\":\"smell\",\"of\":\"rain\"}",
        );
        check(json!({ "sum": 5 }), "{\"sum\":5}");
    }

    #[test]
    fn only_valid_images_are_shown() {
        let image =
            |data: &str, media: &str| json!({ "type": "image", "data": data, "mimeType": media });
        let text = json!({ "type": "text", "text": "a" });
        // A picture of 1 x 1, with and without its padding, and one that is called
        // otherwise than it is.
        for (data, media) in [
            ("R0lGODlhAQABAAAAADs=", "image/gif"),
            ("R0lGODlhAQABAAAAADs", "image/gif"),
            ("R0lGODlhAQABAAAAADs=", "image/png"),
        ] {
            let content = [text.clone(), image(data, media), text.clone()];
            check(json!({ "content": content }), "a|<image/gif>|a");
        }
        check(
            json!({ "content": [image("AAAA", "image/png")] }),
            "(image of type image/png, 3 bytes, not shown: it is no whole PNG, JPEG, GIF or WebP)",
        );
        check(
            json!({ "content": [image("no letters of the kind", "")] }),
            "(image of type no named type, 16 bytes, not shown: it is no whole PNG, JPEG, GIF or WebP)",
        );
        check(
            json!({ "content": [image("R0lGODlhAQABAAAAADs=", "image/gif")], "isError": true }),
            "failed: (image of type image/gif, 14 bytes, not shown)",
        );
        check(
            json!({ "content": [{ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" }] }),
            "(audio of type audio/wav, 3 bytes, not shown)",
        );
        let long = "A".repeat(ImageSink::BYTES_MAX / 3 * 4 + 8);
        check(
            json!({ "content": [image(&long, "image/png")] }),
            "(image of type image/png, 3750006 bytes, not shown: it has 3750006 bytes, and at \
             most 3750000 are shown)",
        );
        let many = vec![image("R0lGODlhAQABAAAAADs=", "image/gif"); ImageSink::IMAGES_MAX + 1];
        let easel = ImageSink::default();
        let output = parse(&json!({ "content": many }), &easel).unwrap();
        assert_eq!(easel.drain().len(), ImageSink::IMAGES_MAX);
        assert!(
            matches!(&output.content[8], Part::Text(why) if why.contains("at most 8 pictures"))
        );
    }

    #[test]
    fn too_long_output_is_truncated_with_a_notice() {
        let long = "é".repeat(TEXT_BYTES_MAX / 2 + 1);
        let block = json!({ "type": "text", "text": long });
        let answer = json!({ "content": [block.clone(), block] });
        let output = parse(&answer, &ImageSink::default()).unwrap();
        let Part::Text(first) = &output.content[0] else {
            panic!("no text");
        };
        assert!(first.ends_with("bytes long)"));
        assert_eq!(output.content.len(), 2);
    }
}
