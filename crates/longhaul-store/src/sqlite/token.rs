//! Passes that a key gave out: shown again and again, or spent once.
//!
//! Never: a pass that outlives its time or its key.

use longhaul_core::port::auth::{KeyRef, NewToken, TokenKind, TokenRow};
use longhaul_core::raw::Hash;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{maybe_hash, time, token_kind_code};
use crate::sqlite::tx::Tx;

/// A pass that still counts: asked for at every door. The machine's own key does
/// not stand here; whoever opens the door for it knows whether it is still the same.
pub(crate) const SELECT_TOKEN: &str = "SELECT issuer_key_hash, expires_at FROM token
      WHERE hash = ?1 AND kind = ?2 AND expires_at > ?3
        AND (issuer_key_hash IS NULL OR EXISTS (
              SELECT 1 FROM api_key k WHERE k.hash = issuer_key_hash AND k.revoked_at IS NULL
                 AND (k.expires_at IS NULL OR k.expires_at > ?3)))";

/// The same, and it is gone.
pub(crate) const CONSUME_TOKEN: &str = "DELETE FROM token
      WHERE hash = ?1 AND kind = ?2 AND expires_at > ?3
        AND (issuer_key_hash IS NULL OR EXISTS (
              SELECT 1 FROM api_key k WHERE k.hash = issuer_key_hash AND k.revoked_at IS NULL
                 AND (k.expires_at IS NULL OR k.expires_at > ?3)))
  RETURNING issuer_key_hash, expires_at";

/// Some passes that are over: each new one takes more of them away than come.
pub(crate) const DELETE_EXPIRED: &str = "DELETE FROM token WHERE rowid IN
      (SELECT rowid FROM token WHERE expires_at <= ?1 ORDER BY expires_at LIMIT 100)";

/// Takes a pass in.
pub(crate) fn add(tx: &Tx<'_>, pass: &NewToken) -> Result<()> {
    tx.run(DELETE_EXPIRED, params![tx.now_micros()])?;
    let holder = match &pass.issuer {
        KeyRef::Local => None,
        KeyRef::Key(hash) => Some(hash.bytes()),
    };
    tx.exec(
        "INSERT OR REPLACE INTO token (hash, kind, issuer_key_hash, expires_at)
         VALUES (?1, ?2, ?3, ?4)",
        params![
            pass.hash.bytes(),
            token_kind_code(pass.kind),
            holder,
            tx.now.plus(pass.ttl).as_micros()
        ],
    )
}

/// The pass, if it still counts.
pub(crate) fn token(tx: &Tx<'_>, kind: TokenKind, hash: Hash) -> Result<Option<TokenRow>> {
    let kind = token_kind_code(kind);
    tx.one(SELECT_TOKEN, params![hash.bytes(), kind, tx.now_micros()], token_row)
}

/// The pass, if it still counts, and it is gone.
pub(crate) fn consume(tx: &Tx<'_>, kind: TokenKind, hash: Hash) -> Result<Option<TokenRow>> {
    let kind = token_kind_code(kind);
    tx.one(CONSUME_TOKEN, params![hash.bytes(), kind, tx.now_micros()], token_row)
}

fn token_row(row: &Row<'_>) -> Result<TokenRow> {
    Ok(TokenRow {
        issuer: maybe_hash(row, 0)?.map_or(KeyRef::Local, KeyRef::Key),
        expires_at: time(row, 1)?,
    })
}
