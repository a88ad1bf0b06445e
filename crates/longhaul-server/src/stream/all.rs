//! Event stream of all runs, in the order in which the events were written.

use axum::body::Bytes;
use longhaul_core::port::records::GlobalSeq;
use tokio::sync::watch;

use crate::problem::Problem;
use crate::stream::sse::{EventStreamClient, SseChunkSource, append_entry_as_sse};

/// Maximum number of events that the stream reads from the store at once.
const PAGE_SIZE: usize = 200;

/// Event stream of all runs for one client.
#[derive(Debug)]
pub(crate) struct AllRunsEventStream {
    reader: EventStreamClient,
    filter: EventKindFilter,
    changes: watch::Receiver<GlobalSeq>,
    after: GlobalSeq,
    /// Whether the client has received all events so far: the last read from the store returned no
    /// events.
    caught_up: bool,
}

/// Filter for event types: full names, or prefixes such as `run.*`.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventKindFilter(Vec<String>);

impl EventKindFilter {
    /// Parses a comma-separated list of event types. An empty list matches all types.
    pub(crate) fn parse_kind_list(text: &str) -> Result<Self, Problem> {
        let mut kinds = Vec::new();
        for kind in text.split(',').map(str::trim).filter(|kind| !kind.is_empty()) {
            let stem = kind.strip_suffix(".*").unwrap_or(kind);
            let is_allowed = |c: char| c.is_ascii_lowercase() || "._".contains(c);
            if stem != "*" && !stem.chars().all(is_allowed) {
                let message = "`filter` must be a list of event types, such as `gate.raised,run.*`";
                return Err(Problem::unprocessable(message));
            }
            kinds.push(kind.to_owned());
        }
        Ok(Self(kinds))
    }

    fn matches_kind(&self, kind: &str) -> bool {
        let matches_pattern = |pattern: &String| match pattern.strip_suffix('*') {
            Some(stem) => kind.starts_with(stem),
            None => kind == pattern,
        };
        self.0.is_empty() || self.0.iter().any(matches_pattern)
    }
}

impl AllRunsEventStream {
    /// Opens the stream of events after a global sequence number. `None` means that only new events
    /// are sent.
    pub(crate) async fn open_stream(
        reader: EventStreamClient,
        filter: EventKindFilter,
        after: Option<GlobalSeq>,
    ) -> Result<Self, Problem> {
        let longhaul = reader.app.longhaul();
        let changes = longhaul.services().changes.subscribe_to_all_runs();
        let changes = changes.ok_or_else(Problem::internal_error)?;
        let after = match after {
            Some(after) => after,
            None => longhaul.last_global_seq().await?,
        };
        Ok(Self { filter, changes, after, caught_up: false, reader })
    }

    /// Reads the next page of events. `None` means that the page has no event that passes the
    /// filter.
    async fn read_event_page(&mut self) -> Result<Option<Bytes>, longhaul_engine::Error> {
        let app = self.reader.app.clone();
        let _turn = app.state.catching_up.acquire().await;
        let tail = app.longhaul().all_events(self.after, PAGE_SIZE).await?;
        let mut text = String::new();
        for (global_seq, entry) in &tail.entries {
            self.after = *global_seq;
            if self.filter.matches_kind(entry.event.kind())
                && let Err(error) = append_entry_as_sse(&mut text, global_seq.0, entry)
            {
                tracing::error!(run = %entry.run, %error, "could not serialize an event");
            }
        }
        self.caught_up = tail.entries.is_empty();
        Ok((!text.is_empty()).then(|| Bytes::from(text)))
    }
}

impl SseChunkSource for AllRunsEventStream {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let Self { reader, changes, .. } = self;
            let app = reader.app.clone();
            let caught_up = self.caught_up;
            let changed = async {
                match caught_up {
                    true => changes.changed().await,
                    false => Ok(()),
                }
            };
            // Shutdown and heartbeat are checked first, so that they also reach a reader that
            // is far behind.
            tokio::select! {
                biased;
                () = app.state.stopping.cancelled() => return None,
                () = reader.wait_for_heartbeat() => return reader.heartbeat_bytes_if_authorized().await,
                result = changed => result.ok()?,
            }
            match self.read_event_page().await {
                Ok(Some(text)) => return Some(text),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "event stream of all runs failed");
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_kinds_are_filtered_by_name_or_prefix() {
        let matches = |filter: &str, kind: &str| {
            EventKindFilter::parse_kind_list(filter).unwrap().matches_kind(kind)
        };
        for (filter, kind, expected) in [
            ("", "run.created", true),
            ("run.*", "run.created", true),
            ("run.*", "runner.created", false),
            ("gate.raised, run.completed", "run.completed", true),
            ("gate.raised", "gate.answered", false),
            ("*", "tool.started", true),
        ] {
            assert_eq!(matches(filter, kind), expected, "{filter} {kind}");
        }
        assert!(EventKindFilter::parse_kind_list("run.created;drop").is_err());
    }
}
