//! What a server's answer means to a model.
//!
//! Never: more of it than a cap, and no bytes where only words can stand.

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::message::Part;
use longhaul_core::port::tool::ToolFailure;
use serde_json::Value;

/// So much of a result is kept, in bytes of text.
const TEXT_BYTES_MAX: usize = 10 * 1024 * 1024;

/// So much of a failure is kept.
const FAILURE_BYTES_MAX: usize = 64 * 1024;

/// The result of a call, as the answer of a server gives it.
pub(super) fn read(answer: &Value) -> Result<ToolOutput, ToolFailure> {
    let blocks = answer["content"].as_array().map(Vec::as_slice);
    let blocks = blocks.unwrap_or_default();
    let mut texts: Vec<String> = blocks.iter().map(words).collect();
    if let Some(structured) = answer.get("structuredContent")
        && !blocks.iter().any(|block| says_the_same(block, structured))
    {
        texts.push(structured.to_string());
    }
    if texts.is_empty() && answer.get("content").is_none() {
        // An answer of a kind that nobody knows is still what came of the call.
        texts.push(answer.to_string());
    }
    if answer["isError"] == true {
        let mut all = texts.join("\n");
        cut(&mut all, FAILURE_BYTES_MAX);
        if all.trim().is_empty() {
            "the tool failed and did not say why".clone_into(&mut all);
        }
        // It has answered: what it says must not look as if nobody knew.
        return Err(ToolFailure(ToolFailure(all).words().to_owned()));
    }
    let mut left = TEXT_BYTES_MAX;
    let mut content = Vec::new();
    for mut text in texts {
        if left == 0 {
            content.push(Part::Text("(the rest was cut off)".into()));
            break;
        }
        cut(&mut text, left);
        left = left.saturating_sub(text.len());
        content.push(Part::Text(text.into()));
    }
    if content.is_empty() {
        content.push(Part::Text("(done, and nothing was said)".into()));
    }
    Ok(ToolOutput {
        content,
        full: None,
    })
}

/// A block of an answer in words. Tools hand their results over as words alone, so
/// of pictures and sounds the model learns that there were some.
fn words(block: &Value) -> String {
    let text = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
    match block["type"].as_str().unwrap_or_default() {
        "text" => text("text"),
        kind @ ("image" | "audio") => {
            let bytes = decoded(block["data"].as_str().unwrap_or_default());
            let media = text("mimeType");
            format!("({kind} of type {media}, {bytes} bytes, not shown)")
        }
        "resource" => resource(&block["resource"]),
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

fn resource(resource: &Value) -> String {
    let at = resource["uri"].as_str().unwrap_or_default();
    let media = resource["mimeType"].as_str().unwrap_or("of no named type");
    match (resource["text"].as_str(), resource["blob"].as_str()) {
        (Some(text), _) => format!("(resource {at})\n{text}"),
        (None, Some(blob)) => {
            let bytes = decoded(blob);
            format!("(resource {at}, {media}, {bytes} bytes, not shown)")
        }
        (None, None) => format!("(resource {at}, empty)"),
    }
}

/// How many bytes base64 stands for.
fn decoded(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// Servers say what is structured once more as text, for those who read only that;
/// what is one text alone, they put in an object with one field.
fn says_the_same(block: &Value, structured: &Value) -> bool {
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

/// Cuts a text to so many bytes, and says so.
fn cut(text: &mut String, max: usize) {
    if text.len() <= max {
        return;
    }
    let whole = text.len();
    text.truncate(text.floor_char_boundary(max));
    text.push_str(&format!("\n(cut off here: it was {whole} bytes long)"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(answer: Value, expect: &str) {
        let seen = match read(&answer) {
            Ok(output) => output
                .content
                .iter()
                .map(|part| match part {
                    Part::Text(text) => text.to_string(),
                    Part::Image(_) => panic!("a picture"),
                })
                .collect::<Vec<_>>()
                .join("|"),
            Err(failure) => format!("failed: {}", failure.0),
        };
        assert_eq!(seen, expect, "{answer}");
    }

    #[test]
    fn every_kind_of_answer_has_its_words() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        check(json!({ "content": [text("a"), text("b")] }), "a|b");
        check(json!({ "content": [] }), "(done, and nothing was said)");
        check(
            json!({ "content": [text("no")], "isError": true }),
            "failed: no",
        );
        check(
            json!({ "content": [text("\u{fdd0}no")], "isError": true }),
            "failed: no",
        );
        check(
            json!({ "content": [], "isError": true }),
            "failed: the tool failed and did not say why",
        );
        check(
            json!({ "content": [text("{\"a\": 1}")], "structuredContent": { "a": 1 } }),
            "{\"a\": 1}",
        );
        check(
            json!({ "content": [text("one")], "structuredContent": { "a": "one" } }),
            "one",
        );
        check(
            json!({ "content": [text("one")], "structuredContent": { "a": 1 } }),
            "one|{\"a\":1}",
        );
        check(
            json!({ "content": [{ "type": "image", "data": "AAAA", "mimeType": "image/png" }] }),
            "(image of type image/png, 3 bytes, not shown)",
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
    fn too_much_is_cut_and_says_so() {
        let long = "é".repeat(TEXT_BYTES_MAX / 2 + 1);
        let block = json!({ "type": "text", "text": long });
        let output = read(&json!({ "content": [block.clone(), block] })).unwrap();
        let Part::Text(first) = &output.content[0] else {
            panic!("no text");
        };
        assert!(first.ends_with("bytes long)"));
        assert_eq!(output.content.len(), 2);
    }
}
