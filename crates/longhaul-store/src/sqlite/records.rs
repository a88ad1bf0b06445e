//! The small shelves: threads, rules, sandboxes, late results, letters to the
//! outside, provider accounts at rest, folds kept as a cache.
//!
//! Never: lets a journal grow.

use longhaul_core::change::{LateResult, OutboxRow, RuleRow, SandboxRow};
use longhaul_core::id::{RunId, Seq, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::port::records::{Checkpoint, OutboxItem};
use longhaul_core::time::{Millis, Timestamp};
use rusqlite::{Result, params};

use crate::sqlite::column::{get_u32, get_u64, int, json, limit, name, time, to_json};
use crate::sqlite::tx::Tx;

/// The newest messages of a thread, oldest first.
pub(crate) fn thread_messages(
    tx: &Tx<'_>,
    thread: &ThreadKey,
    count: usize,
) -> Result<Vec<Message>> {
    let mut newest = tx.all(
        "SELECT message FROM thread WHERE thread = ?1 ORDER BY id DESC LIMIT ?2",
        params![thread.as_str(), limit(count)],
        |row| json(row, 0),
    )?;
    newest.reverse();
    Ok(newest)
}

/// How many messages a thread has.
pub(crate) fn thread_len(tx: &Tx<'_>, thread: &ThreadKey) -> Result<u64> {
    let sql = "SELECT count(*) FROM thread WHERE thread = ?1";
    let count = tx.one(sql, params![thread.as_str()], |row| get_u64(row, 0))?;
    Ok(count.unwrap_or_default())
}

/// Adds messages to a thread.
pub(crate) fn extend_thread(tx: &Tx<'_>, thread: &ThreadKey, messages: &[Message]) -> Result<()> {
    for message in messages {
        tx.run(
            "INSERT INTO thread (thread, message) VALUES (?1, ?2)",
            params![thread.as_str(), to_json(message)?],
        )?;
    }
    Ok(())
}

/// Forgets a thread.
pub(crate) fn clear_thread(tx: &Tx<'_>, thread: &ThreadKey) -> Result<()> {
    tx.exec("DELETE FROM thread WHERE thread = ?1", params![thread.as_str()])
}

/// The approvals that a run remembers.
pub(crate) fn rules(tx: &Tx<'_>, run: RunId) -> Result<Vec<RuleRow>> {
    let sql = "SELECT data FROM rule WHERE run = ?1 ORDER BY rule";
    tx.all(sql, params![run.bytes()], |row| json(row, 0))
}

/// The sandboxes of a run.
pub(crate) fn sandboxes(tx: &Tx<'_>, run: RunId) -> Result<Vec<SandboxRow>> {
    let sql = "SELECT data FROM sandbox WHERE owner = ?1 ORDER BY sandbox";
    tx.all(sql, params![run.bytes()], |row| json(row, 0))
}

/// Keeps a result that came when its run had ended.
pub(crate) fn save_late_result(tx: &Tx<'_>, run: RunId, late: &LateResult) -> Result<()> {
    tx.exec(
        "INSERT INTO late_result (run, call, text) VALUES (?1, ?2, ?3)",
        params![run.bytes(), late.call.to_string(), late.text],
    )
}

/// Results that came late, in order of arrival.
pub(crate) fn late_results(tx: &Tx<'_>, run: RunId) -> Result<Vec<LateResult>> {
    tx.all(
        "SELECT call, text FROM late_result WHERE run = ?1 ORDER BY id",
        params![run.bytes()],
        |row| Ok(LateResult { call: name(row, 0)?, text: row.get(1)? }),
    )
}

/// Messages to the outside that are due.
pub(crate) fn due_outbox(tx: &Tx<'_>, count: usize) -> Result<Vec<OutboxItem>> {
    tx.all(
        "SELECT id, run, endpoint, body, attempts FROM outbox WHERE due_at <= ?1
          ORDER BY id LIMIT ?2",
        params![tx.now_micros(), limit(count)],
        |row| {
            Ok(OutboxItem {
                id: get_u64(row, 0)?,
                run: RunId::from_bytes(row.get(1)?),
                row: OutboxRow { endpoint: row.get(2)?, body: row.get(3)? },
                attempts: get_u32(row, 4)?,
            })
        },
    )
}

/// A message was delivered, or is to be tried again after a while.
pub(crate) fn settle_outbox(tx: &Tx<'_>, id: u64, again: Option<Millis>) -> Result<()> {
    match again {
        None => tx.run("DELETE FROM outbox WHERE id = ?1", params![int(id)])?,
        Some(span) => tx.run(
            "UPDATE outbox SET attempts = attempts + 1, due_at = ?2 WHERE id = ?1",
            params![int(id), tx.now.plus(span).as_micros()],
        )?,
    };
    Ok(())
}

/// A provider's account rests; a longer rest is never cut short.
pub(crate) fn block_provider(tx: &Tx<'_>, account: &str, span: Millis) -> Result<()> {
    tx.exec(
        "INSERT INTO provider_block (provider, blocked_until) VALUES (?1, ?2)
         ON CONFLICT (provider) DO UPDATE
            SET blocked_until = max(blocked_until, excluded.blocked_until)",
        params![account, tx.now.plus(span).as_micros()],
    )
}

/// Until when a provider's account may not be asked.
pub(crate) fn provider_blocked_until(tx: &Tx<'_>, account: &str) -> Result<Option<Timestamp>> {
    let sql = "SELECT blocked_until FROM provider_block WHERE provider = ?1";
    tx.one(sql, params![account], |row| time(row, 0))
}

/// Keeps a fold, in place of the one before.
pub(crate) fn save_checkpoint(tx: &Tx<'_>, run: RunId, at: &Checkpoint) -> Result<()> {
    tx.exec(
        "INSERT INTO checkpoint (run, seq, fold_hash, state) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (run) DO UPDATE
            SET seq = excluded.seq, fold_hash = excluded.fold_hash, state = excluded.state",
        params![run.bytes(), int(at.seq.0), at.fold_hash, at.state],
    )
}

/// The fold that is kept of a run, whoever made it.
pub(crate) fn checkpoint(tx: &Tx<'_>, run: RunId) -> Result<Option<Checkpoint>> {
    let sql = "SELECT seq, fold_hash, state FROM checkpoint WHERE run = ?1";
    tx.one(sql, params![run.bytes()], |row| {
        Ok(Checkpoint { seq: Seq(get_u64(row, 0)?), fold_hash: row.get(1)?, state: row.get(2)? })
    })
}

/// Forgets the fold of another build.
pub(crate) fn delete_other_checkpoint(tx: &Tx<'_>, run: RunId, but: &str) -> Result<()> {
    let sql = "DELETE FROM checkpoint WHERE run = ?1 AND fold_hash <> ?2";
    tx.exec(sql, params![run.bytes(), but])
}
