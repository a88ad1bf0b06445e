//! What a run gives back if it ends with a reply: judged when the reply comes, and
//! written down with it where the first rule reads something else.
//!
//! Never: judges in the fold. A later build may read replies better still, and what a
//! person has approved stays as it was shown.

use longhaul_core::event::turn::{Fit, TurnCompleted};
use longhaul_core::message::StopReason;
use longhaul_core::raw::RawJson;
use longhaul_core::status::Output;
use serde_json::Value;

use crate::judge::names::FINISH;
use crate::judge::output::{output_of, output_of_data, output_of_finish, percent};

/// What the journal must say of the end that a reply is; none: it is no end, or the
/// first rule reads the same.
pub(crate) fn ending(done: &TurnCompleted) -> Option<Output> {
    let (now, first) = match (finish(done), &done.fit) {
        (Some(input), fit) => (of_finish(&input, fit.as_ref()), output_of_finish(&input)),
        (None, Some(Fit::Misfit(_))) => return None,
        (None, _) if !done.calls.is_empty() || done.stop == StopReason::PauseTurn => return None,
        (None, Some(Fit::Fits(given))) => (of_fitting(given), output_of_data(given)),
        (None, None) => {
            let text = done.reply.text();
            (of_text(text.clone()), output_of(text))
        }
    };
    (now != first).then_some(now)
}

/// What the last call that may end the run is given.
fn finish(done: &TurnCompleted) -> Option<Value> {
    let calls = done.reply.calls().zip(&done.calls);
    let ends = calls
        .filter(|(_, found)| found.tool.as_str() == FINISH && found.problem.is_none())
        .last();
    ends.map(|(call, _)| call.input.value())
}

fn of_finish(input: &Value, fit: Option<&Fit>) -> Output {
    match (fit, input.get("output")) {
        (Some(Fit::Fits(given)), _) => of_fitting(given),
        (_, Some(Value::String(text))) => of_text(text.clone()),
        (_, Some(data)) => output_of_data(&RawJson::of(data)),
        (_, None) => Output::default(),
    }
}

/// What fits its schema is data, also where that is a text: its words are the text.
fn of_fitting(given: &RawJson) -> Output {
    let first = output_of_data(given);
    match given.value() {
        Value::String(text) => Output { text, ..first },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            first
        }
    }
}

fn of_text(text: String) -> Output {
    let first = output_of(text);
    let confidence = first.data.as_ref().and_then(|data| percent(&data.value()));
    Output {
        confidence,
        ..first
    }
}
