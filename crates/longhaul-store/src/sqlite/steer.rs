//! Steers: messages that people send to a run, queued until the run reads them.

use longhaul_core::change::{STEERS_MAX, SteerRow, SteerStatus, SteerUpdate};
use longhaul_core::id::RunId;
use longhaul_core::port::store::AppendRefusalReason;
use rusqlite::{Result, params};

use crate::sqlite::column::{get_json, limit_to_column, to_json};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::tx::Tx;

/// Adds a message to the queue of a run. Refused if the queue already has `STEERS_MAX` messages.
pub(crate) fn queue_steer(tx: &Tx<'_>, run: RunId, steer: &SteerRow) -> Result<(), RowChangeError> {
    let inserted_count = tx.run(
        "INSERT INTO steer (run, steer, queued, data) SELECT ?1, ?2, ?3, ?4
          WHERE (SELECT count(*) FROM steer WHERE run = ?1 AND queued = 1) < ?5",
        params![
            run.bytes(),
            steer.steer.bytes(),
            steer.status == SteerStatus::Queued,
            to_json(steer)?,
            limit_to_column(STEERS_MAX)
        ],
    )?;
    if inserted_count == 0 {
        return Err(RowChangeError::Refused(AppendRefusalReason::SteersFull));
    }
    Ok(())
}

/// Adds a message to a new run. The limit on queued messages is not checked, because the queue of a
/// new run is empty.
pub(crate) fn insert_steer(tx: &Tx<'_>, run: RunId, steer: &SteerRow) -> Result<()> {
    tx.exec(
        "INSERT INTO steer (run, steer, queued, data) VALUES (?1, ?2, ?3, ?4)",
        params![
            run.bytes(),
            steer.steer.bytes(),
            steer.status == SteerStatus::Queued,
            to_json(steer)?
        ],
    )
}

/// Edits a queued message or changes its status. Refused if the message is no longer queued.
pub(crate) fn update_queued_steer(
    tx: &Tx<'_>,
    run: RunId,
    steer_update: &SteerUpdate,
) -> Result<(), RowChangeError> {
    let waiting: Option<(i64, SteerRow)> = tx.query_one(
        "SELECT id, data FROM steer WHERE run = ?1 AND queued = 1 AND steer = ?2
          ORDER BY id LIMIT 1",
        params![run.bytes(), steer_update.steer.bytes()],
        |row| Ok((row.get(0)?, get_json(row, 1)?)),
    )?;
    let Some((id, mut row)) = waiting else {
        return Err(RowChangeError::Refused(AppendRefusalReason::SteerSettled));
    };
    if let Some((text, delivery)) = &steer_update.edit {
        row.text.clone_from(text);
        row.delivery = *delivery;
    }
    row.status = steer_update.status.clone();
    tx.exec(
        "UPDATE steer SET queued = ?2, data = ?3 WHERE id = ?1",
        params![id, row.status == SteerStatus::Queued, to_json(&row)?],
    )
}

/// Lists the messages that were sent to a run, in order of arrival.
pub(crate) fn list_steers(tx: &Tx<'_>, run: RunId) -> Result<Vec<SteerRow>> {
    let sql = "SELECT data FROM steer WHERE run = ?1 ORDER BY id";
    tx.query_all(sql, params![run.bytes()], |row| get_json(row, 0))
}
