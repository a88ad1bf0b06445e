//! Formats durations, amounts of money, counts and remembered approvals for people, and parses durations
//! and names on the command line.

use std::fmt::Display;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use longhaul_core::policy::gate::{AnswerScope, RulePattern};
use longhaul_core::time::Millis;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::sanitize;

/// Number of characters of a short id.
const SHORT_ID_CHARS: usize = 6;

/// Formats a duration with its two largest units, such as hours and minutes.
pub(crate) fn format_duration(duration: Millis) -> String {
    let seconds = duration.0 / 1_000;
    match seconds {
        0 => format!("{} ms", duration.0),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Formats an age in a few characters, such as `3m`.
pub(crate) fn format_age(age: Millis) -> String {
    let seconds = age.0 / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns the last characters of an id, which commands accept instead of the whole id.
pub(crate) fn short_id(id: &str) -> &str {
    id.get(id.len().saturating_sub(SHORT_ID_CHARS)..).unwrap_or(id)
}

/// Parses a duration from the command line, such as `50ms`.
pub(crate) fn parse_duration(text: &str) -> Result<Millis, String> {
    let examples = longhaul_core::duration::DURATION_EXAMPLES;
    longhaul_core::duration::parse_duration(text)
        .ok_or_else(|| format!("expected a duration such as 50ms, {examples}"))
}

/// Parses an argument that is one of these names, which the type has in JSON.
pub(crate) fn name_parser<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    names: impl Into<PossibleValuesParser>,
) -> impl TypedValueParser<Value = T> {
    names.into().try_map(|name| serde_json::from_value(name.into()))
}

/// Formats an amount in US dollars. `None` means that the amount is unknown.
pub(crate) fn format_usd(usd: Option<f64>) -> String {
    match usd {
        None => "?".to_owned(),
        Some(usd) if usd > 0.0 && usd < 0.01 => format!("${usd:.4}"),
        Some(usd) => format!("${usd:.2}"),
    }
}

/// Formats a JSON value: a text as it is, and any other value as JSON.
pub(crate) fn json_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Lists distinct names in order of first appearance, with the count of repeated names such as
/// `read x2`.
pub(crate) fn format_name_counts(names: &[String]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(existing, _)| existing == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let texts = counts.iter().map(|(name, count)| match count {
        1 => (*name).to_owned(),
        count => format!("{name} x{count}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Formats a count with its noun, such as `1 tool` or `2 tools`.
pub(crate) fn count_with_noun<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Describes the tool calls that a remembered approval covers: the tool, and the pattern for the
/// call's path, command or other rule match text.
pub(crate) fn rule_pattern_text(pattern: &RulePattern) -> String {
    let text = match &pattern.match_glob {
        Some(match_glob) => format!("{} `{match_glob}`", pattern.tool),
        None => format!("{} (every call)", pattern.tool),
    };
    sanitize::sanitize_line(&text)
}

/// Describes the calls to which an approval with this scope applies, such as `for this run`.
pub(crate) const fn scope_phrase(scope: AnswerScope) -> &'static str {
    match scope {
        AnswerScope::Once => "once",
        AnswerScope::Run => "for this run",
        AnswerScope::Agent => "for this agent",
        AnswerScope::Project => "for the project",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_money_and_counts_are_formatted() {
        for (millis, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (59_999, "59 s"),
            (238_000, "3m 58s"),
            (13_320_000, "3h 42m"),
            (187_200_000, "2d 04h"),
        ] {
            assert_eq!(format_duration(Millis(millis)), expected);
        }
        for (millis, expected) in
            [(0, "0s"), (61_000, "1m"), (7_300_000, "2h"), (90_000_000_000, "1041d")]
        {
            assert_eq!(format_age(Millis(millis)), expected);
        }
        for (usd, expected) in
            [(None, "?"), (Some(0.0), "$0.00"), (Some(0.0042), "$0.0042"), (Some(4.184), "$4.18")]
        {
            assert_eq!(format_usd(usd), expected);
        }
        let names = ["look", "put", "look"].map(str::to_owned);
        assert_eq!(format_name_counts(&names), "look x2, put");
    }
}
