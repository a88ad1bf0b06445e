//! The events of a run as a server streams them. A lost connection is made again from the
//! last event that was seen, for as long as the run goes on, so that no event comes twice and
//! none is left out.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use longhaul_core::event::entry::{Entry, Envelope};
use longhaul_core::id::{RunId, Seq};
use reqwest::Response;
use sse_stream::{Sse, SseByteStream};

use crate::client::connection::Connection;
use crate::client::request::Request;
use crate::problem::Problem;

/// Timeout of a silent server: a live one sends something every ten seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(35);

/// Delay before a lost connection is made again; it doubles up to the maximum.
const RECONNECT_DELAY: Duration = Duration::from_millis(200);
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(5);

/// Maximum length of one event in bytes.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Codes of transient problems: the connection is made again after them.
const TRANSIENT: &[&str] =
    &["unreachable", "response_lost", "draining", "timeout", "busy", "rate_limited", "contention"];

/// The events of one run, as they happen.
pub struct EventStream {
    connection: Arc<Connection>,
    run: RunId,
    /// The last event that was seen.
    last_seq: Seq,
    /// None: the connection is lost.
    stream: Option<SseConnection>,
    /// Number of lost connections since the last event.
    losses: u32,
    /// The user was warned of a lost connection.
    warned: bool,
    has_ended: bool,
}

/// A connection that events come over.
struct SseConnection {
    events: Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>,
    /// So much came since the last event.
    bytes_since_event: Arc<AtomicUsize>,
}

impl SseConnection {
    fn new(response: Response) -> Self {
        let bytes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&bytes);
        let chunks = response.bytes_stream().map(move |chunk| {
            let chunk = chunk.map_err(std::io::Error::other)?;
            let before = count.fetch_add(chunk.len(), Ordering::Relaxed);
            match before + chunk.len() > EVENT_BYTES_MAX {
                true => Err(std::io::Error::other("an event without an end")),
                false => Ok(chunk),
            }
        });
        Self { events: Box::pin(SseByteStream::new(chunks)), bytes_since_event: bytes }
    }

    /// The next event; none: the connection is of no use any more.
    async fn next(&mut self) -> Option<Sse> {
        let next = tokio::time::timeout(SILENCE_TIMEOUT, self.events.next()).await;
        let event = next.ok()??.ok()?;
        self.bytes_since_event.store(0, Ordering::Relaxed);
        Some(event)
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("run", &self.run)
            .field("last_seq", &self.last_seq)
            .finish_non_exhaustive()
    }
}

impl EventStream {
    /// Follows a run from after a place on.
    pub(super) async fn new(
        connection: Arc<Connection>,
        run: RunId,
        after: Seq,
    ) -> Result<Self, Problem> {
        let mut streaming = Self {
            connection,
            run,
            last_seq: after,
            stream: None,
            losses: 0,
            warned: false,
            has_ended: false,
        };
        streaming.stream = Some(streaming.connect().await?);
        Ok(streaming)
    }

    async fn connect(&mut self) -> Result<SseConnection, Problem> {
        let run = self.run.to_string();
        let request = Request::get(&["v1", "runs", &run, "events"]).query("after", self.last_seq);
        Ok(SseConnection::new(self.connection.stream(&request, self.last_seq.0).await?))
    }

    async fn reconnect(&mut self) -> Result<(), Problem> {
        let doubled =
            RECONNECT_DELAY.saturating_mul(2_u32.saturating_pow(self.losses.saturating_sub(1)));
        tokio::time::sleep(doubled.min(RECONNECT_DELAY_MAX)).await;
        match self.connect().await {
            Ok(open) => self.stream = Some(open),
            Err(problem) if TRANSIENT.contains(&problem.code.as_str()) => {
                self.losses = self.losses.saturating_add(1);
            }
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    fn mark_lost(&mut self) {
        self.stream = None;
        // Reset by the next event: a server that only closes connections is asked less and less.
        self.losses = self.losses.saturating_add(1);
        if !self.warned {
            self.warned = true;
            let (server, last) = (self.connection.base(), self.last_seq);
            tracing::warn!(
                "the connection to {server} was lost after event {last}; it is made again, nothing is missed"
            );
        }
    }

    /// The journal entry of an event, if it has one that is new.
    fn entry(&mut self, event: &Sse) -> Result<Option<Entry>, Problem> {
        if event.event.as_deref() == Some("end") {
            self.has_ended = true;
            return Ok(None);
        }
        // Only journal entries have an id; deltas of a reply have none.
        let (Some(_), Some(data)) = (&event.id, &event.data) else {
            return Ok(None);
        };
        let envelope: Envelope =
            serde_json::from_str(data).map_err(|bad| self.connection.unreadable_event(&bad))?;
        if envelope.seq <= self.last_seq {
            return Ok(None);
        }
        let entry =
            Entry::try_from(&envelope).map_err(|bad| self.connection.unreadable_event(&bad))?;
        self.last_seq = entry.seq;
        self.losses = 0;
        self.has_ended = entry.event.is_terminal();
        Ok(Some(entry))
    }
}

impl EventStream {
    /// The next events, in order and each once; none: the run has ended and all of its events
    /// came. A caller that stops waiting in the middle loses nothing.
    ///
    /// # Errors
    /// The problem that the server answers with.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, Problem> {
        while !self.has_ended {
            let Some(open) = &mut self.stream else {
                self.reconnect().await?;
                continue;
            };
            match open.next().await {
                Some(event) => {
                    if let Some(entry) = self.entry(&event)? {
                        return Ok(Some(vec![entry]));
                    }
                }
                None => self.mark_lost(),
            }
        }
        Ok(None)
    }
}
