//! `longhaul gates`: what waits for a person, and one of them whole.
//!
//! Never: answers.

use clap::{Args, Subcommand};
use longhaul_api::gate::{AnswerView, GateView};
use longhaul_core::policy::gate::{GateStatus, is_unanswerable};
use longhaul_core::port::store::GateFilter;
use longhaul_core::time::Timestamp;

use crate::client::RunClient;
use crate::client::connect::{connect, try_connect};
use crate::event_printer::{first_line, time_of_day};
use crate::format::format_duration;
use crate::gate_card::full_card;
use crate::table::{self, Cell};
use crate::{output, resolve, runtime, sanitize};

/// So many are listed.
const GATES_MAX: usize = 1_000;

/// So many letters of what is asked stand in a row.
const ASK_CHARS: usize = 60;

const EXAMPLES: &str = "Examples:
  longhaul gates                        what waits for you, oldest first
  longhaul gates --run @last --all      all gates of a run, answered ones too
  longhaul gates show gate_01k3rzc      what will happen, exactly
  longhaul gates show gate_01k3rzc --json | jq -r .digest

Decide: longhaul approve GATE, longhaul reject GATE, longhaul answer GATE TEXT";

/// What waits for a person.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Gates {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: Ls,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists what waits for a person
    #[command(after_help = EXAMPLES)]
    Ls(Ls),
    /// Shows one gate with all that is frozen
    #[command(after_help = EXAMPLES)]
    Show(Show),
}

#[derive(Debug, Args)]
struct Ls {
    /// Only this run's
    #[arg(long)]
    run: Option<String>,
    /// Also those that are answered, expired or withdrawn
    #[arg(long)]
    all: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Show {
    /// The gate, or a run with only one open
    #[arg(value_name = "GATE|RUN")]
    gate: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Gates {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            None => self.list.run(),
            Some(Command::Ls(ls)) => ls.run(),
            Some(Command::Show(show)) => show.run(),
        }
    }
}

impl Ls {
    fn run(&self) -> anyhow::Result<()> {
        let client = match &self.run {
            // There can't be a run of that name.
            Some(_) => Some(connect()?),
            None => try_connect()?,
        };
        let Some(client) = client else {
            return self.print(&[], Timestamp::default());
        };
        runtime::current_thread()?.block_on(async {
            let gates = self.load(&client).await?;
            let now = client.store_time().await?;
            self.print(&gates, now)
        })
    }

    async fn load(&self, client: &RunClient) -> anyhow::Result<Vec<GateView>> {
        let run = match &self.run {
            Some(said) => {
                let run = resolve::resolve_run(client, said).await?;
                client.why(run).await?;
                Some(run)
            }
            None => None,
        };
        let ask = GateFilter {
            run,
            status: (!self.all).then_some(GateStatus::Open),
            limit: GATES_MAX,
            ..GateFilter::default()
        };
        let mut gates = client.list_gates(ask).await?;
        // Whoever has waited longest comes first.
        gates.reverse();
        Ok(gates)
    }

    fn print(&self, gates: &[GateView], now: Timestamp) -> anyhow::Result<()> {
        if self.json {
            return output::json_list(&gates);
        }
        if gates.is_empty() {
            output::stderr_line("Nothing waits for you.   All runs: longhaul ls");
            return Ok(());
        }
        let head = ["AGE", "EXPIRES", "RUN", "GATE", "ASKS"];
        let rows = gates.iter().map(|gate| row(gate, now));
        table::print(&head, rows)?;
        if gates.iter().any(|gate| gate.status == GateStatus::Open) {
            output::stderr_line(
                "Look: longhaul gates show GATE    Decide: longhaul approve GATE | reject GATE | answer GATE TEXT",
            );
        }
        Ok(())
    }
}

fn row(gate: &GateView, now: Timestamp) -> Vec<Cell> {
    let expires = match (gate.status, gate.deadline) {
        (GateStatus::Open, None) => "never".to_owned(),
        (GateStatus::Open, Some(deadline)) if deadline <= now => "now".to_owned(),
        (GateStatus::Open, Some(deadline)) => format_duration(deadline.since(now)),
        (GateStatus::Answered, _) => "answered".to_owned(),
        (GateStatus::Expired, _) => "expired".to_owned(),
        (GateStatus::Withdrawn, _) => "withdrawn".to_owned(),
    };
    vec![
        Cell::new(format_duration(now.since(gate.raised_at))),
        Cell::new(expires),
        Cell::new(gate.run.to_string()),
        Cell::new(gate.id.to_string()),
        Cell::new(first_line(&gate.ask)).truncated(ASK_CHARS),
    ]
}

impl Show {
    fn run(&self) -> anyhow::Result<()> {
        resolve::with_gate(&self.gate, async |_, gate| {
            if self.json {
                return output::stdout_json(&gate);
            }
            for line in full_card(&gate) {
                output::stdout_line(&line)?;
            }
            for answer in &gate.answers {
                output::stdout_line(&format!("  {}", format_answer(answer)))?;
            }
            output::stdout_line(&format!("  {}", format_status(&gate)))
        })
    }
}

fn format_answer(answer: &AnswerView) -> String {
    let note = answer.note.as_deref().map(|note| format!(": {}", first_line(note)));
    let (by, at) = (sanitize::line(&answer.by), time_of_day(answer.at));
    let note = note.unwrap_or_default();
    format!("{} by {by} at {at}{note}", answer.decision)
}

fn format_status(gate: &GateView) -> String {
    let (id, run) = (gate.id, gate.run);
    let ways: Vec<String> = gate
        .decisions
        .iter()
        .filter_map(|decision| match decision.as_str() {
            "approve" => Some(format!("longhaul approve {id}")),
            "reject" => Some(format!("longhaul reject {id}")),
            "answer" => Some(format!("longhaul answer {id} TEXT")),
            _ => None,
        })
        .collect();
    match gate.status {
        GateStatus::Open if is_unanswerable(&gate.tags) => {
            format!("open, {run} waits, and no answer helps: longhaul cancel {run}")
        }
        GateStatus::Open => format!("open, {run} waits: {}", ways.join(" | ")),
        GateStatus::Answered => format!("answered: longhaul show {run}"),
        GateStatus::Expired => format!("expired, nobody answered in time: longhaul why {run}"),
        GateStatus::Withdrawn => format!("withdrawn, it is no longer asked: longhaul why {run}"),
    }
}
