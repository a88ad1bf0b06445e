//! "Did you mean" suggestions for unknown words.
//!
//! Suggestions are only shown to people. Nothing is decided by them.

/// Minimum similarity of a suggestion, from 0 to 1.
const SIMILARITY_MIN: f64 = 0.75;

/// Maximum length in bytes of an unknown name for which a similar name is searched: the time of a
/// comparison grows with the square of the length. No known name is longer.
const NAME_BYTES_MAX: usize = 256;

/// Minimum length in bytes of a suggestion: every text resembles a shorter one.
const NAME_BYTES_MIN: usize = 3;

/// Similarity of names that differ by one character, or by two swapped characters.
const ONE_TYPO_SIMILARITY: f64 = 0.85;

/// Returns the known name that is most similar to an unknown name, if any is similar enough.
pub fn most_similar_name<'a>(
    input: &str,
    known_names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    known_names
        .into_iter()
        .filter(|name| name.len() >= NAME_BYTES_MIN)
        .map(|name| (similarity(input, name), name))
        .filter(|(score, _)| *score >= SIMILARITY_MIN)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// Returns an error message for an unknown name, with a suggestion or the list of known names.
pub fn unknown_name_message(kind: &str, input: &str, known_names: &[&str]) -> String {
    match most_similar_name(input, known_names.iter().copied()) {
        Some(name) => format!("unknown {kind} `{input}`, did you mean `{name}`?"),
        None if known_names.is_empty() => format!("unknown {kind} `{input}`, no {kind} exists"),
        None => format!("unknown {kind} `{input}`, expected one of `{}`", known_names.join("`, `")),
    }
}

/// Returns the known names sorted by their similarity to an unknown name, most similar first.
pub fn rank_names_by_similarity<'a>(
    input: &str,
    known_names: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let mut names: Vec<&str> = known_names.into_iter().collect();
    names.sort_by(|one, other| similarity(input, other).total_cmp(&similarity(input, one)));
    names
}

/// Returns the similarity of two names, from 0 to 1. Names that differ by a single typo count as
/// similar even if they are short.
fn similarity(input: &str, name: &str) -> f64 {
    if input.len() > NAME_BYTES_MAX {
        return 0.0;
    }
    let is_typo = name.len() >= NAME_BYTES_MIN
        && (strsim::osa_distance(input, name) == 1 || has_swap(input, name));
    let typo_score = if is_typo { ONE_TYPO_SIMILARITY } else { 0.0 };
    strsim::jaro_winkler(input, name).max(typo_score)
}

/// Whether two names differ only by two characters that changed places, such as `tydi` and `tidy`.
fn has_swap(input: &str, name: &str) -> bool {
    if input.chars().count() != name.chars().count() {
        return false;
    }
    let differences: Vec<(char, char)> =
        input.chars().zip(name.chars()).filter(|(one, other)| one != other).collect();
    matches!(differences[..], [(a, b), (c, d)] if a == d && b == c)
}

#[cfg(test)]
mod tests {
    use super::most_similar_name;

    #[test]
    fn typos_and_swapped_characters_are_similar() {
        let names = ["tidy", "helper", "plan", "a"];
        for (input, expected) in [
            ("tydi", Some("tidy")),
            ("tdy", Some("tidy")),
            ("itdy", Some("tidy")),
            ("hepler", Some("helper")),
            ("lapn", Some("plan")),
            ("nalp", None),
            ("paln", Some("plan")),
            ("b", None),
            ("writer", None),
        ] {
            assert_eq!(most_similar_name(input, names), expected, "{input}");
        }
    }
}
