//! `longhaul gates`: lists gates (approvals and questions that wait for a person) and shows one in
//! full.

use clap::{Args, Subcommand};
use longhaul_api::gate::{AnswerView, GateView};
use longhaul_core::policy::gate::{Answer, GateDecision, GateStatus, has_submit_again_tag};
use longhaul_core::time::Timestamp;

use crate::answer::{new_answer, parse_json_option, send_answer};
use crate::approve_many::GateFilterArgs;
use crate::client::Client;
use crate::client::connect::{with_client, with_client_if_any};
use crate::event_printer::{first_line, format_time_of_day};
use crate::fitted_table::{self, FittedColumn};
use crate::form_prompt::answer_command;
use crate::format::{format_age, short_id};
use crate::gate_card::{self, gate_card};
use crate::table::{self, ListOr, TableCell};
use crate::{output, resolve, sanitize, terminal};

const COLUMNS: &[FittedColumn] = &[
    FittedColumn { title: "AGE", width_min: 4, drop_rank: 3 },
    FittedColumn { title: "EXPIRES", width_min: 7, drop_rank: 4 },
    FittedColumn { title: "GATE", width_min: 6, drop_rank: 0 },
    FittedColumn { title: "AGENT", width_min: 8, drop_rank: 1 },
    FittedColumn { title: "TASK", width_min: 10, drop_rank: 2 },
    FittedColumn { title: "RUN", width_min: 6, drop_rank: 5 },
    FittedColumn { title: "ASKS", width_min: 10, drop_rank: 0 },
];

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul gates                        what waits for you, oldest first
  longhaul gates --agent refunds --tool pay
  longhaul gates --run @last --all      all gates of a run, answered ones too
  longhaul gates show gate_01k3rzc      the exact call or question
  longhaul gates show gate_01k3rzc --json | jq -r .digest
  longhaul gates complete gate_01k3rzc --payload '{\"build\": 7}'   what it waits for has happened

Decide: longhaul approve [GATE...], longhaul reject GATE, longhaul answer GATE TEXT";

/// Arguments of `longhaul gates`.
pub(crate) type GatesCommand = ListOr<ListGatesCommand, GatesSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum GatesSubcommand {
    /// Lists gates that wait for a person
    Ls(ListGatesCommand),
    /// Shows one gate with the full input of its call
    Show {
        /// The gate to show, or a run with exactly one open gate
        #[arg(value_name = "GATE|RUN")]
        gate: String,
        /// Print the gate as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Reports that the event for which a gate waits has happened
    Complete {
        /// The gate whose event has happened, or a run with exactly one open gate
        #[arg(value_name = "GATE|RUN")]
        gate: String,
        /// Note for the model
        #[arg(long)]
        note: Option<String>,
        /// Data for the model, as JSON; `-` reads it from stdin
        #[arg(long, value_name = "JSON|-")]
        payload: Option<String>,
        /// Print the completed gate as one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ListGatesCommand {
    /// List only gates of this run
    #[arg(long)]
    run: Option<String>,
    #[command(flatten)]
    filter: GateFilterArgs,
    /// Also list answered, expired and withdrawn gates
    #[arg(long)]
    all: bool,
    /// Print the gates as one JSON object
    #[arg(long)]
    json: bool,
}

impl GatesCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            None => self.list.run(),
            Some(GatesSubcommand::Ls(ls)) => ls.run(),
            Some(GatesSubcommand::Show { gate, json }) => show_gate(gate, *json),
            Some(GatesSubcommand::Complete { gate, note, payload, json }) => {
                let payload = payload.as_deref();
                let payload =
                    payload.map(|json| parse_json_option("--payload", json)).transpose()?;
                let note = note.clone();
                let answer = Answer { note, payload, ..new_answer(GateDecision::Complete) };
                resolve::with_resolved_gate(gate, async |client, gate| {
                    send_answer(client, &gate, answer, *json).await?;
                    Ok(())
                })
            }
        }
    }
}

impl ListGatesCommand {
    fn run(&self) -> anyhow::Result<()> {
        let load = async |client: &Client| {
            Ok((self.load_gates(client).await?, client.store_time().await?))
        };
        let (gates, now) = match &self.run {
            // Without a store there is no such run, which is an error.
            Some(_) => with_client(load)?,
            None => with_client_if_any(load)?.unwrap_or_default(),
        };
        if self.json {
            return output::print_json_list(&gates);
        }
        if gates.is_empty() {
            output::eprint_line("Nothing waits for you.   All that needs you: longhaul ls --mine");
            return Ok(());
        }
        let is_terminal = terminal::terminal_width(std::io::stdout()).is_some();
        let rows = gates.iter().map(|gate| gate_row(gate, now, is_terminal));
        fitted_table::print_fitted_table(COLUMNS, rows.collect())?;
        if gates.iter().any(|gate| gate.status == GateStatus::Open) {
            let commands = [
                "Show: longhaul gates show GATE",
                "Decide: longhaul approve [GATE...]",
                "longhaul reject GATE",
                "longhaul answer GATE TEXT",
                "longhaul gates complete GATE",
            ];
            fitted_table::eprint_parts(&commands.map(str::to_owned));
        }
        Ok(())
    }

    async fn load_gates(&self, client: &Client) -> anyhow::Result<Vec<GateView>> {
        let run = match &self.run {
            Some(run_id) => {
                let run = resolve::resolve_run_id(client, run_id).await?;
                client.explain_run(run).await?;
                Some(run)
            }
            None => None,
        };
        let status = (!self.all).then_some(GateStatus::Open);
        self.filter.load_gates(client, status, run).await
    }
}

/// Returns the table row of a gate. At a terminal, ids are short.
fn gate_row(gate: &GateView, now: Timestamp, is_terminal: bool) -> Vec<TableCell> {
    let expiry = match (gate.status, gate.deadline) {
        (GateStatus::Open, None) => "never".to_owned(),
        (GateStatus::Open, Some(deadline)) => format_age(deadline.duration_since(now)),
        (GateStatus::Answered, _) => "answered".to_owned(),
        (GateStatus::Expired, _) => "expired".to_owned(),
        (GateStatus::Withdrawn, _) => "withdrawn".to_owned(),
    };
    let age = format_age(now.duration_since(gate.raised_at));
    let (id, run) = (gate.id.to_string(), gate.run.to_string());
    let ids = [&id, &run].map(|id| if is_terminal { short_id(id) } else { id });
    let [agent, task] = [&gate.agent, &gate.task].map(|text| text.as_deref().unwrap_or_default());
    let ask = match gate.key_taken {
        Some(taken) => format!("{} ({})", first_line(&gate.ask), taken.explanation()),
        None => first_line(&gate.ask),
    };
    table::row(&[&age, &expiry, &ids[0], &agent, &task, &ids[1], &ask])
}

fn show_gate(id: &str, json: bool) -> anyhow::Result<()> {
    resolve::with_resolved_gate(id, async |_, gate| {
        output::show(json, &gate, |gate| {
            let answers = gate.answers.iter().map(|answer| format!("  {}", format_answer(answer)));
            let status = format!("  {}", format_status(gate));
            let mut lines =
                gate_card(gate, gate_card::FULL).into_iter().chain(answers).chain([status]);
            lines.try_for_each(|line| output::print_line(&line))
        })
    })
}

fn format_answer(answer: &AnswerView) -> String {
    let note = answer.note.as_deref().map(|note| format!(": {}", first_line(note)));
    let (by, at) = (sanitize::sanitize_line(&answer.by), format_time_of_day(answer.at));
    let note = note.unwrap_or_default();
    let payload = answer.payload.as_ref().map(|json| first_line(json.as_str()));
    let payload = payload.map(|json| format!("   data {json}")).unwrap_or_default();
    format!("{} by {by} at {at}{note}{payload}", answer.decision)
}

fn format_status(gate: &GateView) -> String {
    let (id, run) = (gate.id, gate.run);
    let commands: Vec<String> = gate
        .decisions
        .iter()
        .filter_map(|decision| match decision.as_str() {
            "approve" => Some(format!("longhaul approve {id}")),
            "reject" => Some(format!("longhaul reject {id}")),
            "answer" => Some(answer_command(gate)),
            "complete" => Some(format!("longhaul gates complete {id}")),
            _ => None,
        })
        .collect();
    match gate.status {
        GateStatus::Open if has_submit_again_tag(&gate.tags) => {
            format!(
                "open; {run} waits, but no answer can unblock the run. To cancel it: longhaul cancel {run}"
            )
        }
        GateStatus::Open => format!("open; {run} waits. To answer: {}", commands.join(" | ")),
        GateStatus::Answered => format!("answered. To see the run: longhaul show {run}"),
        GateStatus::Expired => {
            format!("expired, as nobody answered in time. State of the run: longhaul why {run}")
        }
        GateStatus::Withdrawn => {
            format!("withdrawn, as no answer is needed. State of the run: longhaul why {run}")
        }
    }
}
