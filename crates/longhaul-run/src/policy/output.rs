//! Determines the output of a run from its final reply, its `finish` call or a person's edit.
//!
//! A journal records the output of a reply only if it differs from what the first version of the rule
//! gives, which also applies to journals without a recorded output. Invariant: the functions
//! `first_rule_*` never change, so that an approved output stays as it was shown. Improvements go
//! into `final_output`, whose results are recorded.

use longhaul_core::event::turn::{OutputCheckResult, TurnCompleted};
use longhaul_core::message::StopReason;
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use serde_json::Value;

use crate::policy::FINISH;

/// Returns the run's output to record with a reply. `None` means that the reply does not end the
/// run, or that the first version of the rule gives the same output.
pub(crate) fn final_output(turn: &TurnCompleted) -> Option<RunOutput> {
    let (now, first) = match (finish_call_input(turn), &turn.output_check) {
        (Some(input), output_check) => (
            output_from_finish_call(&input, output_check.as_ref()),
            first_rule_finish_output(&input),
        ),
        (None, Some(OutputCheckResult::Invalid(_))) => return None,
        (None, _) if !turn.calls.is_empty() || turn.stop == StopReason::PauseTurn => return None,
        (None, Some(OutputCheckResult::Valid(given))) => {
            (output_from_valid_data(given), output_from_data_fields(given))
        }
        (None, None) => {
            let text = turn.reply.text();
            (output_from_text(text.clone()), first_rule_text_output(text))
        }
    };
    (now != first).then_some(now)
}

/// Returns the input of the last valid `finish` call of a reply. `None` if there is no such call.
fn finish_call_input(turn: &TurnCompleted) -> Option<Value> {
    let calls = turn.reply.tool_calls().zip(&turn.calls);
    let valid_finish = calls
        .filter(|(_, classification)| {
            classification.tool.as_str() == FINISH && classification.problem.is_none()
        })
        .last();
    valid_finish.map(|(call, _)| call.input.to_value())
}

fn output_from_finish_call(input: &Value, output_check: Option<&OutputCheckResult>) -> RunOutput {
    match (output_check, input.get("output")) {
        (Some(OutputCheckResult::Valid(given)), _) => output_from_valid_data(given),
        (_, Some(Value::String(text))) => output_from_text(text.clone()),
        (_, Some(data)) => output_from_data_fields(&RawJson::from_serialize(data)),
        (_, None) => RunOutput::default(),
    }
}

/// Returns the run's output for data that is valid under the output schema. If the data is a JSON
/// string, the string becomes the output's text.
fn output_from_valid_data(data: &RawJson) -> RunOutput {
    let first = output_from_data_fields(data);
    match data.to_value().as_str() {
        Some(text) => RunOutput { text: text.to_owned(), ..first },
        None => first,
    }
}

fn output_from_text(text: String) -> RunOutput {
    let first = first_rule_text_output(text);
    let confidence = first.data.as_ref().and_then(|data| rounded_confidence(&data.to_value()));
    RunOutput { confidence, ..first }
}

/// Returns the run's output for a final text. If the text is one JSON object, optionally in a code
/// fence, the object is also the output's data.
pub(crate) fn first_rule_text_output(text: String) -> RunOutput {
    let data = parse_fenced_json_object(&text);
    let confidence = data.as_ref().and_then(|raw| integer_confidence(&raw.to_value()));
    RunOutput { text, data, confidence, ..RunOutput::default() }
}

/// Returns the run's output for the input of a `finish` call.
pub(crate) fn first_rule_finish_output(input: &Value) -> RunOutput {
    match input.get("output") {
        Some(Value::String(text)) => first_rule_text_output(text.clone()),
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
        return first_rule_text_output(text);
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
        let found = first_rule_text_output(text.into()).data;
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
        let confidence = |text: &str| first_rule_text_output(text.into()).confidence;
        assert_eq!(confidence(r#"{"confidence": 90}"#), Some(90));
        assert_eq!(confidence(r#"{"confidence": 900}"#), None);
        assert_eq!(confidence(r#"{"confidence": 87.5}"#), None);
    }
}
