//! Statistics of an agent's runs over a time window.

use longhaul_api::agent_stats::{AgentStatsView, CostStats, OutcomeCounts, PerRunStats};
use longhaul_api::run::micro_usd_to_usd;
use longhaul_core::id::AgentName;
use longhaul_core::port::store::{RunFilter, RunRow};
use longhaul_core::status::Status;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::MicroUsd;

use crate::error::{Error, Result};
use crate::handle::Longhaul;

/// Maximum number of an agent's runs from which statistics are computed.
const RUNS_MAX: usize = 10_000;
/// Maximum number of runs that are read at once.
const PAGE_SIZE: usize = 1_000;

impl Longhaul {
    /// Returns statistics of the runs of an agent that were created within `window` before now.
    pub async fn agent_stats(&self, agent: &AgentName, window: Millis) -> Result<AgentStatsView> {
        let until = self.store_time().await?;
        let micros = i64::try_from(window.0.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let since = Timestamp::from_micros(until.as_micros().saturating_sub(micros).max(0));
        let mut rows: Vec<RunRow> = Vec::new();
        let mut truncated = false;
        loop {
            let filter = RunFilter {
                agent: Some(agent.clone()),
                after: rows.last().map(|row| row.id),
                limit: PAGE_SIZE,
                ..RunFilter::default()
            };
            let page = self.services.store.list_runs(filter).await?;
            let is_last = page.len() < PAGE_SIZE;
            let before = rows.len();
            // Runs are listed newest first, so the first older one ends the window.
            rows.extend(page.into_iter().take_while(|row| row.created_at >= since));
            if is_last || rows.len() < before + PAGE_SIZE {
                break;
            }
            if rows.len() >= RUNS_MAX {
                truncated = true;
                break;
            }
        }
        // An agent whose file is gone still has statistics.
        if let (true, Err(suggestion)) = (rows.is_empty(), self.get_agent(agent.as_str())) {
            return Err(Error::AgentNotFound { name: agent.to_string(), suggestion });
        }
        let stats = AgentStatsView { agent: agent.to_string(), ..stats_of_runs(&rows) };
        Ok(AgentStatsView { since, until, truncated, ..stats })
    }
}

fn stats_of_runs(rows: &[RunRow]) -> AgentStatsView {
    let count = |status: Status| rows.iter().filter(|row| row.status == status).count() as u64;
    let ended: Vec<&RunRow> = rows.iter().filter(|row| row.status.is_terminal()).collect();
    let run_counts = OutcomeCounts {
        total: rows.len() as u64,
        completed: count(Status::Completed),
        failed: count(Status::Failed),
        cancelled: count(Status::Cancelled),
        open: (rows.len() - ended.len()) as u64,
    };
    let finished = run_counts.completed + run_counts.failed;
    let amounts = |amount: fn(&RunRow) -> u64| amount_stats(ended.iter().map(|row| amount(row)));
    let costs: Vec<u64> = ended.iter().filter_map(|row| row.cost).map(|cost| cost.0).collect();
    let unknown = (ended.len() - costs.len()) as u64;
    let cost = amount_stats(costs.into_iter());
    let usd = |micro_usd: u64| micro_usd_to_usd(MicroUsd(micro_usd));
    AgentStatsView {
        agent: String::new(),
        since: Timestamp::default(),
        until: Timestamp::default(),
        truncated: false,
        runs: run_counts,
        success_rate: (finished > 0).then(|| run_counts.completed as f64 / finished as f64),
        turns: amounts(|row| u64::from(row.turns)),
        input_tokens: amounts(|row| row.usage.input_tokens),
        output_tokens: amounts(|row| row.usage.output_tokens),
        active_ms: amounts(|row| row.active.0),
        cost_usd: CostStats {
            total: usd(cost.total),
            p50: usd(cost.p50),
            p95: usd(cost.p95),
            unknown,
        },
    }
}

fn amount_stats(amounts: impl Iterator<Item = u64>) -> PerRunStats {
    let mut amounts: Vec<u64> = amounts.collect();
    amounts.sort_unstable();
    // Nearest rank: the smallest amount that at least this share of the runs does not exceed.
    let percentile = |percent: usize| {
        let rank = (amounts.len() * percent).div_ceil(100).max(1);
        amounts.get(rank - 1).copied().unwrap_or_default()
    };
    PerRunStats {
        total: amounts.iter().copied().fold(0, u64::saturating_add),
        p50: percentile(50),
        p95: percentile(95),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_percentile_is_one_of_the_amounts() {
        let stats = |amounts: &[u64]| {
            let PerRunStats { total, p50, p95 } = amount_stats(amounts.iter().copied());
            (total, p50, p95)
        };
        assert_eq!(stats(&[]), (0, 0, 0));
        assert_eq!(stats(&[7]), (7, 7, 7));
        assert_eq!(stats(&[3, 1, 2]), (6, 2, 3));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(stats(&hundred), (5_050, 50, 95));
    }
}
