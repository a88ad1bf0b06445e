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

/// A server gives a sign every ten seconds; one that is silent for so long is gone.
const SILENT: Duration = Duration::from_secs(35);

/// The pause before a connection is made again, which doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The longest single fact that is read.
const FACT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a server says when it would rather be asked later.
const PASSING: &[&str] = &[
    "unreachable",
    "lost",
    "draining",
    "timeout",
    "busy",
    "rate_limited",
    "crowded",
];

/// The events of one run, as they happen.
pub struct EventStream {
    connection: Arc<Connection>,
    run: RunId,
    /// The last fact that was seen.
    last: Seq,
    /// None: the connection is lost.
    open: Option<Open>,
    /// So often it was lost since the last fact.
    losses: u32,
    /// It was said that it was lost.
    told: bool,
    over: bool,
}

/// A connection that events come over.
struct Open {
    events: Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>,
    /// So much came since the last event.
    bytes: Arc<AtomicUsize>,
}

impl Open {
    fn new(response: Response) -> Self {
        let bytes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&bytes);
        let chunks = response.bytes_stream().map(move |chunk| {
            let chunk = chunk.map_err(std::io::Error::other)?;
            let before = count.fetch_add(chunk.len(), Ordering::Relaxed);
            match before + chunk.len() > FACT_BYTES_MAX {
                true => Err(std::io::Error::other("a fact without an end")),
                false => Ok(chunk),
            }
        });
        Self {
            events: Box::pin(SseByteStream::new(chunks)),
            bytes,
        }
    }

    /// The next event; none: the connection is of no use any more.
    async fn next(&mut self) -> Option<Sse> {
        let next = tokio::time::timeout(SILENT, self.events.next()).await;
        let event = next.ok()??.ok()?;
        self.bytes.store(0, Ordering::Relaxed);
        Some(event)
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("run", &self.run)
            .field("last", &self.last)
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
            last: after,
            open: None,
            losses: 0,
            told: false,
            over: false,
        };
        streaming.open = Some(streaming.connect().await?);
        Ok(streaming)
    }

    async fn connect(&mut self) -> Result<Open, Problem> {
        let run = self.run.to_string();
        let request = Request::get(&["v1", "runs", &run, "events"]).with("after", self.last);
        Ok(Open::new(
            self.connection.stream(&request, self.last.0).await?,
        ))
    }

    async fn connect_again(&mut self) -> Result<(), Problem> {
        let doubled = PAUSE.saturating_mul(2_u32.saturating_pow(self.losses.saturating_sub(1)));
        tokio::time::sleep(doubled.min(PAUSE_MAX)).await;
        match self.connect().await {
            Ok(open) => self.open = Some(open),
            Err(problem) if PASSING.contains(&problem.code.as_str()) => {
                self.losses = self.losses.saturating_add(1);
            }
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    fn lose(&mut self) {
        self.open = None;
        // Forgotten with the next fact: a server that only cuts is asked less and less.
        self.losses = self.losses.saturating_add(1);
        if !self.told {
            self.told = true;
            let (server, last) = (self.connection.base(), self.last);
            tracing::warn!(
                "the connection to {server} was lost after event {last}; it is made again, nothing is missed"
            );
        }
    }

    /// The fact that an event is, if it is one and a new one.
    fn take_in(&mut self, event: &Sse) -> Result<Option<Entry>, Problem> {
        if event.event.as_deref() == Some("end") {
            self.over = true;
            return Ok(None);
        }
        // Only facts have a place: words as they are spoken have none.
        let (Some(_), Some(data)) = (&event.id, &event.data) else {
            return Ok(None);
        };
        let envelope: Envelope =
            serde_json::from_str(data).map_err(|bad| self.connection.unreadable(&bad))?;
        if envelope.seq <= self.last {
            return Ok(None);
        }
        let entry = Entry::try_from(&envelope).map_err(|bad| self.connection.unreadable(&bad))?;
        self.last = entry.seq;
        self.losses = 0;
        self.over = entry.event.is_terminal();
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
        while !self.over {
            let Some(open) = &mut self.open else {
                self.connect_again().await?;
                continue;
            };
            match open.next().await {
                Some(event) => {
                    if let Some(entry) = self.take_in(&event)? {
                        return Ok(Some(vec![entry]));
                    }
                }
                None => self.lose(),
            }
        }
        Ok(None)
    }
}
