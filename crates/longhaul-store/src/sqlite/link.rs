//! Links to single gates.
//!
//! Never: a link without its gate. They are forgotten together.

use longhaul_core::id::GateId;
use longhaul_core::port::auth::LinkRow;
use longhaul_core::raw::Hash;
use rusqlite::{Result, params};

use crate::sqlite::column::{hash, maybe_hash};
use crate::sqlite::tx::Tx;

/// Takes a link in, unless its gate is forgotten already: then so is the link.
pub(crate) fn add(tx: &Tx<'_>, link: &LinkRow) -> Result<()> {
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

/// The link with this hash.
pub(crate) fn link(tx: &Tx<'_>, of: Hash) -> Result<Option<LinkRow>> {
    tx.one(
        "SELECT hash, gate, digest, recipient, created_by FROM gate_link WHERE hash = ?1",
        params![of.bytes()],
        |row| {
            Ok(LinkRow {
                hash: hash(row, 0)?,
                gate: row.get(1).map(GateId::from_bytes)?,
                digest: maybe_hash(row, 2)?,
                recipient: row.get(3)?,
                by: row.get(4)?,
            })
        },
    )
}
