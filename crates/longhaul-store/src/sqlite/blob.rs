//! Content-addressed storage: blobs, which are pruned, and agent definitions, which are kept.

use longhaul_core::change::Blob;
use longhaul_core::id::RunId;
use longhaul_core::raw::Hash;
use rusqlite::{Result, params};

use crate::sqlite::tx::Tx;

/// Stores a blob under its hash and updates the time of its last use.
pub(crate) fn put_blob(tx: &Tx<'_>, hash: Hash, content: &[u8]) -> Result<()> {
    tx.exec(
        "INSERT INTO blob (hash, touched_at, content) VALUES (?1, ?2, ?3)
         ON CONFLICT (hash) DO UPDATE SET touched_at = excluded.touched_at",
        params![hash.bytes(), tx.now_micros(), content],
    )
}

/// Records that a run refers to a blob, so that the blob is kept as long as the run.
pub(crate) fn add_blob_reference(tx: &Tx<'_>, run: RunId, blob_hash: Hash) -> Result<()> {
    tx.exec(
        "INSERT OR IGNORE INTO blob_ref (run, hash) VALUES (?1, ?2)",
        params![run.bytes(), blob_hash.bytes()],
    )
}

/// Stores an agent definition under its hash.
pub(crate) fn put_agent_definition(tx: &Tx<'_>, definition_blob: &Blob) -> Result<()> {
    tx.exec(
        "INSERT OR IGNORE INTO definition (hash, content) VALUES (?1, ?2)",
        params![definition_blob.hash().bytes(), &*definition_blob.content],
    )
}

/// Returns the content of the blob with this hash. `None` means that there is no such blob.
pub(crate) fn get_blob(tx: &Tx<'_>, hash: Hash) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT content FROM blob WHERE hash = ?1";
    tx.query_one(sql, params![hash.bytes()], |row| row.get(0))
}

/// Returns the content of the agent definition with this hash. `None` means that there is none.
pub(crate) fn get_agent_definition(tx: &Tx<'_>, hash: Hash) -> Result<Option<Vec<u8>>> {
    let sql = "SELECT content FROM definition WHERE hash = ?1";
    tx.query_one(sql, params![hash.bytes()], |row| row.get(0))
}
