//! Requests that must count once, and the answers that are kept for them.
//!
//! Never: an answer that changes. Whoever was taken for dead and speaks after all
//! takes nothing back from who took its place.

use longhaul_core::port::keyring::{Begun, Reply, ReplyAsk, ReplyKey};
use longhaul_core::port::store::Refused;
use longhaul_core::request::Effect;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{hash, json, to_json};
use crate::sqlite::fault::Stop;
use crate::sqlite::tx::Tx;

/// A request that has an answer or an effect, or is in progress.
pub(crate) const BEFORE: &str =
    "SELECT body, status, location, answer, effect, lease_until > ?3 FROM reply
      WHERE principal = ?1 AND key = ?2 AND until > ?3
        AND (status IS NOT NULL OR effect IS NOT NULL OR lease_until > ?3)";

/// Begins a request.
pub(crate) fn begin(tx: &Tx<'_>, ask: &ReplyAsk) -> Result<Begun> {
    let of = &ask.of;
    let known = tx.one(
        BEFORE,
        params![of.principal, of.key, tx.now_micros()],
        |row| Ok((hash(row, 0)?, reply(row)?, effect_in(row, 4)?, row.get(5)?)),
    )?;
    match known {
        None => write(tx, ask).map(|()| Begun::Mine),
        Some((body, ..)) if body != ask.body => Ok(Begun::Other),
        Some((_, Some(reply), ..)) => Ok(Begun::Done(reply)),
        Some((_, None, Some(effect), false)) => {
            tx.run(
                "UPDATE reply SET lease_until = ?3 WHERE principal = ?1 AND key = ?2",
                params![of.principal, of.key, tx.now.plus(ask.lease).as_micros()],
            )?;
            Ok(Begun::Applied(effect))
        }
        Some((_, None, ..)) => Ok(Begun::Running),
    }
}

/// Stores the first effect of a request in progress, or refuses a second one.
pub(crate) fn apply(tx: &Tx<'_>, of: &ReplyKey, effect: &Effect) -> Result<(), Stop> {
    let applied = tx.run(
        "UPDATE reply SET effect = ?3
          WHERE principal = ?1 AND key = ?2 AND status IS NULL AND effect IS NULL",
        params![of.principal, of.key, to_json(effect)?],
    )?;
    match applied {
        0 => Err(Stop::Refused(Refused::RequestApplied)),
        _ => Ok(()),
    }
}

/// Stores what a request in progress has changed, in the place of what it had changed.
pub(crate) fn mark(tx: &Tx<'_>, of: &ReplyKey, effect: &Effect) -> Result<()> {
    tx.exec(
        "UPDATE reply SET effect = ?3 WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![of.principal, of.key, to_json(effect)?],
    )
}

/// What an earlier attempt at a request has changed.
pub(crate) fn effect(tx: &Tx<'_>, of: &ReplyKey) -> Result<Option<Effect>> {
    let found = tx.one(
        "SELECT effect FROM reply WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![of.principal, of.key],
        |row| effect_in(row, 0),
    )?;
    Ok(found.flatten())
}

fn write(tx: &Tx<'_>, ask: &ReplyAsk) -> Result<()> {
    tx.exec(
        "INSERT OR REPLACE INTO reply (principal, key, body, until, lease_until)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            ask.of.principal,
            ask.of.key,
            ask.body.bytes(),
            tx.now.plus(ask.keep).as_micros(),
            tx.now.plus(ask.lease).as_micros()
        ],
    )
}

/// Keeps the answer of a request that was begun and has none.
pub(crate) fn keep(tx: &Tx<'_>, of: &ReplyKey, reply: &Reply) -> Result<()> {
    tx.exec(
        "UPDATE reply SET status = ?3, location = ?4, answer = ?5
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![
            of.principal,
            of.key,
            reply.status,
            reply.location,
            reply.body
        ],
    )
}

/// Ends an attempt without an answer, and forgets a request without an effect.
pub(crate) fn forget(tx: &Tx<'_>, of: &ReplyKey) -> Result<()> {
    for sql in [
        "DELETE FROM reply
          WHERE principal = ?1 AND key = ?2 AND status IS NULL AND effect IS NULL",
        "UPDATE reply SET lease_until = 0
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
    ] {
        tx.run(sql, params![of.principal, of.key])?;
    }
    Ok(())
}

fn effect_in(row: &Row<'_>, place: usize) -> Result<Option<Effect>> {
    let text: Option<String> = row.get(place)?;
    text.map(|_| json(row, place)).transpose()
}

fn reply(row: &Row<'_>) -> Result<Option<Reply>> {
    let status: Option<u16> = row.get(1)?;
    let Some(status) = status else {
        return Ok(None);
    };
    Ok(Some(Reply {
        status,
        location: row.get(2)?,
        body: row.get(3)?,
    }))
}
