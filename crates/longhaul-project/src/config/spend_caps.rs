//! Parses `[[caps]]`: limits on money, tokens or runs per day, week or month.

use longhaul_core::policy::spend_cap::{
    CapReachedAction, CapUnit, CapUsageGrouping, CapWindowLength, SpendCap,
};
use longhaul_core::suggest;
use longhaul_engine::background::spend_caps::SpendCaps;
use serde::Deserialize;
use serde_json::Value as Json;

/// Maximum number of spend caps in `[[caps]]`.
const CAPS_MAX: usize = 32;

/// Maximum length in bytes of `match` (a pattern of names) and `tz` (a time zone) of a spend cap.
const PATTERN_BYTES_MAX: usize = 200;

/// Maximum of `usd`, the limit of a spend cap in dollars.
const USD_MAX: f64 = 1e9;

/// Maximum value of `tokens` and of `runs`, the limits of a spend cap that are counts: 2^50.
const COUNT_MAX: u64 = 1 << 50;

/// Parses `[[caps]]`, the list of spend caps.
///
/// # Errors
/// A cap is invalid. The message says which one, and why.
pub(crate) fn parse_spend_caps(caps: &Json) -> Result<Vec<SpendCap>, String> {
    let Some(list) = caps.as_array() else {
        return Err("write each cap as a table of its own, under `[[caps]]`".to_owned());
    };
    if list.len() > CAPS_MAX {
        return Err(format!("at most {CAPS_MAX} caps are allowed"));
    }
    let caps = list.iter().enumerate().map(|(index, entry)| {
        let cap = match entry.is_object() {
            true => parse_spend_cap(entry),
            false => Err("write a table".to_owned()),
        };
        cap.map_err(|reason| format!("cap {}: {reason}", index + 1))
    });
    let caps = caps.collect::<Result<Vec<_>, _>>()?;
    SpendCaps::new(caps.clone())?;
    Ok(caps)
}

/// Keys of a cap.
const KEYS: &[&str] = &["window", "usd", "tokens", "runs", "per", "match", "at_cap", "tz"];

/// A cap as the file writes it.
#[derive(Deserialize)]
struct CapFields {
    window: CapWindowLength,
    usd: Option<Json>,
    tokens: Option<Json>,
    runs: Option<Json>,
    per: Option<CapUsageGrouping>,
    #[serde(rename = "match")]
    pattern: Option<String>,
    at_cap: Option<CapReachedAction>,
    tz: Option<String>,
}

/// Parses one cap. The error is the reason why it is invalid.
fn parse_spend_cap(cap: &Json) -> Result<SpendCap, String> {
    let mut keys = cap.as_object().into_iter().flat_map(serde_json::Map::keys);
    if let Some(key) = keys.find(|key| !KEYS.contains(&key.as_str())) {
        return Err(suggest::unknown_name_message("key", key, KEYS));
    }
    let fields: CapFields = serde_path_to_error::deserialize(cap).map_err(|error| {
        match error.path().to_string().as_str() {
            "." => error.inner().to_string(),
            key => format!("`{key}`: {}", error.inner()),
        }
    })?;
    let (unit, limit) = parse_unit_and_limit(&fields)?;
    let CapFields { window, per, pattern, at_cap, tz, .. } = fields;
    let (per, at_cap) =
        (per.unwrap_or(CapUsageGrouping::ALL[0]), at_cap.unwrap_or(CapReachedAction::ALL[0]));
    if (per, at_cap) == (CapUsageGrouping::Model, CapReachedAction::Refuse) {
        return Err(
            "`at_cap = \"refuse\"` can't be used with `per = \"model\"`: which model a run \
                    calls is known only when it has started"
                .to_owned(),
        );
    }
    let is_text = |text: &String| !text.trim().is_empty() && text.len() <= PATTERN_BYTES_MAX;
    for (key, text) in [("match", &pattern), ("tz", &tz)] {
        if !text.as_ref().is_none_or(is_text) {
            return Err(format!("`{key}` must be a text of at most {PATTERN_BYTES_MAX} bytes"));
        }
    }
    if pattern.is_some() && per == CapUsageGrouping::All {
        return Err("`match` needs `per`: \"key\", \"actor\", \"agent\" or \"model\"".to_owned());
    }
    let tz = tz.unwrap_or_else(|| "UTC".to_owned());
    Ok(SpendCap { window, tz, per, pattern, unit, limit, at_cap })
}

/// Parses the unit and the limit of a cap. For `usd`, the limit is in micro-dollars.
fn parse_unit_and_limit(fields: &CapFields) -> Result<(CapUnit, u64), String> {
    let limits = [
        (CapUnit::Usd, &fields.usd),
        (CapUnit::Tokens, &fields.tokens),
        (CapUnit::Runs, &fields.runs),
    ];
    let mut limits = limits.iter().filter_map(|(unit, limit)| Some((*unit, limit.as_ref()?)));
    let (Some((unit, value)), None) = (limits.next(), limits.next()) else {
        return Err("set exactly one of `usd`, `tokens` and `runs`".to_owned());
    };
    let (limit, expected) = match unit {
        CapUnit::Usd => {
            let dollars = value.as_f64().filter(|dollars| *dollars > 0.0 && *dollars <= USD_MAX);
            let micros = dollars.map(|dollars| (dollars * 1e6).round() as u64);
            (micros, "dollars above 0, such as 50.0")
        }
        CapUnit::Tokens | CapUnit::Runs => (value.as_u64(), "a whole number above 0"),
    };
    let limit = limit.filter(|limit| (1..=COUNT_MAX).contains(limit));
    limit
        .map(|limit| (unit, limit))
        .ok_or_else(|| format!("`{}` must be {expected}", unit.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value_kind::SettingValueKind;

    fn parse_caps_text(caps: &str) -> Result<Vec<SpendCap>, String> {
        let value = SettingValueKind::SpendCaps.parse_plain_text(caps)?;
        parse_spend_caps(value.as_json().unwrap())
    }

    #[test]
    fn caps_are_parsed_with_their_defaults() {
        let caps = parse_caps_text(
            r#"[{ window = "day", usd = 50.0 },
                { window = "month", tokens = 5_000_000, per = "agent", match = "research_*",
                  at_cap = "refuse", tz = "Europe/Berlin" }]"#,
        );
        let day = SpendCap {
            window: CapWindowLength::Day,
            tz: "UTC".to_owned(),
            per: CapUsageGrouping::All,
            pattern: None,
            unit: CapUnit::Usd,
            limit: 50_000_000,
            at_cap: CapReachedAction::Wait,
        };
        let month = SpendCap {
            window: CapWindowLength::Month,
            tz: "Europe/Berlin".to_owned(),
            per: CapUsageGrouping::Agent,
            pattern: Some("research_*".to_owned()),
            unit: CapUnit::Tokens,
            limit: 5_000_000,
            at_cap: CapReachedAction::Refuse,
        };
        assert_eq!(caps, Ok(vec![day, month]));
        assert_eq!(parse_caps_text("[]"), Ok(Vec::new()));
    }

    #[test]
    fn an_invalid_cap_is_an_error_that_says_why() {
        for (cap, expected) in [
            ("3", "under `[[caps]]`"),
            ("[3]", "cap 1: write a table"),
            (r#"[{ usd = 1.0 }]"#, "cap 1: missing field `window`"),
            (r#"[{ window = "year", usd = 1.0 }]"#, "`day`, `week`, `month`"),
            (r#"[{ window = "day" }]"#, "exactly one of"),
            (r#"[{ window = "day", usd = 1.0, runs = 3 }]"#, "exactly one of"),
            (r#"[{ window = "day", usd = 0 }]"#, "dollars above 0"),
            (r#"[{ window = "day", usd = 0.0 }]"#, "dollars above 0"),
            (r#"[{ window = "day", usd = -1.0 }]"#, "dollars above 0"),
            (r#"[{ window = "day", usd = nan }]"#, "under `[[caps]]`"),
            (r#"[{ window = "day", usd = inf }]"#, "under `[[caps]]`"),
            (r#"[{ window = "day", usd = "5" }]"#, "dollars above 0"),
            (r#"[{ window = "day", usd = 2e9 }]"#, "dollars above 0"),
            (r#"[{ window = "day", usd = 1e-9 }]"#, "dollars above 0"),
            (r#"[{ window = "day", tokens = 0 }]"#, "a whole number above 0"),
            (r#"[{ window = "day", runs = -1 }]"#, "a whole number above 0"),
            (r#"[{ window = "day", runs = 1.5 }]"#, "a whole number above 0"),
            (
                r#"[{ window = "day", runs = 1, per = "user" }]"#,
                "`per`: unknown variant `user`, expected one of `all`, `key`",
            ),
            (
                r#"[{ window = "day", runs = 1, at_cap = "fail" }]"#,
                "unknown variant `fail`, expected `wait` or `refuse`",
            ),
            (r#"[{ window = "day", runs = 1, match = "a*" }]"#, "`match` needs `per`"),
            (
                r#"[{ window = "day", runs = 1, per = "key", match = "" }]"#,
                "`match` must be a text",
            ),
            (r#"[{ window = "day", runs = 1, tz = "Berlin" }]"#, "no time zone named `Berlin`"),
            (r#"[{ window = "day", runs = 1, windw = 1 }]"#, "did you mean `window`"),
            (
                r#"[{ window = "day", usd = 1.0, per = "model", at_cap = "refuse" }]"#,
                "can't be used with `per = \"model\"`",
            ),
            (
                r#"[{ window = "day", runs = 1 }, { window = "day", runs = 2 }]"#,
                "two caps limit the same usage (`day-runs-all`)",
            ),
            (r#"[{ window = "day", runs = 1 }, { window = "day", runs = 0 }]"#, "cap 2: "),
        ] {
            let error = parse_caps_text(cap).unwrap_err();
            assert!(error.contains(expected), "{cap}: {error}");
        }
        let many = vec![r#"{ window = "day", runs = 1 }"#; CAPS_MAX + 1].join(", ");
        assert!(parse_caps_text(&format!("[{many}]")).unwrap_err().contains("at most 32"));
    }
}
