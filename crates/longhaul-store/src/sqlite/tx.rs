//! A connection inside a transaction, together with the current time. Commands and queries use it;
//! the transaction is begun and committed elsewhere.

use longhaul_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Params, Result, Row};

/// A connection inside a transaction, with the current time of the store.
pub(crate) struct Tx<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) now: Timestamp,
}

impl Tx<'_> {
    /// Returns the current time of the store as a column value, in microseconds.
    pub(crate) const fn now_micros(&self) -> i64 {
        self.now.as_micros()
    }

    /// Executes an SQL statement and returns the number of changed rows.
    pub(crate) fn run(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.conn.prepare_cached(sql)?.execute(params)
    }

    /// Executes an SQL statement, ignoring the number of changed rows.
    pub(crate) fn exec<E>(&self, sql: &str, params: impl Params) -> std::result::Result<(), E>
    where
        E: From<rusqlite::Error>,
    {
        self.run(sql, params)?;
        Ok(())
    }

    /// Returns the first row of a query. `None` means that the query has no rows.
    pub(crate) fn query_one<T>(
        &self,
        sql: &str,
        params: impl Params,
        map_row: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        statement.query_row(params, map_row).optional()
    }

    pub(crate) fn query_all<T>(
        &self,
        sql: &str,
        params: impl Params,
        map_row: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        statement.query_map(params, map_row)?.collect()
    }
}
