//! What should be known of the names that `[secrets]` lists.
//!
//! Never: what stands behind one.

use longhaul_core::redact::SECRET_BYTES_MIN;

use crate::config::settings::Config;

/// Which of the names hide nothing, and why.
pub fn notes(config: &Config) -> Vec<String> {
    let notes = config.secret_names().into_iter().filter_map(|name| {
        let values = config.env.secret_values(&name);
        if values.is_empty() {
            return Some(format!(
                "`[secrets] names` lists {name}, which has no value here: there is nothing to take out"
            ));
        }
        // A shorter value would be found in every other word, so it is left where it is.
        let is_short = |value: &&str| value.len() < SECRET_BYTES_MIN;
        values.iter().any(is_short).then(|| {
            format!(
                "`[secrets] names` lists {name}, whose value has fewer than {SECRET_BYTES_MIN} bytes: \
                 it is too short to be taken out"
            )
        })
    });
    notes.collect()
}
