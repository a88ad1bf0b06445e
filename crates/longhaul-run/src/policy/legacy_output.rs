//! The first version of the rule that determines a run's output from its final reply (the legacy
//! rule). It is used to replay journals without a recorded output.
//!
//! Invariant: this rule never changes, so that an approved output stays as it was shown.
//! Improvements go into `final_output`, whose results are recorded in the journal.

use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use serde_json::Value;

/// Returns the run's output for a final text. If the text is one JSON object, optionally in a code
/// fence, the object is also the output's data.
pub(crate) fn legacy_output_from_text(text: String) -> RunOutput {
    let data = parse_fenced_json_object(&text);
    let confidence = data.as_ref().and_then(|raw| integer_confidence(&raw.to_value()));
    RunOutput { text, data, confidence, ..RunOutput::default() }
}

/// Returns the run's output for the input of a `finish` call.
pub(crate) fn legacy_output_from_finish_call(input: &Value) -> RunOutput {
    match input.get("output") {
        Some(Value::String(text)) => legacy_output_from_text(text.clone()),
        Some(data) => RunOutput {
            text: data.to_string(),
            confidence: integer_confidence(data),
            data: Some(RawJson::from_serialize(data)),
            ..RunOutput::default()
        },
        None => RunOutput::default(),
    }
}

/// Returns the run's output for data that is valid under the output schema. The output's text is
/// the data's `text` or `summary` field, or else all of the data. The first version of the rule had
/// no output schemas.
pub(crate) fn output_from_data_fields(data: &RawJson) -> RunOutput {
    let value = data.to_value();
    let text = ["text", "summary"].iter().find_map(|name| {
        let text = value.get(name)?.as_str()?;
        (!text.trim().is_empty()).then(|| text.to_owned())
    });
    RunOutput {
        text: text.unwrap_or_else(|| data.as_str().to_owned()),
        confidence: rounded_confidence(&value),
        data: Some(data.clone()),
        ..RunOutput::default()
    }
}

/// Returns the run's output after a person edited it. The edit is a new text, a complete output, or
/// other data. Nothing of the previous output is kept.
pub fn output_from_human_edit(edited: &RawJson) -> RunOutput {
    let value = edited.to_value();
    if let Value::String(text) = value {
        return legacy_output_from_text(text);
    }
    let whole = value.get("text").is_some_and(Value::is_string);
    match serde_json::from_str(edited.as_str()) {
        Ok(output) if whole => RunOutput { answer: None, ..output },
        Ok(_) | Err(_) => RunOutput {
            text: edited.as_str().to_owned(),
            confidence: integer_confidence(&value),
            data: Some(edited.clone()),
            ..RunOutput::default()
        },
    }
}

/// Returns the text without its surrounding code fence and whitespace.
pub fn strip_code_fence(text: &str) -> &str {
    let inner = text.trim();
    let fenced = inner.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    fenced.map_or(inner, |fenced| fenced.strip_prefix("json").unwrap_or(fenced).trim())
}

fn parse_fenced_json_object(text: &str) -> Option<RawJson> {
    let inner = strip_code_fence(text);
    if !inner.starts_with('{') {
        return None;
    }
    RawJson::parse(inner).ok()
}

/// Returns the `confidence` field of the output's data in percent. `None` if it is not an integer
/// from 0 to 100.
fn integer_confidence(data: &Value) -> Option<u8> {
    let percent = data.get("confidence")?.as_u64()?;
    u8::try_from(percent).ok().filter(|percent| *percent <= 100)
}

/// Returns the `confidence` field of the output's data in percent, rounded. `None` if it is missing
/// or not 0 to 100.
pub(crate) fn rounded_confidence(data: &Value) -> Option<u8> {
    let percent = data.get("confidence")?.as_f64()?;
    (0.0..=100.0).contains(&percent).then_some(percent.round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_data_found_in_text(text: &str, data: Option<&str>) {
        let found = legacy_output_from_text(text.into()).data;
        assert_eq!(found.as_ref().map(RawJson::as_str), data, "{text}");
    }

    #[test]
    fn only_a_json_object_becomes_output_data() {
        check_data_found_in_text("done", None);
        check_data_found_in_text(r#"{"success": true}"#, Some(r#"{"success": true}"#));
        check_data_found_in_text("```json\n{\"a\": 1}\n```", Some("{\"a\": 1}"));
        check_data_found_in_text("```\n{\"a\": 1}\n```", Some("{\"a\": 1}"));
        check_data_found_in_text("{not json}", None);
        check_data_found_in_text("[1, 2]", None);
        check_data_found_in_text("see {\"a\": 1}", None);
    }

    #[test]
    fn confidence_is_a_percentage() {
        let confidence = |text: &str| legacy_output_from_text(text.into()).confidence;
        assert_eq!(confidence(r#"{"confidence": 90}"#), Some(90));
        assert_eq!(confidence(r#"{"confidence": 900}"#), None);
        assert_eq!(confidence(r#"{"confidence": 87.5}"#), None);
    }
}
