//! `longhaul ls`: the runs, newest first.
//!
//! Never: makes a store only to say that it is empty.

use clap::Args;
use clap::builder::PossibleValuesParser;
use longhaul_api::run::{BriefView, RunView};
use longhaul_core::id::{AgentName, LaneKey, RunId};
use longhaul_core::port::store::RowsAsk;
use longhaul_core::status::Status;
use longhaul_core::time::{Millis, Timestamp};
use serde_json::json;

use crate::desk::Desk;
use crate::desk::find::look_if_there;
use crate::driven::wants_driver;
use crate::exit::Exit;
use crate::figure::{dollars, lasted};
use crate::mark::{Mark, left, mark};
use crate::table::{self, Cell};
use crate::{fail, name, runtime, say};

/// So many rows are shown unless it is said otherwise.
const ROWS: usize = 20;

/// Up to here it is counted what else there is.
const COUNTED_MAX: usize = 1_000;

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

/// Runs that were found, and whether there are others.
struct Found {
    shown: Vec<BriefView>,
    /// How many there are in all, as far as it was counted.
    count: usize,
}

impl Ls {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let Some(desk) = look_if_there()? else {
            if self.json {
                say::json(&json!({ "data": [], "next": null }).to_string())?;
            }
            say::talk("There are no runs here yet.   Make one: longhaul run AGENT \"...\"");
            return Ok(Exit::Done);
        };
        let desk = &*desk;
        runtime::small()?.block_on(async {
            match self.json {
                true => self.print_json(desk).await?,
                false => self.print(desk, &self.find(desk).await?).await?,
            }
            Ok(Exit::Done)
        })
    }

    /// What is asked for, so many at once.
    async fn ask(&self, desk: &dyn Desk, limit: usize) -> anyhow::Result<RowsAsk> {
        let wanted = |status: &&Status| self.status.iter().any(|said| said == status.as_str());
        Ok(RowsAsk {
            statuses: Status::ALL.iter().filter(wanted).copied().collect(),
            agent: self.agent.clone(),
            lane: self.lane.clone(),
            root: None,
            after: match &self.after {
                Some(said) => Some(name::run(desk, said).await?),
                None => None,
            },
            limit,
        })
    }

    async fn find(&self, desk: &dyn Desk) -> anyhow::Result<Found> {
        let limit = self.limit.max(COUNTED_MAX).saturating_add(1);
        let mut ask = self.ask(desk, limit).await?;
        let mut shown = desk.brief(ask.clone()).await.map_err(fail::engine)?;
        let mut page = shown.len();
        while self.all && page == ask.limit {
            ask.after = shown.last().map(|last| last.id);
            let more = desk.brief(ask.clone()).await.map_err(fail::engine)?;
            page = more.len();
            shown.extend(more);
        }
        let count = shown.len();
        if !self.all {
            shown.truncate(self.limit);
        }
        Ok(Found { shown, count })
    }

    async fn print_json(&self, desk: &dyn Desk) -> anyhow::Result<()> {
        let limit = match self.all {
            true => COUNTED_MAX,
            false => self.limit.saturating_add(1),
        };
        let mut ask = self.ask(desk, limit).await?;
        let mut data = desk.whole(ask.clone()).await.map_err(fail::engine)?;
        let mut page = data.len();
        while self.all && page == ask.limit {
            ask.after = data.last().map(|last: &RunView| last.id);
            let more = desk.whole(ask.clone()).await.map_err(fail::engine)?;
            page = more.len();
            data.extend(more);
        }
        let more = !self.all && data.len() > self.limit;
        if more {
            data.truncate(self.limit);
        }
        let next: Option<RunId> = data.last().filter(|_| more).map(|last| last.id);
        say::json(&json!({ "data": data, "next": next }).to_string())
    }

    async fn print(&self, desk: &dyn Desk, found: &Found) -> anyhow::Result<()> {
        if found.shown.is_empty() {
            say::talk(match self.is_narrow() {
                true => "No run is like that.   All runs: longhaul ls --all",
                false => "There are no runs here yet.   Make one: longhaul run AGENT \"...\"",
            });
            return Ok(());
        }
        let now = desk.now().await.map_err(fail::engine)?;
        let head = ["STATUS", "RUN", "AGENT", "NOW", "TURNS", "COST", "ELAPSED"];
        let idle = |run: &BriefView| wants_driver(run.status);
        let is_left =
            found.shown.iter().any(idle) && !desk.is_driven().await.map_err(fail::engine)?;
        let rows = found.shown.iter().map(|run| match is_left && idle(run) {
            true => left_row(run, now),
            false => row(run, &mark(run.status, run.reason.as_deref()), now),
        });
        let rows: Vec<Vec<Cell>> = rows.collect();
        table::print(&head, &rows)?;
        let mut foot = match (found.shown.len(), found.count) {
            (shown, count) if shown == count => format!("{shown} in all."),
            (shown, count) if count > self.limit.max(COUNTED_MAX) => {
                format!(
                    "{shown} of {} and more.  More: longhaul ls --all",
                    count - 1
                )
            }
            (shown, count) => format!("{shown} of {count}.  More: longhaul ls --all"),
        };
        if found.shown.iter().any(is_yours) {
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
