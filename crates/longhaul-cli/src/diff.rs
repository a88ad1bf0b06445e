//! `longhaul diff`: compares two runs turn by turn, or shows the files that a run has changed.

use clap::Args;
use longhaul_api::fork::{
    DiffSideView, DiffTurnView, RunDiffView, RunFilesView, TurnDiffView, TurnFilesView,
};
use longhaul_api::operations::{DIFF_RUNS, RUN_FILES};
use longhaul_api::query::FilesQuery;
use longhaul_core::policy::effect_facts::FileEffect;
use longhaul_core::time::Millis;

use crate::client::connect::with_client;
use crate::format::{format_duration, format_usd};
use crate::sanitize::{sanitize_line, truncate};
use crate::{output, resolve};

const EXAMPLES: &str = "Examples:
  longhaul diff @last                              the files that the run has changed in its sandbox
  longhaul diff @last --turn 3                     the changed lines of a turn
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
    /// Second run. Without it: the files that the first run has changed in its sandbox, by turn
    #[arg(value_name = "B")]
    second: Option<String>,
    /// Print the changed lines of this turn of the run
    #[arg(long, value_name = "N", conflicts_with = "second")]
    turn: Option<u32>,
    /// Print the differences as one JSON object
    #[arg(long)]
    json: bool,
}

impl DiffRunsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        with_client(async |client| {
            let first = resolve::resolve_run_id(client, &self.first).await?;
            let Some(second) = &self.second else {
                let query = FilesQuery { turn: self.turn };
                let files = client.send(RUN_FILES.at(first).query(&query)).await?;
                return output::show(self.json, &files, |files| {
                    let lines = match self.turn {
                        Some(turn) => turn_diff_lines(files, turn),
                        None => changed_files_lines(files),
                    };
                    lines.iter().try_for_each(|line| output::print_line(line))
                });
            };
            let second = resolve::resolve_run_id(client, second).await?;
            let diff = client.send(DIFF_RUNS.at((first, second))).await?;
            output::show(self.json, &diff, |diff| {
                diff_lines(diff).iter().try_for_each(|line| output::print_line(line))
            })
        })
    }
}

/// Returns a line per turn with the files that were changed in it.
fn changed_files_lines(files: &RunFilesView) -> Vec<String> {
    if files.turns.is_empty() {
        return vec!["The run has changed no files in a sandbox.".to_owned()];
    }
    let line = |turn: &TurnFilesView| {
        let mut texts: Vec<String> = turn.changes.iter().map(FileEffect::change_text).collect();
        if turn.more_files > 0 {
            texts.push(format!("and {} more files", turn.more_files));
        }
        texts.extend(turn.skipped.iter().map(|reason| format!("not saved: {reason}")));
        format!("turn {:<4} {}", turn.turn, sanitize_line(&texts.join(", ")))
    };
    files.turns.iter().map(line).collect()
}

/// Returns the changed lines of a turn.
fn turn_diff_lines(files: &RunFilesView, turn: u32) -> Vec<String> {
    let skipped = files.turns.iter().filter(|files| files.turn == turn);
    let skipped = skipped.filter_map(|files| files.skipped.as_ref());
    let mut lines: Vec<String> = skipped
        .map(|reason| format!("The files of turn {turn} were not saved: {}", sanitize_line(reason)))
        .collect();
    match &files.diff {
        Some(diff) => lines.extend(diff.lines().map(sanitize_line)),
        None if lines.is_empty() => lines.push(format!("No text was changed in turn {turn}.")),
        None => {}
    }
    lines
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
