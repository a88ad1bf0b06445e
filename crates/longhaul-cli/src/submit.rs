//! `longhaul submit`: submits a task and returns as soon as the task is on disk. The command
//! neither executes nor follows the run.

use anyhow::Context as _;
use clap::Args;
use longhaul_api::problem::Problem;
use longhaul_api::task::Task;
use longhaul_core::chain::ChainStepSpec;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_engine::agent::Agent;
use longhaul_model::providers::model_choice::ModelSelector;
use longhaul_project::agents::loaded_agents::{AgentError, AgentSource, LoadedAgent, LoadedAgents};
use longhaul_project::assemble::{model_selector, project_model_resolver};
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::secrets;
use longhaul_project::config::settings::Config;
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::items;

use crate::chains::find_chain;
use crate::client::connect::{
    ServerConnection, connect_or_create_store, find_configured_or_local_server,
};
use crate::error::{CliError, fail};
use crate::event_printer::format_time_with_zone;
use crate::format::parse_duration;
use crate::task_args::TaskArgs;
use crate::{environment, output, runtime, start_time};

const EXAMPLES: &str = "Examples:
  longhaul submit writer \"Summarise README.md\"
  longhaul submit writer - --lane docs < task.txt
  longhaul submit writer \"Report the day\" --at 18:00          also: --in 2h
  longhaul submit --chain full-pipeline \"Add a flag --dry-run\"
  longhaul submit writer \"...\" --idempotency-key 2026-11-15   safe to repeat

The run starts when a worker drives it: longhaul worker";

/// Arguments of `longhaul submit`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SubmitTaskCommand {
    #[command(flatten)]
    task: TaskArgs,
    /// Earliest time at which the run may start: 2026-11-20T08:00:00Z, or in local time
    /// 2026-11-20T08:00 or 08:00, which is the next time that a clock shows it
    #[arg(long, value_name = "TIME", value_parser = start_time::parse_time, conflicts_with = "delay")]
    at: Option<Timestamp>,
    /// Time to wait before the run may start, such as 90s, 10m or 2h
    #[arg(long = "in", value_name = "DURATION", value_parser = parse_duration)]
    delay: Option<Millis>,
    /// Print the run as one JSON object
    #[arg(long)]
    json: bool,
}

impl SubmitTaskCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let server = find_configured_or_local_server()?;
        let env_without_dotenv = environment::current_process_env()?;
        // Only to check that there is a model. The driver decides itself whether it reads `.env`.
        let process_env = environment::add_dotenv_variables_if_valid(env_without_dotenv.clone());
        let mut prepared = prepare_task(&self.task, server.as_ref(), &process_env)?;
        if server.is_none() && process_env.env != env_without_dotenv.env {
            prepared.add_dotenv_key_notes(&env_without_dotenv)?;
        }
        let start = self.start_time();
        let task = Task { start: start.into(), ..prepared.print_notes_and_take_task(false) };
        let client = connect_or_create_store(server)?;
        runtime::block_on(async {
            let run = client.submit_task(task).await?;
            if self.json {
                return output::print_json(&client.get_run(run).await?);
            }
            if let Some(start) = start {
                output::eprint_line(&match start > environment::system_clock().now() {
                    true => format!("starts {}", format_time_with_zone(start)),
                    false => format!("starts now: {} is past", format_time_with_zone(start)),
                });
            }
            // If printing fails, the error says that the run was submitted, so that it is not
            // submitted twice.
            output::print_line(&run.to_string())
                .context(format!("{run} was submitted, but its id can't be printed"))
        })
    }
}

impl SubmitTaskCommand {
    /// Returns the earliest time at which the run may start. `None` means now.
    fn start_time(&self) -> Option<Timestamp> {
        let delayed = self.delay.map(|delay| environment::system_clock().now().plus(delay));
        self.at.or(delayed)
    }
}

/// A task from the command line that was checked and can be submitted.
#[derive(Debug)]
pub(crate) struct PreparedTask {
    task: Task,
    /// Full names of the models that the run calls, as far as this command knows them.
    models: Vec<String>,
    /// Notes to print before the task is submitted.
    notes: Vec<String>,
    /// Settings and agents of the project. `None` if `LONGHAUL_URL` names a server, which has its own.
    pub(crate) project: Option<(Config, LoadedAgents)>,
}

impl PreparedTask {
    /// Prints the notes about the task, unless `silent`, and returns the task.
    pub(crate) fn print_notes_and_take_task(self, silent: bool) -> Task {
        if !silent {
            for note in &self.notes {
                output::eprint_line(&format!("note: {note}"));
            }
        }
        self.task
    }

    /// Adds a note for each model whose API key is only in the project's `.env`.
    fn add_dotenv_key_notes(&mut self, env_without_dotenv: &ProcessEnv) -> anyhow::Result<()> {
        let config = environment::load_config_quietly(env_without_dotenv)?;
        let models = project_model_resolver(&config, &environment::system_clock());
        let selector = model_selector(&config).map_err(CliError::usage_error)?;
        let names = self.models.iter();
        let names = names.filter(|name| {
            models.resolve_model_name(Some(name)).is_err()
                && model_awaiting_trust(&config, &selector, Some(name)).is_none()
        });
        let notes = names.map(|name| dotenv_key_note(name));
        self.notes.extend(notes.collect::<Vec<_>>());
        Ok(())
    }
}

/// Returns the note that the API key of a model is only in `.env`, which some commands do not read.
pub(crate) fn dotenv_key_note(model: &str) -> String {
    format!(
        "the key for `{model}` is only in .env: `run`, `watch` and `dev` read that file, \
         `worker` and `serve` don't"
    )
}

/// Returns the name of the chosen model if the model can't be used only because it is not trusted
/// yet. The user is asked for trust later, and the run waits until then.
fn model_awaiting_trust(
    config: &Config,
    selector: &ModelSelector,
    model_name: Option<&str>,
) -> Option<String> {
    let name = selector.choose_model(model_name, |_| None).ok()?.name;
    let (provider, _) = name.split_once('/')?;
    let item = items::provider_trust_item(config, provider)?;
    let is_untrusted = TrustDecisions::new(config).check_trusted(&item).is_err();
    is_untrusted.then_some(name)
}

/// Checks the task from the command line and returns it. Nothing is created on disk for an unknown
/// agent or model. A server that `LONGHAUL_URL` names has its own agents and models, and checks the
/// task itself.
pub(crate) fn prepare_task(
    args: &TaskArgs,
    server: Option<&ServerConnection>,
    process_env: &ProcessEnv,
) -> anyhow::Result<PreparedTask> {
    if server.is_some_and(|server| server.store_file.is_none()) {
        let task = args.build_task()?;
        return Ok(PreparedTask { task, models: Vec::new(), notes: Vec::new(), project: None });
    }
    let config = environment::load_config_quietly(process_env)?;
    let loaded = environment::load_agents(&config)?;
    let agents = find_agents_of_task(&loaded, args)?;
    let selector = model_selector(&config).map_err(CliError::usage_error)?;
    let mut requested_models: Vec<String> = Vec::new();
    for loaded_agent in &agents {
        for model in
            requested_models_of_agent(args, &loaded_agent.agent, (&config, server, &selector))?
        {
            if !requested_models.contains(&model) {
                requested_models.push(model);
            }
        }
    }
    let task = args.build_task()?;
    check_context_names_declared(&agents, &task)?;
    let policies = agents.iter();
    let policies =
        policies.map(|one| one.agent.run_policy(&config.run_policy_defaults(), args.budget()));
    let usd = policies.filter_map(|policy| policy.budget.micro_usd).max();
    let price_warning = selector.unpriced_models_warning(&requested_models, usd);
    let is_replaced = |loaded_agent: &&&LoadedAgent| {
        let name = loaded_agent.agent.name.as_str();
        let mut hidden = loaded.hidden.iter();
        hidden.any(|hidden| hidden.name == name && hidden.source == AgentSource::BuiltIn)
    };
    let mut notes: Vec<String> = agents.iter().flat_map(|one| one.notes.clone()).collect();
    notes.extend(agents.iter().filter(is_replaced).map(|loaded_agent| {
        let (name, path) = (&loaded_agent.agent.name, loaded_agent.path.display());
        format!("`{name}` is loaded from {path} of this project, not from the built-in agent")
    }));
    notes.extend(requested_models.iter().filter_map(|model| {
        let provider = selector.providers.find_provider(model.split_once('/')?.0).ok()?;
        let (variable, _) = provider.variable_and_api_key()?;
        let is_from_dotenv = config.env.is_from_dotenv(variable);
        is_from_dotenv
            .then(|| format!("`{model}` is called with the key {variable} from the project's .env"))
    }));
    notes.extend(price_warning);
    notes.extend(secrets::unredactable_secret_warnings(&config));
    Ok(PreparedTask { task, models: requested_models, notes, project: Some((config, loaded)) })
}

/// Returns the full names of the models that the run of an agent calls, as far as they are known.
fn requested_models_of_agent(
    args: &TaskArgs,
    agent: &Agent,
    (config, server, selector): (&Config, Option<&ServerConnection>, &ModelSelector),
) -> anyhow::Result<Vec<String>> {
    let model = args.model.as_ref().map(|model| agent.requested_model(model));
    let requested = model.as_ref().map_or(agent.models.as_slice(), std::slice::from_ref);
    // `None` means the project's default model.
    let mut model_names: Vec<_> = requested.iter().map(|model| Some(model.as_str())).collect();
    if model_names.is_empty() {
        model_names.push(None);
    }
    // A server has its own keys and checks them itself.
    if server.is_some() {
        let model_names = model_names.into_iter().flatten();
        let choices =
            model_names.filter_map(|name| selector.choose_model(Some(name), |_| None).ok());
        return Ok(choices.map(|choice| choice.name).collect());
    }
    let models = project_model_resolver(config, &environment::system_clock());
    let resolved = model_names.into_iter().map(|name| {
        let result = models.resolve_model_name(name).map(|model| model.name);
        result.or_else(|error| model_awaiting_trust(config, selector, name).ok_or(error))
    });
    let resolved: Result<_, _> = resolved.collect();
    Ok(resolved
        .map_err(|error| Problem::new(error.code(), error.message_for_agent(&agent.name)))?)
}

/// Returns the agent that the command line names, or the agents of the steps of its chain.
fn find_agents_of_task<'a>(
    loaded: &'a LoadedAgents,
    args: &TaskArgs,
) -> anyhow::Result<Vec<&'a LoadedAgent>> {
    let Some(name) = args.chain.as_deref() else {
        return Ok(vec![find_agent(loaded, args.agent_name())?]);
    };
    let chain = find_chain(&loaded.chains, name)?;
    if let Some(agent) = args.argument_possibly_meant_as_agent()
        && loaded.find_loaded_agent(agent).is_ok()
    {
        let message = format!(
            "`{agent}` is an agent, and `--chain {name}` runs the agents of the chain: leave \
             `{agent}` out, or quote the input if it starts with this word"
        );
        let hint = format!("longhaul run --chain {name} \"...\"");
        return fail(message, "run the chain", hint);
    }
    let is_selected = |candidate: &&ChainStepSpec| {
        args.step.as_ref().is_none_or(|step| candidate.step_name() == step)
    };
    let steps = chain.spec.steps.iter().filter(is_selected);
    steps.map(|step| find_agent(loaded, &step.agent)).collect()
}

/// Returns the agent with this name. The error says why the agent can't be used.
fn find_agent<'a>(loaded: &'a LoadedAgents, name: &str) -> anyhow::Result<&'a LoadedAgent> {
    loaded.find_loaded_agent(name).map_err(|error| match error {
        // The same error as from the engine and from a server.
        AgentError::Unknown(_) => longhaul_engine::Error::AgentNotFound {
            name: name.to_owned(),
            suggestion: loaded.to_agent_registry().find_similar_agent_name(name).map(str::to_owned),
        }
        .into(),
        AgentError::Broken { .. } => anyhow::Error::from(
            CliError::usage_error(error.to_string()).with_hint("all agents", "longhaul agents"),
        ),
    })
}

/// Fails unless each context value (`--context`) of the task has a name that the file of one of
/// these agents declares.
fn check_context_names_declared(agents: &[&LoadedAgent], task: &Task) -> anyhow::Result<()> {
    let is_undeclared = |name: &&String| !agents.iter().any(|one| one.agent.context.contains(name));
    let (Some(name), Some(first_agent)) = (task.context.keys().find(is_undeclared), agents.first())
    else {
        return Ok(());
    };
    let agent = &first_agent.agent;
    let names = match agent.context.is_empty() {
        true => "none".to_owned(),
        false => agent.context.join(", "),
    };
    let message = format!(
        "--context {name}: agent `{}` does not declare this context value; its file lists {names}",
        agent.name
    );
    fail(message, "show the agent", format!("longhaul agents show {}", agent.name))
}
