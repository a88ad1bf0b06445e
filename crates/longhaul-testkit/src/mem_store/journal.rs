//! Journals: events are encoded when they are stored and decoded when they are read. Entries
//! are never changed or removed individually.

use std::sync::Arc;

use longhaul_core::change::JournalPrefixCopy;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::GlobalSeq;
use longhaul_core::port::store::{JournalPage, JournalReadRequest, StoreError};
use longhaul_core::raw::Hash;

use crate::mem_store::rows::{JournalRow, StoredBlob, StoredBody, Tables};
use crate::mem_store::tx::{JournalAppend, Tx};

/// Maximum size of a body in its entry. A longer body is stored as a blob under its hash.
const INLINE_BODY_BYTES_MAX: usize = 8_192;

impl Tx<'_> {
    /// Appends events to a journal and updates the head's last sequence number and format.
    pub(crate) fn append_events(&mut self, append: &JournalAppend<'_>) -> Result<Seq, StoreError> {
        let JournalAppend { run, epoch, events } = *append;
        let mut last = self.tables.heads.get(&run).map_or(Seq::START, |head| head.last_seq);
        for event in events {
            last = last.next();
            let body = event.encode().map_err(|source| StoreError::InvalidEvent {
                run,
                seq: last,
                source,
            })?;
            let global_seq = GlobalSeq(self.tables.last_global_seq().0 + 1);
            let row = JournalRow {
                global_seq,
                at: self.now,
                epoch,
                kind: event.kind(),
                version: event.version(),
                body: self.store_body(body),
            };
            self.tables.journal.insert((run, last), row);
            self.tables.global_log.insert(global_seq, (run, last));
        }
        let format = events.iter().map(Event::format).max().unwrap_or(0);
        self.tables.heads.update(&run, |head| {
            head.last_seq = last;
            head.format = head.format.max(format);
        });
        Ok(last)
    }

    /// Copies the events of another run to the journal of a new run, after its first event. Blobs
    /// are shared.
    pub(crate) fn copy_journal(
        &mut self,
        copied: JournalPrefixCopy,
        new_run: RunId,
    ) -> Result<(), StoreError> {
        let JournalPrefixCopy { from, through } = copied;
        let rows = self.tables.journal.range((from, Seq(2))..=(from, through));
        let rows: Vec<(Seq, JournalRow)> =
            rows.map(|((_, seq), row)| (*seq, row.clone())).collect();
        if rows.len() as u64 != through.0.saturating_sub(1) {
            return Err(StoreError::Corrupt {
                location: "memory".to_owned(),
                reason: format!("the journal of {from} is incomplete and can't be copied"),
            });
        }
        for (seq, row) in rows {
            let global_seq = GlobalSeq(self.tables.last_global_seq().0 + 1);
            self.tables.journal.insert((new_run, seq), JournalRow { global_seq, ..row });
            self.tables.global_log.insert(global_seq, (new_run, seq));
        }
        let refs = self.tables.blob_refs.iter().map(|((run, hash), ())| (*run, *hash));
        let refs: Vec<Hash> = refs.filter(|(run, _)| *run == from).map(|(_, hash)| hash).collect();
        for hash in refs {
            self.tables.blob_refs.insert((new_run, hash), ());
        }
        let format = self.tables.heads.get(&from).map_or(0, |head| head.format);
        self.tables.heads.update(&new_run, |head| {
            head.last_seq = through;
            head.format = head.format.max(format);
        });
        Ok(())
    }

    fn store_body(&mut self, body: String) -> StoredBody {
        if body.len() <= INLINE_BODY_BYTES_MAX {
            return StoredBody::Inline(body.into());
        }
        StoredBody::Blob(self.put_blob(body.into_bytes().into()))
    }

    /// Stores a blob under its hash and updates the time of its last use.
    pub(crate) fn put_blob(&mut self, bytes: Arc<[u8]>) -> Hash {
        let hash = Hash::digest(&bytes);
        let touched_at = self.now;
        self.tables.blobs.insert(hash, StoredBlob { bytes, touched_at });
        hash
    }

    /// Returns whether exactly these events follow `after`, and, unless `any_epoch` is set, in
    /// the same epoch.
    pub(crate) fn is_already_written(
        &self,
        after: Seq,
        append: &JournalAppend<'_>,
        any_epoch: bool,
    ) -> bool {
        let mut seq = after;
        !append.events.is_empty()
            && append.events.iter().all(|event| {
                seq = seq.next();
                let Some(row) = self.tables.journal.get(&(append.run, seq)) else {
                    return false;
                };
                (any_epoch || row.epoch == append.epoch)
                    && row.kind == event.kind()
                    && row.version == event.version()
                    && event.encode().ok() == self.tables.body_text(row)
            })
    }
}

impl Tables {
    /// Returns a page of a journal.
    pub(crate) fn page(
        &self,
        request: JournalReadRequest,
    ) -> Result<(Vec<JournalEntry>, Seq), StoreError> {
        let last = self.heads.get(&request.run).map_or(Seq::START, |head| head.last_seq);
        let rows =
            self.journal.range((request.run, request.after.next())..=(request.run, Seq(u64::MAX)));
        let entries = rows.take(request.limit).map(|((run, seq), row)| self.entry(*run, *seq, row));
        Ok((entries.collect::<Result<_, _>>()?, last))
    }

    /// Decodes a stored entry.
    pub(crate) fn entry(
        &self,
        run: RunId,
        seq: Seq,
        row: &JournalRow,
    ) -> Result<JournalEntry, StoreError> {
        let body = self.body_text(row).ok_or_else(|| StoreError::Corrupt {
            location: "memory".to_owned(),
            reason: format!("the body of event {seq} of {run} is missing"),
        })?;
        let event = Event::decode(row.kind, row.version, &body)
            .map_err(|source| StoreError::InvalidEvent { run, seq, source })?;
        Ok(JournalEntry { run, seq, at: row.at, epoch: row.epoch, event })
    }

    fn body_text(&self, row: &JournalRow) -> Option<String> {
        match &row.body {
            StoredBody::Inline(text) => Some(text.to_string()),
            StoredBody::Blob(hash) => {
                let content = self.blobs.get(hash)?;
                String::from_utf8(content.bytes.to_vec()).ok()
            }
        }
    }
}

/// Returns a page with the store's time.
pub(crate) fn page_with_time(
    tx: &Tx<'_>,
    request: JournalReadRequest,
) -> Result<JournalPage, StoreError> {
    let (entries, last) = tx.tables.page(request)?;
    Ok(JournalPage { entries, last_seq: last, now: tx.now })
}
