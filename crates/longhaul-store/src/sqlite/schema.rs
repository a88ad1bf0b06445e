//! The tables of a store, by migrations that are applied once and never change.
//!
//! Never: half a migration, or a step back. A store that a newer build has
//! changed is refused, and so is one whose past is not the one we know.

use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Result};

use crate::options::{Migration, StoreOptions};
use crate::sqlite::error::{CommitError, sql_error};
use crate::sqlite::location::APPLICATION_ID;

/// The names and statements of the steps, in their order. A step that was released is
/// never changed.
pub(crate) const MIGRATIONS: &[Migration] =
    &[("init", include_str!("../../migrations/sqlite/0001_init.sql"))];

/// The migrations of a store with these options: those of this build, and those that a
/// test adds.
pub(crate) fn migrations(options: &StoreOptions) -> Vec<Migration> {
    let added = options.fault_injector.as_ref();
    let added = added.map_or(&[][..], |faults| faults.added_migrations());
    [MIGRATIONS, added].concat()
}

/// The schema that this build works with.
pub(crate) fn current_version(migrations: &[Migration]) -> u32 {
    u32::try_from(migrations.len()).unwrap_or(u32::MAX)
}

/// The schema that stands there; none: no tables at all. Refuses a store that is
/// newer, not ours, or not the one we made.
pub(crate) fn read_version(
    conn: &Connection,
    at: &str,
    migrations: &[Migration],
) -> std::result::Result<u32, StoreError> {
    let corrupt = |why: String| CommitError::Corrupt(why).to_store_error(at);
    let sql = |error| sql_error(error, at);
    let tables: u32 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0)).map_err(sql)?;
    if tables == 0 {
        return Ok(0);
    }
    let mark: i32 =
        conn.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(sql)?;
    if mark != APPLICATION_ID {
        return Err(corrupt("it is a database of another program".to_owned()));
    }
    let steps = applied_checksums(conn).map_err(sql)?;
    let found = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if found > current_version(migrations) {
        return Err(StoreError::NewerSchema {
            at: at.to_owned(),
            found,
            known: current_version(migrations),
        });
    }
    for (step, (name, sql)) in steps.iter().zip(migrations) {
        if step.as_slice() != Hash::digest(sql.as_bytes()).bytes() {
            return Err(corrupt(format!(
                "its migration `{name}` is not the one that this build knows"
            )));
        }
    }
    Ok(found)
}

fn applied_checksums(conn: &Connection) -> Result<Vec<Vec<u8>>> {
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
    migrations: &[Migration],
) -> std::result::Result<(), StoreError> {
    let sql = |error| sql_error(error, at);
    conn.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
    // Another process may have been faster: look again, now that nobody else can.
    let moved = read_version(conn, at, migrations)
        .and_then(|found| apply_migrations(conn, found, now, migrations).map_err(sql));
    match moved {
        Ok(()) => conn.execute_batch("COMMIT").map_err(sql),
        Err(error) => {
            _ = conn.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}

fn apply_migrations(
    conn: &Connection,
    found: u32,
    now: Timestamp,
    migrations: &[Migration],
) -> Result<()> {
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
    for ((name, sql), version) in migrations.iter().zip(1_u32..).skip(found as usize) {
        conn.execute_batch(sql)?;
        let checksum = *Hash::digest(sql.as_bytes()).bytes();
        conn.execute(
            "INSERT INTO migration (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
            (version, name, checksum, now.as_micros()),
        )?;
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    conn.pragma_update(None, "user_version", current_version(migrations))
}
