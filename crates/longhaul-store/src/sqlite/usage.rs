//! Usage of models: totals in the run's head (its scheduling row), and one row for each model call.

use longhaul_core::change::UsageRow;
use longhaul_core::id::RunId;
use longhaul_core::port::records::{ModelUsage, UsageQuery};
use longhaul_core::usage::MicroUsd;
use rusqlite::{Result, params, params_from_iter};

use crate::sqlite::column::{amount_to_column, count_to_column, get_u64};
use crate::sqlite::filter::WhereClauseBuilder;
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
        "INSERT INTO usage (run, root, at, model, input_tokens, output_tokens, cached_tokens,
                            cache_write_tokens, reasoning_tokens, estimated, cost_micro_usd)
         SELECT id, root, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM run WHERE id = ?1",
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

/// Returns the usage of each model in the runs that the query selects.
pub(crate) fn usage_by_model(tx: &Tx<'_>, query: UsageQuery) -> Result<Vec<ModelUsage>> {
    let mut filter = WhereClauseBuilder::default();
    filter.add_optional_condition("root = ?", query.root.map(|root| root.bytes().to_vec()));
    filter.add_optional_condition("at >= ?", query.since.map(|since| since.as_micros()));
    let select = "SELECT model, sum(input_tokens), sum(output_tokens), sum(cached_tokens),
                         sum(cache_write_tokens), sum(reasoning_tokens), max(estimated),
                         coalesce(sum(cost_micro_usd), 0), count(*) - count(cost_micro_usd)
                    FROM usage";
    let (sql, values) = filter.into_select_statement(
        select,
        " GROUP BY model ORDER BY model",
        count_to_column(u64::MAX),
    );
    tx.query_all(&sql, params_from_iter(values), |row| {
        Ok(ModelUsage {
            model: row.get(0)?,
            usage: get_usage_columns(row, 1)?,
            cost: MicroUsd(get_u64(row, 7)?),
            unpriced: get_u64(row, 8)?,
        })
    })
}
