//! `longhaul ls`: the runs, newest first.
//!
//! Never: makes a store only to say that it is empty.

use clap::Args;
use clap::builder::PossibleValuesParser;
use longhaul_api::run::BriefView;
use longhaul_core::id::{AgentName, LaneKey};
use longhaul_core::port::store::RowsAsk;
use longhaul_core::status::Status;
use longhaul_core::time::{Millis, Timestamp};
use serde_json::json;

use crate::client::RunClient;
use crate::client::connect::look_if_there;
use crate::driven::wants_driver;
use crate::figure::{dollars, lasted};
use crate::mark::{Mark, left, mark};
use crate::table::{self, Cell};
use crate::{name, runtime, say};

/// So many rows are shown unless it is said otherwise.
const ROWS: usize = 20;

/// Up to here it is counted what else there is.
const COUNTED_MAX: usize = 1_000;

/// More runs than any store has.
const ALL: usize = u32::MAX as usize;

const NO_RUNS: &str = "There are no runs here yet.   Make one: longhaul run AGENT \"...\"";

/// So many letters of what goes on stand in a row.
const NOW_LETTERS: usize = 44;

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
    #[arg(long, value_parser = statuses())]
    status: Vec<String>,
    /// Only this agent's
    #[arg(long)]
    agent: Option<AgentName>,
    /// Only this lane's
    #[arg(long)]
    lane: Option<LaneKey>,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = ROWS)]
    limit: usize,
    /// Only runs older than this one
    #[arg(long, value_name = "RUN")]
    after: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn statuses() -> PossibleValuesParser {
    PossibleValuesParser::new(Status::ALL.map(Status::as_str))
}

impl Ls {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let Some(client) = look_if_there()? else {
            if self.json {
                say::json(&json!({ "data": [], "next": null }))?;
            }
            say::talk(NO_RUNS);
            return Ok(());
        };
        runtime::small()?.block_on(async {
            match self.json {
                true => self.print_json(&client).await,
                false => self.print(&client).await,
            }
        })
    }

    /// Maximum number of runs that are printed.
    fn limit(&self) -> usize {
        if self.all { ALL } else { self.limit.min(ALL) }
    }

    /// The runs that are asked for.
    async fn ask(&self, client: &RunClient, limit: usize) -> anyhow::Result<RowsAsk> {
        let wanted = |status: &&Status| self.status.iter().any(|said| said == status.as_str());
        Ok(RowsAsk {
            statuses: Status::ALL.iter().filter(wanted).copied().collect(),
            agent: self.agent.clone(),
            lane: self.lane.clone(),
            root: None,
            after: match &self.after {
                Some(said) => Some(name::run(client, said).await?),
                None => None,
            },
            limit,
        })
    }

    async fn print_json(&self, client: &RunClient) -> anyhow::Result<()> {
        let limit = self.limit();
        let mut data = client.whole(self.ask(client, limit + 1).await?).await?;
        let more = data.len() > limit;
        data.truncate(limit);
        let next = data.last().filter(|_| more).map(|last| last.id);
        say::json(&json!({ "data": data, "next": next }))
    }

    async fn print(&self, client: &RunClient) -> anyhow::Result<()> {
        let counted = self.limit().max(COUNTED_MAX);
        let mut runs = client.brief(self.ask(client, counted + 1).await?).await?;
        let count = runs.len();
        runs.truncate(self.limit());
        if runs.is_empty() {
            say::talk(match self.is_narrow() {
                true => "No run is like that.   All runs: longhaul ls --all",
                false => NO_RUNS,
            });
            return Ok(());
        }
        let now = client.now().await?;
        let head = ["STATUS", "RUN", "AGENT", "NOW", "TURNS", "COST", "ELAPSED"];
        let idle = |run: &BriefView| wants_driver(run.status);
        let is_left = runs.iter().any(idle) && !client.is_driven().await?;
        let rows = runs.iter().map(|run| match is_left && idle(run) {
            true => left_row(run, now),
            false => row(run, &mark(run.status, run.reason.as_deref()), now),
        });
        table::print(&head, rows)?;
        let mut foot = match (runs.len(), count) {
            (shown, count) if shown == count => format!("{shown} in all."),
            (shown, count) if count > counted => {
                format!(
                    "{shown} of {} and more.  More: longhaul ls --all",
                    count - 1
                )
            }
            (shown, count) => format!("{shown} of {count}.  More: longhaul ls --all"),
        };
        if runs.iter().any(is_yours) {
            foot.push_str("   Only yours to decide: longhaul gates");
        }
        if is_left {
            foot.push_str("   Nobody drives now: longhaul worker");
        }
        say::talk(&foot);
        Ok(())
    }

    /// Whether only some kinds of runs are asked for.
    const fn is_narrow(&self) -> bool {
        !self.status.is_empty()
            || self.agent.is_some()
            || self.lane.is_some()
            || self.after.is_some()
    }
}

fn is_yours(run: &BriefView) -> bool {
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
fn left_row(run: &BriefView, now: Timestamp) -> Vec<Cell> {
    let last = format!("last known: {}", run.now);
    let run = BriefView {
        now: last,
        ..run.clone()
    };
    row(&run, &left(run.status), now)
}

fn row(row: &BriefView, stands: &Mark, now: Timestamp) -> Vec<Cell> {
    let lived = row.finished_at.unwrap_or(now).since(row.created_at);
    let elapsed = match (row.status.is_terminal(), row.active_ms) {
        (_, 0) => lasted(lived),
        // A run that did nothing but work has one figure.
        (_, active) if active.saturating_mul(10) >= lived.0.saturating_mul(9) => lasted(lived),
        (true | false, _) => format!("{} ({})", lasted(lived), lasted(Millis(row.active_ms))),
    };
    vec![
        Cell::new(&stands.words).tone(stands.tone),
        Cell::new(row.id.to_string()),
        Cell::new(&row.agent),
        Cell::new(&row.now).at_most(NOW_LETTERS),
        Cell::new(row.turns.to_string()),
        Cell::new(dollars(row.cost_usd)),
        Cell::new(elapsed),
    ]
}
