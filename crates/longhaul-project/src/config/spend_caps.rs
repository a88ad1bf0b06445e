//! Parses `[[caps]]`: limits on money, tokens or runs per day, week or month.

use longhaul_core::policy::spend_cap::{
    CapReachedAction, CapUnit, CapUsageGrouping, CapWindowLength, SpendCap,
};
use longhaul_core::suggest;
use longhaul_engine::background::spend_caps::SpendCaps;
use serde_json::{Map, Value as Json};

/// Maximum number of spend caps in `[[caps]]`.
const CAPS_MAX: usize = 32;

/// Maximum length in bytes of `match` (a pattern of names) and `tz` (a time zone) of a spend cap.
const PATTERN_BYTES_MAX: usize = 200;

/// Maximum of `usd`, the limit of a spend cap in dollars.
const USD_MAX: f64 = 1e9;

/// Maximum value of `tokens` and of `runs`, the limits of a spend cap that are counts: 2^50.
const COUNT_MAX: u64 = 1 << 50;

const KEYS: &[&str] = &["window", "usd", "tokens", "runs", "per", "match", "at_cap", "tz"];

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
        let cap = match entry.as_object() {
            Some(table) => parse_spend_cap(table),
            None => Err("write a table".to_owned()),
        };
        cap.map_err(|reason| format!("cap {}: {reason}", index + 1))
    });
    let caps = caps.collect::<Result<Vec<_>, _>>()?;
    SpendCaps::new(caps.clone())?;
    Ok(caps)
}

fn parse_spend_cap(table: &Map<String, Json>) -> Result<SpendCap, String> {
    if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(suggest::unknown_name_message("key", unknown, KEYS));
    }
    let window =
        parse_choice_index(table, "window", &CapWindowLength::ALL.map(CapWindowLength::as_str))?;
    let window = window.ok_or("`window` is missing: write \"day\", \"week\" or \"month\"")?;
    let per =
        parse_choice_index(table, "per", &CapUsageGrouping::ALL.map(CapUsageGrouping::as_str))?
            .unwrap_or(0);
    let at_cap =
        parse_choice_index(table, "at_cap", &CapReachedAction::ALL.map(CapReachedAction::as_str))?
            .unwrap_or(0);
    let (per, at_cap) = (CapUsageGrouping::ALL[per], CapReachedAction::ALL[at_cap]);
    if (per, at_cap) == (CapUsageGrouping::Model, CapReachedAction::Refuse) {
        return Err(
            "`at_cap = \"refuse\"` can't be used with `per = \"model\"`: which model a run \
                    calls is known only when it has started"
                .to_owned(),
        );
    }
    let pattern = parse_optional_text(table, "match")?;
    if pattern.is_some() && per == CapUsageGrouping::All {
        return Err("`match` needs `per`: \"key\", \"actor\", \"agent\" or \"model\"".to_owned());
    }
    let (unit, limit) = parse_unit_and_limit(table)?;
    let tz = parse_optional_text(table, "tz")?.unwrap_or_else(|| "UTC".to_owned());
    Ok(SpendCap { window: CapWindowLength::ALL[window], tz, per, pattern, unit, limit, at_cap })
}

/// Parses the value of `key`, which must be one of `choices`, and returns its index in `choices`.
/// `None` means that the key is not set.
fn parse_choice_index(
    table: &Map<String, Json>,
    key: &str,
    choices: &[&str],
) -> Result<Option<usize>, String> {
    let Some(value) = table.get(key) else {
        return Ok(None);
    };
    let text = value.as_str().unwrap_or_default();
    match choices.iter().position(|choice| *choice == text) {
        Some(index) => Ok(Some(index)),
        None => Err(format!("`{key}` must be one of `{}`", choices.join("`, `"))),
    }
}

/// Parses the value of `key`, a text of at most `PATTERN_BYTES_MAX` bytes. `None` means that the
/// key is not set.
fn parse_optional_text(table: &Map<String, Json>, key: &str) -> Result<Option<String>, String> {
    let Some(value) = table.get(key) else {
        return Ok(None);
    };
    let is_valid = |text: &&str| !text.trim().is_empty() && text.len() <= PATTERN_BYTES_MAX;
    match value.as_str().filter(is_valid) {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(format!("`{key}` must be a text of at most {PATTERN_BYTES_MAX} bytes")),
    }
}

/// Parses the unit and the limit of a spend cap. For `usd`, the limit is in micro-dollars.
fn parse_unit_and_limit(table: &Map<String, Json>) -> Result<(CapUnit, u64), String> {
    let mut units = CapUnit::ALL.into_iter().filter(|unit| table.contains_key(unit.as_str()));
    let (Some(unit), None) = (units.next(), units.next()) else {
        return Err("set exactly one of `usd`, `tokens` and `runs`".to_owned());
    };
    let value = table.get(unit.as_str());
    let limit = match unit {
        CapUnit::Usd => {
            let dollars = value.and_then(Json::as_f64);
            let dollars = dollars.filter(|dollars| *dollars > 0.0 && *dollars <= USD_MAX);
            dollars.map(|dollars| (dollars * 1e6).round() as u64)
        }
        CapUnit::Tokens | CapUnit::Runs => value.and_then(Json::as_u64),
    };
    match limit.filter(|limit| (1..=COUNT_MAX).contains(limit)) {
        Some(limit) => Ok((unit, limit)),
        None => {
            let expected = match unit {
                CapUnit::Usd => "dollars above 0, such as 50.0",
                CapUnit::Tokens | CapUnit::Runs => "a whole number above 0",
            };
            Err(format!("`{}` must be {expected}", unit.as_str()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value_kind::SettingValueKind;

    fn parse_caps_text(caps: &str) -> Result<Vec<SpendCap>, String> {
        let value = SettingValueKind::SpendCaps.parse_plain_text(caps)?;
        let crate::config::value::SettingValue::Any(json) = value else {
            panic!("{value:?}");
        };
        parse_spend_caps(&json)
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
            (r#"[{ usd = 1.0 }]"#, "`window` is missing"),
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
            (r#"[{ window = "day", runs = 1, per = "user" }]"#, "`per` must be one of"),
            (r#"[{ window = "day", runs = 1, at_cap = "fail" }]"#, "`at_cap` must be one of"),
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
