//! Warnings about the variables that `[secrets]` lists. Values are never shown.

use longhaul_core::redact::SECRET_BYTES_MIN;

use crate::config::settings::Config;

/// Returns warnings about variables in `[secrets]` whose values can't be redacted, for example
/// because they are not set.
pub fn unredactable_secret_warnings(config: &Config) -> Vec<String> {
    let notes = config.secret_names().into_iter().filter_map(|name| {
        let values = config.env.values_to_redact(&name);
        if values.is_empty() {
            return Some(format!(
                "`[secrets] names` lists {name}, which has no value here: there is nothing to redact"
            ));
        }
        // A shorter value would match inside ordinary words, so it is not redacted.
        let is_short = |value: &&str| value.len() < SECRET_BYTES_MIN;
        values.iter().any(is_short).then(|| {
            format!(
                "`[secrets] names` lists {name}, whose value has fewer than {SECRET_BYTES_MIN} bytes: \
                 it is too short to redact"
            )
        })
    });
    notes.collect()
}
