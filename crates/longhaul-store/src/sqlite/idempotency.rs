//! Idempotent requests and their stored responses.
//!
//! Invariant: a stored response never changes. If an attempt at a request outlives its lease and
//! another attempt takes over, the late result of the first attempt is ignored.

use longhaul_core::port::auth::{
    IdempotencyKey, IdempotencyRequest, IdempotentRequestState, StoredHttpResponse,
};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::request::IdempotentRequestEffect;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{get_hash, get_json, to_json};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::tx::Tx;

/// Selects an idempotent request that is in progress, has a stored response, or has committed a
/// change (its effect).
pub(crate) const SELECT_KNOWN: &str =
    "SELECT body_hash, status, location, response_body, effect, lease_until > ?3
       FROM idempotent_request
      WHERE principal = ?1 AND key = ?2 AND expires_at > ?3
        AND (status IS NOT NULL OR effect IS NOT NULL OR lease_until > ?3)";

/// Begins an attempt at an idempotent request. Returns the response of an earlier attempt, or the
/// change that it committed without storing a response, if there is one.
pub(crate) fn begin_idempotent_request(
    tx: &Tx<'_>,
    request: &IdempotencyRequest,
) -> Result<IdempotentRequestState> {
    let key = &request.key;
    let existing =
        tx.query_one(SELECT_KNOWN, params![key.principal, key.key, tx.now_micros()], |row| {
            Ok((
                get_hash(row, 0)?,
                read_stored_response(row)?,
                read_effect_column(row, 4)?,
                row.get(5)?,
            ))
        })?;
    match existing {
        None => insert_idempotent_request(tx, request).map(|()| IdempotentRequestState::Acquired),
        Some((body, ..)) if body != request.body_hash => Ok(IdempotentRequestState::Conflict),
        Some((_, Some(reply), ..)) => Ok(IdempotentRequestState::Completed(reply)),
        Some((_, None, Some(effect), false)) => {
            tx.run(
                "UPDATE idempotent_request SET lease_until = ?3 WHERE principal = ?1 AND key = ?2",
                params![key.principal, key.key, tx.now.plus(request.lease).as_micros()],
            )?;
            Ok(IdempotentRequestState::Applied(effect))
        }
        Some((_, None, ..)) => Ok(IdempotentRequestState::InProgress),
    }
}

/// Stores which change a request in progress has committed (its effect). Refused if an effect is
/// already stored.
pub(crate) fn record_change_committed_by_request(
    tx: &Tx<'_>,
    key: &IdempotencyKey,
    effect: &IdempotentRequestEffect,
) -> Result<(), RowChangeError> {
    let applied = tx.run(
        "UPDATE idempotent_request SET effect = ?3
          WHERE principal = ?1 AND key = ?2 AND status IS NULL AND effect IS NULL",
        params![key.principal, key.key, to_json(effect)?],
    )?;
    match applied {
        0 => Err(RowChangeError::Refused(AppendRefusalReason::RequestAlreadyApplied)),
        _ => Ok(()),
    }
}

/// Stores which change a request in progress has committed (its effect). Replaces an effect that
/// was stored before.
pub(crate) fn set_effect(
    tx: &Tx<'_>,
    key: &IdempotencyKey,
    effect: &IdempotentRequestEffect,
) -> Result<()> {
    tx.exec(
        "UPDATE idempotent_request SET effect = ?3
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![key.principal, key.key, to_json(effect)?],
    )
}

/// Returns the change that an earlier attempt at a request has committed (its effect). `None` means
/// that no attempt has committed a change, or that the request has a stored response.
pub(crate) fn change_committed_by_earlier_attempt(
    tx: &Tx<'_>,
    key: &IdempotencyKey,
) -> Result<Option<IdempotentRequestEffect>> {
    let found = tx.query_one(
        "SELECT effect FROM idempotent_request
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![key.principal, key.key],
        |row| read_effect_column(row, 0),
    )?;
    Ok(found.flatten())
}

fn insert_idempotent_request(tx: &Tx<'_>, request: &IdempotencyRequest) -> Result<()> {
    tx.exec(
        "INSERT OR REPLACE INTO idempotent_request
                (principal, key, body_hash, expires_at, lease_until)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            request.key.principal,
            request.key.key,
            request.body_hash.bytes(),
            tx.now.plus(request.ttl).as_micros(),
            tx.now.plus(request.lease).as_micros()
        ],
    )
}

/// Stores the response of a request that has no response yet.
pub(crate) fn complete_idempotent_request(
    tx: &Tx<'_>,
    key: &IdempotencyKey,
    reply: &StoredHttpResponse,
) -> Result<()> {
    tx.exec(
        "UPDATE idempotent_request SET status = ?3, location = ?4, response_body = ?5
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![key.principal, key.key, reply.status, reply.location, reply.body],
    )
}

/// Aborts an attempt at a request. Deletes the request if no attempt has committed a change.
pub(crate) fn abort_idempotent_request(tx: &Tx<'_>, key: &IdempotencyKey) -> Result<()> {
    for sql in [
        "DELETE FROM idempotent_request
          WHERE principal = ?1 AND key = ?2 AND status IS NULL AND effect IS NULL",
        "UPDATE idempotent_request SET lease_until = 0
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
    ] {
        tx.run(sql, params![key.principal, key.key])?;
    }
    Ok(())
}

fn read_effect_column(row: &Row<'_>, index: usize) -> Result<Option<IdempotentRequestEffect>> {
    let text: Option<String> = row.get(index)?;
    text.map(|_| get_json(row, index)).transpose()
}

fn read_stored_response(row: &Row<'_>) -> Result<Option<StoredHttpResponse>> {
    let status: Option<u16> = row.get(1)?;
    let Some(status) = status else {
        return Ok(None);
    };
    Ok(Some(StoredHttpResponse { status, location: row.get(2)?, body: row.get(3)? }))
}
