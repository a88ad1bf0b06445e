//! Decides which tool calls of a reply may run in parallel and which must run in the model's order.
//! Uses only the effect classes and the rule match texts (such as paths) of the calls.

use longhaul_core::policy::effect::EffectClass;

use crate::state::call::{ToolCallState, TrackedToolCall};

/// Returns whether a call may start while earlier calls of the same reply are not done. A call
/// waits for the gates of earlier calls. A call that must run alone waits for all earlier calls,
/// and all later calls wait for it. Calls with a common rule match text, such as a path, run in
/// order if one of them changes it: with two parallel writes either text could win, and both would be
/// reported as done. Calls with the same effect key run in order, too.
pub(super) fn may_run_with_earlier(earlier: &[TrackedToolCall], call: &TrackedToolCall) -> bool {
    earlier.iter().all(|before| {
        before.is_done()
            || (!call.is_exclusive()
                && !before.is_exclusive()
                && !matches!(
                    before.state,
                    ToolCallState::Gated(_) | ToolCallState::AwaitingAnswer(_)
                )
                && !must_calls_run_in_order(before, call))
    })
}

/// Returns whether two tool calls must run in order: they have the same effect key (name of an
/// effect that must happen at most once), or a common rule match text, such as a path, that one of
/// them changes.
fn must_calls_run_in_order(first: &TrackedToolCall, second: &TrackedToolCall) -> bool {
    let has_effect = |call: &TrackedToolCall| call.classification.class != EffectClass::Pure;
    // The second of two calls with one effect key gets the result of the first.
    if let Some(key) = &first.classification.key
        && second.has_effect_key(key.hash)
    {
        return true;
    }
    if !has_effect(first) && !has_effect(second) {
        return false;
    }
    let second_texts = &second.classification.rule_match_texts;
    let mut first_texts = first.classification.rule_match_texts.iter();
    first_texts
        .any(|first| second_texts.iter().any(|second| rule_match_texts_overlap(first, second)))
}

/// Returns whether two texts that approval rules match, such as paths, are equal or one
/// path contains the other. A text that is the whole input as JSON never overlaps another.
fn rule_match_texts_overlap(first: &str, second: &str) -> bool {
    if [first, second].iter().any(|value| value.is_empty() || value.starts_with('{')) {
        return false;
    }
    let contains_path = |folder: &str, path: &str| {
        let relative_path = path.strip_prefix(folder);
        matches!(folder, "." | "/")
            || relative_path.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    contains_path(first, second) || contains_path(second, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_overlaps_with_the_files_in_it() {
        for (one, other, expect) in [
            ("a.txt", "a.txt", true),
            ("a.txt", "a.txt.bak", false),
            ("a", "a/b.txt", true),
            ("a", "ab/b.txt", false),
            (".", "a/b.txt", true),
            ("/", "Tasks/Milk", true),
            ("", "", false),
            ("", "a", false),
            (".", "{}", false),
            ("{}", "{}", false),
        ] {
            assert_eq!(rule_match_texts_overlap(one, other), expect, "{one} {other}");
            assert_eq!(rule_match_texts_overlap(other, one), expect, "{other} {one}");
        }
    }
}
