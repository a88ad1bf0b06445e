//! Requests that must count once, and the answers that are kept for them.
//!
//! Never: an answer that changes. Whoever was taken for dead and speaks after all
//! takes nothing back from who took its place.

use longhaul_core::port::keyring::{Begun, Reply, ReplyAsk, ReplyKey};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::hash;
use crate::sqlite::tx::Tx;

/// A request that was begun and is neither over nor in a dead one's hands.
pub(crate) const BEFORE: &str = "SELECT body, status, location, answer FROM reply
      WHERE principal = ?1 AND key = ?2 AND until > ?3
        AND (status IS NOT NULL OR lease_until > ?3)";

/// Begins a request.
pub(crate) fn begin(tx: &Tx<'_>, ask: &ReplyAsk) -> Result<Begun> {
    let of = &ask.of;
    let known = tx.one(
        BEFORE,
        params![of.principal, of.key, tx.now_micros()],
        |row| Ok((hash(row, 0)?, reply(row)?)),
    )?;
    match known {
        None => write(tx, ask).map(|()| Begun::Mine),
        Some((body, _)) if body != ask.body => Ok(Begun::Other),
        Some((_, None)) => Ok(Begun::Running),
        Some((_, Some(reply))) => Ok(Begun::Done(reply)),
    }
}

fn write(tx: &Tx<'_>, ask: &ReplyAsk) -> Result<()> {
    tx.run(
        "INSERT OR REPLACE INTO reply (principal, key, body, until, lease_until)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            ask.of.principal,
            ask.of.key,
            ask.body.bytes(),
            tx.now.plus(ask.keep).as_micros(),
            tx.now.plus(ask.lease).as_micros()
        ],
    )?;
    Ok(())
}

/// Keeps the answer of a request that was begun and has none.
pub(crate) fn keep(tx: &Tx<'_>, of: &ReplyKey, reply: &Reply) -> Result<()> {
    tx.run(
        "UPDATE reply SET status = ?3, location = ?4, answer = ?5
          WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![
            of.principal,
            of.key,
            reply.status,
            reply.location,
            reply.body
        ],
    )?;
    Ok(())
}

/// Forgets a request that was begun and has no answer.
pub(crate) fn forget(tx: &Tx<'_>, of: &ReplyKey) -> Result<()> {
    tx.run(
        "DELETE FROM reply WHERE principal = ?1 AND key = ?2 AND status IS NULL",
        params![of.principal, of.key],
    )?;
    Ok(())
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
