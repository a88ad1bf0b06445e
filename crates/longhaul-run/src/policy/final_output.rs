//! What a run gives back if it ends with a reply: judged when the reply comes, and
//! written down with it where the first rule reads something else.
//!
//! Never: judges in the fold. A later build may read replies better still, and what a
//! person has approved stays as it was shown.

use longhaul_core::event::turn::{OutputCheck, TurnCompleted};
use longhaul_core::message::StopReason;
use longhaul_core::raw::RawJson;
use longhaul_core::status::Output;
use serde_json::Value;

use crate::policy::control_tool_names::FINISH;
use crate::policy::legacy_output::{
    legacy_output_from_finish, legacy_output_from_text, output_from_data, rounded_confidence,
};

/// What the journal must say of the end that a reply is; none: it is no end, or the
/// first rule reads the same.
pub(crate) fn final_output(done: &TurnCompleted) -> Option<Output> {
    let (now, first) = match (finish_input(done), &done.output_check) {
        (Some(input), fit) => {
            (output_from_finish(&input, fit.as_ref()), legacy_output_from_finish(&input))
        }
        (None, Some(OutputCheck::Invalid(_))) => return None,
        (None, _) if !done.calls.is_empty() || done.stop == StopReason::PauseTurn => return None,
        (None, Some(OutputCheck::Valid(given))) => {
            (output_from_valid(given), output_from_data(given))
        }
        (None, None) => {
            let text = done.reply.text();
            (output_from_text(text.clone()), legacy_output_from_text(text))
        }
    };
    (now != first).then_some(now)
}

/// What the last call that may end the run is given.
fn finish_input(done: &TurnCompleted) -> Option<Value> {
    let calls = done.reply.calls().zip(&done.calls);
    let ends =
        calls.filter(|(_, found)| found.tool.as_str() == FINISH && found.problem.is_none()).last();
    ends.map(|(call, _)| call.input.to_value())
}

fn output_from_finish(input: &Value, fit: Option<&OutputCheck>) -> Output {
    match (fit, input.get("output")) {
        (Some(OutputCheck::Valid(given)), _) => output_from_valid(given),
        (_, Some(Value::String(text))) => output_from_text(text.clone()),
        (_, Some(data)) => output_from_data(&RawJson::from_serialize(data)),
        (_, None) => Output::default(),
    }
}

/// What fits its schema is data, also where that is a text: its words are the text.
fn output_from_valid(given: &RawJson) -> Output {
    let first = output_from_data(given);
    match given.to_value() {
        Value::String(text) => Output { text, ..first },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            first
        }
    }
}

fn output_from_text(text: String) -> Output {
    let first = legacy_output_from_text(text);
    let confidence = first.data.as_ref().and_then(|data| rounded_confidence(&data.to_value()));
    Output { confidence, ..first }
}
