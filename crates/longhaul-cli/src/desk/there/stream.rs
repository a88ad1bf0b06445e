//! A journal as a server streams it. A connection that is lost is made again
//! from the last fact that was seen, for as long as the run goes on.
//!
//! Never: a fact twice, or one left out.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{Stream, StreamExt as _};
use longhaul_core::event::entry::{Entry, Envelope};
use longhaul_core::id::{RunId, Seq};
use reqwest::Response;
use sse_stream::{Sse, SseByteStream};

use crate::desk::Following;
use crate::desk::there::ask::Ask;
use crate::desk::there::wire::Wire;
use crate::no::{No, Problem};
use crate::say;

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

/// Somebody who follows a run over a wire.
pub(crate) struct Streaming {
    wire: Arc<Wire>,
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

impl Streaming {
    /// Follows a run from after a place on.
    pub(crate) async fn new(wire: Arc<Wire>, run: RunId, after: Seq) -> Result<Self, No> {
        let mut streaming = Self {
            wire,
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

    async fn connect(&mut self) -> Result<Open, No> {
        let run = self.run.to_string();
        let ask = Ask::get(&["v1", "runs", &run, "events"]).with("after", self.last);
        Ok(Open::new(self.wire.stream(&ask, self.last.0).await?))
    }

    async fn connect_again(&mut self) -> Result<(), No> {
        let doubled = PAUSE.saturating_mul(2_u32.saturating_pow(self.losses.saturating_sub(1)));
        tokio::time::sleep(doubled.min(PAUSE_MAX)).await;
        match self.connect().await {
            Ok(open) => self.open = Some(open),
            Err(No::Refused(problem)) if PASSING.contains(&problem.code.as_str()) => {
                self.losses = self.losses.saturating_add(1);
            }
            Err(no) => return Err(no),
        }
        Ok(())
    }

    fn lose(&mut self) {
        self.open = None;
        // Forgotten with the next fact: a server that only cuts is asked less and less.
        self.losses = self.losses.saturating_add(1);
        if !self.told {
            self.told = true;
            let (server, last) = (self.wire.base(), self.last);
            say::talk(&format!(
                "the connection to {server} was lost after event {last}; it is made again, nothing is missed"
            ));
        }
    }

    /// The fact that an event is, if it is one and a new one.
    fn take_in(&mut self, event: &Sse) -> Result<Option<Entry>, No> {
        if event.event.as_deref() == Some("end") {
            self.over = true;
            return Ok(None);
        }
        // Only facts have a place: words as they are spoken have none.
        let (Some(_), Some(data)) = (&event.id, &event.data) else {
            return Ok(None);
        };
        let unread = |why: String| {
            let detail = format!(
                "{} tells what this build can't read: {why}",
                self.wire.base()
            );
            Problem::new("strange", detail)
        };
        let envelope: Envelope =
            serde_json::from_str(data).map_err(|bad| unread(bad.to_string()))?;
        if envelope.seq <= self.last {
            return Ok(None);
        }
        let entry = Entry::try_from(&envelope).map_err(|bad| unread(bad.to_string()))?;
        self.last = entry.seq;
        self.losses = 0;
        self.over = entry.event.is_terminal();
        Ok(Some(entry))
    }
}

#[async_trait]
impl Following for Streaming {
    async fn next(&mut self) -> Result<Option<Vec<Entry>>, No> {
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
