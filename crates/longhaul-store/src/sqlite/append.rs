//! The only way a journal grows, and the conditions of its authors.
//!
//! Never: a fact without the changes that go with it. A driver's append reads
//! nothing when its condition holds: one update of the head, then inserts.

use longhaul_core::change::Change;
use longhaul_core::event::WakeTarget;
use longhaul_core::id::{Epoch, RunId, Seq, WorkerId};
use longhaul_core::port::store::{AppendRequest, Appended, Author, Refused};
use rusqlite::params;

use crate::sqlite::change::{ChangeTarget, apply_change};
use crate::sqlite::column::{ENDED, LEASED, get_u64, int};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{ChangeError, CommandError};
use crate::sqlite::head::{is_woken_by, strongest_wake, wake};
use crate::sqlite::journal::{
    AppendPoint, EncodedEvent, encode_events, insert_events, is_already_written,
};
use crate::sqlite::tx::Tx;

/// A driver's condition and its effect, in one statement: what the fence is.
pub(crate) const UPDATE_HEAD_AS_DRIVER: &str =
    "UPDATE run_head SET last_seq = last_seq + ?1, format = max(format, ?2)
      WHERE run = ?3 AND state = 1 AND epoch = ?4 AND worker = ?5 AND last_seq = ?6";

/// A growth of a journal, ready for the writer: its facts are text already.
#[derive(Debug)]
pub(crate) struct EncodedAppend {
    run: RunId,
    author: Author,
    events: Vec<EncodedEvent>,
    format: u32,
    wake_target: WakeTarget,
    changes: Vec<Change>,
}

impl EncodedAppend {
    /// Encodes the facts; what an outsider may not say is refused at once.
    pub(crate) fn new(append: AppendRequest) -> Result<Result<Self, Refused>, CommandError> {
        let AppendRequest { run, author, batch } = append;
        if author == Author::Outsider {
            let mut events = batch.events.iter();
            if let Some(event) = events.find(|event| event.from_outside().is_none()) {
                return Ok(Err(Refused::NotAllowedForOutsider(event.kind())));
            }
        }
        Ok(Ok(Self {
            run,
            author,
            events: encode_events(run, &batch.events)?,
            format: batch.format(),
            wake_target: strongest_wake(&batch.events),
            changes: batch.changes,
        }))
    }

    fn event_count(&self) -> u64 {
        self.events.len() as u64
    }
}

/// Lets a journal grow, if what its author says of it still holds.
pub(crate) fn append(
    tx: &Tx<'_>,
    growth: &EncodedAppend,
) -> Result<CommandOutcome<Appended>, CommandError> {
    match apply_append(tx, growth) {
        Ok(Ok(seq)) => Ok(CommandOutcome::Changed(Appended::At { seq, now: tx.now })),
        Ok(Err(instead)) => Ok(CommandOutcome::Rollback(instead)),
        Err(ChangeError::Refused(why)) => Ok(CommandOutcome::Rollback(Appended::Refused(why))),
        Err(ChangeError::Failed(fault)) => Err(fault),
    }
}

/// The last place, or what the author is told instead.
fn apply_append(tx: &Tx<'_>, growth: &EncodedAppend) -> Result<Result<Seq, Appended>, ChangeError> {
    let may_queue = !matches!(growth.author, Author::Driver { .. });
    let tail = match growth.author {
        Author::Driver { worker, epoch, after } => {
            check_driver(tx, growth, worker, DriverCondition { epoch, after })?
        }
        Author::Closer { after } => check_closer(tx, growth, after)?,
        Author::Outsider => check_outsider(tx, growth)?,
    };
    let tail = match tail {
        Ok(tail) => tail,
        Err(instead) => return Ok(Err(instead)),
    };
    let subject = ChangeTarget {
        run: growth.run,
        may_queue,
        last_seq: tail.after.plus(growth.event_count()),
    };
    for one in &growth.changes {
        apply_change(tx, subject, one)?;
    }
    Ok(Ok(insert_events(tx, tail, &growth.events)?))
}

type AuthorCheck = Result<Result<AppendPoint, Appended>, ChangeError>;

/// What a driver says of the journal.
#[derive(Clone, Copy)]
struct DriverCondition {
    epoch: Epoch,
    after: Seq,
}

fn check_driver(
    tx: &Tx<'_>,
    growth: &EncodedAppend,
    worker: WorkerId,
    mark: DriverCondition,
) -> AuthorCheck {
    let DriverCondition { epoch, after } = mark;
    let run = growth.run;
    let moved = tx.run(
        UPDATE_HEAD_AS_DRIVER,
        params![
            int(growth.event_count()),
            growth.format,
            run.bytes(),
            int(epoch.0),
            worker.bytes(),
            int(after.0),
        ],
    )?;
    if moved == 1 {
        return Ok(Ok(AppendPoint { run, epoch, after }));
    }
    let Some(head) = HeadState::load(tx, run)? else {
        return Ok(Err(Appended::RunNotFound));
    };
    if let Some(told) = repeated_append(tx, growth, after, Some(epoch))? {
        return Ok(Err(told));
    }
    let holds = head.state == LEASED && head.epoch == epoch && head.worker == Some(worker);
    Ok(Err(match (head.state, holds) {
        (ENDED, _) => Appended::RunEnded,
        (_, false) => Appended::Fenced,
        (_, true) => Appended::Conflict,
    }))
}

fn check_closer(tx: &Tx<'_>, growth: &EncodedAppend, after: Seq) -> AuthorCheck {
    let run = growth.run;
    let epoch = tx.one(
        "UPDATE run_head SET last_seq = last_seq + ?1, format = max(format, ?2)
          WHERE run = ?3 AND state IN (0, 2, 3, 4) AND last_seq = ?4
         RETURNING epoch",
        params![int(growth.event_count()), growth.format, run.bytes(), int(after.0)],
        |row| get_u64(row, 0).map(Epoch),
    )?;
    if let Some(epoch) = epoch {
        return Ok(Ok(AppendPoint { run, epoch, after }));
    }
    let Some(head) = HeadState::load(tx, run)? else {
        return Ok(Err(Appended::RunNotFound));
    };
    // A closer holds no fence; between its two tries the run may have been
    // claimed, which takes nothing from what it wrote.
    if let Some(told) = repeated_append(tx, growth, after, None)? {
        return Ok(Err(told));
    }
    Ok(Err(match head.state {
        ENDED => Appended::RunEnded,
        _ => Appended::Conflict,
    }))
}

fn check_outsider(tx: &Tx<'_>, growth: &EncodedAppend) -> AuthorCheck {
    let run = growth.run;
    let Some(head) = HeadState::load(tx, run)? else {
        return Ok(Err(Appended::RunNotFound));
    };
    let tail = AppendPoint { run, epoch: head.epoch, after: head.last_seq };
    if growth.events.is_empty() {
        return Ok(Ok(tail));
    }
    if head.state == ENDED {
        return Ok(Err(Appended::RunEnded));
    }
    tx.run(
        "UPDATE run_head SET last_seq = last_seq + ?1, format = max(format, ?2) WHERE run = ?3",
        params![int(growth.event_count()), growth.format, run.bytes()],
    )?;
    if is_woken_by(head.state, growth.wake_target) {
        wake(tx, run)?;
    }
    Ok(Ok(tail))
}

fn repeated_append(
    tx: &Tx<'_>,
    growth: &EncodedAppend,
    after: Seq,
    epoch: Option<Epoch>,
) -> Result<Option<Appended>, CommandError> {
    let is_repeat = is_already_written(tx, (growth.run, after), epoch, &growth.events)?;
    Ok(is_repeat.then(|| Appended::At { seq: after.plus(growth.event_count()), now: tx.now }))
}

/// A head as far as an author's condition speaks of it.
struct HeadState {
    state: i64,
    epoch: Epoch,
    last_seq: Seq,
    worker: Option<WorkerId>,
}

impl HeadState {
    fn load(tx: &Tx<'_>, run: RunId) -> rusqlite::Result<Option<Self>> {
        tx.one(
            "SELECT state, epoch, last_seq, worker FROM run_head WHERE run = ?1",
            params![run.bytes()],
            |row| {
                let worker: Option<[u8; 16]> = row.get(3)?;
                Ok(Self {
                    state: row.get(0)?,
                    epoch: Epoch(get_u64(row, 1)?),
                    last_seq: Seq(get_u64(row, 2)?),
                    worker: worker.map(WorkerId::from_bytes),
                })
            },
        )
    }
}
