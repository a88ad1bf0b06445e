//! `longhaul ls`: the runs, newest first.
//!
//! Never: makes a store only to say that it is empty.

use clap::Args;
use clap::builder::PossibleValuesParser;
use longhaul_api::run::RunBriefView;
use longhaul_core::id::{AgentName, LaneKey};
use longhaul_core::port::store::RunFilter;
use longhaul_core::status::Status;
use longhaul_core::time::{Millis, Timestamp};
use serde_json::json;

use crate::client::RunClient;
use crate::client::connect::try_connect;
use crate::driver_status::needs_driver;
use crate::format::{format_duration, format_usd};
use crate::status_label::{StatusLabel, status_label, undriven_label};
use crate::table::{self, Cell};
use crate::{output, resolve, runtime};

/// So many rows are shown unless it is said otherwise.
const ROWS_DEFAULT: usize = 20;

/// Up to here it is counted what else there is.
const COUNT_MAX: usize = 1_000;

/// More runs than any store has.
const UNLIMITED: usize = u32::MAX as usize;

const NO_RUNS: &str = "There are no runs here yet.   Make one: longhaul run AGENT \"...\"";

/// So many letters of what goes on stand in a row.
const NOW_CHARS: usize = 44;

const EXAMPLES: &str = "Examples:
  longhaul ls                              the newest 20
  longhaul ls --status waiting --all       all that wait
  longhaul ls --agent writer --json        {\"data\": [run, ...], \"next\": null}
  longhaul ls --limit 100 --after RUN      the hundred before RUN

Signs: ▲ waits for a person  ● running  ○ waits for something else, or for somebody who drives  ‖ paused  ✓ completed  ✗ failed  – cancelled";

/// Lists runs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    /// All of them, not only the newest
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Only runs that stand so; may be repeated
    #[arg(long, value_parser = status_parser())]
    status: Vec<String>,
    /// Only this agent's
    #[arg(long)]
    agent: Option<AgentName>,
    /// Only this lane's
    #[arg(long)]
    lane: Option<LaneKey>,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT)]
    limit: usize,
    /// Only runs older than this one
    #[arg(long, value_name = "RUN")]
    after: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn status_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(Status::ALL.map(Status::as_str))
}

impl Ls {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let Some(client) = try_connect()? else {
            if self.json {
                output::stdout_json(&json!({ "data": [], "next": null }))?;
            }
            output::stderr_line(NO_RUNS);
            return Ok(());
        };
        runtime::current_thread()?.block_on(async {
            match self.json {
                true => self.print_json(&client).await,
                false => self.print(&client).await,
            }
        })
    }

    /// Maximum number of runs that are printed.
    fn effective_limit(&self) -> usize {
        if self.all { UNLIMITED } else { self.limit.min(UNLIMITED) }
    }

    /// The runs that are asked for.
    async fn build_filter(&self, client: &RunClient, limit: usize) -> anyhow::Result<RunFilter> {
        let wanted = |status: &&Status| self.status.iter().any(|said| said == status.as_str());
        Ok(RunFilter {
            statuses: Status::ALL.iter().filter(wanted).copied().collect(),
            agent: self.agent.clone(),
            lane: self.lane.clone(),
            root: None,
            after: match &self.after {
                Some(said) => Some(resolve::resolve_run(client, said).await?),
                None => None,
            },
            limit,
        })
    }

    async fn print_json(&self, client: &RunClient) -> anyhow::Result<()> {
        let limit = self.effective_limit();
        let mut data = client.list_full_runs(self.build_filter(client, limit + 1).await?).await?;
        let more = data.len() > limit;
        data.truncate(limit);
        let next = data.last().filter(|_| more).map(|last| last.id);
        output::stdout_json(&json!({ "data": data, "next": next }))
    }

    async fn print(&self, client: &RunClient) -> anyhow::Result<()> {
        let counted = self.effective_limit().max(COUNT_MAX);
        let mut runs = client.list_runs(self.build_filter(client, counted + 1).await?).await?;
        let count = runs.len();
        runs.truncate(self.effective_limit());
        if runs.is_empty() {
            output::stderr_line(match self.is_filtered() {
                true => "No run is like that.   All runs: longhaul ls --all",
                false => NO_RUNS,
            });
            return Ok(());
        }
        let now = client.store_time().await?;
        let head = ["STATUS", "RUN", "AGENT", "NOW", "TURNS", "COST", "ELAPSED"];
        let idle = |run: &RunBriefView| needs_driver(run.status);
        let is_left = runs.iter().any(idle) && !client.has_driver().await?;
        let rows = runs.iter().map(|run| match is_left && idle(run) {
            true => undriven_row(run, now),
            false => row(run, &status_label(run.status, run.reason.as_deref()), now),
        });
        table::print(&head, rows)?;
        let mut foot = match (runs.len(), count) {
            (shown, count) if shown == count => format!("{shown} in all."),
            (shown, count) if count > counted => {
                format!("{shown} of {} and more.  More: longhaul ls --all", count - 1)
            }
            (shown, count) => format!("{shown} of {count}.  More: longhaul ls --all"),
        };
        if runs.iter().any(needs_person) {
            foot.push_str("   Only yours to decide: longhaul gates");
        }
        if is_left {
            foot.push_str("   Nobody drives now: longhaul worker");
        }
        output::stderr_line(&foot);
        Ok(())
    }

    /// Whether only some kinds of runs are asked for.
    const fn is_filtered(&self) -> bool {
        !self.status.is_empty()
            || self.agent.is_some()
            || self.lane.is_some()
            || self.after.is_some()
    }
}

fn needs_person(run: &RunBriefView) -> bool {
    match run.status {
        Status::Blocked => true,
        Status::Waiting => matches!(run.reason.as_deref(), Some("approval" | "question")),
        Status::Pending
        | Status::Running
        | Status::Paused
        | Status::Completed
        | Status::Failed
        | Status::Cancelled => false,
    }
}

/// A run that nobody drives does nothing now, whatever it did last.
fn undriven_row(run: &RunBriefView, now: Timestamp) -> Vec<Cell> {
    let last = format!("last known: {}", run.now);
    let run = RunBriefView { now: last, ..run.clone() };
    row(&run, &undriven_label(run.status), now)
}

fn row(row: &RunBriefView, stands: &StatusLabel, now: Timestamp) -> Vec<Cell> {
    let lived = row.finished_at.unwrap_or(now).since(row.created_at);
    let elapsed = match (row.status.is_terminal(), row.active_ms) {
        (_, 0) => format_duration(lived),
        // A run that did nothing but work has one figure.
        (_, active) if active.saturating_mul(10) >= lived.0.saturating_mul(9) => {
            format_duration(lived)
        }
        (true | false, _) => {
            format!("{} ({})", format_duration(lived), format_duration(Millis(row.active_ms)))
        }
    };
    vec![
        Cell::new(&stands.text).tone(stands.tone),
        Cell::new(row.id.to_string()),
        Cell::new(&row.agent),
        Cell::new(&row.now).truncated(NOW_CHARS),
        Cell::new(row.turns.to_string()),
        Cell::new(format_usd(row.cost_usd)),
        Cell::new(elapsed),
    ]
}
