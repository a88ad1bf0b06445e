//! Takes a store over from a previous driver: releases the runs that its workers had claimed, and
//! ends the requests that it had in progress. The driver lock proves that the previous driver is
//! gone, so no lease has to expire first.

use longhaul_core::port::store::WorkerLiveness;
use rusqlite::{Connection, Result};

use crate::sqlite::column::liveness_code;
use crate::sqlite::queue::release_runs_of_dead_workers;

/// Releases all claimed runs and marks all workers as dead. Also increments the boot count, the
/// number of times that the store was opened as driver, and returns it.
pub(crate) fn take_over_store_and_increment_boot_count(conn: &Connection) -> Result<i64> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let result = release_runs_and_increment_boot_count(conn);
    match result {
        Ok(boot) => conn.execute_batch("COMMIT").map(|()| boot),
        Err(error) => {
            _ = conn.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}

/// Releases all claimed runs, marks all workers as dead, ends all requests in progress and
/// increments the boot count (the number of times that the store was opened as driver), in the
/// transaction of the caller. Returns the boot count.
pub(crate) fn release_runs_and_increment_boot_count(conn: &Connection) -> Result<i64> {
    let boot = conn.query_row(
        "UPDATE meta SET value = value + 1 WHERE name = 'boot' RETURNING value",
        (),
        |row| row.get(0),
    )?;
    conn.execute("UPDATE worker SET liveness = ?1", (liveness_code(WorkerLiveness::Dead),))?;
    release_runs_of_dead_workers(conn)?;
    // Only the driver serves requests, so every request in progress belongs to a dead process. A
    // request that has taken effect is kept, so that a retry is answered instead of repeated.
    conn.execute("DELETE FROM idempotent_request WHERE status IS NULL AND effect IS NULL", ())?;
    conn.execute("UPDATE idempotent_request SET lease_until = 0 WHERE status IS NULL", ())?;
    Ok(boot)
}
