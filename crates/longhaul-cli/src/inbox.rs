//! `longhaul inbox`: lists inboxes, posts tasks to them, and shows their tasks and dead letters.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use longhaul_api::inbox::{InboxDetailView, InboxView, NewTaskBody};
use longhaul_api::operations::{LIST_INBOXES, POST_TASK, SHOW_INBOX};
use longhaul_api::query::InboxesQuery;
use longhaul_api::run_list::RunBriefView;
use longhaul_core::id::InboxName;
use longhaul_core::time::Timestamp;
use serde_json::Value;

use crate::client::connect::{with_client_if_any, with_client_or_new_store};
use crate::client::print_note_if_task_added;
use crate::error::CliError;
use crate::run_status::StatusLabel;
use crate::table::{self, JsonArgs, ListOr, TableCell};
use crate::task_args::{INPUT_BYTES_MAX, RunArgs};
use crate::{environment, output};

/// Maximum number of characters of a run's current activity in a list.
const NOW_CHARS: usize = 44;

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul inbox                                      all inboxes with their numbers of tasks
  longhaul inbox post mail \"Summarise README.md\"     the agent is [inboxes.mail] agent
  longhaul inbox post mail --file order.json --agent writer --type order
  cat note.txt | longhaul inbox post mail -
  longhaul inbox show mail                            newest tasks and dead letters

A dead letter is a failed task that nobody has retried: longhaul retry RUN";

/// Arguments of `longhaul inbox`.
pub(crate) type InboxCommand = ListOr<JsonArgs, InboxSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum InboxSubcommand {
    /// Lists inboxes with their numbers of tasks
    Ls(JsonArgs),
    /// Posts a task to an inbox and prints the id of its run
    Post(Box<PostTaskCommand>),
    /// Shows the newest tasks and the dead letters of an inbox
    Show {
        /// Name of the inbox
        name: InboxName,
        /// Print the inbox as one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PostTaskCommand {
    /// Name of the inbox
    name: InboxName,
    /// Payload of the task; `-` reads it from stdin. A JSON object or list is passed on as JSON
    #[arg(required_unless_present = "file")]
    payload: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
    /// Read the payload from this file
    #[arg(long, value_name = "PATH", conflicts_with = "payload")]
    file: Option<PathBuf>,
    /// Agent for the task; default: the agent of the inbox, `[inboxes.NAME] agent`
    #[arg(long)]
    agent: Option<String>,
    /// Type of the task: workers can take only certain types, and an agent file can have a template
    /// for the text that the model reads about tasks of a type
    #[arg(long = "type", value_name = "KIND")]
    kind: Option<String>,
    /// Any data as a JSON object, returned with the run; its keys threadId and resourceId set the
    /// thread (conversation) and the resource (person or thing that the conversation is about)
    #[arg(long, value_name = "JSON", value_parser = parse_metadata)]
    metadata: Option<BTreeMap<String, Value>>,
    /// Earliest time at which the run may start, such as 2026-11-20T08:00:00Z
    #[arg(long, value_name = "TIME")]
    start_at: Option<Timestamp>,
    /// Print the run as one JSON object
    #[arg(long)]
    json: bool,
}

impl InboxCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            None => print_inboxes(&self.list),
            Some(InboxSubcommand::Ls(list)) => print_inboxes(list),
            Some(InboxSubcommand::Post(post)) => post.run(),
            Some(InboxSubcommand::Show { name, json }) => show_inbox(name, *json),
        }
    }
}

fn print_inboxes(output: &JsonArgs) -> anyhow::Result<()> {
    let inboxes = with_client_if_any(async |client| {
        client.list(LIST_INBOXES, InboxesQuery::default(), usize::MAX).await
    })?;
    let inboxes = match inboxes {
        Some(inboxes) => inboxes,
        None => {
            let agents = default_agent_by_inbox()?.into_iter();
            agents.map(|(name, agent)| inbox_without_tasks(name, Some(agent))).collect()
        }
    };
    let titles = ["INBOX", "AGENT", "SERVED", "PENDING", "RUNNING", "WAITING", "FAILED"];
    let note =
        "There are no tasks here yet.   Post one: longhaul inbox post NAME \"...\" --agent AGENT";
    table::show_list(output.json, &inboxes, (&titles, note), inbox_row)
}

/// Returns the default agent of each inbox, from the project's settings.
fn default_agent_by_inbox() -> anyhow::Result<BTreeMap<String, String>> {
    let process_env = environment::current_process_env()?;
    Ok(environment::load_config_quietly(&process_env)?.default_agents_by_inbox())
}

/// Returns an inbox without tasks, for a folder that has no store.
fn inbox_without_tasks(name: String, agent: Option<String>) -> InboxView {
    InboxView { name, agent, served: false, pending: 0, running: 0, waiting: 0, failed: 0 }
}

fn inbox_row(inbox: &InboxView) -> Vec<TableCell> {
    let InboxView { name, agent, served, pending, running, waiting, failed } = inbox;
    let served = if *served { "yes" } else { "no" };
    let agent = agent.as_deref().unwrap_or("-");
    table::row(&[name, &agent, &served, pending, running, waiting, failed])
}

fn show_inbox(name: &InboxName, json: bool) -> anyhow::Result<()> {
    let request = SHOW_INBOX.at(name.clone());
    let detail = with_client_if_any(async |client| client.send(request).await)?;
    let detail = match detail {
        Some(detail) => detail,
        None => {
            let agent = default_agent_by_inbox()?.remove(name.as_str());
            let inbox = inbox_without_tasks(name.to_string(), agent);
            InboxDetailView { inbox, tasks: Vec::new(), dead_letters: Vec::new() }
        }
    };
    output::show(json, &detail, print_inbox)
}

fn print_inbox(detail: &InboxDetailView) -> anyhow::Result<()> {
    let InboxView { name, agent, served, pending, running, waiting, failed } = &detail.inbox;
    if detail.tasks.is_empty() && agent.is_none() {
        output::eprint_line(&format!(
            "note: no task was ever posted to `{name}`; all inboxes: longhaul inbox"
        ));
    }
    let agent = agent.as_deref().unwrap_or("none; each task names one");
    output::print_text(&format!(
        "{name}   default agent: {agent}
{pending} pending, {running} running, {waiting} waiting, {failed} failed"
    ))?;
    if !served {
        output::eprint_line(
            "No live worker serves this inbox.   Start one: longhaul worker --inbox NAME",
        );
    }
    let titles = ["STATUS", "RUN", "AGENT", "NOW"];
    let task_row = |run: &RunBriefView| {
        let label = StatusLabel::new(run.status, run.reason.as_deref());
        let now = TableCell::new(&run.now).with_max_chars(NOW_CHARS);
        table::row(&[&label.cell(), &run.id, &run.agent, &now])
    };
    for (heading, tasks) in
        [("Newest tasks", &detail.tasks), ("Dead letters", &detail.dead_letters)]
    {
        if !tasks.is_empty() {
            output::print_line(&format!("\n{heading}"))?;
            table::print_table(&titles, tasks.iter().map(task_row))?;
        }
    }
    if !detail.dead_letters.is_empty() {
        output::eprint_line(
            "Execute one again: longhaul retry RUN    Why it failed: longhaul why RUN",
        );
    }
    Ok(())
}

impl PostTaskCommand {
    fn run(&self) -> anyhow::Result<()> {
        let body = self.build_task_body()?;
        let key = body.idempotency_key.clone();
        let request = POST_TASK.at(self.name.clone()).body(&body).idempotency_key(key);
        let run = with_client_or_new_store(async |client| client.send(request).await)?;
        print_note_if_task_added(&run);
        output::show(self.json, &run, |run| {
            // If printing fails, the error says that the task was posted, so that it is not posted
            // twice.
            let printed = output::print_line(&run.id.to_string());
            printed.context(format!("{} was submitted, but its id can't be printed", run.id))
        })
    }

    fn build_task_body(&self) -> anyhow::Result<NewTaskBody> {
        let payload = match &self.file {
            // One byte more than is allowed, so that a payload that is too long is detected.
            Some(path) => output::read_text(path, INPUT_BYTES_MAX + 1).map_err(|error| {
                CliError::usage_error(format!("`{}` can't be read: {error}", path.display()))
            })?,
            None => {
                output::join_args_or_read_stdin(&self.payload, INPUT_BYTES_MAX + 1, "the payload")?
            }
        };
        let task = self.run.build_task(&payload)?;
        Ok(NewTaskBody {
            agent: self.agent.clone(),
            kind: self.kind.clone(),
            payload: task.input,
            priority: task.priority,
            lane: task.lane,
            thread: task.thread,
            resource: task.resource,
            context: task.context,
            actor: task.actor,
            links: task.links,
            metadata: self.metadata.clone(),
            idempotency_key: task.idempotency_key,
            start_at: self.start_at,
        })
    }
}

fn parse_metadata(text: &str) -> Result<BTreeMap<String, Value>, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("{error}; expected JSON such as {{\"threadId\": \"t1\"}}"))
}
