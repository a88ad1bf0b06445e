//! One run as a stream: its journal from a place on, the model's words in
//! between, and the end.
//!
//! Never: polls. It waits for the bell of its run.

use axum::body::Bytes;
use longhaul_core::event::Event;
use longhaul_core::id::{RunId, Seq};
use longhaul_engine::feed::Listener;
use longhaul_engine::handle::Watching;
use serde_json::json;

use crate::problem::Problem;
use crate::stream::sse::{Pieces, Reader, delta, event, write_entry};

/// A run that somebody reads.
#[derive(Debug)]
pub(crate) struct RunStream {
    reader: Reader,
    run: RunId,
    watching: Watching,
    words: Listener,
    last: Seq,
    over: bool,
}

impl RunStream {
    /// Reads a run from after a place on.
    pub(crate) async fn open(reader: Reader, run: RunId, after: Seq) -> Result<Self, Problem> {
        let longhaul = reader.app.longhaul().clone();
        Ok(Self {
            watching: longhaul.watch(run, after).await?,
            words: longhaul.ports().feed.listen(run),
            reader,
            run,
            last: after,
            over: false,
        })
    }

    async fn end(&mut self) -> Option<Bytes> {
        self.over = true;
        let row = self.reader.app.longhaul().row(self.run).await.ok()?;
        let said = json!({ "run": self.run, "status": row.status, "last": row.last });
        Some(Bytes::from(event("end", &said)))
    }
}

impl Pieces for RunStream {
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let Self {
            reader,
            watching,
            words,
            ..
        } = self;
        let stopping = reader.app.clone();
        let entries = tokio::select! {
            biased;
            () = stopping.stopped() => return None,
            // Before the journal, or whoever is behind is never asked for a key again.
            () = reader.due() => return reader.beat().await,
            read = watching.next() => match read {
                Ok(entries) => entries,
                Err(error) => {
                    tracing::warn!(run = %self.run, %error, "a stream broke off");
                    return None;
                }
            },
            spoken = words.next() => return Some(Bytes::from(delta(&spoken))),
        };
        let Some(entries) = entries else {
            return self.end().await;
        };
        let mut text = String::new();
        for entry in &entries {
            // A turn's words come before the fact that it is over.
            if let Event::TurnCompleted(turn) = &entry.event
                && let Some(spoken) = self.words.rest_of(turn.turn)
            {
                text.push_str(&delta(&spoken));
            }
            if let Err(error) = write_entry(&mut text, entry.seq.0, entry) {
                tracing::error!(run = %self.run, %error, "an event can't be written");
                self.over = true;
                break;
            }
            self.last = entry.seq;
        }
        Some(Bytes::from(text))
    }
}
