//! `longhaul show`: prints one run, its conversation or its journal. `longhaul why`: explains its status
//! in one sentence and names the command that helps. Both change nothing and need no worker.

use clap::Args;
use longhaul_api::operations::SHOW_TRANSCRIPT;
use longhaul_api::query::RunsQuery;
use longhaul_api::run_list::RunBriefView;
use longhaul_api::transcript::RunExplanation;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use serde_json::{Value, json};

use crate::client::Client;
use crate::event_printer::{EventPrinter, format_time_of_day};
use crate::run_status::{StatusLabel, explain_run_status};
use crate::{output, resolve, run_page, sanitize, transcript};

/// Number of events that are read at a time.
const PAGE_SIZE: usize = 500;

/// Maximum number of characters printed of the data of an event that has no description.
const EVENT_CHARS_MAX: usize = 80;

/// Maximum number of runs of a tree that are printed.
const RUNS_MAX: usize = 1_000;

/// Maximum number of characters of a run's current activity.
const NOW_CHARS: usize = 60;

const EXAMPLES: &str = "Examples:
  longhaul show @last
  longhaul show run_01k3qv9 --json | jq '{status, reason, now, turns, cost_usd}'
  longhaul show run_01k3qv9 --transcript     the conversation
  longhaul show run_01k3qv9 --events         the journal, one line per event
  longhaul show run_01k3qv9 --tree           the run and its child runs";

/// Arguments of `longhaul show`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowRunCommand {
    /// Run to show: its id, four or more of its first or last characters, or @last
    #[arg(default_value = "@last", hide_default_value = true)]
    run: String,
    /// Print JSON: one object, or one line per event with --events
    #[arg(long)]
    json: bool,
    /// Print the run's conversation with the model
    #[arg(long, conflicts_with = "events")]
    transcript: bool,
    /// Print the run's journal, one line per event
    #[arg(long)]
    events: bool,
    /// Print the run with the runs below it, which it or its child runs have started
    #[arg(long, conflicts_with_all = ["events", "transcript"])]
    tree: bool,
}

impl ShowRunCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        resolve::with_resolved_run(&self.run, async |client, run| {
            match (self.events, self.transcript, self.tree) {
                (true, ..) => self.print_events(client, run).await,
                (_, true, _) => {
                    let transcript = client.send(SHOW_TRANSCRIPT.at(run)).await?;
                    output::show(self.json, &transcript, |transcript| {
                        let parts = transcript::render_transcript(transcript);
                        parts.iter().try_for_each(|part| output::print_text(part))
                    })
                }
                (.., true) => print_run_tree(client, run, self.json).await,
                (false, false, false) => {
                    let view = client.get_run(run).await?;
                    if self.json {
                        return output::print_json(&view);
                    }
                    let (explanation, label) = explain_run_status(client, &view).await?;
                    let page = run_page::render_run_page(&view, &explanation, &label);
                    page.iter().try_for_each(|line| output::print_line(line))
                }
            }
        })
    }

    async fn print_events(&self, client: &Client, run: RunId) -> anyhow::Result<()> {
        let mut printer = EventPrinter::default();
        let mut after = Seq::START;
        loop {
            let entries = client.read_events(run, after, PAGE_SIZE).await?;
            let Some(last_entry) = entries.last() else {
                return Ok(());
            };
            after = last_entry.seq;
            for entry in &entries {
                match self.json {
                    true => output::print_json(&entry.to_envelope()?)?,
                    false => output::print_text(&event_line(&mut printer, entry)?)?,
                }
            }
        }
    }
}

fn event_line(printer: &mut EventPrinter, entry: &JournalEntry) -> anyhow::Result<String> {
    let text = match printer.describe_event(entry) {
        Some(text) => text,
        None => sanitize::truncate(entry.to_envelope()?.data.as_str(), EVENT_CHARS_MAX),
    };
    let (seq, at, kind) = (entry.seq.0, format_time_of_day(entry.at), entry.event.kind());
    let line = format!("{seq:>5}  {at}  {kind:<20} {}", sanitize::sanitize_line(&text));
    Ok(line.trim_end().to_owned())
}

/// Prints a run with the runs below it: one line per run, or one JSON object.
async fn print_run_tree(client: &Client, run: RunId, as_json: bool) -> anyhow::Result<()> {
    let view = client.get_run(run).await?;
    let query = RunsQuery { root: Some(view.root), ..RunsQuery::default() };
    let mut runs = client.list_runs(query, RUNS_MAX + 1).await?;
    let is_truncated = runs.len() > RUNS_MAX;
    runs.truncate(RUNS_MAX);
    // The list is newest first; children are shown in the order in which they were started.
    runs.reverse();
    let Some(tree_root) = runs.iter().find(|candidate| candidate.id == run) else {
        anyhow::bail!(
            "the tree of {run} has more than {RUNS_MAX} runs. List its children: longhaul ls --parent {run}"
        );
    };
    if as_json {
        return output::print_json(&tree_json(&runs, tree_root)?);
    }
    let mut lines = Vec::new();
    add_run_tree_lines(&mut lines, &runs, (tree_root, String::new(), ""));
    for line in lines {
        output::print_line(&line)?;
    }
    if is_truncated {
        output::eprint_line(&format!("only the newest {RUNS_MAX} runs of the tree are shown"));
    }
    Ok(())
}

fn child_runs<'a>(
    runs: &'a [RunBriefView],
    parent: &RunBriefView,
) -> impl DoubleEndedIterator<Item = &'a RunBriefView> {
    let id = parent.id;
    runs.iter().filter(move |run| run.parent == Some(id))
}

fn tree_json(runs: &[RunBriefView], run: &RunBriefView) -> anyhow::Result<Value> {
    let children: Vec<Value> =
        child_runs(runs, run).map(|child| tree_json(runs, child)).collect::<Result<_, _>>()?;
    let mut value = serde_json::to_value(run)?;
    value["children"] = json!(children);
    Ok(value)
}

/// Adds the lines of a run and of the runs below it. `branch` is the tree symbol before the run,
/// and `indent` is the text before that symbol.
fn add_run_tree_lines(
    lines: &mut Vec<String>,
    runs: &[RunBriefView],
    (run, indent, branch): (&RunBriefView, String, &str),
) {
    let label = StatusLabel::new(run.status, run.reason.as_deref());
    let now = sanitize::truncate(&sanitize::sanitize_line(&run.now), NOW_CHARS);
    let agent = sanitize::sanitize_line(&run.agent);
    let line = format!("{indent}{branch}{} {} {agent}  {now}", label.text, run.id);
    lines.push(line.trim_end().to_owned());
    let child_indent = match branch {
        "" => indent,
        "└─ " => format!("{indent}   "),
        _ => format!("{indent}│  "),
    };
    let last = child_runs(runs, run).next_back().map(|child| child.id);
    for child in child_runs(runs, run) {
        let branch = if Some(child.id) == last { "└─ " } else { "├─ " };
        add_run_tree_lines(lines, runs, (child, child_indent.clone(), branch));
    }
}

const WHY_EXAMPLES: &str = "Examples:
  longhaul why @last
  longhaul why run_01k3qv9 --json | jq -r .command";

/// Arguments of `longhaul why`.
#[derive(Debug, Args)]
#[command(after_help = WHY_EXAMPLES)]
pub(crate) struct WhyCommand {
    /// Run to explain: its id, four or more of its first or last characters, or @last
    #[arg(default_value = "@last", hide_default_value = true)]
    run: String,
    /// Print the explanation as one JSON object
    #[arg(long)]
    json: bool,
}

impl WhyCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        resolve::with_resolved_run(&self.run, async |client, run| {
            let view = client.get_run(run).await?;
            let (RunExplanation { message, command, .. }, _) =
                explain_run_status(client, &view).await?;
            let command = Some(command).filter(|command| !command.is_empty());
            let answer = json!({
                "run": run, "status": view.status, "reason": view.reason,
                "message": message, "command": command,
            });
            output::show_text(self.json, &answer, |_| match &command {
                Some(command) => format!("{message}\n  {command}"),
                None => message.clone(),
            })
        })
    }
}
