//! Event stream of one run: the events of its journal after a sequence number, text deltas of the
//! model in between, and an `end` event. It waits for change notifications of the run and never
//! polls.

use axum::body::Bytes;
use longhaul_core::event::Event;
use longhaul_core::id::{RunId, Seq};
use longhaul_engine::drive::deltas::ReplyDeltaStream;
use longhaul_engine::handle::JournalStream;
use serde_json::json;

use crate::problem::Problem;
use crate::stream::sse::{
    EventStreamClient, SseChunkSource, append_entry_as_sse, format_delta_event, format_sse_event,
};

/// Event stream of one run for one client.
#[derive(Debug)]
pub(crate) struct RunEventStream {
    reader: EventStreamClient,
    run: RunId,
    journal: JournalStream,
    deltas: ReplyDeltaStream,
    last_seq: Seq,
    has_ended: bool,
}

impl RunEventStream {
    /// Opens the stream of the run's events after the sequence number `after`.
    pub(crate) async fn open_stream(
        reader: EventStreamClient,
        run: RunId,
        after: Seq,
    ) -> Result<Self, Problem> {
        let longhaul = reader.app.longhaul().clone();
        Ok(Self {
            journal: longhaul.watch_run_journal(run, after).await?,
            deltas: longhaul.services().deltas.subscribe(run),
            reader,
            run,
            last_seq: after,
            has_ended: false,
        })
    }

    async fn build_end_event(&mut self) -> Option<Bytes> {
        self.has_ended = true;
        let row = self.reader.app.longhaul().run_row(self.run).await.ok()?;
        let data = json!({ "run": self.run, "status": row.status, "last_seq": row.last_seq });
        Some(Bytes::from(format_sse_event("end", &data)))
    }
}

impl SseChunkSource for RunEventStream {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        let Self { reader, journal, deltas, .. } = self;
        let app = reader.app.clone();
        let entries = tokio::select! {
            biased;
            () = app.state.stopping.cancelled() => return None,
            // Checked before the journal: otherwise the key of a reader that is far behind
            // would never be checked again.
            () = reader.wait_for_heartbeat() => return reader.heartbeat_bytes_if_authorized().await,
            result = journal.next() => match result {
                Ok(entries) => entries,
                Err(error) => {
                    tracing::warn!(run = %self.run, %error, "event stream of a run failed");
                    return None;
                }
            },
            delta = deltas.next() => return Some(Bytes::from(format_delta_event(&delta))),
        };
        let Some(entries) = entries else {
            return self.build_end_event().await;
        };
        let mut text = String::new();
        for entry in &entries {
            // The text of a turn is sent before its `turn.completed` event.
            if let Event::TurnCompleted(turn) = &entry.event
                && let Some(delta) = self.deltas.take_rest_of_turn(turn.turn)
            {
                text.push_str(&format_delta_event(&delta));
            }
            if let Err(error) = append_entry_as_sse(&mut text, entry.seq.0, entry) {
                tracing::error!(run = %self.run, %error, "could not serialize an event");
                self.has_ended = true;
                break;
            }
            self.last_seq = entry.seq;
        }
        Some(Bytes::from(text))
    }
}
