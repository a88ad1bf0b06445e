//! `longhaul agents stats`: prints how the runs of agents ended, and their turns, cost and time.

use clap::Args;
use longhaul_api::agent::AgentStatsView;
use longhaul_api::operations::{LIST_AGENTS, SHOW_AGENT_STATS};
use longhaul_api::path::AgentParam;
use longhaul_api::query::AgentStatsQuery;
use longhaul_core::duration::format_duration as format_exact_duration;
use longhaul_core::id::AgentName;
use longhaul_core::time::Millis;

use crate::client::Client;
use crate::client::connect::with_client_if_any;
use crate::format::{format_duration, format_usd, parse_duration};
use crate::output;
use crate::table::{self, TableCell};

/// Arguments of `longhaul agents stats`.
#[derive(Debug, Args)]
pub(crate) struct AgentStatsCommand {
    /// Agent to show; all agents with runs if not given
    name: Option<AgentName>,
    /// Count only runs that were created within this time before now, such as 24h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "7d")]
    since: Millis,
    /// Print the statistics as one JSON object
    #[arg(long)]
    json: bool,
}

impl AgentStatsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let stats = with_client_if_any(async |client| self.read_stats(client).await)?;
        let stats = stats.unwrap_or_default();
        let titles = [
            "AGENT",
            "RUNS",
            "DONE",
            "FAILED",
            "CANCELLED",
            "OPEN",
            "SUCCESS",
            "TURNS",
            "TOKENS",
            "COST",
            "ACTIVE",
            "TIME P50/P95",
        ];
        let note = "No agent has runs in this time.   All runs: longhaul ls --all";
        table::show_list(self.json, &stats, (&titles, note), stats_row)?;
        if !self.json && stats.iter().any(|one| one.truncated) {
            output::eprint_line("There were more runs; only the newest of each agent are counted.");
        }
        Ok(())
    }

    async fn read_stats(&self, client: &Client) -> anyhow::Result<Vec<AgentStatsView>> {
        let names: Vec<String> = match &self.name {
            Some(name) => vec![name.to_string()],
            None => {
                let agents = client.send(LIST_AGENTS.at(())).await?.data;
                agents.into_iter().map(|agent| agent.name).collect()
            }
        };
        let query = AgentStatsQuery { window: Some(format_exact_duration(self.since)) };
        let mut all_stats = Vec::new();
        for name in names {
            let request = SHOW_AGENT_STATS.at(AgentParam(name)).query(&query);
            let stats = client.send(request).await?;
            if stats.runs.total > 0 || self.name.is_some() {
                all_stats.push(stats);
            }
        }
        Ok(all_stats)
    }
}

fn stats_row(stats: &AgentStatsView) -> Vec<TableCell> {
    let runs = &stats.runs;
    let rate = stats.success_rate.map(|rate| format!("{:.0} %", rate * 100.0));
    let tokens = stats.input_tokens.total.saturating_add(stats.output_tokens.total);
    let time = |millis: u64| format_duration(Millis(millis));
    // A total without the unknown costs would be too low.
    let cost = Some(stats.cost_usd.total).filter(|_| stats.cost_usd.unknown == 0);
    let active = &stats.active_ms;
    table::row(&[
        &stats.agent,
        &runs.total,
        &runs.completed,
        &runs.failed,
        &runs.cancelled,
        &runs.open,
        &rate.unwrap_or_else(|| "-".to_owned()),
        &stats.turns.total,
        &tokens,
        &format_usd(cost),
        &time(active.total),
        &format!("{} / {}", time(active.p50), time(active.p95)),
    ])
}
