//! Contents under their hash: blobs that age, definitions that stay.
//!
//! Never: the same content twice.

use longhaul_core::change::Blob;
use longhaul_core::id::RunId;
use longhaul_core::raw::Hash;
use rusqlite::{Result, params};

use crate::sqlite::tx::Tx;

/// Keeps a content, and notes that it was wanted now.
pub(crate) fn put(tx: &Tx<'_>, hash: Hash, content: &[u8]) -> Result<()> {
    tx.exec(
        "INSERT INTO blob (hash, touched_at, content) VALUES (?1, ?2, ?3)
         ON CONFLICT (hash) DO UPDATE SET touched_at = excluded.touched_at",
        params![hash.bytes(), tx.now_micros(), content],
    )
}

/// A run names a content: it stays as long as the run does.
pub(crate) fn add_reference(tx: &Tx<'_>, run: RunId, hash: Hash) -> Result<()> {
    tx.exec(
        "INSERT OR IGNORE INTO blob_ref (run, hash) VALUES (?1, ?2)",
        params![run.bytes(), hash.bytes()],
    )
}

/// Keeps a definition.
pub(crate) fn put_definition(tx: &Tx<'_>, blob: &Blob) -> Result<()> {
    tx.exec(
        "INSERT OR IGNORE INTO definition (hash, content) VALUES (?1, ?2)",
        params![blob.hash().bytes(), &*blob.content],
    )
}

/// A blob's content.
pub(crate) fn blob(tx: &Tx<'_>, hash: Hash) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT content FROM blob WHERE hash = ?1";
    tx.one(sql, params![hash.bytes()], |row| row.get(0))
}

/// A definition's content.
pub(crate) fn definition(tx: &Tx<'_>, hash: Hash) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT content FROM definition WHERE hash = ?1";
    tx.one(sql, params![hash.bytes()], |row| row.get(0))
}
