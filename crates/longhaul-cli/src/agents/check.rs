//! `longhaul agents check`: reports every problem in agent files as file:line:column, and prints
//! notes about agents, such as a model without an API key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use longhaul_core::duration::format_duration;
use longhaul_engine::agent::{Agent, BudgetPatch, RunPolicyDefaults};
use longhaul_engine::services::ModelResolver;
use longhaul_model::providers::model_choice::ModelSelector;
use longhaul_project::agents::check;
use longhaul_project::agents::load_context::ModelNames as _;
use longhaul_project::agents::loaded_agents::{AgentError, AgentSource, LoadedAgent};
use longhaul_project::agents::problem::{AgentFileProblem, ProblemKind};
use longhaul_project::assemble::mcp_tools::McpReportedTool;
use longhaul_project::assemble::models::ProjectModelNames;
use longhaul_project::assemble::{model_selector, project_model_resolver};
use longhaul_project::config::secrets;
use longhaul_project::config::settings::Config;
use longhaul_project::config::value::SettingOrigin;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::mcp::name::{ALL_SERVERS, FILE_NAME, split_mcp_server_and_tool};
use longhaul_project::spanned::{Position, escape_to_one_line};
use longhaul_tool::memory;
use serde_json::{Value, json};

use crate::agents::project::ProjectWithAgents;
use crate::error::CliError;
use crate::format::count_with_noun;
use crate::mcp::ask;
use crate::submit::dotenv_key_note;
use crate::{environment, output};

/// Arguments of `longhaul agents check`.
#[derive(Debug, Args)]
pub(crate) struct CheckAgentsCommand {
    /// Check only the agent with this name
    name: Option<String>,
    /// Print the problems and notes as one JSON object
    #[arg(long)]
    json: bool,
}

impl CheckAgentsCommand {
    pub(crate) fn run(&self, project: &ProjectWithAgents) -> anyhow::Result<()> {
        let name = self.name.as_deref();
        let loaded = &project.loaded;
        // Built-in agents are only checked if one is named.
        let is_selected = |one: &&LoadedAgent| match name {
            Some(name) => one.agent.name.as_str() == name,
            None => one.source != AgentSource::BuiltIn,
        };
        let mut problems: Vec<_> = match name.map(|name| loaded.find_loaded_agent(name)) {
            None => loaded.problems.clone(),
            Some(Ok(_)) => Vec::new(),
            Some(Err(AgentError::Broken { problems, .. })) => problems,
            Some(Err(AgentError::Unknown(message))) => {
                bail!("{message}\n`longhaul agents` lists all agents")
            }
        };
        let mut checker = AgentChecker::new(project)?;
        checker.ask_mcp_servers(loaded.agents.iter().filter(is_selected))?;
        let mut notes = match name {
            None => loaded.notes.clone(),
            Some(_) => Vec::new(),
        };
        for one in loaded.agents.iter().filter(is_selected) {
            let message = one.notes.iter().cloned().chain(checker.agent_notes(&one.agent));
            notes.extend(message.map(|note| (one.path.clone(), note)));
        }
        match name {
            None => {
                let is_built_in = |path: &Path| {
                    let mut agents = loaded.agents.iter();
                    agents.any(|one| one.path == path && one.source == AgentSource::BuiltIn)
                };
                let missing = loaded.missing_references.iter();
                problems.extend(missing.filter(|one| !is_built_in(&one.path)).cloned());
                problems.extend(mcp_file_problems(&project.config));
                problems.extend(unusable_short_names(&project.config));
            }
            Some(name) => problems.extend(loaded.missing_references_of_agent(name).cloned()),
        }
        let notes_json = notes.iter().map(|(path, note)| json!({ "path": path, "message": note }));
        let findings = json!({ "problems": problems, "notes": notes_json.collect::<Value>() });
        output::show(self.json, &findings, |_| {
            let mut lines = problems.iter().map(ToString::to_string).chain(collapsed_notes(&notes));
            lines.try_for_each(|line| output::print_text(&line))
        })?;
        for note in secrets::unredactable_secret_warnings(&project.config) {
            output::eprint_line(&format!("note: {note}"));
        }
        let valid_count = loaded.agents.iter().filter(is_selected).count();
        if problems.is_empty() {
            output::eprint_line(&format!("agents without problems: {valid_count}"));
            return Ok(());
        }
        let summary = count_with_noun(problems.len(), "problem");
        let is_missing = |problem: &AgentFileProblem| problem.kind == ProblemKind::Missing;
        match problems.iter().all(is_missing) {
            true => bail!("{summary}; runs can't continue until the missing parts are available"),
            false => bail!("{summary}; an agent with problems can't be used"),
        }
    }
}

/// Maximum number of files that a note about several of them names.
const NOTE_FILES_MAX: usize = 3;

/// Returns one line for each note, with the files that have the same note.
fn collapsed_notes(notes: &[(PathBuf, String)]) -> Vec<String> {
    let mut lines: Vec<(&str, Vec<&Path>)> = Vec::new();
    for (path, note) in notes {
        match lines.iter_mut().find(|(other, _)| other == note) {
            Some((_, paths)) => paths.push(path),
            None => lines.push((note, vec![path])),
        }
    }
    let lines = lines.into_iter().map(|(note, paths)| {
        let named: Vec<String> =
            paths.iter().take(NOTE_FILES_MAX).map(|path| path.display().to_string()).collect();
        let more = match paths.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        // Paths are untrusted as well, since the project's author chose them.
        format!("{}{more}: note: {note}", escape_to_one_line(&named.join(", ")))
    });
    lines.collect()
}

/// Returns the problems of `.mcp.json` and of the servers in it.
fn mcp_file_problems(config: &Config) -> Vec<AgentFileProblem> {
    let file = McpFile::load(config);
    let server_problems = file.servers.iter().flat_map(|server| &server.problems);
    let problems = file.problems.iter().chain(server_problems).map(|remark| {
        let position = remark.position.unwrap_or(Position::START);
        AgentFileProblem {
            path: PathBuf::from(FILE_NAME),
            line: position.line,
            column: position.column,
            message: remark.message.clone(),
            kind: ProblemKind::Invalid,
        }
    });
    problems.collect()
}

/// Returns a problem for each short name in `[models]` that leads to no usable model.
fn unusable_short_names(config: &Config) -> Vec<AgentFileProblem> {
    let names = ProjectModelNames::new(config);
    let problems = config.settings_below("models").filter_map(|(name, setting)| {
        let reason = names.unusable_reason(name)?;
        let (mut path, mut line) = (PathBuf::from(setting.origin.to_string()), 1);
        if let SettingOrigin::UserFile(file, number) | SettingOrigin::ProjectFile(file, number) =
            &setting.origin
        {
            (path, line) = (file.strip_prefix(&config.root).unwrap_or(file).to_owned(), *number);
        }
        let message = format!("the short name `{name}` in `[models]` can't be used: {reason}");
        Some(AgentFileProblem { path, line, column: 1, message, kind: ProblemKind::Missing })
    });
    problems.collect()
}

/// Checks agents against the models, tools and defaults of the project.
#[derive(Debug)]
struct AgentChecker<'a> {
    project: &'a ProjectWithAgents,
    models: Arc<dyn ModelResolver>,
    /// Resolver for models that become usable with the keys in the project's `.env`. `None` if
    /// `.env` adds no variables.
    dotenv_models: Option<Arc<dyn ModelResolver>>,
    selector: ModelSelector,
    defaults: RunPolicyDefaults,
    /// Tools of the MCP servers that are trusted and answered, by server.
    mcp_tools: BTreeMap<String, Vec<McpReportedTool>>,
}

impl<'a> AgentChecker<'a> {
    fn new(project: &'a ProjectWithAgents) -> anyhow::Result<Self> {
        let (process_env, config, clock) = (&project.process_env, &project.config, &project.clock);
        let dotenv_env = environment::add_dotenv_variables_if_valid(process_env.clone());
        let dotenv_env = (dotenv_env.env != process_env.env)
            .then(|| environment::load_config_quietly(&dotenv_env))
            .transpose()?;
        Ok(Self {
            project,
            models: project_model_resolver(config, clock),
            dotenv_models: dotenv_env.map(|config| project_model_resolver(&config, clock)),
            selector: model_selector(config).map_err(CliError::usage_error)?,
            defaults: config.run_policy_defaults(),
            mcp_tools: BTreeMap::new(),
        })
    }

    /// Asks the trusted MCP servers of these agents for the classes of their tools.
    fn ask_mcp_servers<'b>(
        &mut self,
        agents: impl Iterator<Item = &'b LoadedAgent>,
    ) -> anyhow::Result<()> {
        let tools = agents.flat_map(|one| &one.agent.tools);
        let servers: Vec<&str> =
            tools.filter_map(|tool| Some(split_mcp_server_and_tool(tool)?.0)).collect();
        let is_used = |name: &str| servers.contains(&name) || servers.contains(&ALL_SERVERS);
        let answers = ask::ask_trusted_servers(is_used)?.into_iter();
        self.mcp_tools =
            answers.filter_map(|(name, report)| Some((name, report.ok()?.tools))).collect();
        Ok(())
    }

    /// Returns whether a tool of an MCP server, or one of the server's tools, must not be repeated.
    /// `None` means that the server did not answer.
    fn is_once_mcp_tool(&self, tool: &str) -> Option<bool> {
        let (server, one) = split_mcp_server_and_tool(tool)?;
        let tools = self.mcp_tools.get(server)?.iter();
        let mut tools = tools.filter(|listed| one.is_none() || listed.name == tool);
        Some(tools.any(|listed| !listed.class.may_repeat()))
    }

    /// Returns the notes about an agent: about its tools, settings and models.
    fn agent_notes(&self, agent: &Agent) -> Vec<String> {
        // Tools that need a store are not registered here; they may always be repeated.
        let is_repeatable = |tool: &str| tool == "read_output" || memory::NAMES.contains(&tool);
        let is_once = |tool: &str| match self.project.tools.find_tool(tool) {
            Some(registered) => Some(registered.may_have_unrepeatable_effects()),
            None => is_repeatable(tool).then_some(false).or_else(|| self.is_once_mcp_tool(tool)),
        };
        let mut notes = check::agent_warnings(agent, is_once);
        let is_unknown_agent =
            |name: &&String| self.project.loaded.find_loaded_agent(name).is_err();
        notes.extend(agent.children.agents.iter().filter(is_unknown_agent).map(|name| {
            format!("`children` names the agent `{name}`, which the project does not have")
        }));
        notes.extend(self.late_notice_notes(agent));
        notes.extend(self.model_notes(agent));
        notes
    }

    /// Returns the notes about reminders and escalations that are never sent, because gates expire
    /// before by default.
    fn late_notice_notes(&self, agent: &Agent) -> Vec<String> {
        let rules = agent.run_policy(&self.defaults, BudgetPatch::default()).rules;
        let late_rules = rules.iter().filter_map(|rule| {
            let timeout = rule.timeout.unwrap_or_default().duration()?;
            let mut delays = rule.escalation.iter().map(|step| step.after).chain(rule.remind);
            delays.any(|delay| delay >= timeout).then(|| {
                let (tool, timeout) = (&rule.tool, format_duration(timeout));
                format!("`remind` or `then` of the rule for `{tool}` never fires: the gate expires after {timeout}")
            })
        });
        late_rules.collect()
    }

    /// Returns the notes about an agent's model and fallback models, such as a missing key or
    /// price.
    fn model_notes(&self, agent: &Agent) -> Vec<String> {
        // Names of models, `None` for the project's default model, with what to say if the model
        // can't be used.
        let mut models: Vec<(Option<&str>, String)> = Vec::new();
        for model in &agent.models {
            models.push((Some(model), format!("the agent's model `{model}` can't be used")));
        }
        if models.is_empty() {
            models.push((None, "no model is available for the agent".to_owned()));
        }
        if let Some(grader) = agent.outcome.as_ref().and_then(|one| one.grader.as_deref()) {
            let text = format!("the model `{grader}`, `grader` of `outcome`, can't be used");
            models.push((Some(grader), text));
        }
        let project_models = ProjectModelNames::new(&self.project.config);
        let (mut notes, mut model_names) = (Vec::new(), Vec::new());
        for (name, problem) in models {
            let dotenv_models = self.dotenv_models.as_ref();
            let with_dotenv = dotenv_models.and_then(|one| one.resolve_model_name(name).ok());
            let model = match (self.models.resolve_model_name(name), with_dotenv) {
                (Ok(model), _) => model,
                (Err(_), Some(model)) => {
                    notes.push(dotenv_key_note(&model.name));
                    model
                }
                (Err(error), None) => {
                    // A model that can't be used whatever keys are set is reported as a problem.
                    if name.is_none_or(|name| project_models.unusable_reason(name).is_none()) {
                        notes.push(format!("{problem}. {error}"));
                    }
                    continue;
                }
            };
            if !model_names.contains(&model.name) {
                model_names.push(model.name);
            }
        }
        let policy = agent.run_policy(&self.defaults, BudgetPatch::default());
        notes.extend(self.selector.unpriced_models_warning(&model_names, policy.budget.micro_usd));
        notes
    }
}
