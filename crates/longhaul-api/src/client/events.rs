//! Stream of the events of a run. When the connection is lost, it is reopened after the last
//! received event until the run ends, so every event is delivered exactly once.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use longhaul_core::event::entry::{JournalEntry, JournalEntryEnvelope};
use longhaul_core::id::{RunId, Seq};
use reqwest::Response;
use serde::Deserialize;
use sse_stream::{Sse, SseByteStream};

use crate::client::connection::ApiConnection;
use crate::operations::READ_EVENTS;
use crate::problem::Problem;
use crate::query::EventsQuery;

/// Time without any data after which a connection counts as lost. A live server sends a heartbeat
/// every ten seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(35);

/// Delay before the client reconnects. The delay doubles with each lost connection, up to the
/// maximum.
const RECONNECT_DELAY: Duration = Duration::from_millis(200);
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(5);

/// Maximum size of one event in bytes.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Codes of transient problems, after which the client reconnects.
const TRANSIENT_CODES: &[&str] =
    &["unreachable", "response_lost", "draining", "timeout", "busy", "rate_limited", "contention"];

/// An event of a run, or text of the model before the event that contains it.
#[derive(Debug)]
pub enum EventStreamItem {
    Entry(Box<JournalEntry>),
    Delta(ReplyDeltaView),
}

/// Text of a reply that the model is writing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReplyDeltaView {
    pub turn: u32,
    /// Attempt within the turn, from 1. The text of an earlier attempt is void.
    pub attempt: u32,
    /// Position of the text in the reply in bytes.
    pub offset: usize,
    pub text: String,
}

/// Stream of the events of one run, as they happen.
pub struct EventStream {
    connection: Arc<ApiConnection>,
    run: RunId,
    /// Sequence number of the last received event.
    last_seq: Seq,
    /// Open connection to the server. `None` means that the connection is lost.
    stream: Option<SseConnection>,
    /// Number of connections lost since the last received event.
    losses: u32,
    /// Whether the user was warned about a lost connection.
    warned: bool,
    has_ended: bool,
}

/// An open connection that receives server-sent events.
struct SseConnection {
    events: Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>,
    /// Number of bytes received since the last event.
    bytes_since_event: Arc<AtomicUsize>,
}

impl SseConnection {
    fn from_response(response: Response, event_bytes_max: usize) -> Self {
        let bytes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&bytes);
        let chunks = response.bytes_stream().map(move |chunk| {
            let chunk = chunk.map_err(std::io::Error::other)?;
            let before = count.fetch_add(chunk.len(), Ordering::Relaxed);
            match before + chunk.len() > event_bytes_max {
                true => Err(std::io::Error::other("an event exceeds the maximum size")),
                false => Ok(chunk),
            }
        });
        Self { events: Box::pin(SseByteStream::new(chunks)), bytes_since_event: bytes }
    }

    /// Waits for the next server-sent event. `None` means that the connection is no longer usable.
    async fn next_sse_event(&mut self) -> Option<Sse> {
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
    /// Opens the stream of the run's events that follow a sequence number.
    pub(super) async fn open_for_run(
        connection: Arc<ApiConnection>,
        run: RunId,
        after: Seq,
    ) -> Result<Self, Problem> {
        let mut events = Self {
            connection,
            run,
            last_seq: after,
            stream: None,
            losses: 0,
            warned: false,
            has_ended: false,
        };
        events.stream = Some(events.connect().await?);
        Ok(events)
    }

    async fn connect(&mut self) -> Result<SseConnection, Problem> {
        let after = self.last_seq;
        let request = READ_EVENTS.at(self.run).query(&EventsQuery { after, limit: None });
        let response = self.connection.open_event_stream(&request.parts, after.0).await?;
        Ok(SseConnection::from_response(response, self.connection.bytes_max(EVENT_BYTES_MAX)))
    }

    async fn reconnect(&mut self) -> Result<(), Problem> {
        let delay =
            RECONNECT_DELAY.saturating_mul(2_u32.saturating_pow(self.losses.saturating_sub(1)));
        tokio::time::sleep(delay.min(RECONNECT_DELAY_MAX)).await;
        match self.connect().await {
            Ok(stream) => self.stream = Some(stream),
            Err(problem) if TRANSIENT_CODES.contains(&problem.code.as_str()) => {
                self.losses = self.losses.saturating_add(1);
            }
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    fn mark_connection_lost(&mut self) {
        self.stream = None;
        // Reset by the next event. A server that only closes connections is asked less and less
        // often.
        self.losses = self.losses.saturating_add(1);
        if !self.warned {
            self.warned = true;
            let (server, last) = (self.connection.peer_name(), self.last_seq);
            tracing::warn!(
                "the connection to {server} was lost after event {last}; reconnecting, no event is missed"
            );
        }
    }

    /// Returns what a server-sent event contains. `None` means that the event contains nothing, or an
    /// entry that was received before.
    fn parse_item(&mut self, event: &Sse) -> Result<Option<EventStreamItem>, Problem> {
        if event.event.as_deref() == Some("message.delta") {
            let delta = event.data.as_deref().map(serde_json::from_str).transpose();
            return delta
                .map(|delta| delta.map(EventStreamItem::Delta))
                .map_err(|error| self.connection.unreadable_event_problem(&error));
        }
        Ok(self.parse_new_entry(event)?.map(|entry| EventStreamItem::Entry(Box::new(entry))))
    }

    /// Returns the journal entry that a server-sent event contains. `None` means that the event
    /// contains no entry, or that the entry was received before.
    fn parse_new_entry(&mut self, event: &Sse) -> Result<Option<JournalEntry>, Problem> {
        if event.event.as_deref() == Some("end") {
            self.has_ended = true;
            return Ok(None);
        }
        // Only journal entries have an id.
        let (Some(_), Some(data)) = (&event.id, &event.data) else {
            return Ok(None);
        };
        let envelope: JournalEntryEnvelope = serde_json::from_str(data)
            .map_err(|error| self.connection.unreadable_event_problem(&error))?;
        if envelope.seq <= self.last_seq {
            return Ok(None);
        }
        let entry = JournalEntry::try_from(&envelope)
            .map_err(|error| self.connection.unreadable_event_problem(&error))?;
        self.last_seq = entry.seq;
        self.losses = 0;
        self.has_ended = entry.event.is_terminal();
        Ok(Some(entry))
    }

    /// Waits for the next event or the next part of a reply, in order and each event once. `None`
    /// means that the run has ended and all its events were returned.
    ///
    /// Cancel safety: dropping the future loses no event.
    ///
    /// # Errors
    ///
    /// Returns the problem with which the server responds.
    pub async fn next(&mut self) -> Result<Option<EventStreamItem>, Problem> {
        while !self.has_ended {
            let Some(open) = &mut self.stream else {
                self.reconnect().await?;
                continue;
            };
            match open.next_sse_event().await {
                Some(event) => {
                    if let Some(item) = self.parse_item(&event)? {
                        return Ok(Some(item));
                    }
                }
                None => self.mark_connection_lost(),
            }
        }
        Ok(None)
    }
}
