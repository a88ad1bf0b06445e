//! Normalizes output: replaces ids, times, durations, digests and secrets, which differ between two
//! executions of the same commands.

/// Prefixes of ids and secrets.
const PREFIXES: &[&str] = &["run_", "gate_", "steer_", "wrk_", "req_", "lh_"];

/// Minimum number of characters of an id, even of a truncated one.
const ID_CHARS_MIN: usize = 6;

/// Formats of times; `0` stands for any digit.
const TIME_SHAPES: &[&str] =
    &["0000-00-00T00:00:00.000000Z", "0000-00-00 00:00", "0000-00-00", "00:00:00"];

/// Units of a duration; the longest first.
const UNITS: &[&str] = &["ms", "s", "m", "h", "d"];

/// Replaces the parts of a text that differ by chance.
pub(crate) fn normalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let follows_alphanumeric = out.ends_with(|c: char| c.is_ascii_alphanumeric());
        let (replacement, length) = match follows_alphanumeric {
            true => (None, 0),
            false => match_token(rest, &out),
        };
        match replacement {
            Some(replacement) => {
                // A duration with two units is one duration.
                let is_repeated = replacement == "<span>" && out.ends_with("<span> ");
                match is_repeated {
                    true => _ = out.pop(),
                    false => out.push_str(replacement),
                }
                rest = &rest[length..];
            }
            // Column widths depend on the content, so runs of spaces are shortened.
            None => {
                if first != ' ' || !out.ends_with("  ") {
                    out.push(first);
                }
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    // The total time is only printed if it is longer than the active time.
    out.replace("<span> (<span>)", "<span>")
}

/// Returns the placeholder for the start of the text, and the length that it replaces.
fn match_token(rest: &str, before: &str) -> (Option<&'static str>, usize) {
    for prefix in PREFIXES {
        if let Some(after) = rest.strip_prefix(prefix) {
            let len = word_len(after);
            if len >= ID_CHARS_MIN {
                return (Some("<id>"), prefix.len() + len);
            }
        }
    }
    for time in TIME_SHAPES {
        if matches_shape(rest, time) {
            return (Some("<time>"), time.len());
        }
    }
    let length = word_len(rest);
    let token = &rest[..length];
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if length >= 8 && token.chars().all(hex) {
        return (Some("<hex>"), length);
    }
    match duration_len(rest, before) {
        Some(length) => (Some("<span>"), length),
        None => (None, 0),
    }
}

fn word_len(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len())
}

fn matches_shape(text: &str, shape: &str) -> bool {
    let text = text.as_bytes();
    text.len() >= shape.len()
        && shape.bytes().zip(text).all(|(shape, byte)| match shape {
            b'0' => byte.is_ascii_digit(),
            other => other == *byte,
        })
}

/// Matches a number with its unit, or a number after a JSON key for a duration.
fn duration_len(rest: &str, before: &str) -> Option<usize> {
    let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let keys = ["_ms\":", "_s\":", "\"active\":", "\"epoch\":"];
    if keys.iter().any(|key| before.ends_with(key)) {
        return Some(number_len);
    }
    let after = &rest[number_len..];
    let space_len = usize::from(after.starts_with(' '));
    UNITS.iter().find_map(|unit| {
        let tail = after[space_len..].strip_prefix(unit)?;
        let is_unit_end = !tail.starts_with(|c: char| c.is_ascii_alphanumeric());
        is_unit_end.then_some(number_len + space_len + unit.len())
    })
}

#[test]
fn only_varying_parts_are_normalized() {
    for (text, expected) in [
        ("run_01m7fb4jnpekmbq9ne0bc75916 is here", "<id> is here"),
        ("run_x  run_7k3qv9…", "run_x  <id>…"),
        ("at 2026-11-15T10:13:08.927506Z, 2026-11-16 10:13", "at <time>, <time>"),
        ("10:13:08  turn 2    23h 59m  85 ms  1 d", "<time>  turn 2  <span>  <span>  <span>"),
        ("digest bfe1675673d6, decade, 12 turns", "digest <hex>, decade, 12 turns"),
        ("digest cbbcbddd", "digest <hex>"),
        ("{\"active_ms\":83,\"turns\":2}", "{\"active_ms\":<span>,\"turns\":2}"),
        ("lh_3mezr19cfech87", "<id>"),
    ] {
        assert_eq!(normalize(text), expected);
    }
}
