//! Prints a run and the runs below it as a tree, for `longhaul show --tree`.

use longhaul_api::query::RunsQuery;
use longhaul_api::run::RunBriefView;
use longhaul_core::id::RunId;
use serde_json::{Value, json};

use crate::client::Client;
use crate::run_status::StatusLabel;
use crate::{output, sanitize};

/// Maximum number of runs of a tree that are printed.
const RUNS_MAX: usize = 1_000;

/// Maximum number of characters of a run's current activity.
const NOW_CHARS: usize = 60;

/// Prints a run with the runs below it: one line per run, or one JSON object.
pub(crate) async fn print_run_tree(
    client: &Client,
    run: RunId,
    as_json: bool,
) -> anyhow::Result<()> {
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
