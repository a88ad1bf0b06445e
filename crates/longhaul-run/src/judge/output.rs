//! What a run gives back, read from its final words.
//!
//! Never: makes data up. Words that are no JSON object are only words.

use longhaul_core::raw::RawJson;
use longhaul_core::status::Output;
use serde_json::Value;

/// The output that a final text is. One JSON object, bare or in one fence, is
/// also the data.
pub(crate) fn output_of(text: String) -> Output {
    let data = as_object(&text);
    let confidence = data.as_ref().and_then(|raw| confidence(&raw.value()));
    Output {
        text,
        data,
        confidence,
        artifacts: Vec::new(),
    }
}

/// The output that a `finish` call gives.
pub(crate) fn output_of_finish(input: &Value) -> Output {
    match input.get("output") {
        Some(Value::String(text)) => output_of(text.clone()),
        Some(data) => output_of_data(&RawJson::of(data)),
        None => Output::default(),
    }
}

/// The output that data is: its own words where it has some, and all of it.
pub(crate) fn output_of_data(data: &RawJson) -> Output {
    let value = data.value();
    let words = ["text", "summary"].iter().find_map(|name| {
        let words = value.get(name)?.as_str()?;
        (!words.trim().is_empty()).then(|| words.to_owned())
    });
    Output {
        text: words.unwrap_or_else(|| data.as_str().to_owned()),
        confidence: confidence(&value),
        data: Some(data.clone()),
        artifacts: Vec::new(),
    }
}

/// The output that a person made of another: new words, the whole output as it
/// was shown, or other data. Nothing of the old one is kept beside it.
pub(crate) fn output_of_edit(edited: &RawJson) -> Output {
    let value = edited.value();
    if let Value::String(text) = value {
        return output_of(text);
    }
    let whole = value.get("text").is_some_and(Value::is_string);
    match serde_json::from_str(edited.as_str()) {
        Ok(output) if whole => output,
        Ok(_) | Err(_) => Output {
            text: edited.as_str().to_owned(),
            confidence: confidence(&value),
            data: Some(edited.clone()),
            artifacts: Vec::new(),
        },
    }
}

fn as_object(text: &str) -> Option<RawJson> {
    let inner = text.trim();
    let inner = match inner
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"))
    {
        Some(fenced) => fenced.strip_prefix("json").unwrap_or(fenced).trim(),
        None => inner,
    };
    if !inner.starts_with('{') {
        return None;
    }
    RawJson::parse(inner).ok()
}

fn confidence(data: &Value) -> Option<u8> {
    let percent = data.get("confidence")?.as_f64()?;
    (0.0..=100.0)
        .contains(&percent)
        .then_some(percent.round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, data: Option<&str>) {
        let found = output_of(text.into()).data;
        assert_eq!(found.as_ref().map(RawJson::as_str), data, "{text}");
    }

    #[test]
    fn one_object_is_data_and_anything_else_is_words() {
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
        assert_eq!(
            output_of(r#"{"confidence": 90}"#.into()).confidence,
            Some(90)
        );
        assert_eq!(output_of(r#"{"confidence": 900}"#.into()).confidence, None);
    }
}
