//! Schedules and their firings.
//!
//! Invariant: the next due time of a schedule is set in the transaction that creates the run of the
//! current firing.

use longhaul_core::id::{RunId, ScheduleName};
use longhaul_core::port::schedules::{
    NewSchedule, ScheduleFiring, ScheduleFiringAction, ScheduleFiringOutcome, ScheduleUpdate,
};
use longhaul_core::port::store::{CreateRunsOutcome, CreateRunsRequest};
use longhaul_core::schedule::ScheduleRow;
use longhaul_core::time::Timestamp;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{
    get_json, get_optional_time, get_parsed, get_time, limit_to_column, to_json,
};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::WriteCommandError;
use crate::sqlite::new_run::create_runs;
use crate::sqlite::tx::Tx;

const COLUMNS: &str = "name, data, due_at, last_run, last_fired_at, last_error";

/// Returns the statement that selects schedules that are due, the longest overdue first.
pub(crate) fn select_due_schedules_sql() -> String {
    format!("SELECT {COLUMNS} FROM schedule WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2")
}

/// Stores a new schedule. Returns false if there is a schedule with this name.
pub(crate) fn create_schedule(tx: &Tx<'_>, new: &NewSchedule) -> Result<bool> {
    let added = tx.run(
        "INSERT INTO schedule (name, due_at, data) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        params![new.name.as_str(), new.due.as_micros(), to_json(&new.spec)?],
    )?;
    Ok(added > 0)
}

/// Replaces the definition and the due time of a schedule. Returns false if its due time has changed.
pub(crate) fn update_schedule(tx: &Tx<'_>, update: &ScheduleUpdate) -> Result<bool> {
    let due = |due: Option<Timestamp>| due.map(Timestamp::as_micros);
    let (name, next) = (update.name.as_str(), due(update.next_due));
    let updated = tx.run(
        "UPDATE schedule SET data = ?3, due_at = ?4, last_error = NULL
         WHERE name = ?1 AND due_at IS ?2",
        params![name, due(update.due), to_json(&update.spec)?, next],
    )?;
    Ok(updated > 0)
}

/// Deletes a schedule. Returns false if there is no such schedule.
pub(crate) fn delete_schedule(tx: &Tx<'_>, name: &ScheduleName) -> Result<bool> {
    Ok(tx.run("DELETE FROM schedule WHERE name = ?1", params![name.as_str()])? > 0)
}

/// Returns a schedule. `None` means that there is no such schedule.
pub(crate) fn find_schedule(tx: &Tx<'_>, name: &ScheduleName) -> Result<Option<ScheduleRow>> {
    let sql = format!("SELECT {COLUMNS} FROM schedule WHERE name = ?1");
    tx.query_one(&sql, params![name.as_str()], schedule_from_row)
}

/// Lists schedules by name.
pub(crate) fn list_schedules(tx: &Tx<'_>, limit: usize) -> Result<Vec<ScheduleRow>> {
    let sql = format!("SELECT {COLUMNS} FROM schedule ORDER BY name LIMIT ?1");
    tx.query_all(&sql, params![limit_to_column(limit)], schedule_from_row)
}

/// Returns the schedules that are due, the longest overdue first.
pub(crate) fn due_schedules(tx: &Tx<'_>, limit: usize) -> Result<Vec<ScheduleRow>> {
    tx.query_all(
        &select_due_schedules_sql(),
        params![tx.now_micros(), limit_to_column(limit)],
        schedule_from_row,
    )
}

/// Returns the time of the next firing of any schedule. `None` means that no schedule has a next
/// firing.
pub(crate) fn next_schedule_due(tx: &Tx<'_>) -> Result<Option<Timestamp>> {
    let sql = "SELECT due_at FROM schedule WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";
    tx.query_one(sql, params![], |row| get_time(row, 0))
}

/// Sets the next due time of a schedule that fires, and creates the run of this firing or records
/// why it is skipped. Does nothing if the due time has changed since the firing was planned.
pub(crate) fn fire_schedule(
    tx: &Tx<'_>,
    firing: &ScheduleFiring,
) -> Result<CommandOutcome<ScheduleFiringOutcome>, WriteCommandError> {
    let due = |due: Option<Timestamp>| due.map(Timestamp::as_micros);
    let updated_count = tx.run(
        "UPDATE schedule SET due_at = ?3 WHERE name = ?1 AND due_at IS ?2",
        params![firing.name.as_str(), due(firing.due), due(firing.next_due)],
    )?;
    if updated_count == 0 {
        return Ok(CommandOutcome::Silent(ScheduleFiringOutcome::Outdated));
    }
    match &firing.action {
        ScheduleFiringAction::Create(request) => create_scheduled_run(tx, &firing.name, request),
        ScheduleFiringAction::Skip(reason) => {
            tx.run(
                "UPDATE schedule SET last_error = ?2 WHERE name = ?1",
                params![firing.name.as_str(), reason],
            )?;
            Ok(CommandOutcome::Silent(ScheduleFiringOutcome::Skipped))
        }
    }
}

fn create_scheduled_run(
    tx: &Tx<'_>,
    name: &ScheduleName,
    request: &CreateRunsRequest,
) -> Result<CommandOutcome<ScheduleFiringOutcome>, WriteCommandError> {
    let (CommandOutcome::Changed(created)
    | CommandOutcome::Silent(created)
    | CommandOutcome::Rollback(created)) = create_runs(tx, request)?;
    let run = match created {
        CreateRunsOutcome::Created(runs) => runs.first().copied(),
        CreateRunsOutcome::LaneFull(lane) => {
            return Ok(CommandOutcome::Rollback(ScheduleFiringOutcome::LaneFull(lane)));
        }
        CreateRunsOutcome::Existing(runs) => match runs.first() {
            Some(run) => {
                return Ok(CommandOutcome::Rollback(ScheduleFiringOutcome::Existing(*run)));
            }
            None => None,
        },
        CreateRunsOutcome::KeyReused => {
            return Ok(CommandOutcome::Rollback(ScheduleFiringOutcome::KeyReused));
        }
        CreateRunsOutcome::OverCap(refusal) => {
            return Ok(CommandOutcome::Rollback(ScheduleFiringOutcome::OverCap(refusal)));
        }
        CreateRunsOutcome::LaneBusy(_) => None,
    };
    let Some(run) = run else {
        let reason = format!("the firing of the schedule `{name}` created no run");
        return Err(WriteCommandError::InconsistentRows(reason));
    };
    tx.run(
        "UPDATE schedule SET last_run = ?2, last_fired_at = ?3, last_error = NULL WHERE name = ?1",
        params![name.as_str(), run.bytes(), tx.now_micros()],
    )?;
    Ok(CommandOutcome::Changed(ScheduleFiringOutcome::Created(run)))
}

fn schedule_from_row(row: &Row<'_>) -> Result<ScheduleRow> {
    let last_run: Option<[u8; 16]> = row.get(3)?;
    Ok(ScheduleRow {
        name: get_parsed(row, 0)?,
        spec: get_json(row, 1)?,
        due: get_optional_time(row, 2)?,
        last_run: last_run.map(RunId::from_bytes),
        last_fired_at: get_optional_time(row, 4)?,
        last_error: row.get(5)?,
    })
}
