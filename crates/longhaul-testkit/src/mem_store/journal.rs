//! Journals: facts are stored encoded and decoded when they are read.
//!
//! Never: changes or drops a line.

use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::shelves::Place;
use longhaul_core::port::store::{Page, ReadAsk, StoreError};
use longhaul_core::raw::Hash;

use crate::mem_store::rows::{Content, Line, Tables, Text};
use crate::mem_store::tx::{Growth, Tx};

/// A body longer than this is kept as a blob, by what it says.
const BODY_BYTES_MAX: usize = 8_192;

impl Tx<'_> {
    /// Adds facts to a journal and lifts its head's last place and format.
    pub(crate) fn grow(&mut self, growth: &Growth<'_>) -> Result<Seq, StoreError> {
        let Growth { run, epoch, events } = *growth;
        let mut last = self
            .tables
            .heads
            .get(&run)
            .map_or(Seq::START, |head| head.last);
        for event in events {
            last = last.next();
            let body = event.encode().map_err(|source| StoreError::Event {
                run,
                seq: last,
                source,
            })?;
            let place = Place(self.tables.end().0 + 1);
            let line = Line {
                place,
                at: self.now,
                epoch,
                kind: event.kind(),
                version: event.version(),
                body: self.lay_down(body),
            };
            self.tables.journal.put((run, last), line);
            self.tables.places.put(place, (run, last));
        }
        let format = events.iter().map(Event::format).max().unwrap_or(0);
        self.tables.heads.change(&run, |head| {
            head.last = last;
            head.format = head.format.max(format);
        });
        Ok(last)
    }

    fn lay_down(&mut self, body: String) -> Text {
        if body.len() <= BODY_BYTES_MAX {
            return Text::Here(body.into());
        }
        Text::Spilled(self.keep_content(body.into_bytes().into()))
    }

    /// Keeps a content under its hash and notes that somebody needed it now.
    pub(crate) fn keep_content(&mut self, bytes: Arc<[u8]>) -> Hash {
        let hash = Hash::of(&bytes);
        let touched_at = self.now;
        self.tables.blobs.put(hash, Content { bytes, touched_at });
        hash
    }

    /// Whether exactly these facts follow `after`, in this epoch if one is named.
    pub(crate) fn stands(&self, after: Seq, growth: &Growth<'_>, any_epoch: bool) -> bool {
        let mut seq = after;
        !growth.events.is_empty()
            && growth.events.iter().all(|event| {
                seq = seq.next();
                let Some(line) = self.tables.journal.get(&(growth.run, seq)) else {
                    return false;
                };
                (any_epoch || line.epoch == growth.epoch)
                    && line.kind == event.kind()
                    && line.version == event.version()
                    && event.encode().ok() == self.tables.text(line)
            })
    }
}

impl Tables {
    /// A part of a journal.
    pub(crate) fn page(&self, ask: ReadAsk) -> Result<(Vec<Entry>, Seq), StoreError> {
        let last = self
            .heads
            .get(&ask.run)
            .map_or(Seq::START, |head| head.last);
        let lines = self
            .journal
            .range((ask.run, ask.after.next())..=(ask.run, Seq(u64::MAX)));
        let entries = lines
            .take(ask.limit)
            .map(|((run, seq), line)| self.entry(*run, *seq, line));
        Ok((entries.collect::<Result<_, _>>()?, last))
    }

    /// A line as a fact.
    pub(crate) fn entry(&self, run: RunId, seq: Seq, line: &Line) -> Result<Entry, StoreError> {
        let body = self.text(line).ok_or_else(|| StoreError::Corrupt {
            at: "memory".to_owned(),
            why: format!("the body of event {seq} of {run} is gone"),
        })?;
        let event = Event::decode(line.kind, line.version, &body)
            .map_err(|source| StoreError::Event { run, seq, source })?;
        Ok(Entry {
            run,
            seq,
            at: line.at,
            epoch: line.epoch,
            event,
        })
    }

    fn text(&self, line: &Line) -> Option<String> {
        match &line.body {
            Text::Here(text) => Some(text.to_string()),
            Text::Spilled(hash) => {
                let content = self.blobs.get(hash)?;
                String::from_utf8(content.bytes.to_vec()).ok()
            }
        }
    }
}

/// A page with the store's time.
pub(crate) fn page(tx: &Tx<'_>, ask: ReadAsk) -> Result<Page, StoreError> {
    let (entries, last) = tx.tables.page(ask)?;
    Ok(Page {
        entries,
        last,
        now: tx.now,
    })
}
