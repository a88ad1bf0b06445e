//! Joins surrogate pairs that a provider split over two events, such as `\ud83d` at the end of one
//! JSON string and `\ude00` at the start of the next.
//!
//! Invariant: events without an unpaired surrogate are not changed.

use std::ops::RangeInclusive;

/// UTF-16 code units that start (high) and end (low) a surrogate pair.
const HIGH: RangeInclusive<u16> = 0xd800..=0xdbff;
const LOW: RangeInclusive<u16> = 0xdc00..=0xdfff;

/// Length in bytes of a JSON escape such as `\ud83d`.
const ESCAPE_BYTES: usize = 6;

/// Joins surrogate pairs that are split across two events of a stream.
#[derive(Debug, Default)]
pub(crate) struct SurrogateJoiner {
    /// High surrogate, as a JSON escape, that ended the last string and whose low surrogate has not
    /// been received yet. `None` means that there is none.
    pending: Option<String>,
}

impl SurrogateJoiner {
    /// Returns the JSON of an event after a high surrogate that the previous event ended with has
    /// been inserted. An unpaired high surrogate at the end of a string is removed and kept for the
    /// next event.
    pub(crate) fn join_surrogates(&mut self, mut json: String) -> String {
        if self.pending.is_none() && !json.contains("\\ud") && !json.contains("\\uD") {
            return json;
        }
        if let Some(start) = leading_low_surrogate(&json)
            && let Some(high) = self.pending.take()
        {
            json.insert_str(start, &high);
        }
        if let Some(start) = trailing_high_surrogate(&json) {
            let end = start + ESCAPE_BYTES;
            self.pending = Some(json[start..end].to_owned());
            json.replace_range(start..end, "");
        }
        json
    }
}

/// Returns the byte offset of the first low surrogate escape that begins a string in the JSON text.
/// `None` if there is none.
fn leading_low_surrogate(json: &str) -> Option<usize> {
    let quotes = json.match_indices("\"\\u").map(|(at, _)| at + 1);
    let mut starts = quotes.filter(|at| !is_backslash_escaped(json, at - 1));
    starts.find(|at| parse_utf16_code_unit(json, *at).is_some_and(|unit| LOW.contains(&unit)))
}

/// Returns the byte offset of the first high surrogate escape that ends a string in the JSON text.
/// `None` if there is none.
fn trailing_high_surrogate(json: &str) -> Option<usize> {
    let escapes = json.match_indices("\\u").map(|(at, _)| at);
    let mut escapes = escapes.filter(|at| !is_backslash_escaped(json, *at));
    escapes.find(|at| {
        let is_high = parse_utf16_code_unit(json, *at).is_some_and(|unit| HIGH.contains(&unit));
        is_high && json[at + ESCAPE_BYTES..].starts_with('"')
    })
}

/// Whether the character at the given position is escaped by a backslash.
fn is_backslash_escaped(json: &str, position: usize) -> bool {
    let preceding_bytes = json.as_bytes()[..position].iter().rev();
    preceding_bytes.take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Returns the UTF-16 code unit of the JSON escape at the given position. `None` if the escape is
/// incomplete or not hexadecimal.
fn parse_utf16_code_unit(json: &str, position: usize) -> Option<u16> {
    u16::from_str_radix(json.get(position + 2..position + ESCAPE_BYTES)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join_event_strings(events: &[&str]) -> String {
        let mut joiner = SurrogateJoiner::default();
        let texts = events.iter().map(|event| {
            let json = joiner.join_surrogates((*event).to_owned());
            let value: serde_json::Value = serde_json::from_str(&json).unwrap();
            value["t"].as_str().unwrap_or_default().to_owned()
        });
        texts.collect()
    }

    #[test]
    fn surrogate_halves_in_two_events_become_one_character() {
        for (events, text) in [
            (&[r#"{"t":"a\ud83d"}"#, r#"{"t":"\ude00b"}"#][..], "a😀b"),
            (&[r#"{"t":"\uD83D"}"#, r#"{"ping":1}"#, r#"{"t":"\uDE00"}"#], "😀"),
            (&[r#"{"t":"\ud83d"}"#, r#"{"t":"\ude00\ud83d"}"#, r#"{"t":"\ude01"}"#], "😀😁"),
            (&[r#"{"t":"\ud83d\ude00"}"#, r#"{"t":"é"}"#], "😀é"),
            // Escaped backslashes, as in the arguments of calls, are not surrogates.
            (&[r#"{"t":"\\ud83d"}"#, r#"{"t":"\\ude00"}"#], r"\ud83d\ude00"),
            (&[r#"{"t":"\"\\ud83d\""}"#, r#"{"t":"x"}"#], r#""\ud83d"x"#),
            (&[r#"{"t":"lost\ud83d"}"#, r#"{"t":"x"}"#], "lostx"),
        ] {
            assert_eq!(join_event_strings(events), text, "{events:?}");
        }
    }
}
