//! Queries for small tables: threads, late results, the outbox, blocked providers
//! and checkpoints.

use longhaul_core::change::{LateToolResult, NewThreadMessages, OutboxRow};
use longhaul_core::checkpoint::RunCheckpoint;
use longhaul_core::id::{RunId, Seq, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::port::records::DueOutboxMessage;
use longhaul_core::request::{IdempotencyKey, IdempotentRequestEffect};
use longhaul_core::time::{Millis, Timestamp};
use rusqlite::{Result, params};

use crate::sqlite::column::{
    count_to_column, get_json, get_parsed, get_time, get_u32, get_u64, limit_to_column, to_json,
};
use crate::sqlite::idempotency::{change_committed_by_earlier_attempt, set_effect};
use crate::sqlite::tx::Tx;

/// Returns the newest messages of a thread (the conversation that successive runs share), in order:
/// the oldest of them comes first.
pub(crate) fn thread_messages(
    tx: &Tx<'_>,
    thread: &ThreadKey,
    count: usize,
) -> Result<Vec<Message>> {
    let mut newest = tx.query_all(
        "SELECT message FROM thread WHERE thread = ?1 ORDER BY id DESC LIMIT ?2",
        params![thread.as_str(), limit_to_column(count)],
        |row| get_json(row, 0),
    )?;
    newest.reverse();
    Ok(newest)
}

/// Returns the number of messages in a thread (the conversation that successive runs share).
pub(crate) fn thread_message_count(tx: &Tx<'_>, thread: &ThreadKey) -> Result<u64> {
    let sql = "SELECT count(*) FROM thread WHERE thread = ?1";
    let count = tx.query_one(sql, params![thread.as_str()], |row| get_u64(row, 0))?;
    Ok(count.unwrap_or_default())
}

/// Appends messages to the end of a thread (the conversation that successive runs share).
pub(crate) fn extend_thread(tx: &Tx<'_>, thread: &ThreadKey, messages: &[Message]) -> Result<()> {
    for message in messages {
        tx.run(
            "INSERT INTO thread (thread, message) VALUES (?1, ?2)",
            params![thread.as_str(), to_json(message)?],
        )?;
    }
    Ok(())
}

/// Appends messages to the end of a thread outside of any run. Does nothing if an earlier attempt of
/// the request has appended them.
pub(crate) fn append_thread_messages(
    tx: &Tx<'_>,
    added: &NewThreadMessages,
    request: Option<&IdempotencyKey>,
) -> Result<()> {
    if let Some(key) = request {
        if change_committed_by_earlier_attempt(tx, key)?.is_some() {
            return Ok(());
        }
        set_effect(tx, key, &IdempotentRequestEffect::Thread)?;
    }
    extend_thread(tx, &added.thread, &added.messages)
}

/// Deletes all messages of a thread (the conversation that successive runs share).
pub(crate) fn clear_thread(tx: &Tx<'_>, thread: &ThreadKey) -> Result<()> {
    tx.exec("DELETE FROM thread WHERE thread = ?1", params![thread.as_str()])
}

/// Stores the result of a tool call that arrived after the call's run had ended.
pub(crate) fn save_late_result(
    tx: &Tx<'_>,
    run: RunId,
    late_result: &LateToolResult,
) -> Result<()> {
    tx.exec(
        "INSERT INTO late_result (run, call, text) VALUES (?1, ?2, ?3)",
        params![run.bytes(), late_result.call.to_string(), late_result.text],
    )
}

/// Lists the results of tool calls that arrived after the run had ended, in order of arrival.
pub(crate) fn list_late_results(tx: &Tx<'_>, run: RunId) -> Result<Vec<LateToolResult>> {
    tx.query_all(
        "SELECT call, text FROM late_result WHERE run = ?1 ORDER BY id",
        params![run.bytes()],
        |row| Ok(LateToolResult { call: get_parsed(row, 0)?, text: row.get(1)? }),
    )
}

/// Selects the outbox items (messages to external endpoints) of an endpoint whose delivery is due.
pub(crate) const SELECT_DUE_OUTBOX: &str = "SELECT id, run, endpoint, body, attempts FROM outbox
      WHERE endpoint = ?1 AND due_at <= ?2 ORDER BY due_at, id LIMIT ?3";

/// Lists the outbox items (messages to external endpoints) of an endpoint whose delivery is due.
pub(crate) fn due_outbox_items(
    tx: &Tx<'_>,
    endpoint: &str,
    limit: usize,
) -> Result<Vec<DueOutboxMessage>> {
    tx.query_all(
        SELECT_DUE_OUTBOX,
        params![endpoint, tx.now_micros(), limit_to_column(limit)],
        |row| {
            Ok(DueOutboxMessage {
                id: get_u64(row, 0)?,
                run: RunId::from_bytes(row.get(1)?),
                row: OutboxRow { endpoint: row.get(2)?, body: row.get(3)? },
                attempts: get_u32(row, 4)?,
            })
        },
    )
}

/// Deletes an outbox item (a message to an external endpoint) that was delivered, or, if
/// `retry_delay` is set, schedules its next attempt after that delay.
pub(crate) fn delete_or_retry_outbox_item(
    tx: &Tx<'_>,
    id: u64,
    retry_delay: Option<Millis>,
) -> Result<()> {
    match retry_delay {
        None => tx.run("DELETE FROM outbox WHERE id = ?1", params![count_to_column(id)])?,
        Some(delay) => tx.run(
            "UPDATE outbox SET attempts = attempts + 1, due_at = ?2 WHERE id = ?1",
            params![count_to_column(id), tx.now.plus(delay).as_micros()],
        )?,
    };
    Ok(())
}

/// Blocks model calls with a provider account for the given duration. Never shortens an existing
/// block.
pub(crate) fn block_provider(tx: &Tx<'_>, provider_account: &str, duration: Millis) -> Result<()> {
    tx.exec(
        "INSERT INTO provider_block (provider, blocked_until) VALUES (?1, ?2)
         ON CONFLICT (provider) DO UPDATE
            SET blocked_until = max(blocked_until, excluded.blocked_until)",
        params![provider_account, tx.now.plus(duration).as_micros()],
    )
}

/// Ends the block of model calls with a provider account.
pub(crate) fn unblock_provider(tx: &Tx<'_>, provider_account: &str) -> Result<()> {
    tx.exec("DELETE FROM provider_block WHERE provider = ?1", params![provider_account])
}

/// Returns the time until which model calls with a provider account are blocked. `None` means that
/// they are not blocked.
pub(crate) fn provider_blocked_until(tx: &Tx<'_>, account: &str) -> Result<Option<Timestamp>> {
    let sql = "SELECT blocked_until FROM provider_block WHERE provider = ?1";
    tx.query_one(sql, params![account], |row| get_time(row, 0))
}

/// Stores the checkpoint of a run (a copy of its state), replacing the previous checkpoint.
pub(crate) fn save_checkpoint(tx: &Tx<'_>, run: RunId, checkpoint: &RunCheckpoint) -> Result<()> {
    tx.exec(
        "INSERT INTO checkpoint (run, seq, fold_hash, state) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (run) DO UPDATE
            SET seq = excluded.seq, fold_hash = excluded.fold_hash, state = excluded.state",
        params![
            run.bytes(),
            count_to_column(checkpoint.seq.0),
            checkpoint.fold_hash,
            checkpoint.state
        ],
    )
}

/// Returns the checkpoint of a run (a copy of its state), whichever build wrote the checkpoint.
/// `None` means that the run has no checkpoint.
pub(crate) fn get_checkpoint(tx: &Tx<'_>, run: RunId) -> Result<Option<RunCheckpoint>> {
    let sql = "SELECT seq, fold_hash, state FROM checkpoint WHERE run = ?1";
    tx.query_one(sql, params![run.bytes()], |row| {
        Ok(RunCheckpoint { seq: Seq(get_u64(row, 0)?), fold_hash: row.get(1)?, state: row.get(2)? })
    })
}

/// Deletes the checkpoint of a run unless it was written by a build with this `fold_hash`, which
/// identifies how a build replays journals.
pub(crate) fn delete_incompatible_checkpoint(
    tx: &Tx<'_>,
    run: RunId,
    fold_hash: &str,
) -> Result<()> {
    let sql = "DELETE FROM checkpoint WHERE run = ?1 AND fold_hash <> ?2";
    tx.exec(sql, params![run.bytes(), fold_hash])
}
