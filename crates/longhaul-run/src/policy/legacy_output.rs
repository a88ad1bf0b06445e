//! What a run gives back, as the first rule reads it. Journals without a judged output
//! are folded by it for ever, so that nobody is shown another text than was approved.
//!
//! Never: changes. What is read better today is judged in `ending`, and journaled.

use longhaul_core::raw::RawJson;
use longhaul_core::status::Output;
use serde_json::Value;

/// The output that a final text is. One JSON object, bare or in one fence, is
/// also the data.
pub(crate) fn legacy_output_from_text(text: String) -> Output {
    let data = parse_object(&text);
    let confidence = data.as_ref().and_then(|raw| integer_confidence(&raw.to_value()));
    Output { text, data, confidence, artifacts: Vec::new() }
}

/// The output that a `finish` call gives.
pub(crate) fn legacy_output_from_finish(input: &Value) -> Output {
    match input.get("output") {
        Some(Value::String(text)) => legacy_output_from_text(text.clone()),
        Some(data) => Output {
            text: data.to_string(),
            confidence: integer_confidence(data),
            data: Some(RawJson::from_serialize(data)),
            artifacts: Vec::new(),
        },
        None => Output::default(),
    }
}

/// The output that a final text is which fits its schema: its own words where it has
/// some, and all of it. Such texts came after the first rule.
pub(crate) fn output_from_data(data: &RawJson) -> Output {
    let value = data.to_value();
    let words = ["text", "summary"].iter().find_map(|name| {
        let words = value.get(name)?.as_str()?;
        (!words.trim().is_empty()).then(|| words.to_owned())
    });
    Output {
        text: words.unwrap_or_else(|| data.as_str().to_owned()),
        confidence: rounded_confidence(&value),
        data: Some(data.clone()),
        artifacts: Vec::new(),
    }
}

/// The output that a person made of another: new words, the whole output as it
/// was shown, or other data. Nothing of the old one is kept beside it.
pub(crate) fn output_from_edit(edited: &RawJson) -> Output {
    let value = edited.to_value();
    if let Value::String(text) = value {
        return legacy_output_from_text(text);
    }
    let whole = value.get("text").is_some_and(Value::is_string);
    match serde_json::from_str(edited.as_str()) {
        Ok(output) if whole => output,
        Ok(_) | Err(_) => Output {
            text: edited.as_str().to_owned(),
            confidence: integer_confidence(&value),
            data: Some(edited.clone()),
            artifacts: Vec::new(),
        },
    }
}

/// The text in the one fence around it, or the text itself.
pub fn strip_code_fence(text: &str) -> &str {
    let inner = text.trim();
    let fenced = inner.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    fenced.map_or(inner, |fenced| fenced.strip_prefix("json").unwrap_or(fenced).trim())
}

fn parse_object(text: &str) -> Option<RawJson> {
    let inner = strip_code_fence(text);
    if !inner.starts_with('{') {
        return None;
    }
    RawJson::parse(inner).ok()
}

fn integer_confidence(data: &Value) -> Option<u8> {
    let percent = data.get("confidence")?.as_u64()?;
    u8::try_from(percent).ok().filter(|percent| *percent <= 100)
}

/// How sure data says it is, in percent.
pub(crate) fn rounded_confidence(data: &Value) -> Option<u8> {
    let percent = data.get("confidence")?.as_f64()?;
    (0.0..=100.0).contains(&percent).then_some(percent.round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, data: Option<&str>) {
        let found = legacy_output_from_text(text.into()).data;
        assert_eq!(found.as_ref().map(RawJson::as_str), data, "{text}");
    }

    #[test]
    fn an_object_is_data_and_anything_else_is_text() {
        check("done", None);
        check(r#"{"success": true}"#, Some(r#"{"success": true}"#));
        check("```json\n{\"a\": 1}\n```", Some("{\"a\": 1}"));
        check("```\n{\"a\": 1}\n```", Some("{\"a\": 1}"));
        check("{not json}", None);
        check("[1, 2]", None);
        check("see {\"a\": 1}", None);
    }

    #[test]
    fn confidence_is_a_percentage() {
        let sure = |text: &str| legacy_output_from_text(text.into()).confidence;
        assert_eq!(sure(r#"{"confidence": 90}"#), Some(90));
        assert_eq!(sure(r#"{"confidence": 900}"#), None);
        assert_eq!(sure(r#"{"confidence": 87.5}"#), None);
    }
}
