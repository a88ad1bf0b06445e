//! Rows of the journal: events as text, with long bodies stored as blobs.
//!
//! Invariant: a journal row is never changed after it is written.

use longhaul_core::change::JournalPrefixCopy;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{Epoch, RunId, Seq};
use longhaul_core::port::store::{JournalPage, JournalReadRequest};
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use rusqlite::{Row, params};

use crate::sqlite::blob;
use crate::sqlite::column::{count_to_column, get_time, get_u64, limit_to_column};
use crate::sqlite::error::WriteCommandError;
use crate::sqlite::tx::Tx;

/// Maximum size in bytes of an event body in a journal row. A longer body is stored as a blob.
pub(crate) const BODY_BYTES_MAX: usize = 8_192;

pub(crate) const INSERT_EVENT: &str =
    "INSERT INTO journal (run, seq, epoch, at, kind, v, body, blob)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// An event encoded for its journal row. The event is encoded before it is queued, so that the
/// writer thread does not spend time on JSON or hashing.
#[derive(Debug)]
pub(crate) struct EncodedEvent {
    kind: &'static str,
    version: u16,
    body: String,
    blob_hash: Option<Hash>,
}

impl EncodedEvent {
    fn new(event: &Event) -> Result<Self, longhaul_core::event::codec::EventCodecError> {
        let body = event.encode()?;
        let blob_hash = (body.len() > BODY_BYTES_MAX).then(|| Hash::digest(body.as_bytes()));
        Ok(Self { kind: event.kind(), version: event.version(), body, blob_hash })
    }
}

/// Encodes events for their journal rows. `run` is named in the error if an event can't be encoded.
pub(crate) fn encode_events(
    run: RunId,
    events: &[Event],
) -> Result<Vec<EncodedEvent>, WriteCommandError> {
    let encode = |event| {
        EncodedEvent::new(event).map_err(|source| WriteCommandError::InvalidEvent {
            run,
            seq: Seq::START,
            source,
        })
    };
    events.iter().map(encode).collect()
}

/// Position in a run's journal at which new events are appended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalAppendPoint {
    /// Run to whose journal the events are appended.
    pub(crate) run: RunId,
    /// Epoch (number) of the claim under which the events are written.
    pub(crate) epoch: Epoch,
    /// Sequence number of the event after which the new events follow.
    pub(crate) after: Seq,
}

/// Inserts events into a journal and returns the sequence number of the last event.
pub(crate) fn insert_events(
    tx: &Tx<'_>,
    tail: JournalAppendPoint,
    events: &[EncodedEvent],
) -> rusqlite::Result<Seq> {
    let mut seq = tail.after;
    for event in events {
        seq = seq.next();
        let inline_body = match event.blob_hash {
            None => Some(event.body.as_str()),
            Some(hash) => {
                blob::put_blob(tx, hash, event.body.as_bytes())?;
                blob::add_blob_reference(tx, tail.run, hash)?;
                None
            }
        };
        tx.run(
            INSERT_EVENT,
            params![
                tail.run.bytes(),
                count_to_column(seq.0),
                count_to_column(tail.epoch.0),
                tx.now_micros(),
                event.kind,
                event.version,
                inline_body,
                event.blob_hash.as_ref().map(Hash::bytes),
            ],
        )?;
    }
    Ok(seq)
}

/// Copies the events of another run to the journal of a new run, after its first event. Blobs are
/// shared.
pub(crate) fn copy_journal(
    tx: &Tx<'_>,
    copied: JournalPrefixCopy,
    new_run: RunId,
) -> Result<(), WriteCommandError> {
    let JournalPrefixCopy { from, through } = copied;
    let count = tx.run(
        "INSERT INTO journal (run, seq, epoch, at, kind, v, body, blob)
         SELECT ?1, seq, epoch, at, kind, v, body, blob FROM journal
          WHERE run = ?2 AND seq > 1 AND seq <= ?3 ORDER BY seq",
        params![new_run.bytes(), from.bytes(), count_to_column(through.0)],
    )?;
    if count as u64 != through.0.saturating_sub(1) {
        return Err(WriteCommandError::InconsistentRows(format!(
            "the journal of {from} is incomplete and can't be copied"
        )));
    }
    tx.run(
        "INSERT OR IGNORE INTO blob_ref (run, hash) SELECT ?1, hash FROM blob_ref WHERE run = ?2",
        params![new_run.bytes(), from.bytes()],
    )?;
    Ok(())
}

/// Returns whether exactly these events already follow the given position. A caller that lost the
/// response to an append repeats the append, and its events must not be written twice.
pub(crate) fn are_events_already_written(
    tx: &Tx<'_>,
    (run, after): (RunId, Seq),
    epoch: Option<Epoch>,
    events: &[EncodedEvent],
) -> Result<bool, WriteCommandError> {
    if events.is_empty() {
        return Ok(false);
    }
    let rows = read_journal_rows(tx, run, after, events.len())?;
    let is_same = |(row, event): (&JournalRow, &EncodedEvent)| {
        row.kind == event.kind
            && row.version == event.version
            && row.body == event.body
            && epoch.is_none_or(|epoch| row.epoch == epoch)
    };
    Ok(rows.len() == events.len() && rows.iter().zip(events).all(is_same))
}

/// Reads a page of a run's journal.
pub(crate) fn read_journal_page(
    tx: &Tx<'_>,
    request: JournalReadRequest,
) -> Result<JournalPage, WriteCommandError> {
    let last = tx.query_one(
        "SELECT last_seq FROM run_head WHERE run = ?1",
        params![request.run.bytes()],
        |row| get_u64(row, 0),
    )?;
    let rows = read_journal_rows(tx, request.run, request.after, request.limit)?;
    let entries = rows.into_iter().map(|row| row.into_journal_entry(request.run));
    Ok(JournalPage {
        entries: entries.collect::<Result<_, _>>()?,
        last_seq: Seq(last.unwrap_or(0)),
        now: tx.now,
    })
}

/// A journal row with the body of its event, from the row itself or from a blob.
pub(crate) struct JournalRow {
    seq: Seq,
    epoch: Epoch,
    at: Timestamp,
    kind: String,
    version: u16,
    body: String,
}

impl JournalRow {
    /// Reads seq, epoch, time, kind, version and body from the first columns, and the content of
    /// the body's blob from the column after them. `None` means that the body is missing.
    pub(crate) fn from_row(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        let inline_body: Option<String> = row.get(5)?;
        let body = match inline_body {
            Some(body) => Some(body),
            None => row.get(6)?,
        };
        let Some(body) = body else {
            return Ok(None);
        };
        Ok(Some(Self {
            seq: Seq(get_u64(row, 0)?),
            epoch: Epoch(get_u64(row, 1)?),
            at: get_time(row, 2)?,
            kind: row.get(3)?,
            version: row.get(4)?,
            body,
        }))
    }

    /// Decodes the row into a journal entry of the given run.
    pub(crate) fn into_journal_entry(self, run: RunId) -> Result<JournalEntry, WriteCommandError> {
        let seq = self.seq;
        let event = Event::decode(&self.kind, self.version, &self.body)
            .map_err(|source| WriteCommandError::InvalidEvent { run, seq, source })?;
        Ok(JournalEntry { run, seq, at: self.at, epoch: self.epoch, event })
    }
}

fn read_journal_rows(
    tx: &Tx<'_>,
    run: RunId,
    after: Seq,
    count: usize,
) -> Result<Vec<JournalRow>, WriteCommandError> {
    let rows = tx.query_all(
        "SELECT j.seq, j.epoch, j.at, j.kind, j.v, j.body, CAST(b.content AS TEXT)
           FROM journal j LEFT JOIN blob b ON b.hash = j.blob
          WHERE j.run = ?1 AND j.seq > ?2 ORDER BY j.seq LIMIT ?3",
        params![run.bytes(), count_to_column(after.0), limit_to_column(count)],
        JournalRow::from_row,
    )?;
    let complete: Option<Vec<JournalRow>> = rows.into_iter().collect();
    complete.ok_or_else(|| missing_event_body_error(run))
}

/// Returns the error for an event of this run without a body.
pub(crate) fn missing_event_body_error(run: RunId) -> WriteCommandError {
    WriteCommandError::InconsistentRows(format!("the body of an event of {run} is missing"))
}
