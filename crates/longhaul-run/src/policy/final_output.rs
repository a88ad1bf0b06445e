//! Determines the final output of a run when the last reply arrives. The output is recorded with
//! the reply if it differs from what the legacy rule gives (the first version of this code, which
//! journals without a recorded output still use).
//!
//! Invariant: outputs are not determined when a journal is replayed. A later build may parse
//! replies better, but an approved output must stay as it was shown.

use longhaul_core::event::turn::{OutputCheckResult, TurnCompleted};
use longhaul_core::message::StopReason;
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use serde_json::Value;

use crate::policy::control_tool_names::FINISH;
use crate::policy::legacy_output::{
    legacy_output_from_finish_call, legacy_output_from_text, output_from_data_fields,
    rounded_confidence,
};

/// Returns the run's output to record with a reply. `None` means that the reply does not end the
/// run, or that the legacy rule for journals without a recorded output gives the same output.
pub(crate) fn final_output(turn: &TurnCompleted) -> Option<RunOutput> {
    let (now, first) = match (finish_call_input(turn), &turn.output_check) {
        (Some(input), output_check) => (
            output_from_finish_call(&input, output_check.as_ref()),
            legacy_output_from_finish_call(&input),
        ),
        (None, Some(OutputCheckResult::Invalid(_))) => return None,
        (None, _) if !turn.calls.is_empty() || turn.stop == StopReason::PauseTurn => return None,
        (None, Some(OutputCheckResult::Valid(given))) => {
            (output_from_valid_data(given), output_from_data_fields(given))
        }
        (None, None) => {
            let text = turn.reply.text();
            (output_from_text(text.clone()), legacy_output_from_text(text))
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
    match data.to_value() {
        Value::String(text) => RunOutput { text, ..first },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            first
        }
    }
}

fn output_from_text(text: String) -> RunOutput {
    let first = legacy_output_from_text(text);
    let confidence = first.data.as_ref().and_then(|data| rounded_confidence(&data.to_value()));
    RunOutput { confidence, ..first }
}
