//! One command's view of the database: a connection inside a transaction, and
//! the time at which it happens.
//!
//! Never: begins or ends a transaction.

use longhaul_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Params, Result, Row};

/// A connection inside a transaction, and the store's time.
pub(crate) struct Tx<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) now: Timestamp,
}

impl Tx<'_> {
    /// The store's time as columns hold it.
    pub(crate) const fn now_micros(&self) -> i64 {
        self.now.as_micros()
    }

    /// Runs a statement that gives nothing back but the count of rows it changed.
    pub(crate) fn run(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.conn.prepare_cached(sql)?.execute(params)
    }

    /// Runs a statement of which it does not matter how many rows it changes.
    pub(crate) fn exec<E>(&self, sql: &str, params: impl Params) -> std::result::Result<(), E>
    where
        E: From<rusqlite::Error>,
    {
        self.run(sql, params)?;
        Ok(())
    }

    /// The first row, if there is one.
    pub(crate) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        statement.query_row(params, read).optional()
    }

    /// Every row.
    pub(crate) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        statement.query_map(params, read)?.collect()
    }
}
