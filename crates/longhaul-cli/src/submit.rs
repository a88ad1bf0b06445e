//! `longhaul submit`: hands a task over and returns as soon as it is on disk.
//!
//! Never: drives or follows.

use anyhow::Context as _;
use clap::Args;
use longhaul::agents::loaded_agents::{AgentError, AgentSource, LoadedAgent, LoadedAgents};
use longhaul::assemble::model_choice::ModelSelector;
use longhaul::assemble::model_resolver;
use longhaul::config::process_env::ProcessEnv;
use longhaul::config::secrets;
use longhaul::config::settings::Config;
use longhaul::trust::decisions::Decisions;
use longhaul::trust::egress;
use longhaul_api::problem::Problem;
use longhaul_engine::Task;
use longhaul_engine::agent::Agent;

use crate::client::connect::{ServerConnection, connect_or_create, find_server};
use crate::error::CliError;
use crate::task_args::TaskArgs;
use crate::{environment, output, runtime};

const EXAMPLES: &str = "Examples:
  longhaul submit writer \"Summarise README.md\"
  longhaul submit writer - --lane docs < task.txt
  longhaul submit writer \"...\" --idempotency-key 2026-11-15   safe to repeat

The run begins as soon as somebody drives: longhaul worker";

/// Submits a task.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Submit {
    #[command(flatten)]
    task: TaskArgs,
    /// Print the run as one JSON object
    #[arg(long)]
    json: bool,
}

impl Submit {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let server = find_server()?;
        let bare = environment::process_env()?;
        // Only to see whether there is a model: who drives reads it, or does not.
        let here = environment::with_dotenv_if_valid(bare.clone());
        let mut prepared = prepare(&self.task, server.as_ref(), &here)?;
        if server.is_none() && here.env != bare.env {
            prepared.note_dotenv_only_models(&bare)?;
        }
        let task = prepared.into_task(false);
        let client = connect_or_create(server)?;
        runtime::current_thread()?.block_on(async {
            let run = client.submit(task).await?;
            if self.json {
                return output::stdout_json(&client.show(run).await?);
            }
            // Whoever can't be told must not submit it again.
            output::stdout_line(&run.to_string()).context(format!("{run} is submitted"))
        })
    }
}

/// A task that can be done.
#[derive(Debug)]
pub(crate) struct PreparedTask {
    task: Task,
    /// The models that are asked, by their full names, as far as it is known here.
    models: Vec<String>,
    /// What there is to say before it is handed over.
    notes: Vec<String>,
    /// The agents of the project; none where a server has its own.
    pub(crate) agents: Option<LoadedAgents>,
}

impl PreparedTask {
    /// The task. What there is to say is said, unless nothing is to be told.
    pub(crate) fn into_task(self, silent: bool) -> Task {
        if !silent {
            for note in &self.notes {
                output::stderr_line(&format!("note: {note}"));
            }
        }
        self.task
    }

    /// Notes which models only those can ask who read the project's `.env`.
    fn note_dotenv_only_models(&mut self, bare: &ProcessEnv) -> anyhow::Result<()> {
        let config = environment::load_config_quietly(bare)?;
        let models = model_resolver(&config, &environment::system_clock());
        let menu = ModelSelector::from_config(&config).map_err(CliError::usage)?;
        let missing = self.models.iter();
        let missing = missing.filter(|name| {
            models.resolve(Some(name)).is_err()
                && model_awaiting_trust(&config, &menu, Some(name)).is_none()
        });
        let missing = missing.map(|name| dotenv_only_note(name));
        self.notes.extend(missing.collect::<Vec<_>>());
        Ok(())
    }
}

/// That the key of a model stands where not everybody looks.
pub(crate) fn dotenv_only_note(model: &str) -> String {
    format!(
        "the key for `{model}` stands in .env only: `run`, `watch` and `dev` read that file, \
         `worker` and `serve` don't"
    )
}

/// The model that is meant, where it lacks nothing but trust: that is asked about
/// later, and a run waits for it.
fn model_awaiting_trust(
    config: &Config,
    menu: &ModelSelector,
    named: Option<&str>,
) -> Option<String> {
    let name = menu.choose(named, |_| None).ok()?.name;
    let (provider, _) = name.split_once('/')?;
    let item = egress::provider_item(config, provider)?;
    let is_shut = Decisions::new(config).check(&item).is_err();
    is_shut.then_some(name)
}

/// The task that was typed, after a look whether it can be done at all: nothing
/// is made on disk for a name that nobody has. A server that somebody named has
/// agents and models of its own, and looks for itself.
pub(crate) fn prepare(
    args: &TaskArgs,
    server: Option<&ServerConnection>,
    here: &ProcessEnv,
) -> anyhow::Result<PreparedTask> {
    if server.is_some_and(|server| server.is_named) {
        let task = args.task()?;
        return Ok(PreparedTask { task, models: Vec::new(), notes: Vec::new(), agents: None });
    }
    let config = environment::load_config_quietly(here)?;
    let loaded = environment::load_agents(&config)?;
    let found = find_agent(&loaded, args.agent())?;
    let agent = &found.agent;
    let menu = ModelSelector::from_config(&config).map_err(CliError::usage)?;
    let named = named_models(args, agent);
    let asked: Vec<String> = match server {
        // It has keys of its own, and looks for itself.
        Some(_) => {
            let named = named.into_iter().flatten();
            let meant = named.filter_map(|named| menu.choose(Some(named), |_| None).ok());
            meant.map(|choice| choice.name).collect()
        }
        None => {
            let models = model_resolver(&config, &environment::system_clock());
            let found = named.into_iter().map(|named| {
                let found = models.resolve(named).map(|found| found.name);
                found.or_else(|why| model_awaiting_trust(&config, &menu, named).ok_or(why))
            });
            let found: Result<_, _> = found.collect();
            found.map_err(|none| Problem::new(none.code(), none.message_for(&agent.name)))?
        }
    };
    let task = args.task()?;
    check_context(agent, &task)?;
    let policy = agent.policy(&config.defaults(), task.budget);
    let unbound = menu.unpriced_warning(&asked, policy.budget.micro_usd);
    let mut replaced = loaded.hidden.iter();
    let replaced = replaced
        .find(|hidden| hidden.name == agent.name.as_str() && hidden.source == AgentSource::BuiltIn);
    let replaced = replaced.map(|_| {
        let (name, path) = (&agent.name, found.path.display());
        format!("`{name}` is {path} of this project, in place of the built-in agent")
    });
    let of_env_file = asked.iter().filter_map(|model| {
        let provider = menu.providers.find(model.split_once('/')?.0).ok()?;
        let (variable, _) = provider.key(&config.env)?;
        let is_theirs = config.env.is_from_dotenv(variable);
        is_theirs
            .then(|| format!("`{model}` is asked with the key {variable} of the project's .env"))
    });
    let of_env_file: Vec<String> = of_env_file.collect();
    let notes = found.notes.iter().cloned().chain(replaced);
    let notes = notes.chain(of_env_file).chain(unbound);
    let notes = notes.chain(secrets::notes(&config)).collect();
    Ok(PreparedTask { task, models: asked, notes, agents: Some(loaded) })
}

/// The agent of this name, or why it can't be used.
fn find_agent<'a>(loaded: &'a LoadedAgents, name: &str) -> anyhow::Result<&'a LoadedAgent> {
    loaded.find(name).map_err(|error| match error {
        // As the engine says it, here or behind a server.
        AgentError::Unknown(_) => longhaul_engine::Error::AgentNotFound {
            name: name.to_owned(),
            suggestion: loaded.registry().suggest(name).map(str::to_owned),
        }
        .into(),
        AgentError::Broken { .. } => anyhow::Error::from(
            CliError::usage(error.to_string()).hint("all agents", "longhaul agents"),
        ),
    })
}

/// Whether the agent's file asks for all that the task is given.
fn check_context(agent: &Agent, task: &Task) -> anyhow::Result<()> {
    let unknown = |name: &&String| !agent.context.contains(name);
    let Some(name) = task.context.keys().find(unknown) else {
        return Ok(());
    };
    let listed = match agent.context.is_empty() {
        true => "none".to_owned(),
        false => agent.context.join(", "),
    };
    let words = format!(
        "--context {name}: agent `{}` asks for no such name; its file lists {listed}",
        agent.name
    );
    Err(CliError::usage(words)
        .hint("look at it", format!("longhaul agents show {}", agent.name))
        .into())
}

/// The models that are named, the first and those behind it; none: the project's own.
fn named_models<'a>(args: &'a TaskArgs, agent: &'a Agent) -> Vec<Option<&'a str>> {
    match (args.model(), agent.models.as_slice()) {
        (Some(model), _) => vec![Some(model)],
        (None, []) => vec![None],
        (None, models) => models.iter().map(|model| Some(model.as_str())).collect(),
    }
}
