//! Passes that a key gave out: shown again and again, or spent once.
//!
//! Never: a pass that outlives its time or its key.

use longhaul_core::port::keyring::{Holder, NewPass, PassKind, PassRow};
use longhaul_core::raw::Hash;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{from_pass_kind, maybe_hash, time};
use crate::sqlite::tx::Tx;

/// A pass that still counts: asked for at every door. The machine's own key does
/// not stand here; whoever opens the door for it knows whether it is still the same.
pub(crate) const PASS: &str = "SELECT holder, until FROM pass
      WHERE hash = ?1 AND kind = ?2 AND until > ?3
        AND (holder IS NULL OR EXISTS (
              SELECT 1 FROM api_key k WHERE k.hash = holder AND k.revoked_at IS NULL
                 AND (k.expires_at IS NULL OR k.expires_at > ?3)))";

/// The same, and it is gone.
pub(crate) const SPEND: &str = "DELETE FROM pass
      WHERE hash = ?1 AND kind = ?2 AND until > ?3
        AND (holder IS NULL OR EXISTS (
              SELECT 1 FROM api_key k WHERE k.hash = holder AND k.revoked_at IS NULL
                 AND (k.expires_at IS NULL OR k.expires_at > ?3)))
  RETURNING holder, until";

/// Some passes that are over: each new one takes more of them away than come.
pub(crate) const SWEEP: &str = "DELETE FROM pass WHERE rowid IN
      (SELECT rowid FROM pass WHERE until <= ?1 ORDER BY until LIMIT 100)";

/// Takes a pass in.
pub(crate) fn add(tx: &Tx<'_>, pass: &NewPass) -> Result<()> {
    tx.run(SWEEP, params![tx.now_micros()])?;
    let holder = match &pass.holder {
        Holder::Local => None,
        Holder::Key(hash) => Some(hash.bytes()),
    };
    tx.exec(
        "INSERT OR REPLACE INTO pass (hash, kind, holder, until) VALUES (?1, ?2, ?3, ?4)",
        params![
            pass.hash.bytes(),
            from_pass_kind(pass.kind),
            holder,
            tx.now.plus(pass.span).as_micros()
        ],
    )
}

/// The pass, if it still counts.
pub(crate) fn pass(tx: &Tx<'_>, kind: PassKind, hash: Hash) -> Result<Option<PassRow>> {
    let kind = from_pass_kind(kind);
    tx.one(PASS, params![hash.bytes(), kind, tx.now_micros()], pass_row)
}

/// The pass, if it still counts, and it is gone.
pub(crate) fn spend(tx: &Tx<'_>, kind: PassKind, hash: Hash) -> Result<Option<PassRow>> {
    let kind = from_pass_kind(kind);
    tx.one(
        SPEND,
        params![hash.bytes(), kind, tx.now_micros()],
        pass_row,
    )
}

fn pass_row(row: &Row<'_>) -> Result<PassRow> {
    Ok(PassRow {
        holder: maybe_hash(row, 0)?.map_or(Holder::Local, Holder::Key),
        until: time(row, 1)?,
    })
}
