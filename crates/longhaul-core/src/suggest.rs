//! Says that a word is not known, and which one may have been meant.
//!
//! Never: decides by it. A likeness is said to a person and never acted upon.

/// How like a known word must be, from 0 to 1, to be the one that was meant.
const LIKENESS_MIN: f64 = 0.75;

/// How like a word is that differs by one letter, or by two that changed places.
const ONE_SLIP: f64 = 0.85;

/// The known word that is most like this one, if any is.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (likeness(word, name), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// That a word is not known, and the way on: the one that was meant, or all there are.
pub fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("unknown {what} `{word}`, did you mean `{name}`?"),
        None if known.is_empty() => format!("unknown {what} `{word}`, there are none"),
        None => format!(
            "unknown {what} `{word}`, there are `{}`",
            known.join("`, `")
        ),
    }
}

/// The known words, the most alike first.
pub fn sorted<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = known.into_iter().collect();
    all.sort_by(|one, other| likeness(word, other).total_cmp(&likeness(word, one)));
    all
}

/// One slip of the fingers is enough to make a short word look strange.
fn likeness(word: &str, name: &str) -> f64 {
    let slip = name.len() >= 3 && strsim::osa_distance(word, name) == 1;
    let slip = if slip { ONE_SLIP } else { 0.0 };
    strsim::jaro_winkler(word, name).max(slip)
}
