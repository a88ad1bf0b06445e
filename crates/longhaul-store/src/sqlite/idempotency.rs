//! Requests that must count once, and the answers that are kept for them.
//!
//! Never: an answer that changes. Whoever was taken for dead and speaks after all
//! takes nothing back from who took its place.

use longhaul_core::port::auth::{
    IdempotencyKey, IdempotencyRequest, IdempotencyState, StoredResponse,
};
use longhaul_core::port::store::Refused;
use longhaul_core::request::RequestEffect;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{hash, json, to_json};
use crate::sqlite::error::ChangeError;
use crate::sqlite::tx::Tx;

/// A request that has an answer or an effect, or is in progress.
pub(crate) const SELECT_KNOWN: &str =
    "SELECT body_hash, status, location, response_body, effect, lease_until > ?3
       FROM idempotent_request
      WHERE principal = ?1 AND key = ?2 AND expires_at > ?3
        AND (status IS NOT NULL OR effect IS NOT NULL OR lease_until > ?3)";

/// Begins a request.
pub(crate) fn begin(tx: &Tx<'_>, ask: &IdempotencyRequest) -> Result<IdempotencyState> {
    let of = &ask.key;
    let known = tx.one(SELECT_KNOWN, params![of.principal, of.key, tx.now_micros()], |row| {
        Ok((hash(row, 0)?, read_response(row)?, read_effect(row, 4)?, row.get(5)?))
    })?;
    match known {
        None => insert(tx, ask).map(|()| IdempotencyState::Acquired),
        Some((body, ..)) if body != ask.body_hash => Ok(IdempotencyState::Conflict),
        Some((_, Some(reply), ..)) => Ok(IdempotencyState::Completed(reply)),
        Some((_, None, Some(effect), false)) => {
            tx.run(
                "UPDATE idempotent_request SET lease_until = ?3 WHERE principal = ?1 AND key = ?2",
                params![of.principal, of.key, tx.now.plus(ask.lease).as_micros()],
            )?;
            Ok(IdempotencyState::Applied(effect))
        }
        Some((_, None, ..)) => Ok(IdempotencyState::InProgress),
    }
}

/// Stores the first effect of a request in progress, or refuses a second one.
pub(crate) fn mark_applied(
    tx: &Tx<'_>,
    of: &IdempotencyKey,
    effect: &RequestEffect,
) -> Result<(), ChangeError> {
    let applied = tx.run(
        "UPDATE idempotent_request SET effect = ?3
          WHERE principal = ?1 AND key = ?2 AND status IS NULL AND effect IS NULL",
        params![of.principal, of.key, to_json(effect)?],
    )?;
    match applied {
        0 => Err(ChangeError::Refused(Refused::RequestAlreadyApplied)),
        _ => Ok(()),
    }
}

/// Stores what a request in progress has changed, in the place of what it had changed.
pub(crate) fn set_effect(tx: &Tx<'_>, of: &IdempotencyKey, effect: &RequestEffect) -> Result<()> {
    tx.exec(
        "UPDATE idempotent_request SET effect = ?3
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![of.principal, of.key, to_json(effect)?],
    )
}

/// What an earlier attempt at a request has changed.
pub(crate) fn effect(tx: &Tx<'_>, of: &IdempotencyKey) -> Result<Option<RequestEffect>> {
    let found = tx.one(
        "SELECT effect FROM idempotent_request
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![of.principal, of.key],
        |row| read_effect(row, 0),
    )?;
    Ok(found.flatten())
}

fn insert(tx: &Tx<'_>, ask: &IdempotencyRequest) -> Result<()> {
    tx.exec(
        "INSERT OR REPLACE INTO idempotent_request
                (principal, key, body_hash, expires_at, lease_until)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            ask.key.principal,
            ask.key.key,
            ask.body_hash.bytes(),
            tx.now.plus(ask.ttl).as_micros(),
            tx.now.plus(ask.lease).as_micros()
        ],
    )
}

/// Keeps the answer of a request that was begun and has none.
pub(crate) fn complete(tx: &Tx<'_>, of: &IdempotencyKey, reply: &StoredResponse) -> Result<()> {
    tx.exec(
        "UPDATE idempotent_request SET status = ?3, location = ?4, response_body = ?5
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![of.principal, of.key, reply.status, reply.location, reply.body],
    )
}

/// Ends an attempt without an answer, and forgets a request without an effect.
pub(crate) fn abort(tx: &Tx<'_>, of: &IdempotencyKey) -> Result<()> {
    for sql in [
        "DELETE FROM idempotent_request
          WHERE principal = ?1 AND key = ?2 AND status IS NULL AND effect IS NULL",
        "UPDATE idempotent_request SET lease_until = 0
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
    ] {
        tx.run(sql, params![of.principal, of.key])?;
    }
    Ok(())
}

fn read_effect(row: &Row<'_>, place: usize) -> Result<Option<RequestEffect>> {
    let text: Option<String> = row.get(place)?;
    text.map(|_| json(row, place)).transpose()
}

fn read_response(row: &Row<'_>) -> Result<Option<StoredResponse>> {
    let status: Option<u16> = row.get(1)?;
    let Some(status) = status else {
        return Ok(None);
    };
    Ok(Some(StoredResponse { status, location: row.get(2)?, body: row.get(3)? }))
}
