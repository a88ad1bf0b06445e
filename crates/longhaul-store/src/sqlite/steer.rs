//! Messages that wait for a run.
//!
//! Never: settles one twice.

use longhaul_core::change::{STEERS_MAX, SteerRow, SteerStatus, SteerUpdate};
use longhaul_core::id::RunId;
use longhaul_core::port::store::Refused;
use rusqlite::{Result, params};

use crate::sqlite::column::{json, limit, to_json};
use crate::sqlite::error::ChangeError;
use crate::sqlite::tx::Tx;

/// One more message waits.
pub(crate) fn queue(tx: &Tx<'_>, run: RunId, steer: &SteerRow) -> Result<(), ChangeError> {
    let queued = tx.run(
        "INSERT INTO steer (run, steer, queued, data) SELECT ?1, ?2, ?3, ?4
          WHERE (SELECT count(*) FROM steer WHERE run = ?1 AND queued = 1) < ?5",
        params![
            run.bytes(),
            steer.steer.bytes(),
            steer.status == SteerStatus::Queued,
            to_json(steer)?,
            limit(STEERS_MAX)
        ],
    )?;
    if queued == 0 {
        return Err(ChangeError::Refused(Refused::SteersFull));
    }
    Ok(())
}

/// A waiting message changes or is settled.
pub(crate) fn update(tx: &Tx<'_>, run: RunId, to: &SteerUpdate) -> Result<(), ChangeError> {
    let waiting: Option<(i64, SteerRow)> = tx.one(
        "SELECT id, data FROM steer WHERE run = ?1 AND queued = 1 AND steer = ?2
          ORDER BY id LIMIT 1",
        params![run.bytes(), to.steer.bytes()],
        |row| Ok((row.get(0)?, json(row, 1)?)),
    )?;
    let Some((id, mut row)) = waiting else {
        return Err(ChangeError::Refused(Refused::SteerSettled));
    };
    if let Some((text, delivery)) = &to.edit {
        row.text.clone_from(text);
        row.delivery = *delivery;
    }
    row.status = to.status.clone();
    tx.exec(
        "UPDATE steer SET queued = ?2, data = ?3 WHERE id = ?1",
        params![id, row.status == SteerStatus::Queued, to_json(&row)?],
    )
}

/// The messages for a run, in order of arrival.
pub(crate) fn steers(tx: &Tx<'_>, run: RunId) -> Result<Vec<SteerRow>> {
    let sql = "SELECT data FROM steer WHERE run = ?1 ORDER BY id";
    tx.all(sql, params![run.bytes()], |row| json(row, 0))
}
