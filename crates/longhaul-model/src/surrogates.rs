//! Puts characters together whose two halves a provider sent in two events, as `\ud83d`
//! at the end of one JSON text and `\ude00` at the start of the next.
//!
//! Never: touches an event that holds no half of a character.

use std::ops::RangeInclusive;

/// Units that begin a character of two, and those that end one.
const HIGH: RangeInclusive<u16> = 0xd800..=0xdbff;
const LOW: RangeInclusive<u16> = 0xdc00..=0xdfff;

/// Length of an escape such as `\ud83d`.
const ESCAPE_BYTES: usize = 6;

/// Joins the halves of characters over the events of one stream.
#[derive(Debug, Default)]
pub(crate) struct SurrogateJoiner {
    /// The escape that the last text ended with, and which waits for its other half.
    pending: Option<String>,
}

impl SurrogateJoiner {
    /// The JSON of an event, with what was held back of the events before it.
    pub(crate) fn join(&mut self, mut json: String) -> String {
        if self.pending.is_none() && !json.contains("\\ud") && !json.contains("\\uD") {
            return json;
        }
        if let Some(start) = first_low(&json)
            && let Some(high) = self.pending.take()
        {
            json.insert_str(start, &high);
        }
        if let Some(start) = last_high(&json) {
            let end = start + ESCAPE_BYTES;
            self.pending = Some(json[start..end].to_owned());
            json.replace_range(start..end, "");
        }
        json
    }
}

/// Where the second half of a character begins a text.
fn first_low(json: &str) -> Option<usize> {
    let quotes = json.match_indices("\"\\u").map(|(at, _)| at + 1);
    let mut starts = quotes.filter(|at| !is_escaped(json, at - 1));
    starts.find(|at| code_unit(json, *at).is_some_and(|unit| LOW.contains(&unit)))
}

/// Where the first half of a character ends a text.
fn last_high(json: &str) -> Option<usize> {
    let escapes = json.match_indices("\\u").map(|(at, _)| at);
    let mut escapes = escapes.filter(|at| !is_escaped(json, *at));
    escapes.find(|at| {
        let is_high = code_unit(json, *at).is_some_and(|unit| HIGH.contains(&unit));
        is_high && json[at + ESCAPE_BYTES..].starts_with('"')
    })
}

/// Whether the character at this place stands behind a backslash that escapes it.
fn is_escaped(json: &str, at: usize) -> bool {
    let before = json.as_bytes()[..at].iter().rev();
    before.take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The unit that the escape at this place stands for.
fn code_unit(json: &str, at: usize) -> Option<u16> {
    u16::from_str_radix(json.get(at + 2..at + ESCAPE_BYTES)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(events: &[&str]) -> String {
        let mut joiner = SurrogateJoiner::default();
        let texts = events.iter().map(|event| {
            let json = joiner.join((*event).to_owned());
            let value: serde_json::Value = serde_json::from_str(&json).unwrap();
            value["t"].as_str().unwrap_or_default().to_owned()
        });
        texts.collect()
    }

    #[test]
    fn halves_in_two_events_are_one_character() {
        for (events, text) in [
            (&[r#"{"t":"a\ud83d"}"#, r#"{"t":"\ude00b"}"#][..], "a😀b"),
            (&[r#"{"t":"\uD83D"}"#, r#"{"ping":1}"#, r#"{"t":"\uDE00"}"#], "😀"),
            (&[r#"{"t":"\ud83d"}"#, r#"{"t":"\ude00\ud83d"}"#, r#"{"t":"\ude01"}"#], "😀😁"),
            (&[r#"{"t":"\ud83d\ude00"}"#, r#"{"t":"é"}"#], "😀é"),
            // Text about escapes, as arguments of calls have them, is no half of a character.
            (&[r#"{"t":"\\ud83d"}"#, r#"{"t":"\\ude00"}"#], r"\ud83d\ude00"),
            (&[r#"{"t":"\"\\ud83d\""}"#, r#"{"t":"x"}"#], r#""\ud83d"x"#),
            (&[r#"{"t":"lost\ud83d"}"#, r#"{"t":"x"}"#], "lostx"),
        ] {
            assert_eq!(joined(events), text, "{events:?}");
        }
    }
}
