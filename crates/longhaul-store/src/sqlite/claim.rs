//! Takes ready runs for a worker, in order.
//!
//! Never: filters by lane, seat or budget. Whoever stands in the queue may be
//! taken; what may not go yet does not stand there.

use longhaul_core::event::Event;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{Epoch, InboxName, RunId, Seq};
use longhaul_core::port::store::{Claim, ClaimRequest, WorkerLiveness};
use rusqlite::params;

use crate::sqlite::column::{LEASED, get_u64, int, limit, liveness_code, to_json};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::CommandError;
use crate::sqlite::journal::{AppendPoint, encode_events, insert_events};
use crate::sqlite::tx::Tx;

/// Walks the queue of an inbox in its own order; nothing is sorted.
pub(crate) const SELECT_READY: &str = "SELECT q.run, q.rank, q.sort_key, h.epoch, h.last_seq
       FROM ready q CROSS JOIN run_head h ON h.run = q.run
      WHERE q.inbox = ?1 AND h.state = 0 AND h.format <= ?2 AND (q.host IS NULL OR q.host = ?3)
      ORDER BY q.rank, q.sort_key, q.run LIMIT ?4";

/// The same, for some types only.
pub(crate) const SELECT_READY_OF_TYPES: &str =
    "SELECT q.run, q.rank, q.sort_key, h.epoch, h.last_seq
       FROM ready q CROSS JOIN run_head h ON h.run = q.run
      WHERE q.inbox = ?1 AND h.state = 0 AND h.format <= ?2 AND (q.host IS NULL OR q.host = ?3)
        AND q.kind IN (SELECT value FROM json_each(?5))
      ORDER BY q.rank, q.sort_key, q.run LIMIT ?4";

/// Takes ready runs for a worker, in order.
pub(crate) fn claim(
    tx: &Tx<'_>,
    ask: &ClaimRequest,
) -> Result<CommandOutcome<Vec<Claim>>, CommandError> {
    if !may_claim(tx, ask)? {
        return Ok(CommandOutcome::Silent(Vec::new()));
    }
    let mut claimed = Vec::new();
    for inbox in &ask.inboxes {
        let left = ask.limit.saturating_sub(claimed.len());
        for picked in select_ready(tx, ask, inbox, left)? {
            claimed.push(claim_run(tx, ask, inbox, picked)?);
        }
    }
    Ok(if claimed.is_empty() {
        CommandOutcome::Silent(claimed)
    } else {
        CommandOutcome::Changed(claimed)
    })
}

fn may_claim(tx: &Tx<'_>, ask: &ClaimRequest) -> rusqlite::Result<bool> {
    let live = tx.one(
        "SELECT 1 FROM worker
          WHERE id = ?1 AND liveness = ?2 AND abs(heartbeat_at - ?3) <= ttl_ms * 1000",
        params![ask.worker.bytes(), liveness_code(WorkerLiveness::Live), tx.now_micros()],
        |_| Ok(()),
    )?;
    Ok(live.is_some())
}

/// A run in the queue, and its head.
struct ReadyRun {
    run: RunId,
    rank: i64,
    sort_key: i64,
    epoch: u64,
    last_seq: Seq,
}

fn select_ready(
    tx: &Tx<'_>,
    ask: &ClaimRequest,
    inbox: &InboxName,
    count: usize,
) -> rusqlite::Result<Vec<ReadyRun>> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(ReadyRun {
            run: RunId::from_bytes(row.get(0)?),
            rank: row.get(1)?,
            sort_key: row.get(2)?,
            epoch: get_u64(row, 3)?,
            last_seq: Seq(get_u64(row, 4)?),
        })
    };
    if count == 0 {
        return Ok(Vec::new());
    }
    let (inbox, count) = (inbox.as_str(), limit(count));
    if ask.types.is_empty() {
        return tx.all(SELECT_READY, params![inbox, ask.format, ask.host, count], read);
    }
    let types = to_json(&ask.types)?;
    tx.all(SELECT_READY_OF_TYPES, params![inbox, ask.format, ask.host, count, types], read)
}

fn claim_run(
    tx: &Tx<'_>,
    ask: &ClaimRequest,
    inbox: &InboxName,
    picked: ReadyRun,
) -> Result<Claim, CommandError> {
    let run = picked.run;
    let epoch = Epoch(picked.epoch + 1);
    let claimed = Event::RunClaimed(RunClaimed { worker: ask.worker, epoch });
    tx.run(
        "DELETE FROM ready WHERE inbox = ?1 AND rank = ?2 AND sort_key = ?3 AND run = ?4",
        params![inbox.as_str(), picked.rank, picked.sort_key, run.bytes()],
    )?;
    tx.run(
        "UPDATE run_head
            SET state = ?2, epoch = ?3, worker = ?4, last_seq = last_seq + 1,
                format = max(format, ?5), reason = NULL, blocked = 0,
                started_at = coalesce(started_at, ?6)
          WHERE run = ?1",
        params![
            run.bytes(),
            LEASED,
            int(epoch.0),
            ask.worker.bytes(),
            claimed.format(),
            tx.now_micros()
        ],
    )?;
    let tail = AppendPoint { run, epoch, after: picked.last_seq };
    let last = insert_events(tx, tail, &encode_events(run, &[claimed])?)?;
    Ok(Claim { run, epoch, last_seq: last })
}
