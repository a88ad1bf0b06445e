//! What a new driver does first: whatever the one before it held is free again.
//!
//! Never: waits. The lock says that the one before is gone, so no lease need run out.

use rusqlite::{Connection, Result};

use crate::sqlite::column::{LEASED, READY, liveness_code};
use longhaul_core::port::store::WorkerLiveness;

/// Counts the boot, frees every leased run and buries every worker. Gives the
/// number of this boot.
pub(crate) fn take_over(conn: &Connection) -> Result<i64> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let taken = release_all(conn);
    match taken {
        Ok(boot) => conn.execute_batch("COMMIT").map(|()| boot),
        Err(error) => {
            _ = conn.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}

fn release_all(conn: &Connection) -> Result<i64> {
    let boot = conn.query_row(
        "UPDATE meta SET value = value + 1 WHERE name = 'boot' RETURNING value",
        (),
        |row| row.get(0),
    )?;
    conn.execute(
        "INSERT OR IGNORE INTO ready (inbox, rank, sort_key, run, kind)
         SELECT r.inbox, -r.priority, 0, r.id, r.kind
           FROM run_head h JOIN run r ON r.id = h.run
          WHERE h.worker IS NOT NULL AND h.state = ?1",
        (LEASED,),
    )?;
    conn.execute(
        "UPDATE run_head SET state = ?1, worker = NULL WHERE worker IS NOT NULL AND state = ?2",
        (READY, LEASED),
    )?;
    conn.execute("UPDATE worker SET liveness = ?1", (liveness_code(WorkerLiveness::Dead),))?;
    // Only a driver serves: whoever began a request and has not answered is gone.
    // What took effect is kept, so that the request is answered and not repeated.
    conn.execute("DELETE FROM idempotent_request WHERE status IS NULL AND effect IS NULL", ())?;
    conn.execute("UPDATE idempotent_request SET lease_until = 0 WHERE status IS NULL", ())?;
    Ok(boot)
}
