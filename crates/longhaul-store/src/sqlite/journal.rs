//! The journal's rows: facts as text, long ones under their hash.
//!
//! Never: changes a row that stands.

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{Epoch, RunId, Seq};
use longhaul_core::port::store::{Page, ReadAsk};
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use rusqlite::{Row, params};

use crate::sqlite::blob;
use crate::sqlite::column::{int, limit, nat, time};
use crate::sqlite::fault::Fault;
use crate::sqlite::tx::Tx;

/// A body longer than this stands in a blob.
pub(crate) const BODY_BYTES_MAX: usize = 8_192;

/// One line more.
pub(crate) const INSERT: &str = "INSERT INTO journal (run, seq, epoch, at, kind, v, body, blob)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// A fact as its row holds it: made before the writer sees it, so that the one
/// thread that writes never waits for JSON or a hash.
#[derive(Debug)]
pub(crate) struct Fact {
    kind: &'static str,
    version: u16,
    body: String,
    spilled: Option<Hash>,
}

impl Fact {
    fn new(event: &Event) -> Result<Self, longhaul_core::event::codec::BadEvent> {
        let body = event.encode()?;
        let spilled = (body.len() > BODY_BYTES_MAX).then(|| Hash::of(body.as_bytes()));
        Ok(Self {
            kind: event.kind(),
            version: event.version(),
            body,
            spilled,
        })
    }
}

/// Facts as rows; `run` is named if one can't be written.
pub(crate) fn facts(run: RunId, events: &[Event]) -> Result<Vec<Fact>, Fault> {
    let fact = |event| {
        Fact::new(event).map_err(|source| Fault::Event {
            run,
            seq: Seq::START,
            source,
        })
    };
    events.iter().map(fact).collect()
}

/// Where facts go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail {
    /// Whose journal.
    pub(crate) run: RunId,
    /// The fence they are written under.
    pub(crate) epoch: Epoch,
    /// What stands before them.
    pub(crate) after: Seq,
}

/// Writes facts, and gives the last place.
pub(crate) fn write(tx: &Tx<'_>, tail: Tail, facts: &[Fact]) -> rusqlite::Result<Seq> {
    let mut seq = tail.after;
    for fact in facts {
        seq = seq.next();
        let here = match fact.spilled {
            None => Some(fact.body.as_str()),
            Some(hash) => {
                blob::put(tx, hash, fact.body.as_bytes())?;
                blob::refer(tx, tail.run, hash)?;
                None
            }
        };
        tx.run(
            INSERT,
            params![
                tail.run.bytes(),
                int(seq.0),
                int(tail.epoch.0),
                tx.now_micros(),
                fact.kind,
                fact.version,
                here,
                fact.spilled.as_ref().map(Hash::bytes),
            ],
        )?;
    }
    Ok(seq)
}

/// Whether exactly these facts stand after this place. The answer of an append
/// may be lost: whoever repeats it learns that it stands.
pub(crate) fn stands(
    tx: &Tx<'_>,
    (run, after): (RunId, Seq),
    epoch: Option<Epoch>,
    facts: &[Fact],
) -> Result<bool, Fault> {
    if facts.is_empty() {
        return Ok(false);
    }
    let lines = lines(tx, run, after, facts.len())?;
    let same = |(line, fact): (&Line, &Fact)| {
        line.kind == fact.kind
            && line.version == fact.version
            && line.body == fact.body
            && epoch.is_none_or(|epoch| line.epoch == epoch)
    };
    Ok(lines.len() == facts.len() && lines.iter().zip(facts).all(same))
}

/// A part of a journal.
pub(crate) fn read(tx: &Tx<'_>, ask: ReadAsk) -> Result<Page, Fault> {
    let last = tx.one(
        "SELECT last FROM run_head WHERE run = ?1",
        params![ask.run.bytes()],
        |row| nat(row, 0),
    )?;
    let lines = lines(tx, ask.run, ask.after, ask.limit)?;
    let entries = lines.into_iter().map(|line| line.entry(ask.run));
    Ok(Page {
        entries: entries.collect::<Result<_, _>>()?,
        last: Seq(last.unwrap_or(0)),
        now: tx.now,
    })
}

/// A row of a journal with its body, wherever that stands.
pub(crate) struct Line {
    seq: Seq,
    epoch: Epoch,
    at: Timestamp,
    kind: String,
    version: u16,
    body: String,
}

impl Line {
    /// Reads place, fence, time, kind, version and body from the first columns; the
    /// body's blob stands behind them. None: there is no body.
    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        let here: Option<String> = row.get(5)?;
        let body = match here {
            Some(body) => Some(body),
            None => row.get(6)?,
        };
        let Some(body) = body else {
            return Ok(None);
        };
        Ok(Some(Self {
            seq: Seq(nat(row, 0)?),
            epoch: Epoch(nat(row, 1)?),
            at: time(row, 2)?,
            kind: row.get(3)?,
            version: row.get(4)?,
            body,
        }))
    }

    /// The fact of this run.
    pub(crate) fn entry(self, run: RunId) -> Result<Entry, Fault> {
        let seq = self.seq;
        let event = Event::decode(&self.kind, self.version, &self.body)
            .map_err(|source| Fault::Event { run, seq, source })?;
        Ok(Entry {
            run,
            seq,
            at: self.at,
            epoch: self.epoch,
            event,
        })
    }
}

fn lines(tx: &Tx<'_>, run: RunId, after: Seq, count: usize) -> Result<Vec<Line>, Fault> {
    let lines = tx.all(
        "SELECT j.seq, j.epoch, j.at, j.kind, j.v, j.body, CAST(b.content AS TEXT)
           FROM journal j LEFT JOIN blob b ON b.hash = j.blob
          WHERE j.run = ?1 AND j.seq > ?2 ORDER BY j.seq LIMIT ?3",
        params![run.bytes(), int(after.0), limit(count)],
        Line::read,
    )?;
    let whole: Option<Vec<Line>> = lines.into_iter().collect();
    whole.ok_or_else(|| no_body(run))
}

/// The fault of a row without its body.
pub(crate) fn no_body(run: RunId) -> Fault {
    Fault::Rows(format!("the body of an event of {run} is missing"))
}
