//! Usage of models: totals in the run's head (its scheduling row), and one row for each model call.

use longhaul_core::change::UsageRow;
use longhaul_core::id::RunId;
use longhaul_core::port::records::{DAY_MICROS, UsageQuery, UsageSum};
use longhaul_core::usage::MicroUsd;
use rusqlite::{Result, params};

use crate::sqlite::column::{amount_to_column, get_parsed, get_time, get_u64, limit_to_column};
use crate::sqlite::run_row::get_usage_columns;
use crate::sqlite::tx::Tx;

/// Adds the usage of one model call to a run. A row without a model name only adds active time.
pub(crate) fn add_usage(tx: &Tx<'_>, run: RunId, row: &UsageRow) -> Result<()> {
    let is_call = !row.model.is_empty();
    let usage = &row.usage;
    tx.run(
        "UPDATE run_head
            SET turns = turns + ?2, input_tokens = input_tokens + ?3,
                output_tokens = output_tokens + ?4, cached_tokens = cached_tokens + ?5,
                cache_write_tokens = cache_write_tokens + ?6,
                reasoning_tokens = reasoning_tokens + ?7, estimated = estimated OR ?8,
                cost_micro_usd = cost_micro_usd + ?9, cost_unknown = cost_unknown OR ?10,
                active_ms = active_ms + ?11
          WHERE run = ?1",
        params![
            run.bytes(),
            row.turns,
            amount_to_column(usage.input_tokens),
            amount_to_column(usage.output_tokens),
            amount_to_column(usage.cached_tokens),
            amount_to_column(usage.cache_write_tokens),
            amount_to_column(usage.reasoning_tokens),
            usage.estimated,
            row.cost.map_or(0, |cost| amount_to_column(cost.0)),
            is_call && row.cost.is_none(),
            amount_to_column(row.active.0)
        ],
    )?;
    if !is_call {
        return Ok(());
    }
    tx.exec(
        "INSERT INTO usage (run, at, model, input_tokens, output_tokens, cached_tokens,
                            cache_write_tokens, reasoning_tokens, estimated, cost_micro_usd)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            run.bytes(),
            tx.now_micros(),
            row.model,
            amount_to_column(usage.input_tokens),
            amount_to_column(usage.output_tokens),
            amount_to_column(usage.cached_tokens),
            amount_to_column(usage.cache_write_tokens),
            amount_to_column(usage.reasoning_tokens),
            usage.estimated,
            row.cost.map(|cost| amount_to_column(cost.0))
        ],
    )
}

/// Sums up the usage by day, agent and model.
pub(crate) const SELECT_USAGE_SUMS: &str =
    "SELECT u.at / ?3 * ?3, r.agent, u.model, count(*), sum(u.input_tokens), sum(u.output_tokens),
            sum(u.cached_tokens), sum(u.cache_write_tokens), sum(u.reasoning_tokens),
            max(u.estimated), coalesce(sum(u.cost_micro_usd), 0),
            count(*) - count(u.cost_micro_usd)
       FROM usage u CROSS JOIN run r ON r.id = u.run
      WHERE u.at >= ?1 GROUP BY 1, 2, 3 ORDER BY 1 DESC, 11 DESC, 2, 3 LIMIT ?2";

/// Returns the usage by day, agent and model.
pub(crate) fn usage_sums(tx: &Tx<'_>, query: UsageQuery) -> Result<Vec<UsageSum>> {
    let params = params![query.since.as_micros(), limit_to_column(query.limit), DAY_MICROS];
    tx.query_all(SELECT_USAGE_SUMS, params, |row| {
        Ok(UsageSum {
            day: get_time(row, 0)?,
            agent: get_parsed(row, 1)?,
            model: row.get(2)?,
            calls: get_u64(row, 3)?,
            usage: get_usage_columns(row, 4)?,
            cost: MicroUsd(get_u64(row, 10)?),
            unpriced: get_u64(row, 11)?,
        })
    })
}
