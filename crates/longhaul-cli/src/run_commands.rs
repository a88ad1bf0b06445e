//! `longhaul cancel`, `close`, `pause`, `resume` and `retry`: commands that act on one or more runs. All
//! runs are looked up before the first one is changed. `longhaul free-key` acts on a call of a run.

use clap::{Args, Subcommand};
use longhaul_api::operations::{
    CANCEL_RUN, CLOSE_RUN, FREE_EFFECT_KEY, PAUSE_RUN, RESUME_RUN, RETRY_RUN,
};
use longhaul_api::query::RunsQuery;
use longhaul_api::run::{CancelBody, FreeKeyBody, ResumeBody, RunView};
use longhaul_api::transcript::RunExplanation;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::status::Status;

use crate::client::Client;
use crate::client::connect::with_client;
use crate::exit::Exit;
use crate::format::count_with_noun;
use crate::task_args::parse_budget_caps;
use crate::{error, output, resolve};

const CANCEL_EXAMPLES: &str = "Examples:
  longhaul cancel @last
  longhaul cancel run_01k3qv9 run_01k41xm --reason \"wrong repository\"

A run without a driver ends at once. A driven run ends when its driver sees the request. A run that
has its result and stays open for messages keeps the result: to complete it, use `longhaul close`.";

const CLOSE_EXAMPLES: &str = "Examples:
  longhaul close @last

Only a run that has its result and stays open for messages (`keep_open` in the agent's file) can be
closed. It is completed with this result.";

const PAUSE_EXAMPLES: &str = "Examples:
  longhaul pause @last
  longhaul pause run_01k3qv9 run_01k41xm     continue them: longhaul resume RUN";

const RESUME_EXAMPLES: &str = "Examples:
  longhaul resume @last                                continue it, or try again now
  longhaul resume run_01k3qv9 --budget 10              up to ten dollars in all
  longhaul resume run_01k3qv9 --budget turns=500,tokens=1000000";

const RETRY_EXAMPLES: &str = "Examples:
  longhaul retry @last
  longhaul retry run_01k3qv9 run_01k41xm
  longhaul ls --status failed --inbox mail     the failed tasks of an inbox

A retry is a new run: it continues from the last good event of the failed run, with the same agent
version and budget, and joins the end of the same lane.";

/// Maximum number of child runs that are searched for open ones.
const CHILDREN_MAX: usize = 1_000;

/// The runs that a command acts on, and its output format.
#[derive(Debug, Args)]
pub(crate) struct RunIdArgs {
    /// Runs to act on: ids, four or more of their first or last characters, or @last
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Print the runs as one JSON object
    #[arg(long)]
    json: bool,
}

/// The commands that act on one or more runs.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Pauses runs
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(RunIdArgs),
    /// Resumes runs, optionally with a larger budget
    #[command(after_help = RESUME_EXAMPLES)]
    Resume {
        #[command(flatten)]
        args: RunIdArgs,
        /// Higher caps of the budget: dollars, or a list such as
        /// usd=20,turns=500,tokens=1000000,active_time=8h
        #[arg(long, value_parser = parse_budget_caps)]
        budget: Option<BudgetRaise>,
    },
    /// Cancels runs
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel {
        #[command(flatten)]
        args: RunIdArgs,
        /// Reason for the cancellation, recorded in the journal
        #[arg(long, default_value = "cancelled from the command line")]
        reason: String,
    },
    /// Completes runs that stay open for messages
    #[command(after_help = CLOSE_EXAMPLES)]
    Close(RunIdArgs),
    /// Retries failed runs from the last good event, as new runs
    #[command(after_help = RETRY_EXAMPLES)]
    Retry(RunIdArgs),
}

const FREE_KEY_EXAMPLES: &str = "Examples:
  longhaul free-key run_01k3qv9 t1.1 --note \"no payment in the bank's list\"

Check first that the call had no effect: the next call with its key is made. Who freed the key, and the
note, are shown by `longhaul show RUN`.";

/// Arguments of `longhaul free-key`.
#[derive(Debug, Args)]
#[command(after_help = FREE_KEY_EXAMPLES)]
pub(crate) struct FreeKeyCommand {
    /// Run of the call that holds the key: its id, four or more of its first or last characters, or @last
    run: String,
    /// Id of the call, such as t1.1
    #[arg(value_parser = parse_call_id)]
    call: CallId,
    /// Why the call is known to have had no effect
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
    /// Print what is recorded with the run as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn parse_call_id(text: &str) -> Result<CallId, &'static str> {
    text.parse().map_err(|_| {
        "the id of a call names its turn and its place there, such as t1.1; to list the calls: \
         longhaul show RUN --events"
    })
}

impl FreeKeyCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let body = FreeKeyBody { call: self.call, note: self.note.trim().to_owned() };
        resolve::with_resolved_run(&self.run, async |client, run| {
            let freed = client.send(FREE_EFFECT_KEY.at(run).body(&body)).await?;
            output::show_text(self.json, &freed, |freed| {
                format!("{run} {}: {}", freed.call, freed.text)
            })
        })
    }
}

impl RunsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (Self::Pause(args)
        | Self::Resume { args, .. }
        | Self::Cancel { args, .. }
        | Self::Close(args)
        | Self::Retry(args)) = self;
        with_client(async |client| self.apply_to_runs(client, args).await)
    }

    async fn apply_to_runs(&self, client: &Client, args: &RunIdArgs) -> anyhow::Result<Exit> {
        let mut runs: Vec<(RunId, RunExplanation)> = Vec::new();
        for name in &args.runs {
            let run = resolve::resolve_run_id(client, name).await?;
            // An ended run of a chain stands for the newest run of the chain.
            let newest = client.get_run(run).await?.newest_run_in_chain();
            let explanation = client.explain_run(newest).await?;
            if runs.iter().all(|(_, known)| known.run != newest) {
                runs.push((run, explanation));
            }
        }
        let has_driver = client.has_process_driving_runs().await?;
        let mut exit = Exit::Done;
        let mut data = Vec::new();
        for (run, explanation) in runs {
            let old_status = client.get_run(explanation.run).await?.status;
            match self.apply_to_run(client, run).await {
                Ok(view) => {
                    if !args.json {
                        let chain_note = self.note_if_other_run_changed(run, &view);
                        let outcome =
                            self.action_outcome_text(&view, (old_status, &explanation), has_driver);
                        let children_note = self.open_children_text(client, view.id).await?;
                        output::print_text(&format!("{chain_note}{outcome}{children_note}"))?;
                    }
                    data.push(view);
                }
                Err(error) => {
                    exit = error::exit_for_error(&error);
                    output::print_error(&error.context(run));
                }
            }
        }
        if args.json {
            output::print_json_list(&data)?;
        }
        Ok(exit)
    }

    async fn apply_to_run(&self, client: &Client, run: RunId) -> anyhow::Result<RunView> {
        match self {
            Self::Cancel { reason, .. } => {
                let reason = reason.clone();
                client.send(CANCEL_RUN.at(run).body(&CancelBody { reason })).await
            }
            Self::Close(_) => client.send(CLOSE_RUN.at(run)).await,
            Self::Pause(_) => client.send(PAUSE_RUN.at(run)).await,
            Self::Resume { budget, .. } => {
                let budget = budget.map(Into::into);
                client.send(RESUME_RUN.at(run).body(&ResumeBody { budget })).await
            }
            Self::Retry(_) => client.send(RETRY_RUN.at(run)).await,
        }
    }

    /// Returns a sentence that says that the given run has ended and that the command has changed
    /// the newest run of its chain instead. Empty if the given run itself was changed.
    fn note_if_other_run_changed(&self, requested_run: RunId, changed: &RunView) -> String {
        let chain_run = match matches!(self, Self::Retry(_)) {
            true => changed.retry_of.unwrap_or(requested_run),
            false => changed.id,
        };
        let Some(chain) = changed.chain.as_ref().filter(|_| chain_run != requested_run) else {
            return String::new();
        };
        let (step, step_count) = (chain.step, chain.of);
        format!(
            "{requested_run} has ended; its chain is at step {step} of {step_count}, {chain_run}. "
        )
    }

    /// Returns a sentence about the open child runs of a run that was cancelled. Empty if there are
    /// none, or for other actions.
    async fn open_children_text(&self, client: &Client, run: RunId) -> anyhow::Result<String> {
        if !matches!(self, Self::Cancel { .. }) {
            return Ok(String::new());
        }
        let query = RunsQuery { parent: Some(run), ..RunsQuery::default() };
        let children = client.list_runs(query, CHILDREN_MAX).await?;
        let child_runs = match children.iter().filter(|child| !child.status.is_terminal()).count() {
            0 => return Ok(String::new()),
            count => count_with_noun(count, "open child run"),
        };
        Ok(format!(
            " A worker cancels the {child_runs} of this run next, unless the agent of this run says `on_cancel: keep`."
        ))
    }

    /// Describes the outcome of the command for one run, and what happens next. `before` is the
    /// status of the run before the command, with its explanation.
    fn action_outcome_text(
        &self,
        run: &RunView,
        before: (Status, &RunExplanation),
        has_process_driving_runs: bool,
    ) -> String {
        let (old_status, explanation) = before;
        let id = run.id;
        let is_parked = matches!(old_status, Status::Waiting | Status::Blocked);
        let no_worker = match has_process_driving_runs {
            true => String::new(),
            false => format!(" No worker drives the run now. To drive it: longhaul watch {id}"),
        };
        let when = |driven: &'static str, undriven: &'static str| match has_process_driving_runs {
            true => driven,
            false => undriven,
        };
        match (self, run.status) {
            (Self::Cancel { .. }, Status::Cancelled) => format!("{id} is cancelled."),
            (Self::Cancel { .. }, _) => {
                let when = when("within 10 s", "when a worker executes the run");
                format!("{id}: cancel requested; it takes effect {when}.{no_worker}")
            }
            (Self::Close(_), _) => {
                format!("{id} is completed.   See its result: longhaul show {id}")
            }
            (Self::Pause(_), Status::Paused) => {
                format!("{id} is paused.   Resume it: longhaul resume {id}")
            }
            (Self::Pause(_), _) => {
                let when = when("; the run pauses when its calls are done", "");
                format!("{id}: pause requested{when}.{no_worker}")
            }
            (Self::Resume { .. }, _)
                if is_parked && !explanation.command.contains("longhaul resume") =>
            {
                let RunExplanation { message, command, .. } = explanation;
                format!("{id} still waits, which a resume does not end. {message}   {command}")
            }
            (Self::Resume { .. }, _)
                if old_status == Status::Blocked && has_process_driving_runs =>
            {
                format!("{id} is resumed. To see why, if it is blocked again: longhaul why {id}")
            }
            (Self::Resume { .. }, _) => format!("{id} is resumed.{no_worker}"),
            (Self::Retry(_), Status::Failed) => format!(
                "{id} has already retried this run and failed. To retry it: longhaul retry {id}"
            ),
            (Self::Retry(_), status) if status.is_terminal() => {
                let status = status.as_str();
                format!(
                    "{id} has already retried this run and is {status}. To see it: longhaul show {id}"
                )
            }
            (Self::Retry(_), _) => {
                let failed = run.retry_of.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("{id} retries {failed}.{no_worker}")
            }
        }
    }
}
