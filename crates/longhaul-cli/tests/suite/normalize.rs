//! Takes out of a text what two runs of one story can't have in common: ids,
//! times, spans, digests and secrets.

/// What begins an id or a secret.
const PREFIXES: &[&str] = &["run_", "gate_", "steer_", "wrk_", "req_", "lh_"];

/// Shorter words are no id, also where one is cut off.
const ID_CHARS_MIN: usize = 6;

/// Times as they are written; `0` stands for any digit.
const TIME_SHAPES: &[&str] =
    &["0000-00-00T00:00:00.000000Z", "0000-00-00 00:00", "0000-00-00", "00:00:00"];

/// Units of a span; the longest first.
const UNITS: &[&str] = &["ms", "s", "m", "h", "d"];

/// The text without what differs by chance.
pub(crate) fn normalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let inside = out.ends_with(|letter: char| letter.is_ascii_alphanumeric());
        let (said, length) = match inside {
            true => (None, 0),
            false => match_token(rest, &out),
        };
        match said {
            Some(said) => {
                // A span of two units is one span.
                let joined = said == "<span>" && out.ends_with("<span> ");
                match joined {
                    true => _ = out.pop(),
                    false => out.push_str(said),
                }
                rest = &rest[length..];
            }
            // Columns are as wide as what stands in them.
            None => {
                if first != ' ' || !out.ends_with("  ") {
                    out.push(first);
                }
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    // What it took in all is only said where it was longer.
    out.replace("<span> (<span>)", "<span>")
}

/// What stands at the beginning, and how long it is.
fn match_token(rest: &str, before: &str) -> (Option<&'static str>, usize) {
    for prefix in PREFIXES {
        if let Some(after) = rest.strip_prefix(prefix) {
            let letters = word_len(after);
            if letters >= ID_CHARS_MIN {
                return (Some("<id>"), prefix.len() + letters);
            }
        }
    }
    for time in TIME_SHAPES {
        if matches_shape(rest, time) {
            return (Some("<time>"), time.len());
        }
    }
    let length = word_len(rest);
    let word = &rest[..length];
    let hex = |letter: char| letter.is_ascii_digit() || ('a'..='f').contains(&letter);
    if length >= 8 && word.chars().all(hex) && word.contains(|letter: char| letter.is_ascii_digit())
    {
        return (Some("<hex>"), length);
    }
    match duration_len(rest, before) {
        Some(length) => (Some("<span>"), length),
        None => (None, 0),
    }
}

fn word_len(text: &str) -> usize {
    text.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(text.len())
}

fn matches_shape(text: &str, shape: &str) -> bool {
    let text = text.as_bytes();
    text.len() >= shape.len()
        && shape.bytes().zip(text).all(|(shape, letter)| match shape {
            b'0' => letter.is_ascii_digit(),
            other => other == *letter,
        })
}

/// A number and its unit, or a number that a key of JSON says to be a span.
fn duration_len(rest: &str, before: &str) -> Option<usize> {
    let number =
        rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
    if !rest.starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let keyed = ["_ms\":", "_s\":", "\"active\":", "\"epoch\":"];
    if keyed.iter().any(|key| before.ends_with(key)) {
        return Some(number);
    }
    let after = &rest[number..];
    let gap = usize::from(after.starts_with(' '));
    UNITS.iter().find_map(|unit| {
        let tail = after[gap..].strip_prefix(unit)?;
        let ends = !tail.starts_with(|letter: char| letter.is_ascii_alphanumeric());
        ends.then_some(number + gap + unit.len())
    })
}

#[test]
fn only_varying_parts_are_normalized() {
    for (text, like) in [
        ("run_01m7fb4jnpekmbq9ne0bc75916 is here", "<id> is here"),
        ("run_x  run_7k3qv9…", "run_x  <id>…"),
        ("at 2026-11-15T10:13:08.927506Z, 2026-11-16 10:13", "at <time>, <time>"),
        ("10:13:08  turn 2    23h 59m  85 ms  1 d", "<time>  turn 2  <span>  <span>  <span>"),
        ("digest bfe1675673d6, decade, 12 turns", "digest <hex>, decade, 12 turns"),
        ("{\"active_ms\":83,\"turns\":2}", "{\"active_ms\":<span>,\"turns\":2}"),
        ("lh_3mezr19cfech87", "<id>"),
    ] {
        assert_eq!(normalize(text), like);
    }
}
