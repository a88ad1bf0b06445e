//! Rows of runs, as shown in lists. All columns are derived from events and written together with
//! the events.

use longhaul_core::chain::ChainRow;
use longhaul_core::id::{BatchId, Epoch, RunId, Seq, WorkerId};
use longhaul_core::port::store::RunRow;
use longhaul_core::raw::Hash;
use longhaul_core::status::{HeadState, Status};
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, Usage};
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{
    ENDED, LANE_WAIT, LEASED, PARKED, PAUSED, READY, column_conversion_error, get_final_status,
    get_optional_json, get_optional_parsed, get_optional_time, get_parsed, get_time, get_u32,
    get_u64,
};
use crate::sqlite::tx::Tx;

pub(crate) const COLUMNS: &str =
    "r.id, r.agent, r.definition, r.inbox, r.lane, r.thread, r.resource,
       r.kind, r.priority, r.parent, r.root, r.submitter, r.created_at,
       h.state, h.epoch, h.last_seq, h.worker, h.reason, h.blocked, h.outcome, h.code,
       h.started_at, h.finished_at, h.turns, h.input_tokens, h.output_tokens, h.cached_tokens,
       h.cache_write_tokens, h.reasoning_tokens, h.estimated, h.cost_micro_usd, h.cost_unknown,
       h.active_ms, r.chain_step, c.name, c.steps, c.current,
       ch.state, ch.epoch, ch.reason, ch.blocked, ch.outcome, r.title, r.tags, h.progress";

/// SQL joins that add the chain of a run `r` (the series of runs that it is a step of), and the head
/// (scheduling row) of the chain's newest run.
pub(crate) const JOIN_CHAIN: &str = "LEFT JOIN chain c
         ON c.first_run = coalesce(r.account, r.root) AND r.chain_step IS NOT NULL
       LEFT JOIN run_head ch ON ch.run = c.current";

/// FROM clause for any runs. A run without a head is part of the result, because a damaged store must
/// be reported instead of listed in part.
pub(crate) const FROM_RUNS: &str = "FROM run r LEFT JOIN run_head h ON h.run = r.id";

/// SQL condition that no later run retries the run with the head (scheduling row) `h`.
pub(crate) const NOT_RETRIED: &str =
    "NOT EXISTS (SELECT 1 FROM run later WHERE later.retry_of = h.run)";

/// Returns the row of a run. `None` means that there is no such run.
pub(crate) fn get_run_row(tx: &Tx<'_>, run: RunId) -> Result<Option<RunRow>> {
    let sql = format!("SELECT {COLUMNS} {FROM_RUNS} {JOIN_CHAIN} WHERE r.id = ?1");
    tx.query_one(&sql, params![run.bytes()], read_run_row)
}

/// Selects the runs of a batch, in the order in which they were submitted.
pub(crate) const SELECT_BATCH_RUNS: &str = "SELECT id FROM run WHERE batch = ?1 ORDER BY id";

/// Returns the runs of a batch, in the order in which they were submitted.
pub(crate) fn list_batch_runs(tx: &Tx<'_>, batch: BatchId) -> Result<Vec<RunId>> {
    tx.query_all(SELECT_BATCH_RUNS, params![batch.bytes()], |row| row.get(0).map(RunId::from_bytes))
}

/// Error for a run whose head (scheduling row) is missing.
#[derive(Debug, thiserror::Error)]
#[error("the run {0} has no head")]
struct MissingHeadError(RunId);

pub(crate) fn read_run_row(row: &Row<'_>) -> Result<RunRow> {
    let id = RunId::from_bytes(row.get(0)?);
    if row.get_ref(HEAD_COLUMNS.state)? == ValueRef::Null {
        return Err(column_conversion_error(HEAD_COLUMNS.state, Type::Null, MissingHeadError(id)));
    }
    let parent: Option<[u8; 16]> = row.get(9)?;
    let worker: Option<[u8; 16]> = row.get(16)?;
    let (status, reason) = read_status_and_reason(row, &HEAD_COLUMNS)?;
    let is_unpriced: bool = row.get(31)?;
    let cost = MicroUsd(get_u64(row, 30)?);
    Ok(RunRow {
        id,
        agent: get_parsed(row, 1)?,
        definition: Hash::from_bytes(row.get(2)?),
        status,
        reason,
        code: row.get(20)?,
        inbox: get_parsed(row, 3)?,
        lane: get_optional_parsed(row, 4)?,
        thread: get_optional_parsed(row, 5)?,
        resource: get_optional_parsed(row, 6)?,
        kind: row.get(7)?,
        priority: row.get(8)?,
        parent: parent.map(RunId::from_bytes),
        root: RunId::from_bytes(row.get(10)?),
        chain: read_chain_columns(row)?,
        submitter: row.get(11)?,
        title: row.get(42)?,
        tags: get_optional_json(row, 43)?.unwrap_or_default(),
        progress: get_optional_json(row, 44)?,
        epoch: Epoch(get_u64(row, 14)?),
        worker: worker.map(WorkerId::from_bytes),
        last_seq: Seq(get_u64(row, 15)?),
        turns: get_u32(row, 23)?,
        usage: get_usage_columns(row, 24)?,
        cost: (!is_unpriced).then_some(cost),
        active: Millis(get_u64(row, 32)?),
        created_at: get_time(row, 12)?,
        started_at: get_optional_time(row, 21)?,
        finished_at: get_optional_time(row, 22)?,
    })
}

/// Reads token counts from six columns, starting at column `index`.
pub(crate) fn get_usage_columns(row: &Row<'_>, index: usize) -> Result<Usage> {
    Ok(Usage {
        input_tokens: get_u64(row, index)?,
        output_tokens: get_u64(row, index + 1)?,
        cached_tokens: get_u64(row, index + 2)?,
        cache_write_tokens: get_u64(row, index + 3)?,
        reasoning_tokens: get_u64(row, index + 4)?,
        estimated: row.get(index + 5)?,
    })
}

/// Indexes of the columns that a run's status and reason are read from.
struct StatusColumnIndexes {
    state: usize,
    epoch: usize,
    reason: usize,
    blocked: usize,
    outcome: usize,
}

const HEAD_COLUMNS: StatusColumnIndexes =
    StatusColumnIndexes { state: 13, epoch: 14, reason: 17, blocked: 18, outcome: 19 };
const CHAIN_COLUMNS: StatusColumnIndexes =
    StatusColumnIndexes { state: 37, epoch: 38, reason: 39, blocked: 40, outcome: 41 };

/// Reads the position of a run in its chain. `None` if it belongs to no chain.
fn read_chain_columns(row: &Row<'_>) -> Result<Option<ChainRow>> {
    let current: Option<[u8; 16]> = row.get(36)?;
    let is_known = row.get::<_, Option<i64>>(CHAIN_COLUMNS.state)?.is_some();
    let Some(current) = current.filter(|_| is_known) else {
        return Ok(None);
    };
    Ok(Some(ChainRow {
        name: row.get(34)?,
        step: get_u32(row, 33)?,
        steps: get_u32(row, 35)?,
        current: RunId::from_bytes(current),
        current_status: read_status_and_reason(row, &CHAIN_COLUMNS)?.0,
    }))
}

fn read_status_and_reason(
    row: &Row<'_>,
    columns: &StatusColumnIndexes,
) -> Result<(Status, Option<String>)> {
    let epoch: i64 = row.get(columns.epoch)?;
    let reason: Option<String> = row.get(columns.reason)?;
    let state = match row.get(columns.state)? {
        PARKED => {
            HeadState::Parked { reason: reason.as_deref(), blocked: row.get(columns.blocked)? }
        }
        ENDED => HeadState::Ended(get_final_status(row, columns.outcome)?),
        state => open_head_state(state),
    };
    let (status, reason) = state.status_and_reason(epoch == 0);
    Ok((status, reason.map(str::to_owned)))
}

/// Returns the scheduling state of an open run from its column. A parked run has no reason.
pub(crate) const fn open_head_state(state: i64) -> HeadState<'static> {
    match state {
        READY => HeadState::Ready,
        LEASED => HeadState::Leased,
        LANE_WAIT => HeadState::LaneWait,
        PAUSED => HeadState::Paused,
        _ => HeadState::Parked { reason: None, blocked: false },
    }
}
