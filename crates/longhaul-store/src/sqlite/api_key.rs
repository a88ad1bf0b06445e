//! Keys: made, used, revoked.
//!
//! Never: deletes one. What was done with a key shall stay told by its name.

use longhaul_core::id::KeyName;
use longhaul_core::port::auth::{KeyRow, NewKey};
use longhaul_core::raw::Hash;
use longhaul_core::request::RequestEffect;
use longhaul_core::time::{Millis, Timestamp};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{hash, maybe_time, name, role, time};
use crate::sqlite::idempotency;
use crate::sqlite::tx::Tx;

/// So old may the note of a key's last use be.
const LAST_USED_PRECISION: Millis = Millis::from_secs(5 * 60);

/// The key with a hash: asked for at every door.
pub(crate) const SELECT_KEY: &str =
    "SELECT name, role, hash, created_by, created_at, expires_at, revoked_at, last_used_at
       FROM api_key WHERE hash = ?1";

const SELECT_KEYS: &str =
    "SELECT name, role, hash, created_by, created_at, expires_at, revoked_at, last_used_at
       FROM api_key ORDER BY id";

const REVOKE_KEY: &str = "UPDATE api_key SET revoked_at = ?2 WHERE name = ?1 AND revoked_at IS NULL
  RETURNING name, role, hash, created_by, created_at, expires_at, revoked_at, last_used_at";

/// Takes a key in; false: its name is taken.
pub(crate) fn add(tx: &Tx<'_>, key: &NewKey) -> Result<bool> {
    let earlier = match &key.request {
        Some(of) => idempotency::effect(tx, of)?,
        None => None,
    };
    if let Some(RequestEffect::Key(unseen)) = earlier {
        tx.run(
            "UPDATE api_key SET revoked_at = ?2 WHERE hash = ?1 AND revoked_at IS NULL",
            params![unseen.bytes(), tx.now_micros()],
        )?;
    }
    let taken = "SELECT 1 FROM api_key WHERE name = ?1 AND revoked_at IS NULL";
    if tx.one(taken, params![key.name.as_str()], |_| Ok(()))?.is_some() {
        return Ok(false);
    }
    tx.run(
        "INSERT INTO api_key (name, role, hash, created_by, created_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            key.name.as_str(),
            key.role.as_str(),
            key.hash.bytes(),
            key.by,
            tx.now_micros(),
            key.ttl.map(|span| tx.now.plus(span).as_micros()),
        ],
    )?;
    if let Some(of) = &key.request {
        idempotency::set_effect(tx, of, &RequestEffect::Key(key.hash))?;
    }
    Ok(true)
}

/// The key with this hash.
pub(crate) fn key(tx: &Tx<'_>, of: Hash) -> Result<Option<KeyRow>> {
    tx.one(SELECT_KEY, params![of.bytes()], key_row)
}

/// All keys, the oldest first.
pub(crate) fn keys(tx: &Tx<'_>) -> Result<Vec<KeyRow>> {
    tx.all(SELECT_KEYS, (), key_row)
}

/// Ends a key and every pass that it gave out.
pub(crate) fn revoke(tx: &Tx<'_>, name: &KeyName) -> Result<Option<KeyRow>> {
    let revoked = tx.one(REVOKE_KEY, params![name.as_str(), tx.now_micros()], key_row)?;
    if let Some(key) = &revoked {
        let sql = "DELETE FROM token WHERE issuer_key_hash = ?1";
        tx.run(sql, params![key.hash.bytes()])?;
    }
    Ok(revoked)
}

/// Whether the note of a key's last use is too old.
pub(crate) fn is_touch_due(tx: &Tx<'_>, of: Hash) -> Result<bool> {
    let used =
        tx.one("SELECT last_used_at FROM api_key WHERE hash = ?1", params![of.bytes()], |row| {
            maybe_time(row, 0)
        })?;
    Ok(used.is_some_and(|used| is_old(used, tx.now)))
}

/// Notes that a key was used now.
pub(crate) fn touch(tx: &Tx<'_>, of: Hash) -> Result<()> {
    // Many may have found at once that it is due.
    if is_touch_due(tx, of)? {
        tx.run(
            "UPDATE api_key SET last_used_at = ?2 WHERE hash = ?1",
            params![of.bytes(), tx.now_micros()],
        )?;
    }
    Ok(())
}

fn is_old(used: Option<Timestamp>, now: Timestamp) -> bool {
    used.is_none_or(|used| !used.is_within(LAST_USED_PRECISION, now))
}

fn key_row(row: &Row<'_>) -> Result<KeyRow> {
    Ok(KeyRow {
        name: name(row, 0)?,
        role: role(row, 1)?,
        hash: hash(row, 2)?,
        by: row.get(3)?,
        created_at: time(row, 4)?,
        expires_at: maybe_time(row, 5)?,
        revoked_at: maybe_time(row, 6)?,
        last_used_at: maybe_time(row, 7)?,
    })
}
