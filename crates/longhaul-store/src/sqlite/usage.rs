//! What was used: summed on the head, and one row for every call.
//!
//! Never: holds money back; that is the account's business.

use longhaul_core::change::UsageRow;
use longhaul_core::id::RunId;
use longhaul_core::port::records::{ModelUsage, UsageQuery};
use longhaul_core::usage::MicroUsd;
use rusqlite::{Result, params, params_from_iter};

use crate::sqlite::column::{amount, get_u64, int};
use crate::sqlite::filter::Filter;
use crate::sqlite::run_row::usage;
use crate::sqlite::tx::Tx;

/// Adds one call's usage, or time alone.
pub(crate) fn add(tx: &Tx<'_>, run: RunId, row: &UsageRow) -> Result<()> {
    let is_call = !row.model.is_empty();
    let used = &row.usage;
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
            amount(used.input_tokens),
            amount(used.output_tokens),
            amount(used.cached_tokens),
            amount(used.cache_write_tokens),
            amount(used.reasoning_tokens),
            used.estimated,
            row.cost.map_or(0, |cost| amount(cost.0)),
            is_call && row.cost.is_none(),
            amount(row.active.0)
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
            amount(used.input_tokens),
            amount(used.output_tokens),
            amount(used.cached_tokens),
            amount(used.cache_write_tokens),
            amount(used.reasoning_tokens),
            used.estimated,
            row.cost.map(|cost| amount(cost.0))
        ],
    )
}

/// What was used, by model.
pub(crate) fn usage_by_model(tx: &Tx<'_>, ask: UsageQuery) -> Result<Vec<ModelUsage>> {
    let mut filter = Filter::default();
    filter.only("root = ?", ask.root.map(|root| root.bytes().to_vec()));
    filter.only("at >= ?", ask.since.map(|since| since.as_micros()));
    let select = "SELECT model, sum(input_tokens), sum(output_tokens), sum(cached_tokens),
                         sum(cache_write_tokens), sum(reasoning_tokens), max(estimated),
                         coalesce(sum(cost_micro_usd), 0), count(*) - count(cost_micro_usd)
                    FROM usage";
    let (sql, values) = filter.finish(select, " GROUP BY model ORDER BY model", int(u64::MAX));
    tx.all(&sql, params_from_iter(values), |row| {
        Ok(ModelUsage {
            model: row.get(0)?,
            usage: usage(row, 1)?,
            cost: MicroUsd(get_u64(row, 7)?),
            unpriced: get_u64(row, 8)?,
        })
    })
}
