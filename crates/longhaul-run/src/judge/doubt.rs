//! Why nobody knows what came of a call, in words for people and for the model.
//!
//! Never: more of a program's words than a few lines, or words that run into ours.

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::event::turn::Appraisal;
use longhaul_core::message::Part;

/// So much is kept of why.
const WHY_BYTES_MAX: usize = 2 * 1024;

const CUT_OFF: &str = "its worker was cut off";
const OUTLIVES: &str = "what it has begun may still be running on the machine of that worker";

/// What the driver that made the call says: it lives, and does not know either.
pub(crate) fn told(output: &ToolOutput) -> Option<String> {
    let texts = output.content.iter().filter_map(Part::text).map(str::trim);
    let mut why = texts.collect::<Vec<_>>().join("\n");
    if why.len() > WHY_BYTES_MAX {
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX - '…'.len_utf8()));
        why.push('…');
    }
    (!why.trim().is_empty()).then_some(why)
}

/// What can be said of a call whose driver is gone.
pub(crate) fn cut_off(call: &Appraisal) -> String {
    match call.outlives {
        true => format!("{CUT_OFF}, and {OUTLIVES}"),
        false => CUT_OFF.to_owned(),
    }
}

/// What a person is asked about such a call. Journals of before say no why.
pub(crate) fn question(call: &Appraisal, why: Option<&str>) -> String {
    let tool = &call.tool;
    let begun = match why {
        Some(why) => format!("{tool} was begun. {}", sentence(why)),
        None => format!("{tool} was begun and cut off."),
    };
    format!(
        "{begun} What came of it? Approve to run it again, reject if it did not happen and should \
         not, or answer with its result."
    )
}

/// What the model reads of it.
pub(crate) fn result(why: Option<&str>) -> String {
    let why = why.map(|why| format!("{} ", sentence(why)));
    let why = why.unwrap_or_default();
    format!("interrupted: it was begun, and its outcome is unknown. {why}It may have happened")
}

/// Why, after a colon, where it is said at all.
pub(crate) fn because(why: Option<&str>) -> String {
    let why = why.map(|why| format!(": {}", line(why).trim_end_matches('.')));
    why.unwrap_or_default()
}

/// A sentence of its own: whatever a program said, ours begins after it.
fn sentence(why: &str) -> String {
    let line = line(why);
    let mut letters = line.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let mut sentence: String = first.chain(letters).collect();
    if !sentence.ends_with(['.', '!', '?', '…']) {
        sentence.push('.');
    }
    sentence
}

fn line(why: &str) -> String {
    why.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(why: &str, expect: [&str; 2]) {
        let why = told(&ToolOutput::text(why));
        let said = result(why.as_deref());
        let said = said.strip_prefix("interrupted: it was begun, and its outcome is unknown. ");
        let said = said.and_then(|said| said.strip_suffix("It may have happened"));
        assert_eq!([said.unwrap(), &because(why.as_deref())], expect);
    }

    #[test]
    fn every_why_is_a_sentence() {
        check("", ["", ""]);
        check(" \n", ["", ""]);
        check(
            "the server ended",
            ["The server ended. ", ": the server ended"],
        );
        check("Gone.", ["Gone. ", ": Gone"]);
        check("`x` is gone", ["`x` is gone. ", ": `x` is gone"]);
        check("éa\n  b\n", ["Éa b. ", ": éa b"]);
    }

    #[test]
    fn a_long_why_is_cut_between_letters() {
        let why = told(&ToolOutput::text("é".repeat(WHY_BYTES_MAX))).unwrap();
        assert!(why.len() <= WHY_BYTES_MAX && why.ends_with("é…"), "{why}");
    }
}
