//! Why nobody knows what came of a call, in words for people and for the model.
//!
//! Never: more of a program's words than a few lines, or words that run into ours.

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::event::turn::CallClassification;
use longhaul_core::message::Part;

/// So much is kept of why.
const REASON_BYTES_MAX: usize = 2 * 1024;

const WORKER_LOST: &str = "its worker was cut off";
const MAY_STILL_RUN: &str = "what it has begun may still be running on the machine of that worker";

/// What the driver that made the call says: it lives, and does not know either.
pub(crate) fn reason_from_output(output: &ToolOutput) -> Option<String> {
    let texts = output.content.iter().filter_map(Part::text).map(str::trim);
    let mut why = texts.collect::<Vec<_>>().join("\n");
    if why.len() > REASON_BYTES_MAX {
        why.truncate(why.floor_char_boundary(REASON_BYTES_MAX - '…'.len_utf8()));
        why.push('…');
    }
    (!why.trim().is_empty()).then_some(why)
}

/// What can be said of a call whose driver is gone.
pub(crate) fn worker_lost_reason(call: &CallClassification) -> String {
    match call.may_outlive_worker {
        true => format!("{WORKER_LOST}, and {MAY_STILL_RUN}"),
        false => WORKER_LOST.to_owned(),
    }
}

/// What a person is asked about such a call. Journals of before say no why.
pub(crate) fn in_doubt_question(call: &CallClassification, why: Option<&str>) -> String {
    let tool = &call.tool;
    let begun = match why {
        Some(why) => format!("{tool} was begun. {}", to_sentence(why)),
        None => format!("{tool} was begun and cut off."),
    };
    format!(
        "{begun} What came of it? Approve to run it again, reject if it did not happen and should \
         not, or answer with its result."
    )
}

/// What the model reads of it.
pub(crate) fn in_doubt_result(why: Option<&str>) -> String {
    let why = why.map(|why| format!("{} ", to_sentence(why)));
    let why = why.unwrap_or_default();
    format!("interrupted: it was begun, and its outcome is unknown. {why}It may have happened")
}

/// Why, after a colon, where it is said at all.
pub(crate) fn reason_suffix(why: Option<&str>) -> String {
    let why = why.map(|why| format!(": {}", single_line(why).trim_end_matches('.')));
    why.unwrap_or_default()
}

/// A sentence of its own: whatever a program said, ours begins after it.
fn to_sentence(why: &str) -> String {
    let line = single_line(why);
    let mut letters = line.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let mut sentence: String = first.chain(letters).collect();
    if !sentence.ends_with(['.', '!', '?', '…']) {
        sentence.push('.');
    }
    sentence
}

fn single_line(why: &str) -> String {
    why.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(why: &str, expect: [&str; 2]) {
        let why = reason_from_output(&ToolOutput::text(why));
        let said = in_doubt_result(why.as_deref());
        let said = said.strip_prefix("interrupted: it was begun, and its outcome is unknown. ");
        let said = said.and_then(|said| said.strip_suffix("It may have happened"));
        assert_eq!([said.unwrap(), &reason_suffix(why.as_deref())], expect);
    }

    #[test]
    fn every_in_doubt_reason_is_a_sentence() {
        check("", ["", ""]);
        check(" \n", ["", ""]);
        check("the server ended", ["The server ended. ", ": the server ended"]);
        check("Gone.", ["Gone. ", ": Gone"]);
        check("`x` is gone", ["`x` is gone. ", ": `x` is gone"]);
        check("éa\n  b\n", ["Éa b. ", ": éa b"]);
    }

    #[test]
    fn a_long_reason_is_truncated_at_a_char_boundary() {
        let why = reason_from_output(&ToolOutput::text("é".repeat(REASON_BYTES_MAX))).unwrap();
        assert!(why.len() <= REASON_BYTES_MAX && why.ends_with("é…"), "{why}");
    }
}
