//! Appends events to journals. The condition depends on the author: the worker that drives the run
//! (driver), a caller that does not drive it (outsider), or a caller that ends or pauses an
//! unclaimed run (closer).
//!
//! Invariant: events and the row changes that belong to them are written together. An append by a
//! driver, the worker that has claimed the run, normally needs no reads: one update of the run's
//! head (its scheduling row), then inserts.

use longhaul_core::change::RowChange;
use longhaul_core::event::RunsToWake;
use longhaul_core::id::{Epoch, RunId, Seq, WorkerId};
use longhaul_core::port::store::{AppendRefusalReason, AppendRequest, AppendResult, JournalAuthor};
use rusqlite::params;

use crate::sqlite::change::{RowChangeContext, apply_row_change};
use crate::sqlite::column::{ENDED, LEASED, count_to_column, get_u64, to_json};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{RowChangeError, WriteCommandError};
use crate::sqlite::head::{is_state_woken_by, runs_to_wake_for_events, wake_run};
use crate::sqlite::journal::{
    EncodedEvent, JournalAppendPoint, are_events_already_written, encode_events, insert_events,
};
use crate::sqlite::lane::restart_message_collect_window;
use crate::sqlite::tx::Tx;

/// Updates the head of a run (its scheduling row), but only if the run is still claimed by this
/// worker in this epoch and no event was appended after those that the worker knows. This fences
/// off a worker that has lost its claim.
pub(crate) const UPDATE_HEAD_AS_DRIVER: &str =
    "UPDATE run_head SET last_seq = last_seq + ?1, format = max(format, ?2)
      WHERE run = ?3 AND state = 1 AND epoch = ?4 AND worker = ?5 AND last_seq = ?6";

/// A request to append events, with the events already encoded for the writer thread.
#[derive(Debug)]
pub(crate) struct EncodedAppendRequest {
    run: RunId,
    author: JournalAuthor,
    events: Vec<EncodedEvent>,
    format: u32,
    wake_target: RunsToWake,
    only_marks_timers_as_fired: bool,
    /// Progress that the last of the events reports, as JSON. `None` if none does.
    progress: Option<String>,
    changes: Vec<RowChange>,
}

impl EncodedAppendRequest {
    /// Encodes the events of an append. Refuses events that an outsider (a process that does not
    /// drive the run) may not append.
    pub(crate) fn encode_append_request(
        append: AppendRequest,
    ) -> Result<Result<Self, AppendRefusalReason>, WriteCommandError> {
        let AppendRequest { run, author, batch } = append;
        if author == JournalAuthor::Outsider {
            let mut events = batch.events.iter();
            if let Some(event) = events.find(|event| event.runs_woken_by_outside_append().is_none())
            {
                return Ok(Err(AppendRefusalReason::NotAllowedForOutsider(event.kind())));
            }
        }
        Ok(Ok(Self {
            run,
            author,
            events: encode_events(run, &batch.events)?,
            format: batch.highest_event_format_number(),
            wake_target: runs_to_wake_for_events(&batch.events),
            only_marks_timers_as_fired: batch.only_marks_timers_as_fired(),
            progress: batch.last_progress().map(to_json).transpose()?,
            changes: batch.changes,
        }))
    }

    fn event_count(&self) -> u64 {
        self.events.len() as u64
    }
}

/// Appends the events if the condition for their author still holds, such as a worker's claim on
/// the run.
pub(crate) fn append_events(
    tx: &Tx<'_>,
    encoded_append: &EncodedAppendRequest,
) -> Result<CommandOutcome<AppendResult>, WriteCommandError> {
    match check_and_append_events(tx, encoded_append) {
        Ok(Ok(seq)) => Ok(CommandOutcome::Changed(AppendResult::Committed { seq, now: tx.now })),
        Ok(Err(result)) => Ok(CommandOutcome::Rollback(result)),
        Err(RowChangeError::Refused(refusal)) => {
            Ok(CommandOutcome::Rollback(AppendResult::Refused(refusal)))
        }
        Err(RowChangeError::Failed(error)) => Err(error),
    }
}

/// Returns the sequence number of the last appended event, or the outcome to report if nothing was
/// appended.
fn check_and_append_events(
    tx: &Tx<'_>,
    encoded_append: &EncodedAppendRequest,
) -> Result<Result<Seq, AppendResult>, RowChangeError> {
    let may_queue = !matches!(encoded_append.author, JournalAuthor::Driver { .. });
    let tail = match encoded_append.author {
        JournalAuthor::Driver { worker, epoch, after } => {
            check_driver_append(tx, encoded_append, worker, DriverAppendCondition { epoch, after })?
        }
        JournalAuthor::Closer { after } => {
            check_append_to_run_without_driver(tx, encoded_append, after)?
        }
        JournalAuthor::Outsider => check_outsider_append(tx, encoded_append)?,
    };
    let tail = match tail {
        Ok(tail) => tail,
        Err(result) => return Ok(Err(result)),
    };
    let context = RowChangeContext {
        run: encoded_append.run,
        may_queue,
        last_seq: tail.after.plus(encoded_append.event_count()),
    };
    for one in &encoded_append.changes {
        apply_row_change(tx, context, one)?;
    }
    let last_seq = insert_events(tx, tail, &encoded_append.events)?;
    if let Some(progress) = &encoded_append.progress {
        let sql = "UPDATE run_head SET progress = ?2 WHERE run = ?1";
        tx.run(sql, params![encoded_append.run.bytes(), progress])?;
    }
    if matches!(encoded_append.author, JournalAuthor::Closer { .. }) {
        restart_message_collect_window(tx, encoded_append.run)?;
    }
    Ok(Ok(last_seq))
}

type AuthorCheck = Result<Result<JournalAppendPoint, AppendResult>, RowChangeError>;

/// Condition of an append by the worker that drives the run: the epoch of its claim, and the
/// sequence number of the last event that the worker knows.
#[derive(Clone, Copy)]
struct DriverAppendCondition {
    epoch: Epoch,
    after: Seq,
}

/// Checks an append by the worker that drives the run: it must still hold the claim and know all
/// events so far.
fn check_driver_append(
    tx: &Tx<'_>,
    encoded_append: &EncodedAppendRequest,
    worker: WorkerId,
    condition: DriverAppendCondition,
) -> AuthorCheck {
    let DriverAppendCondition { epoch, after } = condition;
    let run = encoded_append.run;
    let updated_count = tx.run(
        UPDATE_HEAD_AS_DRIVER,
        params![
            count_to_column(encoded_append.event_count()),
            encoded_append.format,
            run.bytes(),
            count_to_column(epoch.0),
            worker.bytes(),
            count_to_column(after.0),
        ],
    )?;
    if updated_count == 1 {
        return Ok(Ok(JournalAppendPoint { run, epoch, after }));
    }
    let Some(head) = RunHeadColumns::load_run_head(tx, run)? else {
        return Ok(Err(AppendResult::RunNotFound));
    };
    if let Some(outcome) = repeated_append_outcome(tx, encoded_append, after, Some(epoch))? {
        return Ok(Err(outcome));
    }
    let is_holder = head.state == LEASED && head.epoch == epoch && head.worker == Some(worker);
    Ok(Err(match (head.state, is_holder) {
        (ENDED, _) => AppendResult::RunEnded,
        (_, false) => AppendResult::Fenced,
        (_, true) => AppendResult::Conflict,
    }))
}

/// Checks an append by a closer, a process that ends or pauses a run. It succeeds only if no worker
/// has claimed the run and `after` is the last event of the journal.
fn check_append_to_run_without_driver(
    tx: &Tx<'_>,
    encoded_append: &EncodedAppendRequest,
    after: Seq,
) -> AuthorCheck {
    let run = encoded_append.run;
    let epoch = tx.query_one(
        "UPDATE run_head SET last_seq = last_seq + ?1, format = max(format, ?2)
          WHERE run = ?3 AND state IN (0, 2, 3, 4) AND last_seq = ?4
         RETURNING epoch",
        params![
            count_to_column(encoded_append.event_count()),
            encoded_append.format,
            run.bytes(),
            count_to_column(after.0)
        ],
        |row| get_u64(row, 0).map(Epoch),
    )?;
    if let Some(epoch) = epoch {
        return Ok(Ok(JournalAppendPoint { run, epoch, after }));
    }
    let Some(head) = RunHeadColumns::load_run_head(tx, run)? else {
        return Ok(Err(AppendResult::RunNotFound));
    };
    // A closer has no epoch to check: if the run was claimed between two attempts, the first one is
    // still valid.
    if let Some(outcome) = repeated_append_outcome(tx, encoded_append, after, None)? {
        return Ok(Err(outcome));
    }
    Ok(Err(match head.state {
        ENDED => AppendResult::RunEnded,
        _ => AppendResult::Conflict,
    }))
}

/// Checks an append by an outsider, a process that does not drive the run: the run must not have
/// ended. Wakes the run if the events require it.
fn check_outsider_append(tx: &Tx<'_>, encoded_append: &EncodedAppendRequest) -> AuthorCheck {
    let run = encoded_append.run;
    let Some(head) = RunHeadColumns::load_run_head(tx, run)? else {
        // A timer can be left behind by a run that was deleted, and must be consumable.
        let tail = JournalAppendPoint { run, epoch: Epoch(0), after: Seq::START };
        return Ok(match encoded_append.only_marks_timers_as_fired {
            true => Ok(tail),
            false => Err(AppendResult::RunNotFound),
        });
    };
    let tail = JournalAppendPoint { run, epoch: head.epoch, after: head.last_seq };
    if encoded_append.events.is_empty() {
        return Ok(Ok(tail));
    }
    if head.state == ENDED {
        return Ok(Err(AppendResult::RunEnded));
    }
    tx.run(
        "UPDATE run_head SET last_seq = last_seq + ?1, format = max(format, ?2) WHERE run = ?3",
        params![count_to_column(encoded_append.event_count()), encoded_append.format, run.bytes()],
    )?;
    if is_state_woken_by(head.state, encoded_append.wake_target) {
        wake_run(tx, run)?;
    }
    Ok(Ok(tail))
}

/// Returns the outcome of an append whose events are already in the journal, because its caller
/// repeats it. `None` means that the events are not there.
fn repeated_append_outcome(
    tx: &Tx<'_>,
    encoded_append: &EncodedAppendRequest,
    after: Seq,
    epoch: Option<Epoch>,
) -> Result<Option<AppendResult>, WriteCommandError> {
    let is_repeat =
        are_events_already_written(tx, (encoded_append.run, after), epoch, &encoded_append.events)?;
    Ok(is_repeat.then(|| AppendResult::Committed {
        seq: after.plus(encoded_append.event_count()),
        now: tx.now,
    }))
}

/// The columns of a run's head (its scheduling row) that are checked before an append.
struct RunHeadColumns {
    state: i64,
    epoch: Epoch,
    last_seq: Seq,
    worker: Option<WorkerId>,
}

impl RunHeadColumns {
    fn load_run_head(tx: &Tx<'_>, run: RunId) -> rusqlite::Result<Option<Self>> {
        tx.query_one(
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
