//! `longhaul diff`: compares two runs turn by turn.

use clap::Args;
use longhaul_api::fork::{DiffSideView, DiffTurnView, RunDiffView, TurnDiffView};
use longhaul_api::operations::DIFF_RUNS;
use longhaul_core::time::Millis;

use crate::client::connect::with_client;
use crate::format::{format_duration, format_usd};
use crate::sanitize::{sanitize_line, truncate};
use crate::{output, resolve};

const EXAMPLES: &str = "Examples:
  longhaul diff run_01k3qv9 run_01k45pd
  longhaul diff run_01k3qv9 @last --json | jq .first_difference

The numbers of a fork or a retry include what it has taken over from the other run.";

/// Width of the column with the names of the compared values.
const NAME_WIDTH: usize = 12;

/// Width of the column of the first run in the comparison.
const SIDE_WIDTH: usize = 32;

/// Maximum number of characters of what happened in a turn: two columns of them, with the number of
/// the turn, fill a line of 80 characters.
const TURN_WIDTH: usize = 35;

/// Maximum number of characters of a line about one run.
const LINE_WIDTH: usize = 74;

/// Arguments of `longhaul diff`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffRunsCommand {
    /// First run: its id, the last six characters of the id, or @last
    #[arg(value_name = "A")]
    first: String,
    /// Second run: its id, the last six characters of the id, or @last
    #[arg(value_name = "B")]
    second: String,
    /// Print the differences as one JSON object
    #[arg(long)]
    json: bool,
}

impl DiffRunsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        with_client(async |client| {
            let first = resolve::resolve_run_id(client, &self.first).await?;
            let second = resolve::resolve_run_id(client, &self.second).await?;
            let diff = client.send(DIFF_RUNS.at((first, second))).await?;
            output::show(self.json, &diff, |diff| {
                diff_lines(diff).iter().try_for_each(|line| output::print_line(line))
            })
        })
    }
}

/// Returns the lines that describe the differences, with untrusted text made safe for a terminal.
fn diff_lines(diff: &RunDiffView) -> Vec<String> {
    let mut lines = comparison_lines(&diff.a, &diff.b);
    lines.push(String::new());
    lines.push(match diff.same_through {
        Some(seq) => format!("The events up to {seq} are the same."),
        None => "The runs have no events in common.".to_owned(),
    });
    match &diff.first_difference {
        None => lines.push("All turns are equal.".to_owned()),
        Some(first) => {
            lines.push(format!("First difference: turn {}", first.turn));
            for (name, text) in [("A", &first.a), ("B", &first.b)] {
                let text = text.as_deref().unwrap_or("nothing more");
                lines.push(format!("  {name}  {}", truncate(&sanitize_line(text), LINE_WIDTH)));
            }
        }
    }
    if !diff.turns.is_empty() {
        lines.push(String::new());
        lines.extend(diff.turns.iter().map(turn_line));
    }
    lines
}

/// Returns a line per value, with the values of both runs side by side.
fn comparison_lines(a: &DiffSideView, b: &DiffSideView) -> Vec<String> {
    let model = |side: &DiffSideView| side.model.clone().unwrap_or_else(|| "none".to_owned());
    let duration = |side: &DiffSideView| format_duration(Millis(side.active_ms));
    let rows = [
        ("", format!("A {}", a.run), format!("B {}", b.run)),
        ("agent", a.agent.clone(), b.agent.clone()),
        ("status", a.status.as_str().to_owned(), b.status.as_str().to_owned()),
        ("model", model(a), model(b)),
        ("turns", a.turns.to_string(), b.turns.to_string()),
        ("tool calls", a.tool_calls.to_string(), b.tool_calls.to_string()),
        ("tokens", a.tokens.to_string(), b.tokens.to_string()),
        ("cost", format_usd(a.cost_usd), format_usd(b.cost_usd)),
        ("active time", duration(a), duration(b)),
    ];
    let line = |(name, a, b): (&str, String, String)| {
        let [a, b] = [a, b].map(|value| truncate(&sanitize_line(&value), SIDE_WIDTH));
        format!("{name:NAME_WIDTH$} {a:SIDE_WIDTH$} {b}").trim_end().to_owned()
    };
    rows.into_iter().map(line).collect()
}

/// Returns the line about a turn: once if it is the same in both runs, else both side by side.
fn turn_line(row: &TurnDiffView) -> String {
    let text = |turn: &Option<DiffTurnView>, width| match turn {
        Some(turn) => truncate(&sanitize_line(&turn.summary), width),
        None => "-".to_owned(),
    };
    let number = row.turn;
    match row.same {
        true => format!("{number:>4} = {}", text(&row.a, LINE_WIDTH - 2)),
        false => {
            let (a, b) = (text(&row.a, TURN_WIDTH), text(&row.b, TURN_WIDTH));
            format!("{number:>4} | {a:TURN_WIDTH$} | {b}")
        }
    }
}
