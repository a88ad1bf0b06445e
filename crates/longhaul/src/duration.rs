//! Spans of time as people write them: `15s`, `2m`, `1h 30m`, `90d`.
//!
//! Never: guesses a unit. A bare number is no span.

use longhaul_core::time::Millis;

/// What a span looks like, for messages.
pub const DURATION_EXAMPLES: &str = "15s, 2m, 1h 30m or 90d";

/// The units from the longest to the shortest, each with its milliseconds.
const UNITS: &[(&str, u64)] = &[
    ("w", 7 * 24 * 60 * 60 * 1_000),
    ("d", 24 * 60 * 60 * 1_000),
    ("h", 60 * 60 * 1_000),
    ("m", 60 * 1_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads a span: whole numbers with their units, the longest unit first.
pub fn parse(text: &str) -> Option<Millis> {
    let mut rest = text.trim();
    let mut units = UNITS;
    let mut total: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let place = units.iter().position(|(name, _)| *name == unit)?;
        let span = number.parse::<u64>().ok()?.checked_mul(units[place].1)?;
        total = total.checked_add(span)?;
        units = &units[place + 1..];
        rest = after.trim_start();
    }
    Some(Millis(total))
}

/// Writes a span as `read` would take it.
pub fn format(span: Millis) -> String {
    let mut rest = span.0;
    let mut parts = Vec::new();
    // Weeks are read and never written: people count days.
    for (unit, millis) in UNITS.iter().filter(|(unit, _)| *unit != "w") {
        if rest >= *millis {
            parts.push(format!("{}{unit}", rest / millis));
            rest %= millis;
        }
    }
    if parts.is_empty() {
        return "0s".to_owned();
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, millis: Option<u64>) {
        assert_eq!(parse(text), millis.map(Millis), "{text}");
    }

    #[test]
    fn a_duration_is_numbers_with_units() {
        check("15s", Some(15_000));
        check("50ms", Some(50));
        check("1h 30m", Some(5_400_000));
        check("1h30m", Some(5_400_000));
        check(" 2m ", Some(120_000));
        check("90d", Some(7_776_000_000));
        check("1w", Some(604_800_000));
        for wrong in
            ["", "15", "s", "1.5h", "-1s", "1s 1h", "1h 1h", "1 h", "2min", "99999999999999999w"]
        {
            check(wrong, None);
        }
    }

    #[test]
    fn a_formatted_duration_parses_back() {
        for text in ["0s", "1ms", "15s", "1h 30m", "90d", "1d 1h 1m 1s 1ms"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
        assert_eq!(format(Millis::from_secs(24 * 60 * 60)), "1d");
    }
}
