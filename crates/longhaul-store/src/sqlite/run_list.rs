//! Lists the rows of runs that match a filter, and counts the runs of the store.

use longhaul_core::id::RunId;
use longhaul_core::port::store::{RunCounts, RunFilter, RunRow, RunSort};
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use longhaul_core::usage::MicroUsd;
use longhaul_core::wait::WaitKind;
use rusqlite::types::Value;
use rusqlite::{Result, params_from_iter};

use crate::sqlite::column::{ENDED, get_u64, limit_to_column, status_to_column};
use crate::sqlite::filter::WhereClauseBuilder;
use crate::sqlite::run_row::{COLUMNS, FROM_RUNS, JOIN_CHAIN, NOT_RETRIED, read_run_row};
use crate::sqlite::tx::Tx;

/// FROM clause that uses the index of open runs, which are few compared to all runs.
const FROM_OPEN_RUNS: &str =
    "FROM run_head h INDEXED BY run_head_open CROSS JOIN run r ON r.id = h.run";

/// FROM clause that uses the index of failed runs.
const FROM_FAILED_RUNS: &str =
    "FROM run_head h INDEXED BY run_head_failed CROSS JOIN run r ON r.id = h.run";

/// FROM clause that uses the index of the failed runs of each inbox.
const FROM_FAILED_RUNS_OF_INBOX: &str =
    "FROM run_head h INDEXED BY run_head_failed_inbox CROSS JOIN run r ON r.id = h.run";

/// SQL condition that somebody has submitted the run `r`: it is no child, and the newest run of its
/// chain `c` if it belongs to one. A chain without a row has lost its newest run.
const IS_SUBMITTED: &str = "CASE WHEN c.current IS NULL
            THEN r.parent IS NULL OR r.chain_step IS NOT NULL ELSE c.current = r.id END";

/// Reason of a run in lists: why the run with the head `h` waits, or why it failed.
const SHOWN_REASON: &str =
    "CASE h.state WHEN 0 THEN 'worker' WHEN 2 THEN h.reason WHEN 3 THEN 'lane' ELSE h.code END";

/// Selects the open runs that wait for a person. Its parameters are the reasons of such waits.
pub(crate) const SELECT_RUNS_WAITING_FOR_PERSON: &str =
    "SELECT w.run FROM run_head w INDEXED BY run_head_open
      WHERE w.state <> 5 AND w.state = 2 AND (w.blocked = 1 OR w.reason IN (?, ?, ?, ?))";

/// Lists the rows of runs that match a filter.
pub(crate) fn list_run_rows(tx: &Tx<'_>, run_filter: &RunFilter) -> Result<Vec<RunRow>> {
    let (sql, values) = select_run_rows_statement(run_filter, tx.now);
    tx.query_all(&sql, params_from_iter(values), read_run_row)
}

/// Returns the statement that lists the rows of runs that match a filter, and its parameters.
pub(crate) fn select_run_rows_statement(
    run_filter: &RunFilter,
    now: Timestamp,
) -> (String, Vec<Value>) {
    let (from_clause, id_column) = from_clause_and_id_column(run_filter);
    let mut filter = WhereClauseBuilder::default();
    add_state_conditions(&mut filter, run_filter);
    add_task_conditions(&mut filter, run_filter, id_column);
    let order = add_order(&mut filter, run_filter, (id_column, now));
    let select = format!("SELECT {COLUMNS} {from_clause} {JOIN_CHAIN}");
    filter.into_select_statement(&select, &order, limit_to_column(run_filter.limit))
}

/// Returns whether a list reads only open runs, or only failed ones, of which there are indexes.
fn reads_only_open_or_failed(run_filter: &RunFilter) -> (bool, bool) {
    let statuses = &run_filter.statuses;
    let by_tree = run_filter.root.is_some() || run_filter.parent.is_some();
    let all_open = !statuses.is_empty() && !statuses.iter().any(|status| status.is_terminal());
    (all_open && !by_tree, *statuses == [Status::Failed] && !by_tree)
}

fn from_clause_and_id_column(run_filter: &RunFilter) -> (&'static str, &'static str) {
    match (reads_only_open_or_failed(run_filter), &run_filter.inbox) {
        ((true, _), _) => (FROM_OPEN_RUNS, "h.run"),
        ((false, true), None) => (FROM_FAILED_RUNS, "h.run"),
        ((false, true), Some(_)) => (FROM_FAILED_RUNS_OF_INBOX, "h.run"),
        ((false, false), _) => (FROM_RUNS, "r.id"),
    }
}

/// Selects the failed runs that are no child runs and that no later run retries.
pub(crate) fn select_failed_runs_to_retry_sql() -> String {
    format!(
        "SELECT h.run FROM run_head h INDEXED BY run_head_failed CROSS JOIN run f ON f.id = h.run \
          WHERE h.outcome = 6 AND (f.parent IS NULL OR f.chain_step IS NOT NULL) AND {NOT_RETRIED}"
    )
}

/// Adds the conditions about what has become of a run since it was submitted.
fn add_state_conditions(filter: &mut WhereClauseBuilder, run_filter: &RunFilter) {
    let (only_open, only_failed) = reads_only_open_or_failed(run_filter);
    if only_open {
        filter.add_fixed_condition("h.state <> 5");
    }
    if only_failed {
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
    if !run_filter.reasons.is_empty() {
        let any = vec!["?"; run_filter.reasons.len()].join(", ");
        let condition = format!("(h.run IS NULL OR {SHOWN_REASON} IN ({any}))");
        filter.add_condition(condition, run_filter.reasons.iter().cloned().map(Value::from));
    }
    if run_filter.needs_person {
        let failed = select_failed_runs_to_retry_sql();
        let selected = format!("r.id IN ({SELECT_RUNS_WAITING_FOR_PERSON} UNION ALL {failed})");
        filter.add_condition(selected, reasons_that_need_person());
    }
}

fn reasons_that_need_person() -> impl Iterator<Item = Value> {
    WaitKind::NEEDS_PERSON.into_iter().map(|kind| kind.code().to_owned().into())
}

/// Adds the conditions about the task of a run and about its relatives.
fn add_task_conditions(filter: &mut WhereClauseBuilder, run_filter: &RunFilter, id_column: &str) {
    let text = |name: Option<&str>| name.map(str::to_owned);
    let bytes = |run: Option<RunId>| run.map(|run| run.bytes().to_vec());
    let time = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    let RunFilter { agent, lane, inbox, thread, resource, .. } = run_filter;
    filter.add_optional_condition("r.agent = ?", text(agent.as_ref().map(|name| name.as_str())));
    filter.add_optional_condition("r.lane = ?", text(lane.as_ref().map(|name| name.as_str())));
    let (_, only_failed) = reads_only_open_or_failed(run_filter);
    filter.add_optional_condition(
        if only_failed { "h.inbox = ?" } else { "r.inbox = ?" },
        text(inbox.as_ref().map(|name| name.as_str())),
    );
    filter.add_optional_condition("r.thread = ?", text(thread.as_ref().map(|name| name.as_str())));
    let resource = text(resource.as_ref().map(|name| name.as_str()));
    filter.add_optional_condition("r.resource = ?", resource);
    let tag = "EXISTS (SELECT 1 FROM json_each(r.tags) tag WHERE tag.value = ?)";
    filter.add_optional_condition(tag, run_filter.tag.clone());
    filter.add_optional_condition("r.created_at >= ?", time(run_filter.since));
    filter.add_optional_condition("r.created_at < ?", time(run_filter.until));
    if run_filter.roots_only {
        filter.add_fixed_condition(IS_SUBMITTED);
    }
    filter.add_optional_condition("r.root = ?", bytes(run_filter.root));
    // Children are found by the index of their tree.
    let tree = "r.root = (SELECT p.root FROM run p WHERE p.id = ?)";
    filter.add_optional_condition(tree, bytes(run_filter.parent));
    filter.add_optional_condition("r.parent = ?", bytes(run_filter.parent));
    // The search comes last, because it reads the most.
    let search = format!(
        "EXISTS (SELECT 1 FROM run_text t WHERE t.run = {id_column} AND instr(t.text, ?) > 0)"
    );
    let searched_text = run_filter.search.as_ref().map(|text| text.to_lowercase());
    filter.add_optional_condition(&search, searched_text);
}

/// Adds the condition that a run comes after the last run of the previous page, and returns the
/// ORDER BY clause.
fn add_order(
    filter: &mut WhereClauseBuilder,
    run_filter: &RunFilter,
    (id_column, now): (&str, Timestamp),
) -> String {
    let after = run_filter.after.map(|run| Value::from(run.bytes().to_vec()));
    let amount = match run_filter.sort {
        RunSort::Created => {
            filter.add_optional_condition(&format!("{id_column} < ?"), after);
            return format!(" ORDER BY {id_column} DESC");
        }
        RunSort::Started => "coalesce(h.started_at, 0)",
        RunSort::Cost => "h.cost_micro_usd",
        RunSort::Active => "h.active_ms",
        RunSort::Waiting => "coalesce(h.finished_at, ?) - r.created_at - 1000 * h.active_ms",
    };
    let times = vec![Value::from(now.as_micros()); amount.matches('?').count()];
    if let Some(after) = after {
        // The inner `r` and `h` are those of the last run of the previous page.
        let condition = format!(
            "({amount}, {id_column}) < (SELECT {amount}, r.id FROM run r \
             JOIN run_head h ON h.run = r.id WHERE r.id = ?)"
        );
        filter.add_condition(condition, [times.clone(), times.clone(), vec![after]].concat());
    }
    filter.set_order_values(times);
    format!(" ORDER BY {amount} DESC, {id_column} DESC")
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

/// Counts the runs of the store, and sums up what they have cost.
pub(crate) fn count_runs(tx: &Tx<'_>) -> Result<RunCounts> {
    let count = |sql: &str, values: Vec<Value>| {
        let sql = format!("SELECT count(*) FROM ({sql})");
        let count = tx.query_one(&sql, params_from_iter(values), |row| get_u64(row, 0))?;
        Ok::<_, rusqlite::Error>(count.unwrap_or_default())
    };
    let sums = tx.query_one(SELECT_SUMS, (), |row| {
        Ok(RunCounts {
            total: get_u64(row, 0)?,
            cost: MicroUsd(get_u64(row, 1)?),
            unpriced: get_u64(row, 2)?,
            ..RunCounts::default()
        })
    })?;
    Ok(RunCounts {
        open: count("SELECT 1 FROM run_head INDEXED BY run_head_open WHERE state <> 5", vec![])?,
        waiting_for_person: count(
            SELECT_RUNS_WAITING_FOR_PERSON,
            reasons_that_need_person().collect(),
        )?,
        failed: count(&select_failed_runs_to_retry_sql(), vec![])?,
        ..sums.unwrap_or_default()
    })
}

/// Selects the number of runs, their cost, and how many of them have a call of unknown price.
const SELECT_SUMS: &str = "SELECT count(*), coalesce(sum(cost_micro_usd), 0),
            coalesce(sum(cost_unknown), 0) FROM run_head";
