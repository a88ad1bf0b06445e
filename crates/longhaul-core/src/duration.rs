//! Durations as people write them: `15s`, `2m`, `1h 30m`, `90d`. A number without a unit is
//! invalid.

use crate::time::Millis;

/// Examples of valid durations, for messages.
pub const DURATION_EXAMPLES: &str = "15s, 2m, 1h 30m or 90d";

/// Units of durations, each with its length in milliseconds, longest first.
const UNITS: &[(&str, u64)] = &[
    ("w", 7 * 24 * 60 * 60 * 1_000),
    ("d", 24 * 60 * 60 * 1_000),
    ("h", 60 * 60 * 1_000),
    ("m", 60 * 1_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Parses a duration: whole numbers with units, longest unit first. `None` means that the text is
/// not a valid duration.
pub fn parse_duration(text: &str) -> Option<Millis> {
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
        let index = units.iter().position(|(name, _)| *name == unit)?;
        let millis = number.parse::<u64>().ok()?.checked_mul(units[index].1)?;
        total = total.checked_add(millis)?;
        units = &units[index + 1..];
        rest = after.trim_start();
    }
    Some(Millis(total))
}

/// Formats a duration as a text that [`parse_duration`] accepts.
pub fn format_duration(duration: Millis) -> String {
    let mut rest = duration.0;
    let mut parts = Vec::new();
    // Weeks are accepted as input but not used for output.
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

    fn assert_parsed_duration(text: &str, millis: Option<u64>) {
        assert_eq!(parse_duration(text), millis.map(Millis), "{text}");
    }

    #[test]
    fn a_duration_is_numbers_with_units() {
        assert_parsed_duration("15s", Some(15_000));
        assert_parsed_duration("50ms", Some(50));
        assert_parsed_duration("1h 30m", Some(5_400_000));
        assert_parsed_duration("1h30m", Some(5_400_000));
        assert_parsed_duration(" 2m ", Some(120_000));
        assert_parsed_duration("90d", Some(7_776_000_000));
        assert_parsed_duration("1w", Some(604_800_000));
        for wrong in
            ["", "15", "s", "1.5h", "-1s", "1s 1h", "1h 1h", "1 h", "2min", "99999999999999999w"]
        {
            assert_parsed_duration(wrong, None);
        }
    }

    #[test]
    fn a_formatted_duration_parses_back() {
        for text in ["0s", "1ms", "15s", "1h 30m", "90d", "1d 1h 1m 1s 1ms"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(format_duration(Millis::from_secs(24 * 60 * 60)), "1d");
    }
}
