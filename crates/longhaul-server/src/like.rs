//! Finds the name that may have been meant.
//!
//! Never: corrects. It only says what is near.

/// How like a known name must be, from 0 to 1, to be the one that was meant.
const LIKENESS_MIN: f64 = 0.75;

/// The known name that is most like this one, if any is.
pub(crate) fn like<'a>(said: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |name: &str| strsim::jaro_winkler(name, said);
    known
        .into_iter()
        .filter(|name| likeness(name) >= LIKENESS_MIN)
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}
