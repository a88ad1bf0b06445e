//! Says that a word is not known, and which one may have been meant.
//!
//! Never: decides by it. A likeness is said to a person and never acted upon.

use longhaul_engine::like::nearest;

/// That a word is not known, and the way on: the one that was meant, or all there are.
pub(crate) fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("unknown {what} `{word}`, did you mean `{name}`?"),
        None if known.is_empty() => format!("unknown {what} `{word}`, there are none"),
        None => format!(
            "unknown {what} `{word}`, there are `{}`",
            known.join("`, `")
        ),
    }
}
