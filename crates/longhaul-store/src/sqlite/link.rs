//! Links with which a person can answer a single gate. A link is deleted together with its gate.

use longhaul_core::id::GateId;
use longhaul_core::port::auth::GateLinkRow;
use longhaul_core::raw::Hash;
use rusqlite::{Result, params};

use crate::sqlite::column::{get_hash, get_optional_hash};
use crate::sqlite::tx::Tx;

/// Adds a link to a gate. Adds nothing if the gate has been pruned.
pub(crate) fn add_gate_link(tx: &Tx<'_>, link: &GateLinkRow) -> Result<()> {
    tx.exec(
        "INSERT OR REPLACE INTO gate_link (hash, gate, digest, recipient, created_by)
         SELECT ?1, id, ?3, ?4, ?5 FROM gate WHERE id = ?2",
        params![
            link.hash.bytes(),
            link.gate.bytes(),
            link.digest.as_ref().map(Hash::bytes),
            link.recipient,
            link.by
        ],
    )
}

/// Returns the link whose secret has this hash. `None` means that there is no such link.
pub(crate) fn find_gate_link(tx: &Tx<'_>, link_hash: Hash) -> Result<Option<GateLinkRow>> {
    tx.query_one(
        "SELECT hash, gate, digest, recipient, created_by FROM gate_link WHERE hash = ?1",
        params![link_hash.bytes()],
        |row| {
            Ok(GateLinkRow {
                hash: get_hash(row, 0)?,
                gate: row.get(1).map(GateId::from_bytes)?,
                digest: get_optional_hash(row, 2)?,
                recipient: row.get(3)?,
                by: row.get(4)?,
            })
        },
    )
}
