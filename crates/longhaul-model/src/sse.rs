//! The events of a stream, each of a bounded length.
//!
//! Never: reads what an event holds; what `[DONE]` means is the codec's to say.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use serde::Deserialize;
use sse_stream::{Error, Sse, SseByteStream};

use crate::http::error::HttpError;
use crate::http::response::BoundedResponse;
use crate::surrogates::SurrogateJoiner;

/// The longest single event.
const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// So long the end of an answer is waited for when all is said.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Ends an event that the server left open when it closed the stream.
const BLANK_LINE: &[u8] = b"\n\n";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// What the server calls it, where it does.
    pub(crate) name: Option<String>,
    pub(crate) data: String,
    /// The stream ended without the blank line that closes it, so it may be torn.
    pub(crate) is_truncated: bool,
}

impl SseEvent {
    /// The JSON it holds: one value, or, from servers that leave out the blank
    /// lines between events, one in each line.
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<Vec<T>, serde_json::Error> {
        match serde_json::from_str(&self.data) {
            Ok(one) => Ok(vec![one]),
            Err(_) if self.data.contains('\n') => {
                self.data.lines().map(serde_json::from_str).collect()
            }
            Err(bad) => Err(bad),
        }
    }
}

/// The events of an answer.
pub(crate) struct SseStream {
    inner: Pin<Box<dyn Stream<Item = Result<Sse, Error>> + Send>>,
    /// So much came since the last event.
    bytes_since_event: Arc<AtomicUsize>,
    /// Everything that came is read.
    is_at_eof: Arc<AtomicBool>,
    surrogates: SurrogateJoiner,
}

impl SseStream {
    pub(crate) fn new(answer: BoundedResponse) -> Self {
        let since = Arc::new(AtomicUsize::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let (count, end) = (Arc::clone(&since), Arc::clone(&over));
        let pieces = stream::unfold(Some(answer), move |answer| {
            let (count, end) = (Arc::clone(&count), Arc::clone(&end));
            async move {
                let mut answer = answer?;
                match answer.next_chunk().await {
                    Ok(Some(piece)) => {
                        let before = count.fetch_add(piece.len(), Ordering::Relaxed);
                        match before + piece.len() > EVENT_BYTES_MAX {
                            true => Some((Err(HttpError::EventTooLarge(EVENT_BYTES_MAX)), None)),
                            false => Some((Ok(piece), Some(answer))),
                        }
                    }
                    Ok(None) => {
                        end.store(true, Ordering::Relaxed);
                        Some((Ok(Bytes::from_static(BLANK_LINE)), None))
                    }
                    Err(trouble) => Some((Err(trouble), None)),
                }
            }
        });
        Self {
            inner: Box::pin(SseByteStream::new(pieces)),
            bytes_since_event: since,
            is_at_eof: over,
            surrogates: SurrogateJoiner::default(),
        }
    }

    /// Reads what is left behind the last word, so that the connection can be
    /// used again. A server that takes long to end its answer is left alone.
    pub(crate) async fn drain(mut self) {
        let rest = async { while let Some(Ok(_)) = self.inner.next().await {} };
        _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
    }

    /// The next event that says something; none: the stream is over.
    pub(crate) async fn next(&mut self) -> Result<Option<SseEvent>, HttpError> {
        while let Some(event) = self.inner.next().await {
            let torn = self.is_at_eof.load(Ordering::Relaxed);
            let event = match event {
                Ok(event) => event,
                Err(_) if torn => return Ok(None),
                Err(error) => return Err(into_http_error(error)),
            };
            self.bytes_since_event.store(0, Ordering::Relaxed);
            if let Some(data) = event.data {
                return Ok(Some(SseEvent {
                    name: event.event,
                    data: self.surrogates.join(data),
                    is_truncated: torn,
                }));
            }
        }
        Ok(None)
    }
}

fn into_http_error(error: Error) -> HttpError {
    match error {
        Error::Body(inner) => match inner.downcast::<HttpError>() {
            Ok(trouble) => *trouble,
            Err(other) => HttpError::ConnectionLost(other.to_string()),
        },
        Error::Utf8Parse(_) | Error::UnknownField | _ => HttpError::InvalidUtf8,
    }
}
