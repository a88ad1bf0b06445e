//! Runs as lists show them.
//!
//! Never: a second truth. Every column here is written with a fact.

use longhaul_core::id::{Epoch, RunId, Seq, WorkerId};
use longhaul_core::port::store::{RunFilter, RunRow};
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, Usage};
use rusqlite::{Result, Row, params, params_from_iter};

use crate::sqlite::column::{
    LANE_WAIT, LEASED, PARKED, PAUSED, READY, get_u32, get_u64, limit, maybe_name, maybe_time,
    name, outcome, status_code, time,
};
use crate::sqlite::filter::Filter;
use crate::sqlite::tx::Tx;

const COLUMNS: &str = "r.id, r.agent, r.definition, r.inbox, r.lane, r.thread, r.resource,
       r.kind, r.priority, r.parent, r.root, r.submitter, r.created_at,
       h.state, h.epoch, h.last_seq, h.worker, h.reason, h.blocked, h.outcome, h.code,
       h.started_at, h.finished_at, h.turns, h.input_tokens, h.output_tokens, h.cached_tokens,
       h.cache_write_tokens, h.reasoning_tokens, h.estimated, h.cost_micro_usd, h.cost_unknown,
       h.active_ms";

const FROM_RUNS: &str = "FROM run r CROSS JOIN run_head h ON h.run = r.id";

/// By way of the runs that have not ended: they are few among the others.
const FROM_OPEN_RUNS: &str =
    "FROM run_head h INDEXED BY run_head_open CROSS JOIN run r ON r.id = h.run";

/// One run's row.
pub(crate) fn row(tx: &Tx<'_>, run: RunId) -> Result<Option<RunRow>> {
    let sql = format!("SELECT {COLUMNS} {FROM_RUNS} WHERE r.id = ?1");
    tx.one(&sql, params![run.bytes()], run_row)
}

/// Rows of runs, newest first.
pub(crate) fn rows(tx: &Tx<'_>, ask: &RunFilter) -> Result<Vec<RunRow>> {
    let all_open = !ask.statuses.iter().any(|status| status.is_terminal());
    let by_open = all_open && !ask.statuses.is_empty() && ask.root.is_none();
    let id = if by_open { "h.run" } else { "r.id" };
    let mut filter = Filter::default();
    if by_open {
        filter.always("h.state <> 5");
    }
    if !ask.statuses.is_empty() {
        let any: Vec<String> =
            ask.statuses.iter().map(|status| status_condition(*status)).collect();
        filter.always(format!("({})", any.join(" OR ")));
    }
    let text = |name: Option<&str>| name.map(str::to_owned);
    let bytes = |run: Option<RunId>| run.map(|run| run.bytes().to_vec());
    filter.only("r.agent = ?", text(ask.agent.as_ref().map(|agent| agent.as_str())));
    filter.only("r.lane = ?", text(ask.lane.as_ref().map(|lane| lane.as_str())));
    filter.only("r.root = ?", bytes(ask.root));
    filter.only(&format!("{id} < ?"), bytes(ask.after));
    let from = if by_open { FROM_OPEN_RUNS } else { FROM_RUNS };
    let select = format!("SELECT {COLUMNS} {from}");
    let order = format!(" ORDER BY {id} DESC");
    let (sql, values) = filter.finish(&select, &order, limit(ask.limit));
    tx.all(&sql, params_from_iter(values), run_row)
}

/// The condition that a run has this status.
fn status_condition(status: Status) -> String {
    match status {
        Status::Pending => "(h.epoch = 0 AND h.state IN (0, 2, 3))".to_owned(),
        Status::Running => "(h.state = 1 OR (h.state = 0 AND h.epoch > 0))".to_owned(),
        Status::Waiting => {
            "(h.epoch > 0 AND (h.state = 3 OR (h.state = 2 AND h.blocked = 0)))".to_owned()
        }
        Status::Blocked => "(h.epoch > 0 AND h.state = 2 AND h.blocked = 1)".to_owned(),
        Status::Paused => "h.state = 4".to_owned(),
        Status::Completed | Status::Failed | Status::Cancelled => {
            format!("(h.state = 5 AND h.outcome = {})", status_code(status))
        }
    }
}

fn run_row(row: &Row<'_>) -> Result<RunRow> {
    let parent: Option<[u8; 16]> = row.get(9)?;
    let worker: Option<[u8; 16]> = row.get(16)?;
    let (status, reason) = status_and_reason(row)?;
    let is_unpriced: bool = row.get(31)?;
    let cost = MicroUsd(get_u64(row, 30)?);
    Ok(RunRow {
        id: RunId::from_bytes(row.get(0)?),
        agent: name(row, 1)?,
        definition: Hash::from_bytes(row.get(2)?),
        status,
        reason,
        code: row.get(20)?,
        inbox: name(row, 3)?,
        lane: maybe_name(row, 4)?,
        thread: maybe_name(row, 5)?,
        resource: maybe_name(row, 6)?,
        kind: row.get(7)?,
        priority: row.get(8)?,
        parent: parent.map(RunId::from_bytes),
        root: RunId::from_bytes(row.get(10)?),
        submitter: row.get(11)?,
        epoch: Epoch(get_u64(row, 14)?),
        worker: worker.map(WorkerId::from_bytes),
        last_seq: Seq(get_u64(row, 15)?),
        turns: get_u32(row, 23)?,
        usage: usage(row, 24)?,
        cost: (!is_unpriced).then_some(cost),
        active: Millis(get_u64(row, 32)?),
        created_at: time(row, 12)?,
        started_at: maybe_time(row, 21)?,
        finished_at: maybe_time(row, 22)?,
    })
}

/// Tokens in six columns, the first of them at `place`.
pub(crate) fn usage(row: &Row<'_>, place: usize) -> Result<Usage> {
    Ok(Usage {
        input_tokens: get_u64(row, place)?,
        output_tokens: get_u64(row, place + 1)?,
        cached_tokens: get_u64(row, place + 2)?,
        cache_write_tokens: get_u64(row, place + 3)?,
        reasoning_tokens: get_u64(row, place + 4)?,
        estimated: row.get(place + 5)?,
    })
}

fn status_and_reason(row: &Row<'_>) -> Result<(Status, Option<String>)> {
    let epoch: i64 = row.get(14)?;
    let unless_new = |status| if epoch == 0 { Status::Pending } else { status };
    let says = |word: &str| Some(word.to_owned());
    Ok(match row.get(13)? {
        READY => (unless_new(Status::Running), says("worker")),
        LEASED => (Status::Running, None),
        PARKED => {
            let is_blocked: bool = row.get(18)?;
            let rests = if is_blocked { Status::Blocked } else { Status::Waiting };
            (unless_new(rests), row.get(17)?)
        }
        LANE_WAIT => (unless_new(Status::Waiting), says("lane")),
        PAUSED => (Status::Paused, None),
        _ => (outcome(row, 19)?, None),
    })
}
