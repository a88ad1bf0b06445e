//! The only way a journal grows, and the conditions of its authors.
//!
//! Never: a fact without the changes that go with it. A driver's append reads
//! nothing when its condition holds: one update of the head, then inserts.

use longhaul_core::change::Change;
use longhaul_core::event::Wakes;
use longhaul_core::id::{Epoch, RunId, Seq, WorkerId};
use longhaul_core::port::store::{Append, Appended, Author, Refused};
use rusqlite::params;

use crate::sqlite::change::{Subject, change};
use crate::sqlite::column::{ENDED, LEASED, int, nat};
use crate::sqlite::fault::{Fault, Stop};
use crate::sqlite::head::{is_woken, strongest, wake};
use crate::sqlite::journal::{Fact, Tail, facts, stands, write};
use crate::sqlite::tx::Tx;
use crate::sqlite::work::Done;

/// A driver's condition and its effect, in one statement: what the fence is.
pub(crate) const DRIVE: &str = "UPDATE run_head SET last = last + ?1, format = max(format, ?2)
      WHERE run = ?3 AND state = 1 AND epoch = ?4 AND worker = ?5 AND last = ?6";

/// A growth of a journal, ready for the writer: its facts are text already.
#[derive(Debug)]
pub(crate) struct Growth {
    run: RunId,
    author: Author,
    facts: Vec<Fact>,
    format: u32,
    wakes: Wakes,
    changes: Vec<Change>,
}

impl Growth {
    /// Encodes the facts; what an outsider may not say is refused at once.
    pub(crate) fn new(append: Append) -> Result<Result<Self, Refused>, Fault> {
        let Append { run, author, batch } = append;
        if author == Author::Outsider {
            let mut events = batch.events.iter();
            if let Some(event) = events.find(|event| event.from_outside().is_none()) {
                return Ok(Err(Refused::NotOutside(event.kind())));
            }
        }
        Ok(Ok(Self {
            run,
            author,
            facts: facts(run, &batch.events)?,
            format: batch.format(),
            wakes: strongest(&batch.events),
            changes: batch.changes,
        }))
    }

    fn count(&self) -> u64 {
        self.facts.len() as u64
    }
}

/// Lets a journal grow, if what its author says of it still holds.
pub(crate) fn append(tx: &Tx<'_>, growth: &Growth) -> Result<Done<Appended>, Fault> {
    match grow(tx, growth) {
        Ok(Ok(seq)) => Ok(Done::Kept(Appended::At { seq, now: tx.now })),
        Ok(Err(instead)) => Ok(Done::Undone(instead)),
        Err(Stop::Refused(why)) => Ok(Done::Undone(Appended::Refused(why))),
        Err(Stop::Fault(fault)) => Err(fault),
    }
}

/// The last place, or what the author is told instead.
fn grow(tx: &Tx<'_>, growth: &Growth) -> Result<Result<Seq, Appended>, Stop> {
    let may_queue = !matches!(growth.author, Author::Driver { .. });
    let tail = match growth.author {
        Author::Driver {
            worker,
            epoch,
            after,
        } => as_driver(tx, growth, worker, Mark { epoch, after })?,
        Author::Closer { after } => as_closer(tx, growth, after)?,
        Author::Outsider => as_outsider(tx, growth)?,
    };
    let tail = match tail {
        Ok(tail) => tail,
        Err(instead) => return Ok(Err(instead)),
    };
    let subject = Subject {
        run: growth.run,
        may_queue,
        last: tail.after.plus(growth.count()),
    };
    for one in &growth.changes {
        change(tx, subject, one)?;
    }
    Ok(Ok(write(tx, tail, &growth.facts)?))
}

type Reached = Result<Result<Tail, Appended>, Stop>;

/// What a driver says of the journal.
#[derive(Clone, Copy)]
struct Mark {
    epoch: Epoch,
    after: Seq,
}

fn as_driver(tx: &Tx<'_>, growth: &Growth, worker: WorkerId, mark: Mark) -> Reached {
    let Mark { epoch, after } = mark;
    let run = growth.run;
    let moved = tx.run(
        DRIVE,
        params![
            int(growth.count()),
            growth.format,
            run.bytes(),
            int(epoch.0),
            worker.bytes(),
            int(after.0),
        ],
    )?;
    if moved == 1 {
        return Ok(Ok(Tail { run, epoch, after }));
    }
    let Some(head) = Head::of(tx, run)? else {
        return Ok(Err(Appended::NoRun));
    };
    if let Some(told) = told_before(tx, growth, after, Some(epoch))? {
        return Ok(Err(told));
    }
    let holds = head.state == LEASED && head.epoch == epoch && head.worker == Some(worker);
    Ok(Err(match (head.state, holds) {
        (ENDED, _) => Appended::RunEnded,
        (_, false) => Appended::Fenced,
        (_, true) => Appended::MovedOn,
    }))
}

fn as_closer(tx: &Tx<'_>, growth: &Growth, after: Seq) -> Reached {
    let run = growth.run;
    let epoch = tx.one(
        "UPDATE run_head SET last = last + ?1, format = max(format, ?2)
          WHERE run = ?3 AND state IN (0, 2, 3, 4) AND last = ?4
         RETURNING epoch",
        params![
            int(growth.count()),
            growth.format,
            run.bytes(),
            int(after.0)
        ],
        |row| nat(row, 0).map(Epoch),
    )?;
    if let Some(epoch) = epoch {
        return Ok(Ok(Tail { run, epoch, after }));
    }
    let Some(head) = Head::of(tx, run)? else {
        return Ok(Err(Appended::NoRun));
    };
    // A closer holds no fence; between its two tries the run may have been
    // claimed, which takes nothing from what it wrote.
    if let Some(told) = told_before(tx, growth, after, None)? {
        return Ok(Err(told));
    }
    Ok(Err(match head.state {
        ENDED => Appended::RunEnded,
        _ => Appended::MovedOn,
    }))
}

fn as_outsider(tx: &Tx<'_>, growth: &Growth) -> Reached {
    let run = growth.run;
    let Some(head) = Head::of(tx, run)? else {
        return Ok(Err(Appended::NoRun));
    };
    let tail = Tail {
        run,
        epoch: head.epoch,
        after: head.last,
    };
    if growth.facts.is_empty() {
        return Ok(Ok(tail));
    }
    if head.state == ENDED {
        return Ok(Err(Appended::RunEnded));
    }
    tx.run(
        "UPDATE run_head SET last = last + ?1, format = max(format, ?2) WHERE run = ?3",
        params![int(growth.count()), growth.format, run.bytes()],
    )?;
    if is_woken(head.state, growth.wakes) {
        wake(tx, run)?;
    }
    Ok(Ok(tail))
}

fn told_before(
    tx: &Tx<'_>,
    growth: &Growth,
    after: Seq,
    epoch: Option<Epoch>,
) -> Result<Option<Appended>, Fault> {
    let is_repeat = stands(tx, (growth.run, after), epoch, &growth.facts)?;
    Ok(is_repeat.then(|| Appended::At {
        seq: after.plus(growth.count()),
        now: tx.now,
    }))
}

/// A head as far as an author's condition speaks of it.
struct Head {
    state: i64,
    epoch: Epoch,
    last: Seq,
    worker: Option<WorkerId>,
}

impl Head {
    fn of(tx: &Tx<'_>, run: RunId) -> rusqlite::Result<Option<Self>> {
        tx.one(
            "SELECT state, epoch, last, worker FROM run_head WHERE run = ?1",
            params![run.bytes()],
            |row| {
                let worker: Option<[u8; 16]> = row.get(3)?;
                Ok(Self {
                    state: row.get(0)?,
                    epoch: Epoch(nat(row, 1)?),
                    last: Seq(nat(row, 2)?),
                    worker: worker.map(WorkerId::from_bytes),
                })
            },
        )
    }
}
