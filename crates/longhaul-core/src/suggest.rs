//! Says that a word is not known, and which one may have been meant.
//!
//! Never: decides by it. A likeness is said to a person and never acted upon.

/// How like a known word must be, from 0 to 1, to be the one that was meant.
const SIMILARITY_MIN: f64 = 0.75;

/// How like a word is that differs by one letter, or by two that changed places.
const ONE_TYPO_SIMILARITY: f64 = 0.85;

/// The known word that is most like this one, if any is.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (similarity(word, name), name))
        .filter(|(likeness, _)| *likeness >= SIMILARITY_MIN)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// That a word is not known, and the way on: the one that was meant, or all there are.
pub fn unknown_message(what: &str, word: &str, known: &[&str]) -> String {
    match closest(word, known.iter().copied()) {
        Some(name) => format!("unknown {what} `{word}`, did you mean `{name}`?"),
        None if known.is_empty() => format!("unknown {what} `{word}`, there are none"),
        None => format!("unknown {what} `{word}`, there are `{}`", known.join("`, `")),
    }
}

/// The known words, the most alike first.
pub fn ranked<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = known.into_iter().collect();
    all.sort_by(|one, other| similarity(word, other).total_cmp(&similarity(word, one)));
    all
}

/// One slip of the fingers is enough to make a short word look strange.
fn similarity(word: &str, name: &str) -> f64 {
    let slip = name.len() >= 3 && strsim::osa_distance(word, name) == 1;
    let slip = if slip { ONE_TYPO_SIMILARITY } else { 0.0 };
    strsim::jaro_winkler(word, name).max(slip)
}
