//! Stream of the server-sent events in a response, each with a limited size. The data of the events
//! is not interpreted here.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use serde::Deserialize;
use sse_stream::{Error, Sse, SseByteStream};

use crate::http::error::HttpError;
use crate::http::response::SizeLimitedResponse;
use crate::surrogates::SurrogateJoiner;

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
    pub(crate) fn parse_json_data<'a, T: Deserialize<'a>>(
        &'a self,
    ) -> Result<Vec<T>, serde_json::Error> {
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
    pub(crate) fn new(response: SizeLimitedResponse) -> Self {
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
                            true => Some((Err(HttpError::EventTooLarge(EVENT_BYTES_MAX)), None)),
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
            Err(other) => HttpError::ConnectionLost(other.to_string()),
        },
        Error::Utf8Parse(_) | Error::UnknownField | _ => HttpError::InvalidUtf8,
    }
}
