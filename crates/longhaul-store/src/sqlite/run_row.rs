//! Rows of runs, as shown in lists. All columns are derived from events and written together with
//! the events.

use longhaul_core::chain::ChainRow;
use longhaul_core::id::{BatchId, Epoch, RunId, Seq, WorkerId};
use longhaul_core::port::store::{RunFilter, RunRow};
use longhaul_core::raw::Hash;
use longhaul_core::status::{HeadState, Status};
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, Usage};
use rusqlite::types::{Type, Value, ValueRef};
use rusqlite::{Result, Row, params, params_from_iter};

use crate::sqlite::column::{
    ENDED, LANE_WAIT, LEASED, PARKED, PAUSED, READY, column_conversion_error, get_final_status,
    get_optional_parsed, get_optional_time, get_parsed, get_time, get_u32, get_u64,
    limit_to_column, status_to_column,
};
use crate::sqlite::filter::WhereClauseBuilder;
use crate::sqlite::tx::Tx;

const COLUMNS: &str = "r.id, r.agent, r.definition, r.inbox, r.lane, r.thread, r.resource,
       r.kind, r.priority, r.parent, r.root, r.submitter, r.created_at,
       h.state, h.epoch, h.last_seq, h.worker, h.reason, h.blocked, h.outcome, h.code,
       h.started_at, h.finished_at, h.turns, h.input_tokens, h.output_tokens, h.cached_tokens,
       h.cache_write_tokens, h.reasoning_tokens, h.estimated, h.cost_micro_usd, h.cost_unknown,
       h.active_ms, r.chain_step, c.name, c.steps, c.current,
       ch.state, ch.epoch, ch.reason, ch.blocked, ch.outcome";

/// SQL joins that add the chain of a run `r` (the series of runs that it is a step of), and the head
/// (scheduling row) of the chain's newest run.
const JOIN_CHAIN: &str = "LEFT JOIN chain c
         ON c.first_run = coalesce(r.account, r.root) AND r.chain_step IS NOT NULL
       LEFT JOIN run_head ch ON ch.run = c.current";

/// FROM clause for any runs. A run without a head is part of the result, because a damaged store must
/// be reported instead of listed in part.
const FROM_RUNS: &str = "FROM run r LEFT JOIN run_head h ON h.run = r.id";

/// FROM clause that uses the index of open runs, which are few compared to all runs.
const FROM_OPEN_RUNS: &str =
    "FROM run_head h INDEXED BY run_head_open CROSS JOIN run r ON r.id = h.run";

/// FROM clause that uses the index of failed runs.
const FROM_FAILED_RUNS: &str =
    "FROM run_head h INDEXED BY run_head_failed CROSS JOIN run r ON r.id = h.run";

/// FROM clause that uses the index of the failed runs of each inbox.
const FROM_FAILED_RUNS_OF_INBOX: &str =
    "FROM run_head h INDEXED BY run_head_failed_inbox CROSS JOIN run r ON r.id = h.run";

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

/// Lists the rows of runs that match a filter, newest first.
pub(crate) fn list_run_rows(tx: &Tx<'_>, run_filter: &RunFilter) -> Result<Vec<RunRow>> {
    let (sql, values) = select_run_rows_statement(run_filter);
    tx.query_all(&sql, params_from_iter(values), read_run_row)
}

/// Returns the statement that lists the rows of runs that match a filter, and its parameters.
pub(crate) fn select_run_rows_statement(run_filter: &RunFilter) -> (String, Vec<Value>) {
    let all_open = !run_filter.statuses.iter().any(|status| status.is_terminal());
    let by_tree = run_filter.root.is_some() || run_filter.parent.is_some();
    let by_open = all_open && !run_filter.statuses.is_empty() && !by_tree;
    let by_failed = run_filter.statuses == [Status::Failed] && !by_tree;
    let id_column = if by_open || by_failed { "h.run" } else { "r.id" };
    let mut filter = WhereClauseBuilder::default();
    if by_open {
        filter.add_fixed_condition("h.state <> 5");
    }
    if by_failed {
        filter.add_fixed_condition("h.outcome = 6");
    }
    if run_filter.not_retried {
        filter.add_fixed_condition(NOT_RETRIED);
    }
    if !run_filter.statuses.is_empty() {
        let any: Vec<String> =
            run_filter.statuses.iter().map(|status| status_sql_condition(*status)).collect();
        filter.add_fixed_condition(format!("(h.run IS NULL OR {})", any.join(" OR ")));
    }
    let text = |name: Option<&str>| name.map(str::to_owned);
    let bytes = |run: Option<RunId>| run.map(|run| run.bytes().to_vec());
    filter.add_optional_condition(
        "r.agent = ?",
        text(run_filter.agent.as_ref().map(|agent| agent.as_str())),
    );
    filter.add_optional_condition(
        "r.lane = ?",
        text(run_filter.lane.as_ref().map(|lane| lane.as_str())),
    );
    filter.add_optional_condition(
        if by_failed { "h.inbox = ?" } else { "r.inbox = ?" },
        text(run_filter.inbox.as_ref().map(|inbox| inbox.as_str())),
    );
    filter.add_optional_condition("r.root = ?", bytes(run_filter.root));
    // Children are found by the index of their tree.
    let tree = "r.root = (SELECT p.root FROM run p WHERE p.id = ?)";
    filter.add_optional_condition(tree, bytes(run_filter.parent));
    filter.add_optional_condition("r.parent = ?", bytes(run_filter.parent));
    filter.add_optional_condition(&format!("{id_column} < ?"), bytes(run_filter.after));
    let from_clause = match (by_open, by_failed, &run_filter.inbox) {
        (true, ..) => FROM_OPEN_RUNS,
        (false, true, None) => FROM_FAILED_RUNS,
        (false, true, Some(_)) => FROM_FAILED_RUNS_OF_INBOX,
        (false, false, _) => FROM_RUNS,
    };
    let select = format!("SELECT {COLUMNS} {from_clause} {JOIN_CHAIN}");
    let order = format!(" ORDER BY {id_column} DESC");
    filter.into_select_statement(&select, &order, limit_to_column(run_filter.limit))
}

/// Returns the SQL condition that selects runs with this status.
fn status_sql_condition(status: Status) -> String {
    match status {
        Status::Pending => "(h.epoch = 0 AND h.state IN (0, 2, 3))".to_owned(),
        Status::Running => "(h.state = 1 OR (h.state = 0 AND h.epoch > 0))".to_owned(),
        Status::Waiting => {
            "(h.epoch > 0 AND (h.state = 3 OR (h.state = 2 AND h.blocked = 0)))".to_owned()
        }
        Status::Blocked => "(h.epoch > 0 AND h.state = 2 AND h.blocked = 1)".to_owned(),
        Status::Paused => "h.state = 4".to_owned(),
        Status::Completed | Status::Failed | Status::Cancelled => {
            format!("(h.state = {ENDED} AND h.outcome = {})", status_to_column(status))
        }
    }
}

/// Error for a run whose head (scheduling row) is missing.
#[derive(Debug, thiserror::Error)]
#[error("the run {0} has no head")]
struct MissingHeadError(RunId);

fn read_run_row(row: &Row<'_>) -> Result<RunRow> {
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
