//! `longhaul fork`: creates a run that goes on from a turn of another run, perhaps with changes.

use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use longhaul_api::fork::{EditedResult, ForkBody, ForkEditBody};
use longhaul_api::operations::FORK_RUN;
use longhaul_api::run::RunView;
use longhaul_core::id::{RunId, Seq};
use longhaul_run::submit::INPUT_BYTES_MAX;

use crate::run_commands::parse_call_id;
use crate::{output, resolve};

const EXAMPLES: &str = "Examples:
  longhaul show run_01k3qv9 --events                     the events with their numbers
  longhaul fork run_01k3qv9 --before 489                 the same turn again
  longhaul fork run_01k3qv9 --before 489 --model openai/gpt-5
  longhaul fork run_01k3qv9 --before 489 --edit \"Only the tests.\"
  longhaul fork run_01k3qv9 --before 489 --result t23.1 @result.txt
  longhaul diff run_01k3qv9 run_01k45pd                  compare both runs

A fork is a new run. It goes on from the start of the turn of the event; nothing before it is repeated
or paid again. It uses the budget and the agent version of the run, and joins the end of its lane. It
is no step of a chain. Its sandbox is a new one with the files of the turn. Open approvals and messages
that the model has not read stay with the run.";

/// Arguments of `longhaul fork`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ForkRunCommand {
    /// Run to fork: its id, the last six characters of the id, or @last
    run: String,
    /// Number of an event: the fork goes on from the start of its turn
    #[arg(long, value_name = "SEQ")]
    before: u64,
    /// Model of the fork, as provider/model
    #[arg(long)]
    model: Option<String>,
    /// Agent of the fork, in its newest version
    #[arg(long)]
    agent: Option<String>,
    /// New text of the last message of a person before the turn; @FILE reads a file, - stdin
    #[arg(long, value_name = "TEXT", conflicts_with = "result")]
    edit: Option<String>,
    /// New result of a tool call before the turn; @FILE reads a file, - stdin
    #[arg(long, num_args = 2, value_names = ["CALL", "TEXT"])]
    result: Option<Vec<String>>,
    /// Fork even if the files of the turn were not saved; the model learns that the files were reset
    #[arg(long)]
    fresh_files: bool,
    /// Add the messages of the fork to the thread of the run
    #[arg(long)]
    thread: bool,
    /// Why the run is forked, shown with the fork
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
    /// Print the fork as one JSON object
    #[arg(long)]
    json: bool,
}

impl ForkRunCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let body = ForkBody {
            before: Seq(self.before),
            model: self.model.clone(),
            agent: self.agent.clone(),
            edit: self.edit()?,
            fresh_files: self.fresh_files,
            thread: self.thread,
            note: self.note.trim().to_owned(),
        };
        resolve::with_resolved_run(&self.run, async |client, run| {
            let fork = client.send(FORK_RUN.at(run).body(&body)).await?;
            let has_driver = client.has_process_driving_runs().await?;
            output::show_text(self.json, &fork, |fork| self.outcome_text(run, fork, has_driver))
        })
    }

    fn edit(&self) -> anyhow::Result<Option<ForkEditBody>> {
        if let Some([call, text]) = self.result.as_deref() {
            let call = parse_call_id(call).map_err(anyhow::Error::msg)?;
            let text = text_or_file(text)?;
            return Ok(Some(ForkEditBody::Result(EditedResult { call, text })));
        }
        let text = self.edit.as_deref().map(text_or_file).transpose()?;
        Ok(text.map(ForkEditBody::Message))
    }

    fn outcome_text(&self, run: RunId, fork: &RunView, has_process_driving_runs: bool) -> String {
        let (id, before) = (fork.id, self.before);
        let copied = fork.forked_from.as_ref().map_or(1, |origin| origin.through.0);
        let outcome = match copied {
            1 => format!(
                "{id} starts {run} again: event {before} is before its first turn, so there is \
                 nothing to go on from."
            ),
            _ => format!(
                "{id} goes on from event {copied} of {run}. Nothing before it is repeated or paid \
                 again."
            ),
        };
        let note = match has_process_driving_runs {
            true => format!("  Follow it: longhaul watch {id}"),
            false => format!("  No worker drives the run now. To drive it: longhaul watch {id}"),
        };
        format!("{outcome}\n{note}\n  Compare both: longhaul diff {run} {id}")
    }
}

/// Returns the text of an argument, or the content of the file that it names with `@FILE` or `-`.
fn text_or_file(argument: &str) -> anyhow::Result<String> {
    let path = match argument {
        "-" => "-",
        _ => match argument.strip_prefix('@') {
            Some(path) => path,
            None => return Ok(argument.to_owned()),
        },
    };
    // One byte more than is allowed, so that a longer text is refused and not cut.
    output::read_text(Path::new(path), INPUT_BYTES_MAX as u64 + 1)
        .with_context(|| format!("the text in `{path}` can't be read"))
}
