//! The journal's rows: facts as text, long ones under their hash.
//!
//! Never: changes a row that stands.

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{Epoch, RunId, Seq};
use longhaul_core::port::store::{JournalPage, ReadRequest};
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use rusqlite::{Row, params};

use crate::sqlite::blob;
use crate::sqlite::column::{get_u64, int, limit, time};
use crate::sqlite::error::CommandError;
use crate::sqlite::tx::Tx;

/// A body longer than this stands in a blob.
pub(crate) const BODY_BYTES_MAX: usize = 8_192;

/// One line more.
pub(crate) const INSERT_EVENT: &str =
    "INSERT INTO journal (run, seq, epoch, at, kind, v, body, blob)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// A fact as its row holds it: made before the writer sees it, so that the one
/// thread that writes never waits for JSON or a hash.
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
        let spilled = (body.len() > BODY_BYTES_MAX).then(|| Hash::digest(body.as_bytes()));
        Ok(Self { kind: event.kind(), version: event.version(), body, blob_hash: spilled })
    }
}

/// Facts as rows; `run` is named if one can't be written.
pub(crate) fn encode_events(
    run: RunId,
    events: &[Event],
) -> Result<Vec<EncodedEvent>, CommandError> {
    let fact = |event| {
        EncodedEvent::new(event).map_err(|source| CommandError::InvalidEvent {
            run,
            seq: Seq::START,
            source,
        })
    };
    events.iter().map(fact).collect()
}

/// Where facts go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendPoint {
    /// Whose journal.
    pub(crate) run: RunId,
    /// The fence they are written under.
    pub(crate) epoch: Epoch,
    /// What stands before them.
    pub(crate) after: Seq,
}

/// Writes facts, and gives the last place.
pub(crate) fn insert_events(
    tx: &Tx<'_>,
    tail: AppendPoint,
    facts: &[EncodedEvent],
) -> rusqlite::Result<Seq> {
    let mut seq = tail.after;
    for fact in facts {
        seq = seq.next();
        let here = match fact.blob_hash {
            None => Some(fact.body.as_str()),
            Some(hash) => {
                blob::put(tx, hash, fact.body.as_bytes())?;
                blob::add_reference(tx, tail.run, hash)?;
                None
            }
        };
        tx.run(
            INSERT_EVENT,
            params![
                tail.run.bytes(),
                int(seq.0),
                int(tail.epoch.0),
                tx.now_micros(),
                fact.kind,
                fact.version,
                here,
                fact.blob_hash.as_ref().map(Hash::bytes),
            ],
        )?;
    }
    Ok(seq)
}

/// Whether exactly these facts stand after this place. The answer of an append
/// may be lost: whoever repeats it learns that it stands.
pub(crate) fn is_already_written(
    tx: &Tx<'_>,
    (run, after): (RunId, Seq),
    epoch: Option<Epoch>,
    facts: &[EncodedEvent],
) -> Result<bool, CommandError> {
    if facts.is_empty() {
        return Ok(false);
    }
    let lines = read_rows(tx, run, after, facts.len())?;
    let same = |(line, fact): (&JournalRow, &EncodedEvent)| {
        line.kind == fact.kind
            && line.version == fact.version
            && line.body == fact.body
            && epoch.is_none_or(|epoch| line.epoch == epoch)
    };
    Ok(lines.len() == facts.len() && lines.iter().zip(facts).all(same))
}

/// A part of a journal.
pub(crate) fn read_page(tx: &Tx<'_>, ask: ReadRequest) -> Result<JournalPage, CommandError> {
    let last =
        tx.one("SELECT last_seq FROM run_head WHERE run = ?1", params![ask.run.bytes()], |row| {
            get_u64(row, 0)
        })?;
    let lines = read_rows(tx, ask.run, ask.after, ask.limit)?;
    let entries = lines.into_iter().map(|line| line.into_entry(ask.run));
    Ok(JournalPage {
        entries: entries.collect::<Result<_, _>>()?,
        last_seq: Seq(last.unwrap_or(0)),
        now: tx.now,
    })
}

/// A row of a journal with its body, wherever that stands.
pub(crate) struct JournalRow {
    seq: Seq,
    epoch: Epoch,
    at: Timestamp,
    kind: String,
    version: u16,
    body: String,
}

impl JournalRow {
    /// Reads place, fence, time, kind, version and body from the first columns; the
    /// body's blob stands behind them. None: there is no body.
    pub(crate) fn from_row(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        let here: Option<String> = row.get(5)?;
        let body = match here {
            Some(body) => Some(body),
            None => row.get(6)?,
        };
        let Some(body) = body else {
            return Ok(None);
        };
        Ok(Some(Self {
            seq: Seq(get_u64(row, 0)?),
            epoch: Epoch(get_u64(row, 1)?),
            at: time(row, 2)?,
            kind: row.get(3)?,
            version: row.get(4)?,
            body,
        }))
    }

    /// The fact of this run.
    pub(crate) fn into_entry(self, run: RunId) -> Result<Entry, CommandError> {
        let seq = self.seq;
        let event = Event::decode(&self.kind, self.version, &self.body)
            .map_err(|source| CommandError::InvalidEvent { run, seq, source })?;
        Ok(Entry { run, seq, at: self.at, epoch: self.epoch, event })
    }
}

fn read_rows(
    tx: &Tx<'_>,
    run: RunId,
    after: Seq,
    count: usize,
) -> Result<Vec<JournalRow>, CommandError> {
    let lines = tx.all(
        "SELECT j.seq, j.epoch, j.at, j.kind, j.v, j.body, CAST(b.content AS TEXT)
           FROM journal j LEFT JOIN blob b ON b.hash = j.blob
          WHERE j.run = ?1 AND j.seq > ?2 ORDER BY j.seq LIMIT ?3",
        params![run.bytes(), int(after.0), limit(count)],
        JournalRow::from_row,
    )?;
    let whole: Option<Vec<JournalRow>> = lines.into_iter().collect();
    whole.ok_or_else(|| missing_body(run))
}

/// The fault of a row without its body.
pub(crate) fn missing_body(run: RunId) -> CommandError {
    CommandError::InconsistentRows(format!("the body of an event of {run} is missing"))
}
