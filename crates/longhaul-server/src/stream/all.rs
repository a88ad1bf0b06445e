//! All runs as one stream, in the order in which their facts were written.
//!
//! Never: waits for one run to hear of another.

use axum::body::Bytes;
use longhaul_core::port::records::GlobalSeq;
use tokio::sync::watch;

use crate::problem::Problem;
use crate::stream::sse::{ChunkSource, StreamReader, write_entry};

/// So many facts are read at once.
const PAGE_SIZE: usize = 200;

/// Everything that somebody reads.
#[derive(Debug)]
pub(crate) struct AllStream {
    reader: StreamReader,
    filter: KindFilter,
    changes: watch::Receiver<GlobalSeq>,
    after: GlobalSeq,
    /// The last look found nothing more.
    caught_up: bool,
}

/// Which kinds of facts are wanted: names, or beginnings such as `run.*`.
#[derive(Debug, Clone, Default)]
pub(crate) struct KindFilter(Vec<String>);

impl KindFilter {
    /// Kinds with commas between; empty: all.
    pub(crate) fn parse(said: &str) -> Result<Self, Problem> {
        let mut kinds = Vec::new();
        for kind in said.split(',').map(str::trim).filter(|kind| !kind.is_empty()) {
            let stem = kind.strip_suffix(".*").unwrap_or(kind);
            let plain = |letter: char| letter.is_ascii_lowercase() || "._".contains(letter);
            if stem != "*" && !stem.chars().all(plain) {
                let words = "`filter` lists kinds of events, such as `gate.raised,run.*`";
                return Err(Problem::invalid(words));
            }
            kinds.push(kind.to_owned());
        }
        Ok(Self(kinds))
    }

    fn matches(&self, kind: &str) -> bool {
        let fits = |wanted: &String| match wanted.strip_suffix('*') {
            Some(stem) => kind.starts_with(stem),
            None => kind == wanted,
        };
        self.0.is_empty() || self.0.iter().any(fits)
    }
}

impl AllStream {
    /// Reads everything from after a place on; none named: from now on.
    pub(crate) async fn open(
        reader: StreamReader,
        filter: KindFilter,
        after: Option<GlobalSeq>,
    ) -> Result<Self, Problem> {
        let longhaul = reader.app.longhaul();
        let bell = longhaul.services().changes.subscribe_all();
        let bell = bell.ok_or_else(Problem::internal)?;
        let after = match after {
            Some(after) => after,
            None => longhaul.last_global_seq().await?,
        };
        Ok(Self { filter, changes: bell, after, caught_up: false, reader })
    }

    /// What stands there now; none: nothing that is wanted.
    async fn read_page(&mut self) -> Result<Option<Bytes>, longhaul_engine::Error> {
        let app = self.reader.app.clone();
        let _turn = app.catch_up_permit().await;
        let tail = app.longhaul().read_all(self.after, PAGE_SIZE).await?;
        let mut text = String::new();
        for (place, entry) in &tail.entries {
            self.after = *place;
            if self.filter.matches(entry.event.kind())
                && let Err(error) = write_entry(&mut text, place.0, entry)
            {
                tracing::error!(run = %entry.run, %error, "an event can't be written");
            }
        }
        self.caught_up = tail.entries.is_empty();
        Ok((!text.is_empty()).then(|| Bytes::from(text)))
    }
}

impl ChunkSource for AllStream {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let Self { reader, changes: bell, .. } = self;
            let stopping = reader.app.clone();
            let caught_up = self.caught_up;
            let rung = async {
                match caught_up {
                    true => bell.changed().await,
                    false => Ok(()),
                }
            };
            // Also whoever is behind hears the end, and is asked for a key again.
            tokio::select! {
                biased;
                () = stopping.stop_requested() => return None,
                () = reader.heartbeat_due() => return reader.heartbeat().await,
                rung = rung => rung.ok()?,
            }
            match self.read_page().await {
                Ok(Some(text)) => return Some(text),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "the stream of all runs broke off");
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
        let wants = |filter: &str, kind: &str| KindFilter::parse(filter).unwrap().matches(kind);
        for (filter, kind, wanted) in [
            ("", "run.created", true),
            ("run.*", "run.created", true),
            ("run.*", "runner.created", false),
            ("gate.raised, run.completed", "run.completed", true),
            ("gate.raised", "gate.answered", false),
            ("*", "tool.started", true),
        ] {
            assert_eq!(wants(filter, kind), wanted, "{filter} {kind}");
        }
        assert!(KindFilter::parse("run.created;drop").is_err());
    }
}
