//! Stream of the server-sent events in a response, each with a limited size. The data of the events
//! is not interpreted here.

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use longhaul_core::failure::FailureClass;
use serde::Deserialize;
use sse_stream::{Error, Sse, SseByteStream};

use crate::http::error::HttpError;
use crate::http::response::LimitedResponse;

/// Maximum size in bytes of a single event of the stream.
const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum time to wait for the end of the response body after the last event.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Blank line that ends an event. Added if the server closes the stream in the middle of an event.
const BLANK_LINE: &[u8] = b"\n\n";

/// A server-sent event with its name and data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Name of the event. `None` means that the server sent no name.
    pub(crate) name: Option<String>,
    pub(crate) data: String,
    /// Whether the stream ended without a blank line after the event, so that the event may be
    /// truncated.
    pub(crate) is_truncated: bool,
}

impl SseEvent {
    /// Parses the JSON data of the event: one value, or one value per line from servers that omit
    /// the blank lines between events.
    pub(crate) fn parse_json_data<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<Vec<T>> {
        match serde_json::from_str(&self.data) {
            Ok(one) => Ok(vec![one]),
            Err(_) if self.data.contains('\n') => {
                self.data.lines().map(serde_json::from_str).collect()
            }
            Err(error) => Err(error),
        }
    }
}

/// Stream of the server-sent events in a response.
pub(crate) struct SseStream {
    inner: Pin<Box<dyn Stream<Item = Result<Sse, Error>> + Send>>,
    /// Number of bytes received since the last event.
    bytes_since_event: Arc<AtomicUsize>,
    /// Whether the response body has been read to its end.
    is_at_eof: Arc<AtomicBool>,
    surrogates: SurrogateJoiner,
}

impl SseStream {
    pub(crate) fn new(response: LimitedResponse) -> Self {
        let bytes_since_event = Arc::new(AtomicUsize::new(0));
        let is_at_eof = Arc::new(AtomicBool::new(false));
        let (count, end) = (Arc::clone(&bytes_since_event), Arc::clone(&is_at_eof));
        let pieces = stream::unfold(Some(response), move |response| {
            let (count, end) = (Arc::clone(&count), Arc::clone(&end));
            async move {
                let mut response = response?;
                match response.next_chunk().await {
                    Ok(Some(piece)) => {
                        let previous_count = count.fetch_add(piece.len(), Ordering::Relaxed);
                        match previous_count + piece.len() > EVENT_BYTES_MAX {
                            true => {
                                let error =
                                    HttpError::too_long("one event of the stream", EVENT_BYTES_MAX);
                                Some((Err(error), None))
                            }
                            false => Some((Ok(piece), Some(response))),
                        }
                    }
                    Ok(None) => {
                        end.store(true, Ordering::Relaxed);
                        Some((Ok(Bytes::from_static(BLANK_LINE)), None))
                    }
                    Err(error) => Some((Err(error), None)),
                }
            }
        });
        Self {
            inner: Box::pin(SseByteStream::new(pieces)),
            bytes_since_event,
            is_at_eof,
            surrogates: SurrogateJoiner::default(),
        }
    }

    /// Reads the rest of the response body after the last event, so that the connection can be
    /// reused. Gives up if the server does not end the body soon.
    pub(crate) async fn drain_body(mut self) {
        let rest = async { while let Some(Ok(_)) = self.inner.next().await {} };
        _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
    }

    /// Returns the next event that has data. `None` means the end of the stream.
    pub(crate) async fn next_event(&mut self) -> Result<Option<SseEvent>, HttpError> {
        while let Some(event) = self.inner.next().await {
            let is_at_eof = self.is_at_eof.load(Ordering::Relaxed);
            let event = match event {
                Ok(event) => event,
                Err(_) if is_at_eof => return Ok(None),
                Err(error) => return Err(into_http_error(error)),
            };
            self.bytes_since_event.store(0, Ordering::Relaxed);
            if let Some(data) = event.data {
                return Ok(Some(SseEvent {
                    name: event.event,
                    data: self.surrogates.join_surrogates(data),
                    is_truncated: is_at_eof,
                }));
            }
        }
        Ok(None)
    }
}

fn into_http_error(error: Error) -> HttpError {
    match error {
        Error::Body(inner) => match inner.downcast::<HttpError>() {
            Ok(http_error) => *http_error,
            Err(other) => {
                HttpError::new(FailureClass::Network, format!("the connection was lost: {other}"))
            }
        },
        Error::Utf8Parse(_) | Error::UnknownField | _ => {
            HttpError::new(FailureClass::Server, "the stream is not UTF-8")
        }
    }
}

// A provider may split a surrogate pair over two events, such as `\ud83d` at the end of one JSON
// string and `\ude00` at the start of the next.

/// UTF-16 code units that start (high) and end (low) a surrogate pair.
const HIGH: RangeInclusive<u16> = 0xd800..=0xdbff;
const LOW: RangeInclusive<u16> = 0xdc00..=0xdfff;

/// Length in bytes of a JSON escape such as `\ud83d`.
const ESCAPE_BYTES: usize = 6;

/// Joins surrogate pairs that are split across two events of a stream.
#[derive(Debug, Default)]
struct SurrogateJoiner {
    /// High surrogate, as a JSON escape, that ended the last string and whose low surrogate has not
    /// been received yet. `None` means that there is none.
    pending: Option<String>,
}

impl SurrogateJoiner {
    /// Returns the JSON of an event after a high surrogate that the previous event ended with has
    /// been inserted. An unpaired high surrogate at the end of a string is removed and kept for the
    /// next event.
    fn join_surrogates(&mut self, mut json: String) -> String {
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
