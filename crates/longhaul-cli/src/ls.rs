//! `longhaul ls`: lists runs, newest first. A store is never created only to be listed.

use clap::Args;
use longhaul_api::operations::{COUNT_RUNS, LIST_FULL_RUNS};
use longhaul_api::query::RunsQuery;
use longhaul_api::run::{ProgressView, RunChainView};
use longhaul_api::run_list::{RunBriefView, RunCountsView};
use longhaul_core::id::{AgentName, InboxName, LaneKey, ResourceKey, RunId, ThreadKey};
use longhaul_core::port::store::RunSort;
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use serde_json::json;

use crate::client::Client;
use crate::client::connect::with_client_if_any;
use crate::fitted_table::{self, FittedColumn};
use crate::format::{
    count_with_noun, format_age, format_duration, format_usd, name_parser, short_id,
};
use crate::point_in_time::PointInTime;
use crate::run_status::{StatusLabel, needs_driver};
use crate::table::{self, TableCell};
use crate::{output, resolve, terminal};

/// Default number of runs that are listed.
const ROWS_DEFAULT: usize = 20;

/// Limit for listing all runs. No store holds that many.
const UNLIMITED: usize = u32::MAX as usize;

const NO_RUNS: &str = "There are no runs here yet.   Start one: longhaul run AGENT \"...\"";

const NO_MATCH: &str = "No run matches.   All runs: longhaul ls --all --all-runs";

const NOTHING_TO_DO: &str = "Nothing needs you.   All runs: longhaul ls";

const EXAMPLES: &str = "Examples:
  longhaul ls                              the newest 20
  longhaul ls --mine                       everything that needs you
  longhaul ls --search \"ticket 123\"        runs whose task contains this text
  longhaul ls --status failed --since 24h  what failed since yesterday
  longhaul ls --tag nightly --sort cost    the most expensive nightly runs
  longhaul ls --status waiting --reason approval --all
  longhaul ls --status failed --inbox mail  the failed tasks of an inbox
  longhaul ls --agent writer --json        {\"data\": [run, ...], \"next\": null}
  longhaul ls --limit 100 --after RUN      the 100 runs before RUN

Signs: ▲ waits for a person  ● running  ○ waits for something else, or for a worker  ‖ paused  ✓ completed  ✗ failed  – cancelled";

const COLUMNS: &[FittedColumn] = &[
    FittedColumn { title: "RUN", width_min: 6, drop_rank: 0 },
    FittedColumn { title: "WHEN", width_min: 4, drop_rank: 3 },
    FittedColumn { title: "AGENT", width_min: 8, drop_rank: 2 },
    FittedColumn { title: "STATE", width_min: 8, drop_rank: 0 },
    FittedColumn { title: "TASK", width_min: 12, drop_rank: 1 },
    FittedColumn { title: "PROGRESS", width_min: 10, drop_rank: 4 },
    FittedColumn { title: "COST", width_min: 8, drop_rank: 5 },
];

/// Arguments of `longhaul ls`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListRunsCommand {
    /// List all runs that match, not only the newest
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// List child runs too, and of each chain all runs
    #[arg(long)]
    all_runs: bool,
    /// List only what needs a person: approvals, questions, blocked runs, used-up budgets, and
    /// failed runs that were not retried
    #[arg(long)]
    mine: bool,
    /// List only runs with this status; may be repeated
    #[arg(long, value_parser = name_parser::<Status>(Status::ALL.map(Status::as_str)))]
    status: Vec<Status>,
    /// List only runs that wait for this reason, or failed with this error code; may be repeated
    #[arg(long, value_name = "REASON")]
    reason: Vec<String>,
    /// List only runs of this agent
    #[arg(long)]
    agent: Option<AgentName>,
    /// List only runs with this tag
    #[arg(long)]
    tag: Option<String>,
    /// List only runs of this thread
    #[arg(long)]
    thread: Option<ThreadKey>,
    /// List only runs about this resource
    #[arg(long)]
    resource: Option<ResourceKey>,
    /// List only runs of this lane
    #[arg(long)]
    lane: Option<LaneKey>,
    /// List only runs of this inbox
    #[arg(long, value_name = "NAME")]
    inbox: Option<InboxName>,
    /// List only runs whose task contains this text, in any case
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// List only runs submitted since then: an age (2h), a date or a time
    #[arg(long, value_name = "WHEN")]
    since: Option<PointInTime>,
    /// List only runs submitted before then: an age (2h), a date or a time
    #[arg(long, value_name = "WHEN")]
    until: Option<PointInTime>,
    /// Order: newest, started last, highest cost, longest active or longest waiting first
    #[arg(long, value_name = "BY", value_parser = name_parser::<RunSort>(RunSort::ALL.map(RunSort::as_str)))]
    sort: Option<RunSort>,
    /// List only the tree of this run: its root and all runs below the root
    #[arg(long, value_name = "RUN")]
    root: Option<String>,
    /// List only the child runs of this run
    #[arg(long, value_name = "RUN")]
    parent: Option<String>,
    /// Maximum number of runs to list
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT)]
    limit: usize,
    /// List only runs that come after this run in the list
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

    async fn build_query(&self, client: &Client, now: Timestamp) -> anyhow::Result<RunsQuery> {
        // `--root` may name any run of the tree.
        let root = match resolve_optional_run(client, self.root.as_deref()).await? {
            Some(run) => Some(client.get_run(run).await?.root),
            None => None,
        };
        let time = |point: Option<PointInTime>| point.map(|point| point.resolve(now));
        Ok(RunsQuery {
            status: self.status.clone(),
            reason: self.reason.clone(),
            agent: self.agent.clone(),
            tag: self.tag.clone(),
            thread: self.thread.clone(),
            resource: self.resource.clone(),
            lane: self.lane.clone(),
            inbox: self.inbox.clone(),
            search: self.search.clone(),
            since: time(self.since),
            until: time(self.until),
            mine: self.mine,
            all_runs: self.all_runs,
            sort: self.sort,
            root,
            parent: resolve_optional_run(client, self.parent.as_deref()).await?,
            after: resolve_optional_run(client, self.after.as_deref()).await?,
            limit: None,
            brief: false,
        })
    }

    async fn print_runs_as_json(&self, client: &Client) -> anyhow::Result<()> {
        let limit = self.run_limit();
        let query = self.build_query(client, client.store_time().await?).await?;
        let mut data = client.list(LIST_FULL_RUNS, query, limit + 1).await?;
        let has_more = data.len() > limit;
        data.truncate(limit);
        let next = data.last().filter(|_| has_more).map(|last| last.id);
        output::print_json(&json!({ "data": data, "next": next }))
    }

    async fn print_run_table(&self, client: &Client) -> anyhow::Result<()> {
        let limit = self.run_limit();
        let now = client.store_time().await?;
        let query = self.build_query(client, now).await?;
        let is_unfiltered = query == RunsQuery::default();
        let mut runs = client.list_runs(query, limit + 1).await?;
        let counts = client.send(COUNT_RUNS.at(())).await?;
        if runs.is_empty() {
            output::eprint_line(match (counts.total == 0, self.mine) {
                (true, _) => NO_RUNS,
                (false, true) => NOTHING_TO_DO,
                (false, false) => NO_MATCH,
            });
            return Ok(());
        }
        let has_more = runs.len() > limit;
        runs.truncate(limit);
        let is_drivable = |run: &RunBriefView| needs_driver(run.status);
        // Runs that are not shown may need a worker, too.
        let needs_worker = counts.open > counts.waiting_for_person;
        let has_no_driver = needs_worker && !client.has_process_driving_runs().await?;
        let is_terminal = terminal::terminal_width(std::io::stdout()).is_some();
        let when = if is_terminal { Some(now) } else { None };
        let rows = runs.iter().map(|run| run_row(run, has_no_driver && is_drivable(run), when));
        fitted_table::print_fitted_table(COLUMNS, rows.collect())?;
        let mut parts = match (has_more, is_unfiltered, runs.len()) {
            (true, _, shown) => vec![format!("{shown} shown; more: longhaul ls --all")],
            (false, true, _) => Vec::new(),
            (false, false, 1) => vec!["1 run matches".to_owned()],
            (false, false, count) => vec![format!("{count} runs match")],
        };
        parts.extend(store_total_parts(&counts, self.mine));
        if has_no_driver {
            parts.push("No worker is running; start one: longhaul worker".to_owned());
        }
        fitted_table::eprint_parts(&parts);
        Ok(())
    }
}

/// Returns the parts of the line below a list about the whole store: what it holds, what needs a
/// person and what it has cost. `answers` is whether to name the commands that help.
fn store_total_parts(counts: &RunCountsView, answers: bool) -> Vec<String> {
    let unpriced = match counts.unpriced {
        0 => String::new(),
        runs => format!(" and the unknown cost of {}", count_with_noun(runs, "run")),
    };
    let cost = format_usd(Some(counts.cost_usd));
    let mut parts =
        vec![format!("{} in the store, {cost}{unpriced}", count_with_noun(counts.total, "run"))];
    let (waiting, failed) = (counts.waiting_for_person, counts.failed);
    if waiting + failed > 0 {
        let verb = if waiting == 1 { "waits" } else { "wait" };
        let hint = if answers { "" } else { ": longhaul ls --mine" };
        parts.push(format!("{waiting} {verb} for you, {failed} failed{hint}"));
    }
    if answers {
        parts.extend(
            [
                "Answer: longhaul approve",
                "Continue: longhaul resume RUN",
                "Retry: longhaul retry RUN",
            ]
            .map(str::to_owned),
        );
    }
    parts
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

/// Returns the name of a run's agent, followed by `step/steps` if the run belongs to a chain.
pub(crate) fn agent_and_step_text(agent: &str, chain: Option<&RunChainView>) -> String {
    match chain {
        Some(chain) => format!("{agent} {}/{}", chain.step, chain.of),
        None => agent.to_owned(),
    }
}

/// Returns the table row of a run. If no worker drives the run, its current activity is marked as last
/// known. At a terminal, the id is short and times are ages before `now`; without one, `now` is
/// `None`.
fn run_row(run: &RunBriefView, has_no_driver: bool, now: Option<Timestamp>) -> Vec<TableCell> {
    let label = match has_no_driver {
        true => StatusLabel::without_driver(run.status),
        false => {
            StatusLabel::with_reason(run.status, run.reason.as_deref(), run.error_code.as_deref())
        }
    };
    let activity = activity_text(run);
    let activity = if has_no_driver { format!("last known: {activity}") } else { activity };
    let id = run.id.to_string();
    let (id, when) = match now {
        Some(now) => (short_id(&id).to_owned(), format_age(now.duration_since(run.created_at))),
        None => (id, run.created_at.to_string()),
    };
    table::row(&[
        &id,
        &when,
        &agent_and_step_text(&run.agent, run.chain.as_ref()),
        &label.cell(),
        &run.title,
        &activity,
        &format_usd(run.cost_usd),
    ])
}

/// Returns what a run does now, how far it is, or what it took.
fn activity_text(run: &RunBriefView) -> String {
    if let Some(finished_at) = run.finished_at {
        let elapsed = format_duration(finished_at.duration_since(run.created_at));
        return format!("{}, {elapsed}", count_with_noun(u64::from(run.turns), "turn"));
    }
    match run.progress.as_ref().filter(|_| run.status == Status::Running) {
        Some(ProgressView { percent, message }) => format!("{percent}% {message}"),
        None => run.now.clone(),
    }
}
