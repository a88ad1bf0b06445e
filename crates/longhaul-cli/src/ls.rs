//! `longhaul ls`: lists runs, newest first. A store is never created only to be listed.

use clap::Args;
use longhaul_api::operations::LIST_FULL_RUNS;
use longhaul_api::query::RunsQuery;
use longhaul_api::run::{RunBriefView, RunChainView};
use longhaul_core::id::{AgentName, InboxName, LaneKey, RunId};
use longhaul_core::status::Status;
use longhaul_core::time::{Millis, Timestamp};
use serde_json::json;

use crate::client::Client;
use crate::client::connect::with_client_if_any;
use crate::format::{format_duration, format_usd, name_parser};
use crate::run_status::{StatusLabel, needs_driver};
use crate::table::{self, TableCell};
use crate::{output, resolve};

/// Default number of runs that are listed.
const ROWS_DEFAULT: usize = 20;

/// Number of runs up to which the line below the list counts the runs exactly.
const COUNT_MAX: usize = 1_000;

/// Limit for listing all runs. No store holds that many.
const UNLIMITED: usize = u32::MAX as usize;

const NO_RUNS: &str = "There are no runs here yet.   Start one: longhaul run AGENT \"...\"";

/// Maximum number of characters of a run's current activity in the list.
const NOW_CHARS: usize = 44;

const EXAMPLES: &str = "Examples:
  longhaul ls                              the newest 20
  longhaul ls --status waiting --all       all that wait
  longhaul ls --status failed --inbox mail  the failed tasks of an inbox
  longhaul ls --agent writer --json        {\"data\": [run, ...], \"next\": null}
  longhaul ls --limit 100 --after RUN      the 100 runs before RUN

Signs: ▲ waits for a person  ● running  ○ waits for something else, or for a worker  ‖ paused  ✓ completed  ✗ failed  – cancelled";

/// Arguments of `longhaul ls`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListRunsCommand {
    /// List all runs, not only the newest
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// List only runs with this status; may be repeated
    #[arg(long, value_parser = name_parser::<Status>(Status::ALL.map(Status::as_str)))]
    status: Vec<Status>,
    /// List only runs of this agent
    #[arg(long)]
    agent: Option<AgentName>,
    /// List only runs of this lane
    #[arg(long)]
    lane: Option<LaneKey>,
    /// List only runs of this inbox
    #[arg(long, value_name = "NAME")]
    inbox: Option<InboxName>,
    /// List only the tree of this run: its root and all runs below the root
    #[arg(long, value_name = "RUN")]
    root: Option<String>,
    /// List only the child runs of this run
    #[arg(long, value_name = "RUN")]
    parent: Option<String>,
    /// Maximum number of runs to list
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT)]
    limit: usize,
    /// List only runs older than this run
    #[arg(long, value_name = "RUN")]
    after: Option<String>,
    /// Print the runs as one JSON object
    #[arg(long)]
    json: bool,
}

impl ListRunsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let listed = with_client_if_any(async |client| match self.json {
            true => self.print_runs_as_json(client).await,
            false => self.print_run_table(client).await,
        })?;
        if listed.is_none() {
            if self.json {
                output::print_json(&json!({ "data": [], "next": null }))?;
            }
            output::eprint_line(NO_RUNS);
        }
        Ok(())
    }

    /// Returns the maximum number of runs to print, from `--limit` or `--all`.
    fn run_limit(&self) -> usize {
        if self.all { UNLIMITED } else { self.limit.min(UNLIMITED) }
    }

    async fn build_query(&self, client: &Client) -> anyhow::Result<RunsQuery> {
        // `--root` may name any run of the tree.
        let root = match resolve_optional_run(client, self.root.as_deref()).await? {
            Some(run) => Some(client.get_run(run).await?.root),
            None => None,
        };
        Ok(RunsQuery {
            status: self.status.clone(),
            agent: self.agent.clone(),
            lane: self.lane.clone(),
            inbox: self.inbox.clone(),
            root,
            parent: resolve_optional_run(client, self.parent.as_deref()).await?,
            after: resolve_optional_run(client, self.after.as_deref()).await?,
            ..RunsQuery::default()
        })
    }

    async fn print_runs_as_json(&self, client: &Client) -> anyhow::Result<()> {
        let limit = self.run_limit();
        let query = self.build_query(client).await?;
        let mut data = client.list(LIST_FULL_RUNS, query, limit + 1).await?;
        let has_more = data.len() > limit;
        data.truncate(limit);
        let next = data.last().filter(|_| has_more).map(|last| last.id);
        output::print_json(&json!({ "data": data, "next": next }))
    }

    async fn print_run_table(&self, client: &Client) -> anyhow::Result<()> {
        let count_limit = self.run_limit().max(COUNT_MAX);
        let query = self.build_query(client).await?;
        let mut runs = client.list_runs(query.clone(), count_limit + 1).await?;
        let count = runs.len();
        if runs.is_empty() {
            output::eprint_line(match query == RunsQuery::default() {
                true => NO_RUNS,
                false => "No run matches.   All runs: longhaul ls --all",
            });
            return Ok(());
        }
        let now = client.store_time().await?;
        let titles = ["STATUS", "RUN", "AGENT", "NOW", "TURNS", "COST", "ELAPSED"];
        let is_drivable = |run: &RunBriefView| needs_driver(run.status);
        let has_no_driver =
            runs.iter().any(is_drivable) && !client.has_process_driving_runs().await?;
        let needs_person = runs.iter().any(run_needs_person);
        runs.truncate(self.run_limit());
        let rows = runs.iter().map(|run| run_row(run, has_no_driver && is_drivable(run), now));
        table::print_table(&titles, rows)?;
        let mut footer = match (runs.len(), count) {
            (shown, count) if shown == count => format!("Runs: {shown} in all."),
            (shown, count) if count > count_limit => {
                format!("Runs: {shown} of more than {}.  More: longhaul ls --all", count - 1)
            }
            (shown, count) => format!("Runs: {shown} of {count}.  More: longhaul ls --all"),
        };
        if needs_person {
            footer.push_str("   Waiting for you: longhaul gates");
        }
        if has_no_driver {
            footer.push_str("   No worker is running.   Start one: longhaul worker");
        }
        output::eprint_line(&footer);
        Ok(())
    }
}

/// Returns the id of the run that an option names, if it is set.
async fn resolve_optional_run(
    client: &Client,
    value: Option<&str>,
) -> anyhow::Result<Option<RunId>> {
    match value {
        Some(value) => Ok(Some(resolve::resolve_run_id(client, value).await?)),
        None => Ok(None),
    }
}

fn run_needs_person(run: &RunBriefView) -> bool {
    let is_asked = matches!(run.reason.as_deref(), Some("approval" | "question"));
    run.status == Status::Blocked || (run.status == Status::Waiting && is_asked)
}

/// Returns the name of a run's agent, followed by `step/steps` if the run belongs to a chain.
pub(crate) fn agent_and_step_text(agent: &str, chain: Option<&RunChainView>) -> String {
    match chain {
        Some(chain) => format!("{agent} {}/{}", chain.step, chain.of),
        None => agent.to_owned(),
    }
}

/// Returns the table row of a run. If no worker drives the run, its current activity is marked as `last
/// known`.
fn run_row(run: &RunBriefView, has_no_driver: bool, now: Timestamp) -> Vec<TableCell> {
    let (label, activity) = match has_no_driver {
        true => (StatusLabel::without_driver(run.status), format!("last known: {}", run.now)),
        false => (StatusLabel::new(run.status, run.reason.as_deref()), run.now.clone()),
    };
    let age = run.finished_at.unwrap_or(now).duration_since(run.created_at);
    let active = Millis(run.active_ms);
    // If the run was active for almost the whole time, one figure is enough.
    let is_always_active = active.0.saturating_mul(10) >= age.0.saturating_mul(9);
    let elapsed = match active.0 == 0 || is_always_active {
        true => format_duration(age),
        false => format!("{} ({})", format_duration(age), format_duration(active)),
    };
    table::row(&[
        &label.cell(),
        &run.id,
        &agent_and_step_text(&run.agent, run.chain.as_ref()),
        &TableCell::new(activity).with_max_chars(NOW_CHARS),
        &run.turns,
        &format_usd(run.cost_usd),
        &elapsed,
    ])
}
