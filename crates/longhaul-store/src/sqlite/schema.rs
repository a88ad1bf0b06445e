//! Schema and migrations of the store. All migrations are applied in one transaction.
//!
//! A store that was migrated by a newer build, or by migrations that differ from those of this
//! build, is rejected.

use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Result};

use crate::options::{Migration, StoreOptions};
use crate::sqlite::error::{CommitError, store_error_from_sql};
use crate::sqlite::location::APPLICATION_ID;

/// Names and SQL statements of the migrations, in order. A released migration is never changed.
pub(crate) const MIGRATIONS: &[Migration] =
    &[("init", include_str!("../../migrations/sqlite/0001_init.sql"))];

/// Returns the migrations for a store with these options: those of this build, and those that a
/// test adds.
pub(crate) fn migrations_for_options(options: &StoreOptions) -> Vec<Migration> {
    let added = options.fault_injector.as_ref();
    let added = added.map_or(&[][..], |faults| faults.extra_test_migrations());
    [MIGRATIONS, added].concat()
}

/// Returns the schema version of this build: the number of its migrations.
pub(crate) fn current_schema_version(migrations: &[Migration]) -> u32 {
    u32::try_from(migrations.len()).unwrap_or(u32::MAX)
}

/// Returns the schema version of the database, or 0 if the database has no tables. Rejects a
/// database that is newer, that belongs to another program, or whose migrations differ from those
/// of this build.
pub(crate) fn read_schema_version(
    conn: &Connection,
    location: &str,
    migrations: &[Migration],
) -> std::result::Result<u32, StoreError> {
    let corrupt = |reason: String| CommitError::Corrupt(reason).to_store_error(location);
    let sql = |error| store_error_from_sql(error, location);
    let tables: u32 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0)).map_err(sql)?;
    if tables == 0 {
        return Ok(0);
    }
    let application_id: i32 =
        conn.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(sql)?;
    if application_id != APPLICATION_ID {
        return Err(corrupt("it belongs to another program".to_owned()));
    }
    let steps = applied_migration_checksums(conn).map_err(sql)?;
    let found = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if found > current_schema_version(migrations) {
        return Err(StoreError::NewerSchema {
            location: location.to_owned(),
            found,
            known: current_schema_version(migrations),
        });
    }
    for (step, (name, sql)) in steps.iter().zip(migrations) {
        if step.as_slice() != Hash::digest(sql.as_bytes()).bytes() {
            return Err(corrupt(format!(
                "the migration `{name}` of the store differs from that of this build"
            )));
        }
    }
    Ok(found)
}

fn applied_migration_checksums(conn: &Connection) -> Result<Vec<Vec<u8>>> {
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

/// Migrates the database to the schema of this build, in one transaction.
pub(crate) fn migrate_schema(
    conn: &Connection,
    location: &str,
    now: Timestamp,
    migrations: &[Migration],
) -> std::result::Result<(), StoreError> {
    let sql = |error| store_error_from_sql(error, location);
    conn.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
    // Another process may have migrated it first: check again inside the transaction.
    let result = read_schema_version(conn, location, migrations)
        .and_then(|version| apply_migrations(conn, version, now, migrations).map_err(sql));
    match result {
        Ok(()) => conn.execute_batch("COMMIT").map_err(sql),
        Err(error) => {
            _ = conn.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}

fn apply_migrations(
    conn: &Connection,
    found_version: u32,
    now: Timestamp,
    migrations: &[Migration],
) -> Result<()> {
    if found_version == 0 {
        conn.execute_batch(
            "CREATE TABLE migration (
               version    INTEGER PRIMARY KEY,
               name       TEXT NOT NULL,
               checksum   BLOB NOT NULL,
               applied_at INTEGER NOT NULL
             ) STRICT",
        )?;
    }
    for ((name, sql), version) in migrations.iter().zip(1_u32..).skip(found_version as usize) {
        conn.execute_batch(sql)?;
        let checksum = *Hash::digest(sql.as_bytes()).bytes();
        conn.execute(
            "INSERT INTO migration (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
            (version, name, checksum, now.as_micros()),
        )?;
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    conn.pragma_update(None, "user_version", current_schema_version(migrations))
}
