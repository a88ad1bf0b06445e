//! Claims ready runs for a worker, in queue order. A claim is the worker's exclusive right to drive
//! the run.
//!
//! The ready queue contains only runs that may start now, so a claim does not check lanes, slots or
//! budgets.

use longhaul_core::event::Event;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{Epoch, InboxName, RunId, Seq};
use longhaul_core::port::store::{Claim, ClaimRequest, WorkerLiveness};
use rusqlite::params;

use crate::sqlite::column::{
    LEASED, count_to_column, get_u64, limit_to_column, liveness_code, to_json,
};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::CommandError;
use crate::sqlite::journal::{AppendPoint, encode_events, insert_events};
use crate::sqlite::tx::Tx;

/// Selects ready runs of an inbox in queue order, which is the order of the primary key, so that
/// nothing is sorted.
pub(crate) const SELECT_READY: &str = "SELECT q.run, q.rank, q.sort_key, h.epoch, h.last_seq
       FROM ready q CROSS JOIN run_head h ON h.run = q.run
      WHERE q.inbox = ?1 AND h.state = 0 AND h.format <= ?2 AND (q.host IS NULL OR q.host = ?3)
      ORDER BY q.rank, q.sort_key, q.run LIMIT ?4";

/// Selects ready runs of an inbox in queue order, but only runs with the given types of tasks.
pub(crate) const SELECT_READY_OF_TYPES: &str =
    "SELECT q.run, q.rank, q.sort_key, h.epoch, h.last_seq
       FROM ready q CROSS JOIN run_head h ON h.run = q.run
      WHERE q.inbox = ?1 AND h.state = 0 AND h.format <= ?2 AND (q.host IS NULL OR q.host = ?3)
        AND q.kind IN (SELECT value FROM json_each(?5))
      ORDER BY q.rank, q.sort_key, q.run LIMIT ?4";

/// Claims ready runs for a worker, in queue order, and returns the claims.
pub(crate) fn claim_runs(
    tx: &Tx<'_>,
    request: &ClaimRequest,
) -> Result<CommandOutcome<Vec<Claim>>, CommandError> {
    if !may_worker_claim(tx, request)? {
        return Ok(CommandOutcome::Silent(Vec::new()));
    }
    let mut claimed = Vec::new();
    for inbox in &request.inboxes {
        let left = request.limit.saturating_sub(claimed.len());
        for picked in select_ready_runs(tx, request, inbox, left)? {
            claimed.push(claim_run(tx, request, inbox, picked)?);
        }
    }
    Ok(if claimed.is_empty() {
        CommandOutcome::Silent(claimed)
    } else {
        CommandOutcome::Changed(claimed)
    })
}

fn may_worker_claim(tx: &Tx<'_>, request: &ClaimRequest) -> rusqlite::Result<bool> {
    let live = tx.query_one(
        "SELECT 1 FROM worker
          WHERE id = ?1 AND liveness = ?2 AND abs(heartbeat_at - ?3) <= ttl_ms * 1000",
        params![request.worker.bytes(), liveness_code(WorkerLiveness::Live), tx.now_micros()],
        |_| Ok(()),
    )?;
    Ok(live.is_some())
}

/// A run in the ready queue, with the columns that are needed to claim it.
struct ReadyRun {
    run: RunId,
    rank: i64,
    sort_key: i64,
    epoch: u64,
    last_seq: Seq,
}

fn select_ready_runs(
    tx: &Tx<'_>,
    request: &ClaimRequest,
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
    let (inbox, count) = (inbox.as_str(), limit_to_column(count));
    if request.types.is_empty() {
        return tx.query_all(
            SELECT_READY,
            params![inbox, request.format, request.host, count],
            read,
        );
    }
    let types = to_json(&request.types)?;
    tx.query_all(
        SELECT_READY_OF_TYPES,
        params![inbox, request.format, request.host, count, types],
        read,
    )
}

fn claim_run(
    tx: &Tx<'_>,
    request: &ClaimRequest,
    inbox: &InboxName,
    picked: ReadyRun,
) -> Result<Claim, CommandError> {
    let run = picked.run;
    let epoch = Epoch(picked.epoch + 1);
    let claimed = Event::RunClaimed(RunClaimed { worker: request.worker, epoch });
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
            count_to_column(epoch.0),
            request.worker.bytes(),
            claimed.format(),
            tx.now_micros()
        ],
    )?;
    let tail = AppendPoint { run, epoch, after: picked.last_seq };
    let last = insert_events(tx, tail, &encode_events(run, &[claimed])?)?;
    Ok(Claim { run, epoch, last_seq: last })
}
