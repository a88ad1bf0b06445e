//! Session tokens (reusable) and tickets (one-time), issued for an API key.
//!
//! Invariant: a token is invalid after it expires or after its key is revoked.

use longhaul_core::port::auth::{ApiKeyRef, LoginTokenKind, LoginTokenRow, NewLoginToken};
use longhaul_core::raw::Hash;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{get_optional_hash, get_time, token_kind_code};
use crate::sqlite::tx::Tx;

/// Selects a valid token. Runs for every API request. A token may have been issued for the local
/// key of the machine, which is not in the table; the caller checks whether that key is still the
/// same.
pub(crate) const SELECT_TOKEN: &str = "SELECT api_key_hash, expires_at FROM token
      WHERE hash = ?1 AND kind = ?2 AND expires_at > ?3
        AND (api_key_hash IS NULL OR EXISTS (
              SELECT 1 FROM api_key k WHERE k.hash = api_key_hash AND k.revoked_at IS NULL
                 AND (k.expires_at IS NULL OR k.expires_at > ?3)))";

/// Deletes a valid token and returns it.
pub(crate) const CONSUME_TOKEN: &str = "DELETE FROM token
      WHERE hash = ?1 AND kind = ?2 AND expires_at > ?3
        AND (api_key_hash IS NULL OR EXISTS (
              SELECT 1 FROM api_key k WHERE k.hash = api_key_hash AND k.revoked_at IS NULL
                 AND (k.expires_at IS NULL OR k.expires_at > ?3)))
  RETURNING api_key_hash, expires_at";

/// Deletes up to 100 expired tokens. Runs whenever a token is added, so the number of expired
/// tokens does not grow.
pub(crate) const DELETE_EXPIRED_TOKENS: &str = "DELETE FROM token WHERE rowid IN
      (SELECT rowid FROM token WHERE expires_at <= ?1 ORDER BY expires_at LIMIT 100)";

/// Adds a token and deletes some expired tokens.
pub(crate) fn add_login_token(tx: &Tx<'_>, token: &NewLoginToken) -> Result<()> {
    tx.run(DELETE_EXPIRED_TOKENS, params![tx.now_micros()])?;
    let api_key_hash = match &token.api_key {
        ApiKeyRef::Local => None,
        ApiKeyRef::Key(hash) => Some(hash.bytes()),
    };
    tx.exec(
        "INSERT OR REPLACE INTO token (hash, kind, api_key_hash, expires_at)
         VALUES (?1, ?2, ?3, ?4)",
        params![
            token.hash.bytes(),
            token_kind_code(token.kind),
            api_key_hash,
            tx.now.plus(token.ttl).as_micros()
        ],
    )
}

/// Returns the token with this kind and hash. `None` means that there is no such token, or that it
/// is not valid.
pub(crate) fn find_login_token(
    tx: &Tx<'_>,
    kind: LoginTokenKind,
    hash: Hash,
) -> Result<Option<LoginTokenRow>> {
    let kind = token_kind_code(kind);
    tx.query_one(SELECT_TOKEN, params![hash.bytes(), kind, tx.now_micros()], read_token_row)
}

/// Consumes a token: deletes the token and returns it. `None` means that there is no such token, or
/// that it is not valid.
pub(crate) fn consume_login_token(
    tx: &Tx<'_>,
    kind: LoginTokenKind,
    hash: Hash,
) -> Result<Option<LoginTokenRow>> {
    let kind = token_kind_code(kind);
    tx.query_one(CONSUME_TOKEN, params![hash.bytes(), kind, tx.now_micros()], read_token_row)
}

fn read_token_row(row: &Row<'_>) -> Result<LoginTokenRow> {
    Ok(LoginTokenRow {
        api_key: get_optional_hash(row, 0)?.map_or(ApiKeyRef::Local, ApiKeyRef::Key),
        expires_at: get_time(row, 1)?,
    })
}
