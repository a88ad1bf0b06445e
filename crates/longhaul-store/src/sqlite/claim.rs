//! Claims ready runs for a worker, and lists them. A claim is the worker's exclusive right to drive
//! the run.
//!
//! The ready queue contains only runs that may start now, so a claim does not check lanes, slots or
//! budgets.

use std::collections::BTreeSet;

use longhaul_core::event::Event;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{Epoch, InboxName, RunId, Seq};
use longhaul_core::port::queue::{PeekRequest, QueuePosition, RunsToClaim};
use longhaul_core::port::store::{Claim, RunClaimRequest, WorkerLiveness};
use rusqlite::{Row, params};

use crate::sqlite::column::{LEASED, count_to_column, get_u64, limit_to_column, liveness_code};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::WriteCommandError;
use crate::sqlite::journal::{JournalAppendPoint, encode_events, insert_events};
use crate::sqlite::tx::Tx;

/// Selects the ready runs of an inbox (a named queue of tasks) that come after a given position of
/// the queue. The order of the queue is the order of the primary key, so that nothing is sorted.
pub(crate) const SELECT_READY: &str =
    "SELECT q.run, q.inbox, q.rank, q.sort_key, h.epoch, h.last_seq
       FROM ready q CROSS JOIN run_head h ON h.run = q.run
      WHERE q.inbox = ?1 AND (q.rank, q.sort_key, q.run) > (?2, ?3, ?4)
        AND h.state = 0 AND h.format <= ?5 AND (q.host IS NULL OR q.host = ?6)
      ORDER BY q.rank, q.sort_key, q.run LIMIT ?7";

/// Selects ready runs like [`SELECT_READY`], but only runs with tasks of one type.
pub(crate) const SELECT_READY_OF_TYPE: &str =
    "SELECT q.run, q.inbox, q.rank, q.sort_key, h.epoch, h.last_seq
       FROM ready q INDEXED BY ready_kind CROSS JOIN run_head h ON h.run = q.run
      WHERE q.inbox = ?1 AND q.kind = ?8 AND (q.rank, q.sort_key, q.run) > (?2, ?3, ?4)
        AND h.state = 0 AND h.format <= ?5 AND (q.host IS NULL OR q.host = ?6)
      ORDER BY q.rank, q.sort_key, q.run LIMIT ?7";

pub(crate) const SELECT_READY_RUN: &str =
    "SELECT q.run, q.inbox, q.rank, q.sort_key, h.epoch, h.last_seq
       FROM ready q CROSS JOIN run_head h ON h.run = q.run
      WHERE q.run = ?1 AND h.state = 0 AND h.format <= ?2 AND (q.host IS NULL OR q.host = ?3)";

/// Selects the ready runs of a tree (a root run and its descendants), the oldest first.
pub(crate) const SELECT_READY_IN_TREE: &str =
    "SELECT q.run, q.inbox, q.rank, q.sort_key, h.epoch, h.last_seq
       FROM run t CROSS JOIN ready q ON q.run = t.id CROSS JOIN run_head h ON h.run = q.run
      WHERE t.root = ?1 AND h.state = 0 AND h.format <= ?2 AND (q.host IS NULL OR q.host = ?3)
      ORDER BY t.id LIMIT ?4";

/// Claims ready runs for a worker, from each inbox the same number, and returns the claims.
pub(crate) fn claim_runs(
    tx: &Tx<'_>,
    request: &RunClaimRequest,
) -> Result<CommandOutcome<Vec<Claim>>, WriteCommandError> {
    if !may_worker_claim(tx, request)? {
        return Ok(CommandOutcome::Silent(Vec::new()));
    }
    let claimed = match &request.only {
        Some(RunsToClaim::Runs(runs)) => claim_runs_by_id(tx, request, runs)?,
        Some(RunsToClaim::Tree(root)) => claim_runs_with_root(tx, request, *root)?,
        None => claim_from_inboxes(tx, request)?,
    };
    Ok(if claimed.is_empty() {
        CommandOutcome::Silent(claimed)
    } else {
        CommandOutcome::Changed(claimed)
    })
}

fn claim_runs_by_id(
    tx: &Tx<'_>,
    request: &RunClaimRequest,
    runs: &[RunId],
) -> Result<Vec<Claim>, WriteCommandError> {
    let mut claimed = Vec::new();
    for run in runs {
        if claimed.len() == request.limit {
            break;
        }
        let params = params![run.bytes(), request.format, request.host];
        if let Some(ready) = tx.query_one(SELECT_READY_RUN, params, ready_run_from_row)? {
            claimed.push(claim_run(tx, request, ready)?);
        }
    }
    Ok(claimed)
}

/// Claims ready runs of the tree of runs with this root.
fn claim_runs_with_root(
    tx: &Tx<'_>,
    request: &RunClaimRequest,
    root: RunId,
) -> Result<Vec<Claim>, WriteCommandError> {
    let limit = limit_to_column(request.limit);
    let params = params![root.bytes(), request.format, request.host, limit];
    let ready = tx.query_all(SELECT_READY_IN_TREE, params, ready_run_from_row)?;
    ready.into_iter().map(|ready| claim_run(tx, request, ready)).collect()
}

/// Claims ready runs from the inboxes (named queues of tasks) in equal shares, until the limit is
/// reached or all inboxes are exhausted.
fn claim_from_inboxes(
    tx: &Tx<'_>,
    request: &RunClaimRequest,
) -> Result<Vec<Claim>, WriteCommandError> {
    let mut claimed = Vec::new();
    let mut inboxes: Vec<&InboxName> = request.inboxes.iter().collect();
    while !inboxes.is_empty() && claimed.len() < request.limit {
        let share = ((request.limit - claimed.len()) / inboxes.len()).max(1);
        let mut not_exhausted = Vec::new();
        for inbox in inboxes {
            let share_limit = share.min(request.limit - claimed.len());
            let peek = PeekRequest {
                inbox: inbox.clone(),
                types: request.types.clone(),
                format: request.format,
                host: request.host.clone(),
                after: None,
                limit: share_limit,
            };
            let ready = select_ready_runs(tx, &peek)?;
            if ready.len() == share_limit {
                not_exhausted.push(inbox);
            }
            for ready in ready {
                claimed.push(claim_run(tx, request, ready)?);
            }
        }
        inboxes = not_exhausted;
    }
    Ok(claimed)
}

/// Lists ready runs of an inbox (a named queue of tasks), in queue order.
pub(crate) fn peek_queue(
    tx: &Tx<'_>,
    request: &PeekRequest,
) -> rusqlite::Result<Vec<QueuePosition>> {
    let ready = select_ready_runs(tx, request)?;
    Ok(ready.into_iter().map(|ready| ready.position).collect())
}

/// Returns whether the worker may claim runs: it is live (neither draining nor dead), and its last
/// heartbeat is not older than its ttl.
fn may_worker_claim(tx: &Tx<'_>, request: &RunClaimRequest) -> rusqlite::Result<bool> {
    let row = tx.query_one(
        "SELECT 1 FROM worker
          WHERE id = ?1 AND liveness = ?2 AND abs(heartbeat_at - ?3) <= ttl_ms * 1000",
        params![request.worker.bytes(), liveness_code(WorkerLiveness::Live), tx.now_micros()],
        |_| Ok(()),
    )?;
    Ok(row.is_some())
}

/// A run in the ready queue, with the columns that are needed to claim it.
struct ReadyRun {
    inbox: String,
    position: QueuePosition,
    epoch: u64,
    last_seq: Seq,
}

fn ready_run_from_row(row: &Row<'_>) -> rusqlite::Result<ReadyRun> {
    let run = RunId::from_bytes(row.get(0)?);
    Ok(ReadyRun {
        inbox: row.get(1)?,
        position: QueuePosition { rank: row.get(2)?, sort_key: row.get(3)?, run },
        epoch: get_u64(row, 4)?,
        last_seq: Seq(get_u64(row, 5)?),
    })
}

fn select_ready_runs(tx: &Tx<'_>, request: &PeekRequest) -> rusqlite::Result<Vec<ReadyRun>> {
    if request.limit == 0 {
        return Ok(Vec::new());
    }
    let (rank, sort_key, run) = match request.after {
        Some(after) => (after.rank, after.sort_key, after.run.bytes()),
        None => (i64::MIN, i64::MIN, [0; 16]),
    };
    let (inbox, limit) = (request.inbox.as_str(), limit_to_column(request.limit));
    let (format, host) = (request.format, &request.host);
    if request.types.is_empty() {
        let values = params![inbox, rank, sort_key, run, format, host, limit];
        return tx.query_all(SELECT_READY, values, ready_run_from_row);
    }
    let types: BTreeSet<&String> = request.types.iter().collect();
    let mut found = Vec::new();
    for kind in types {
        let values = params![inbox, rank, sort_key, run, format, host, limit, kind];
        found.extend(tx.query_all(SELECT_READY_OF_TYPE, values, ready_run_from_row)?);
    }
    found.sort_unstable_by_key(|ready| ready.position);
    found.truncate(request.limit);
    Ok(found)
}

fn claim_run(
    tx: &Tx<'_>,
    request: &RunClaimRequest,
    ready_run: ReadyRun,
) -> Result<Claim, WriteCommandError> {
    let QueuePosition { rank, sort_key, run } = ready_run.position;
    let epoch = Epoch(ready_run.epoch + 1);
    let claimed = Event::RunClaimed(RunClaimed { worker: request.worker, epoch });
    tx.run(
        "DELETE FROM ready WHERE inbox = ?1 AND rank = ?2 AND sort_key = ?3 AND run = ?4",
        params![ready_run.inbox, rank, sort_key, run.bytes()],
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
    let tail = JournalAppendPoint { run, epoch, after: ready_run.last_seq };
    let last = insert_events(tx, tail, &encode_events(run, &[claimed])?)?;
    Ok(Claim { run, epoch, last_seq: last })
}
