//! `longhaul ls`: the runs, newest first.
//!
//! Never: makes a store only to say that it is empty.

use clap::Args;
use clap::builder::PossibleValuesParser;
use longhaul::assemble::House;
use longhaul_core::id::{AgentName, LaneKey, RunId};
use longhaul_core::port::store::RowsAsk;
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use longhaul_engine::handle::Listed;
use longhaul_engine::view::usd;
use serde_json::json;

use crate::cli::driven::{is_driven, wants_driver};
use crate::cli::exit::Exit;
use crate::cli::fail::{self, Failure};
use crate::cli::figure::{dollars, lasted};
use crate::cli::mark::mark;
use crate::cli::paint::Paint;
use crate::cli::table::{Cell, table};
use crate::cli::{name, open, runtime, say};

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

Signs: ▲ waits for a person  ● running  ○ waits for something else  ‖ paused  ✓ completed  ✗ failed  – cancelled";

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
    agent: Option<String>,
    /// Only this lane's
    #[arg(long)]
    lane: Option<String>,
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
    shown: Vec<Listed>,
    /// How many there are in all, as far as it was counted.
    count: usize,
}

impl Ls {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let Some(house) = open::look_if_there()? else {
            if self.json {
                say::data(&json!({ "data": [], "next": null }).to_string())?;
            }
            say::talk("There are no runs here yet.   Make one: longhaul run AGENT \"...\"");
            return Ok(Exit::Done);
        };
        runtime::small()?.block_on(async {
            let found = self.find(&house).await?;
            match self.json {
                true => print_json(&house, &found).await?,
                false => self.print(&house, &found).await?,
            }
            Ok(Exit::Done)
        })
    }

    async fn find(&self, house: &House) -> anyhow::Result<Found> {
        let longhaul = &house.longhaul;
        let agent = self.agent.as_ref().map(AgentName::new).transpose();
        let lane = self.lane.as_ref().map(LaneKey::new).transpose();
        let wanted = |status: &&Status| self.status.iter().any(|said| said == status.as_str());
        let mut ask = RowsAsk {
            statuses: Status::ALL.iter().filter(wanted).copied().collect(),
            agent: agent.map_err(|bad| Failure::usage(format!("--agent: {bad}")))?,
            lane: lane.map_err(|bad| Failure::usage(format!("--lane: {bad}")))?,
            root: None,
            after: match &self.after {
                Some(said) => Some(name::run(longhaul, said).await?),
                None => None,
            },
            limit: self.limit.max(COUNTED_MAX).saturating_add(1),
        };
        let mut shown = longhaul.list(ask.clone()).await.map_err(fail::engine)?;
        let mut page = shown.len();
        while self.all && page == ask.limit {
            ask.after = shown.last().map(|last| last.row.id);
            let more = longhaul.list(ask.clone()).await.map_err(fail::engine)?;
            page = more.len();
            shown.extend(more);
        }
        let count = shown.len();
        if !self.all {
            shown.truncate(self.limit);
        }
        Ok(Found { shown, count })
    }

    async fn print(&self, house: &House, found: &Found) -> anyhow::Result<()> {
        if found.shown.is_empty() {
            say::talk(match self.is_narrow() {
                true => "No run is like that.   All runs: longhaul ls --all",
                false => "There are no runs here yet.   Make one: longhaul run AGENT \"...\"",
            });
            return Ok(());
        }
        let now = house.longhaul.now().await.map_err(fail::engine)?;
        let head = ["STATUS", "RUN", "AGENT", "NOW", "TURNS", "COST", "ELAPSED"];
        let rows: Vec<Vec<Cell>> = found.shown.iter().map(|listed| row(listed, now)).collect();
        for line in table(&head, &rows, Paint::for_stdout()) {
            say::data(&line)?;
        }
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
        let idle = |listed: &Listed| wants_driver(listed.row.status);
        if found.shown.iter().any(idle) && !is_driven(&house.longhaul).await? {
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

fn is_yours(listed: &Listed) -> bool {
    match listed.row.status {
        Status::Blocked => true,
        Status::Waiting => matches!(listed.row.reason.as_deref(), Some("approval" | "question")),
        Status::Pending
        | Status::Running
        | Status::Paused
        | Status::Completed
        | Status::Failed
        | Status::Cancelled => false,
    }
}

async fn print_json(house: &House, found: &Found) -> anyhow::Result<()> {
    let mut data = Vec::with_capacity(found.shown.len());
    for listed in &found.shown {
        let shown = house.longhaul.show(listed.row.id).await;
        data.push(shown.map_err(fail::engine)?);
    }
    let more = found.count > found.shown.len();
    let next: Option<RunId> = data.last().filter(|_| more).map(|last| last.id);
    say::data(&json!({ "data": data, "next": next }).to_string())
}

fn row(listed: &Listed, now: Timestamp) -> Vec<Cell> {
    let row = &listed.row;
    let stands = mark(row.status, row.reason.as_deref());
    let lived = row.finished_at.unwrap_or(now).since(row.created_at);
    let elapsed = match (row.status.is_terminal(), row.active.0) {
        (_, 0) => lasted(lived),
        // A run that did nothing but work has one figure.
        (_, active) if active.saturating_mul(10) >= lived.0.saturating_mul(9) => lasted(lived),
        (true | false, _) => format!("{} ({})", lasted(lived), lasted(row.active)),
    };
    vec![
        Cell::new(&stands.words).tone(stands.tone),
        Cell::new(row.id.to_string()),
        Cell::new(row.agent.to_string()),
        Cell::new(&listed.now).at_most(NOW_LETTERS),
        Cell::new(row.turns.to_string()),
        Cell::new(dollars(row.cost.map(usd))),
        Cell::new(elapsed),
    ]
}
