//! What should be known of the names that `[secrets]` lists.
//!
//! Never: what stands behind one.

use crate::config::settings::Config;

/// A shorter value would be found in every other word, so it is left where it is.
pub const LETTERS_MIN: usize = 6;

/// Which of the names hide nothing, and why.
pub fn notes(config: &Config) -> Vec<String> {
    let notes = config.secrets().into_iter().filter_map(|name| {
        let values = config.env.secrets(&name);
        if values.is_empty() {
            return Some(format!(
                "`[secrets] names` lists {name}, which has no value here: there is nothing to take out"
            ));
        }
        let is_short = |value: &&str| value.len() < LETTERS_MIN;
        values.iter().any(is_short).then(|| {
            format!(
                "`[secrets] names` lists {name}, whose value has fewer than {LETTERS_MIN} letters: \
                 it is too short to be taken out"
            )
        })
    });
    notes.collect()
}

#[cfg(test)]
mod tests {
    use longhaul_model::cassette::Mask;

    use super::*;

    #[test]
    fn what_is_told_to_be_too_short_is_what_is_left() {
        let value = "a1b2c3d4";
        for letters in 1..value.len() {
            let short = &value[..letters];
            let found = Mask::new([("A", short)]).finds(short);
            assert_eq!(found, letters >= LETTERS_MIN, "{letters}");
        }
    }
}
