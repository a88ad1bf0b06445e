//! One run as a stream: its journal from a place on, the model's words in
//! between, and the end.
//!
//! Never: polls. It waits for the bell of its run.

use axum::body::Bytes;
use longhaul_core::event::Event;
use longhaul_core::id::{RunId, Seq};
use longhaul_engine::deltas::DeltaStream;
use longhaul_engine::handle::JournalStream;
use serde_json::json;

use crate::problem::Problem;
use crate::stream::sse::{ChunkSource, StreamReader, format_delta, format_event, write_entry};

/// A run that somebody reads.
#[derive(Debug)]
pub(crate) struct RunStream {
    reader: StreamReader,
    run: RunId,
    journal: JournalStream,
    deltas: DeltaStream,
    last_seq: Seq,
    has_ended: bool,
}

impl RunStream {
    /// Reads a run from after a place on.
    pub(crate) async fn open(
        reader: StreamReader,
        run: RunId,
        after: Seq,
    ) -> Result<Self, Problem> {
        let longhaul = reader.app.longhaul().clone();
        Ok(Self {
            journal: longhaul.watch(run, after).await?,
            deltas: longhaul.services().deltas.subscribe(run),
            reader,
            run,
            last_seq: after,
            has_ended: false,
        })
    }

    async fn end(&mut self) -> Option<Bytes> {
        self.has_ended = true;
        let row = self.reader.app.longhaul().run_row(self.run).await.ok()?;
        let said = json!({ "run": self.run, "status": row.status, "last_seq": row.last_seq });
        Some(Bytes::from(format_event("end", &said)))
    }
}

impl ChunkSource for RunStream {
    async fn next(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        let Self { reader, journal: watching, deltas: words, .. } = self;
        let stopping = reader.app.clone();
        let entries = tokio::select! {
            biased;
            () = stopping.stop_requested() => return None,
            // Before the journal, or whoever is behind is never asked for a key again.
            () = reader.heartbeat_due() => return reader.heartbeat().await,
            read = watching.next() => match read {
                Ok(entries) => entries,
                Err(error) => {
                    tracing::warn!(run = %self.run, %error, "a stream broke off");
                    return None;
                }
            },
            spoken = words.next() => return Some(Bytes::from(format_delta(&spoken))),
        };
        let Some(entries) = entries else {
            return self.end().await;
        };
        let mut text = String::new();
        for entry in &entries {
            // A turn's words come before the fact that it is over.
            if let Event::TurnCompleted(turn) = &entry.event
                && let Some(spoken) = self.deltas.rest_of_turn(turn.turn)
            {
                text.push_str(&format_delta(&spoken));
            }
            if let Err(error) = write_entry(&mut text, entry.seq.0, entry) {
                tracing::error!(run = %self.run, %error, "an event can't be written");
                self.has_ended = true;
                break;
            }
            self.last_seq = entry.seq;
        }
        Some(Bytes::from(text))
    }
}
