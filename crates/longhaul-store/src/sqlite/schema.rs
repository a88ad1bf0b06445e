//! The tables of a store, by migrations that are applied once and never change.
//!
//! Never: half a migration, or a step back. A store that a newer build has
//! changed is refused, and so is one whose past is not the one we know.

use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Result};

use crate::sqlite::fault::{Lost, sql_error};
use crate::sqlite::place::APPLICATION_ID;

/// The names and statements of the steps, in their order. A step that was released is
/// never changed.
const MIGRATIONS: &[(&str, &str)] = &[
    (
        "ground",
        include_str!("../../migrations/sqlite/0001_ground.sql"),
    ),
    (
        "doors",
        include_str!("../../migrations/sqlite/0002_doors.sql"),
    ),
    (
        "notes",
        include_str!("../../migrations/sqlite/0003_notes.sql"),
    ),
    (
        "reply_effect",
        include_str!("../../migrations/sqlite/0004_reply_effect.sql"),
    ),
];

/// The schema that this build works with.
pub(crate) fn known() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// The schema that stands there; none: no tables at all. Refuses a store that is
/// newer, not ours, or not the one we made.
pub(crate) fn found(conn: &Connection, at: &str) -> std::result::Result<u32, StoreError> {
    let corrupt = |why: String| Lost::Corrupt(why).error(at);
    let sql = |error| sql_error(error, at);
    let tables: u32 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))
        .map_err(sql)?;
    if tables == 0 {
        return Ok(0);
    }
    let mark: i32 = conn
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(sql)?;
    if mark != APPLICATION_ID {
        return Err(corrupt("it is a database of another program".to_owned()));
    }
    let steps = applied(conn).map_err(sql)?;
    let found = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if found > known() {
        return Err(StoreError::Newer {
            at: at.to_owned(),
            found,
            known: known(),
        });
    }
    for (step, (name, sql)) in steps.iter().zip(MIGRATIONS) {
        if step.as_slice() != Hash::of(sql.as_bytes()).bytes() {
            return Err(corrupt(format!(
                "its migration `{name}` is not the one that this build knows"
            )));
        }
    }
    Ok(found)
}

fn applied(conn: &Connection) -> Result<Vec<Vec<u8>>> {
    let has_steps = conn
        .query_row(
            "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migration'",
            (),
            |_| Ok(()),
        )
        .optional()?
        .is_some();
    if !has_steps {
        return Ok(Vec::new());
    }
    let mut steps = conn.prepare("SELECT checksum FROM migration ORDER BY version")?;
    steps.query_map((), |row| row.get(0))?.collect()
}

/// Takes the store to the schema of this build, in one transaction.
pub(crate) fn migrate(
    conn: &Connection,
    at: &str,
    now: Timestamp,
) -> std::result::Result<(), StoreError> {
    let sql = |error| sql_error(error, at);
    conn.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
    // Another process may have been faster: look again, now that nobody else can.
    let moved = found(conn, at).and_then(|found| apply(conn, found, now).map_err(sql));
    match moved {
        Ok(()) => conn.execute_batch("COMMIT").map_err(sql),
        Err(error) => {
            _ = conn.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}

fn apply(conn: &Connection, found: u32, now: Timestamp) -> Result<()> {
    if found == 0 {
        conn.execute_batch(
            "CREATE TABLE migration (
               version    INTEGER PRIMARY KEY,
               name       TEXT NOT NULL,
               checksum   BLOB NOT NULL,
               applied_at INTEGER NOT NULL
             ) STRICT",
        )?;
    }
    for ((name, sql), version) in MIGRATIONS.iter().zip(1_u32..).skip(found as usize) {
        conn.execute_batch(sql)?;
        let checksum = *Hash::of(sql.as_bytes()).bytes();
        conn.execute(
            "INSERT INTO migration (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
            (version, name, checksum, now.as_micros()),
        )?;
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    conn.pragma_update(None, "user_version", known())
}
