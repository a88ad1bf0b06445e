//! Texts for people and for the model about calls in doubt, whose outcome is unknown. Program
//! output in these texts is limited in length and separated from our own sentences.

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::event::turn::ToolCallClassification;
use longhaul_core::message::Part;
use longhaul_core::policy::effect_key::EffectKeyHolder;
use longhaul_core::status::RunError;

use crate::state::call::TrackedCall;

/// Maximum length in bytes of the reason why a call is in doubt (outcome unknown).
const REASON_BYTES_MAX: usize = 2 * 1024;

const WORKER_LOST: &str = "its worker died or stopped responding";
const MAY_STILL_RUN: &str = "what it started may still be running on that worker's machine";

/// Returns the reason why a call is in doubt (outcome unknown), taken from the text of the call's
/// output. `None` means that the output has no text. Used if the worker that ran the call is alive.
pub(crate) fn reason_from_output(output: &ToolOutput) -> Option<String> {
    let texts = output.content.iter().filter_map(Part::text).map(str::trim);
    let mut reason = texts.collect::<Vec<_>>().join("\n");
    if reason.len() > REASON_BYTES_MAX {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX - '…'.len_utf8()));
        reason.push('…');
    }
    (!reason.trim().is_empty()).then_some(reason)
}

/// Returns the reason why a call is in doubt if the driver (async task) that ran it has died.
pub(crate) fn reason_of_lost_worker(call: &ToolCallClassification) -> String {
    match call.may_outlive_worker {
        true => format!("{WORKER_LOST}, and {MAY_STILL_RUN}"),
        false => WORKER_LOST.to_owned(),
    }
}

/// Returns the reason why a tool call was not started: the outcome of another call with the same
/// effect key is unknown. `holder` is that other call.
pub(crate) fn key_taken_reason(call: &ToolCallClassification, holder: EffectKeyHolder) -> String {
    let key = call.key.as_ref().map_or("", |key| key.text.as_str());
    let EffectKeyHolder { run, call } = holder;
    format!("the call {call} of {run} with the same effect key `{key}` has an unknown outcome")
}

/// Returns the question to a person about a call in doubt (outcome unknown). `reason` says why it
/// is in doubt; older journals have no reason.
pub(crate) fn in_doubt_question(call: &TrackedCall, reason: Option<&str>) -> String {
    let tool = &call.classification.tool;
    let cause = match reason {
        Some(reason) if call.starts == 0 => {
            format!("{tool} was not started. {}", to_sentence(reason))
        }
        Some(reason) => format!("{tool} was started. {}", to_sentence(reason)),
        None => format!("{tool} was started and interrupted."),
    };
    format!(
        "{cause} What was the outcome? Approve to run it again, reject if it did not happen and should \
         not, or answer with its result."
    )
}

/// Returns the text that the model reads as the result of a call that was not started, because the
/// outcome of another call with the same effect key is unknown.
pub(crate) fn result_text_not_started(reason: Option<&str>) -> String {
    let reason = reason.map(to_sentence).unwrap_or_default();
    format!("the call was not made. {reason} The other call with this effect key may have happened")
}

/// Returns the text that the model reads as the result of a call in doubt. `reason` says why the
/// outcome is unknown.
pub(crate) fn result_text_in_doubt(reason: Option<&str>) -> String {
    let reason = reason.map(|reason| format!("{} ", to_sentence(reason)));
    let reason = reason.unwrap_or_default();
    format!(
        "the call was started and interrupted, and its outcome is unknown. {reason}It may have happened"
    )
}

/// Returns the error of a run that fails because of a call in doubt. `reason` says why the outcome
/// of the call is unknown.
pub(crate) fn in_doubt_error(call: &TrackedCall, reason: Option<&str>) -> RunError {
    let (tool, call_id) = (&call.classification.tool, call.id);
    let reason_suffix = in_doubt_reason_suffix(reason);
    let (message, hint) = match (call.starts, call.replaces) {
        (0, Some(EffectKeyHolder { run, call })) => (
            format!("{tool} {call_id} was not started{reason_suffix}"),
            format!(
                "check whether the call {call} has taken effect; if not: longhaul free-key {run} {call}; \
                 otherwise set `in_doubt: ask`, and answer with its result"
            ),
        ),
        _ => (
            format!("{tool} {call_id} was started, and its outcome is unknown{reason_suffix}"),
            "check whether it has taken effect, then retry the run".to_owned(),
        ),
    };
    RunError::new("in_doubt", message, hint)
}

/// Returns a colon and the reason why a call is in doubt (outcome unknown), or an empty text
/// without a reason.
fn in_doubt_reason_suffix(reason: Option<&str>) -> String {
    let reason =
        reason.map(|reason| format!(": {}", collapse_whitespace(reason).trim_end_matches('.')));
    reason.unwrap_or_default()
}

/// Returns the reason why a call is in doubt (outcome unknown) as a complete sentence, so that our
/// own text can follow it.
fn to_sentence(reason: &str) -> String {
    let line = collapse_whitespace(reason);
    let mut chars = line.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    let mut sentence: String = first.chain(chars).collect();
    if !sentence.ends_with(['.', '!', '?', '…']) {
        sentence.push('.');
    }
    sentence
}

fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_in_doubt_reason_texts(reason: &str, expect: [&str; 2]) {
        let reason = reason_from_output(&ToolOutput::text(reason));
        let text = result_text_in_doubt(reason.as_deref());
        let text =
            text.strip_prefix("the call was started and interrupted, and its outcome is unknown. ");
        let text = text.and_then(|text| text.strip_suffix("It may have happened"));
        assert_eq!([text.unwrap(), &in_doubt_reason_suffix(reason.as_deref())], expect);
    }

    #[test]
    fn every_in_doubt_reason_is_a_sentence() {
        check_in_doubt_reason_texts("", ["", ""]);
        check_in_doubt_reason_texts(" \n", ["", ""]);
        check_in_doubt_reason_texts(
            "the server ended",
            ["The server ended. ", ": the server ended"],
        );
        check_in_doubt_reason_texts("Gone.", ["Gone. ", ": Gone"]);
        check_in_doubt_reason_texts("`x` is gone", ["`x` is gone. ", ": `x` is gone"]);
        check_in_doubt_reason_texts("éa\n  b\n", ["Éa b. ", ": éa b"]);
    }

    #[test]
    fn a_long_reason_is_truncated_at_a_char_boundary() {
        let reason = reason_from_output(&ToolOutput::text("é".repeat(REASON_BYTES_MAX))).unwrap();
        assert!(reason.len() <= REASON_BYTES_MAX && reason.ends_with("é…"), "{reason}");
    }
}
