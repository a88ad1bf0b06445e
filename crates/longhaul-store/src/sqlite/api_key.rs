//! API keys.
//!
//! Invariant: a key is never deleted, so that past actions can be attributed to the name of the
//! key.

use longhaul_core::access::principal_of_key;
use longhaul_core::id::ApiKeyName;
use longhaul_core::port::auth::{ApiKeyRow, NewApiKey};
use longhaul_core::raw::Hash;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_core::time::{Millis, Timestamp};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{get_hash, get_optional_time, get_parsed, get_role, get_time};
use crate::sqlite::idempotency;
use crate::sqlite::rule;
use crate::sqlite::tx::Tx;

/// Minimum interval between two updates of a key's time of last use, so that not every request
/// writes to the store.
const LAST_USED_PRECISION: Millis = Millis::from_secs(5 * 60);

/// Selects an API key by its hash. Runs for every API request.
pub(crate) const SELECT_KEY: &str =
    "SELECT name, role, hash, created_by, created_at, expires_at, revoked_at, last_used_at
       FROM api_key WHERE hash = ?1";

const SELECT_KEYS: &str =
    "SELECT name, role, hash, created_by, created_at, expires_at, revoked_at, last_used_at
       FROM api_key ORDER BY id";

const REVOKE_KEY: &str = "UPDATE api_key SET revoked_at = ?2 WHERE name = ?1 AND revoked_at IS NULL
  RETURNING name, role, hash, created_by, created_at, expires_at, revoked_at, last_used_at";

/// Adds an API key. Returns false if another key has the same name.
pub(crate) fn add_api_key_unless_name_taken(tx: &Tx<'_>, key: &NewApiKey) -> Result<bool> {
    let earlier = match &key.request {
        Some(request) => idempotency::change_committed_by_earlier_attempt(tx, request)?,
        None => None,
    };
    if let Some(IdempotentRequestEffect::Key(key_hash)) = earlier {
        tx.run(
            "UPDATE api_key SET revoked_at = ?2 WHERE hash = ?1 AND revoked_at IS NULL",
            params![key_hash.bytes(), tx.now_micros()],
        )?;
    }
    let select_name = "SELECT 1 FROM api_key WHERE name = ?1 AND revoked_at IS NULL";
    if tx.query_one(select_name, params![key.name.as_str()], |_| Ok(()))?.is_some() {
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
            key.ttl.map(|ttl| tx.now.plus(ttl).as_micros()),
        ],
    )?;
    if let Some(request) = &key.request {
        idempotency::set_effect(tx, request, &IdempotentRequestEffect::Key(key.hash))?;
    }
    Ok(true)
}

/// Returns the API key with this hash. `None` means that there is no such key.
pub(crate) fn find_api_key(tx: &Tx<'_>, key_hash: Hash) -> Result<Option<ApiKeyRow>> {
    tx.query_one(SELECT_KEY, params![key_hash.bytes()], read_key_row)
}

/// Lists all API keys, oldest first.
pub(crate) fn list_api_keys(tx: &Tx<'_>) -> Result<Vec<ApiKeyRow>> {
    tx.query_all(SELECT_KEYS, (), read_key_row)
}

/// Revokes the API key with this name and its remembered approvals that apply to more than one run,
/// and deletes the tokens that were issued for it and the gate links that it created. Returns the
/// revoked key, or `None` if there is no such key.
pub(crate) fn revoke_api_key(tx: &Tx<'_>, name: &ApiKeyName) -> Result<Option<ApiKeyRow>> {
    let revoked =
        tx.query_one(REVOKE_KEY, params![name.as_str(), tx.now_micros()], read_key_row)?;
    if let Some(key) = &revoked {
        let sql = "DELETE FROM token WHERE api_key_hash = ?1";
        tx.run(sql, params![key.hash.bytes()])?;
        let principal = principal_of_key(name);
        tx.run("DELETE FROM gate_link WHERE created_by = ?1", params![principal])?;
        rule::revoke_shared_rules_of(tx, &principal)?;
    }
    Ok(revoked)
}

/// Returns whether a key's recorded time of last use is so old that it must be updated.
pub(crate) fn key_needs_last_use_update(tx: &Tx<'_>, key_hash: Hash) -> Result<bool> {
    let last_used = tx.query_one(
        "SELECT last_used_at FROM api_key WHERE hash = ?1",
        params![key_hash.bytes()],
        |row| get_optional_time(row, 0),
    )?;
    Ok(last_used.is_some_and(|last_used| is_last_use_old(last_used, tx.now)))
}

/// Records that the API key with this hash was used now.
pub(crate) fn update_key_last_use(tx: &Tx<'_>, key_hash: Hash) -> Result<()> {
    // Concurrent requests may all have found the time to be outdated.
    if key_needs_last_use_update(tx, key_hash)? {
        tx.run(
            "UPDATE api_key SET last_used_at = ?2 WHERE hash = ?1",
            params![key_hash.bytes(), tx.now_micros()],
        )?;
    }
    Ok(())
}

fn is_last_use_old(last_use: Option<Timestamp>, now: Timestamp) -> bool {
    last_use.is_none_or(|last_use| !last_use.is_within(LAST_USED_PRECISION, now))
}

fn read_key_row(row: &Row<'_>) -> Result<ApiKeyRow> {
    Ok(ApiKeyRow {
        name: get_parsed(row, 0)?,
        role: get_role(row, 1)?,
        hash: get_hash(row, 2)?,
        by: row.get(3)?,
        created_at: get_time(row, 4)?,
        expires_at: get_optional_time(row, 5)?,
        revoked_at: get_optional_time(row, 6)?,
        last_used_at: get_optional_time(row, 7)?,
    })
}
