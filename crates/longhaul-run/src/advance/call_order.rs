//! Which calls of a reply may go on side by side, and which in the model's order.
//!
//! Never: looks at what a call does. Its class and its subjects say enough.

use longhaul_core::policy::effect::EffectClass;

use crate::state::call::{Call, CallState};

/// A call waits for the gates before it. One that must stand alone waits for
/// everything before it, and everything after waits for it. Those that touch the same
/// thing go in the model's order as soon as one of them changes it: two writes side by
/// side would leave either text, and both would be called done.
pub(super) fn may_start_after(earlier: &[Call], call: &Call) -> bool {
    earlier.iter().all(|before| {
        before.is_done()
            || (!call.is_exclusive()
                && !before.is_exclusive()
                && !matches!(before.state, CallState::Gated(_) | CallState::AwaitingAnswer(_))
                && !conflicts(before, call))
    })
}

/// Whether two calls touch the same thing, and one of them changes it.
fn conflicts(one: &Call, other: &Call) -> bool {
    let changes = |call: &Call| call.classification.class != EffectClass::Pure;
    if !changes(one) && !changes(other) {
        return false;
    }
    let subjects = &other.classification.subjects;
    let mut touched = one.classification.subjects.iter();
    touched.any(|one| subjects.iter().any(|other| overlap(one, other)))
}

/// Whether these are the same, or one lies in the other. Of a tool that names no
/// subject the whole input stands there, which says nothing of what is touched.
fn overlap(one: &str, other: &str) -> bool {
    if [one, other].iter().any(|said| said.is_empty() || said.starts_with('{')) {
        return false;
    }
    let holds = |folder: &str, thing: &str| {
        let within = thing.strip_prefix(folder);
        matches!(folder, "." | "/")
            || within.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    holds(one, other) || holds(other, one)
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
            assert_eq!(overlap(one, other), expect, "{one} {other}");
            assert_eq!(overlap(other, one), expect, "{other} {one}");
        }
    }
}
