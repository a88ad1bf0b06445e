//! `longhaul agents check`: every problem as file:line:column, and what else to know.
//!
//! Never: mends one.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use longhaul::agents::check;
use longhaul::agents::loaded_agents::{AgentError, AgentSource, LoadedAgent};
use longhaul::agents::problem::{Problem, ProblemKind};
use longhaul::assemble::model_choice::ModelSelector;
use longhaul::assemble::model_resolver;
use longhaul::config::secrets;
use longhaul::spanned::escape_line;
use longhaul_engine::agent::{Agent, BudgetPatch, Defaults};
use longhaul_engine::services::ModelResolver;
use longhaul_tool::memory;
use serde_json::{Value, json};

use crate::agents::project::AgentsProject;
use crate::error::CliError;
use crate::submit::dotenv_only_note;
use crate::{environment, output};

/// Reports every problem.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Only this agent
    name: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, project: &AgentsProject) -> anyhow::Result<()> {
        let name = self.name.as_deref();
        let loaded = &project.loaded;
        // Those that ship are our own affair, unless somebody asks about one.
        let wanted = |one: &&LoadedAgent| match name {
            Some(name) => one.agent.name.as_str() == name,
            None => one.source != AgentSource::BuiltIn,
        };
        let mut problems: Vec<_> = match name.map(|name| loaded.find(name)) {
            None => loaded.problems.clone(),
            Some(Ok(_)) => Vec::new(),
            Some(Err(AgentError::Broken { problems, .. })) => problems,
            Some(Err(AgentError::Unknown(said))) => bail!("{said}\n`longhaul agents` lists them"),
        };
        let asking = AgentChecker::new(project)?;
        let mut notes = match name {
            None => loaded.notes.clone(),
            Some(_) => Vec::new(),
        };
        for one in loaded.agents.iter().filter(wanted) {
            let said = one.notes.iter().cloned().chain(asking.all_notes(&one.agent));
            notes.extend(said.map(|note| (one.path.clone(), note)));
        }
        match name {
            None => problems.extend(loaded.missing.iter().cloned()),
            Some(name) => problems.extend(loaded.missing_for(name).cloned()),
        }
        match self.json {
            true => output::stdout_json(&to_json(&problems, &notes))?,
            false => print(&problems, &notes)?,
        }
        for note in secrets::notes(&project.config) {
            output::stderr_line(&format!("note: {note}"));
        }
        let fine = loaded.agents.iter().filter(wanted).count();
        if problems.is_empty() {
            output::stderr_line(&format!("{fine} fine"));
            return Ok(());
        }
        let many = match problems.len() {
            1 => "1 problem".to_owned(),
            many => format!("{many} problems"),
        };
        let is_missing = |problem: &Problem| problem.kind == ProblemKind::Missing;
        match problems.iter().all(is_missing) {
            true => bail!("{many}; runs wait until what is missing is there"),
            false => bail!("{many}; an agent is used only when its file has none"),
        }
    }
}

fn to_json(problems: &[Problem], notes: &[(PathBuf, String)]) -> Value {
    let problems = problems.iter().map(|problem| {
        json!({
            "path": problem.path,
            "line": problem.line,
            "column": problem.column,
            "kind": problem.kind.as_str(),
            "message": problem.message,
        })
    });
    let notes = notes.iter().map(|(path, note)| json!({ "path": path, "message": note }));
    json!({ "problems": problems.collect::<Value>(), "notes": notes.collect::<Value>() })
}

fn print(problems: &[Problem], notes: &[(PathBuf, String)]) -> anyhow::Result<()> {
    // Whoever wrote the files named them too.
    for problem in problems {
        output::stdout_text(&problem.to_string())?;
    }
    for (path, note) in notes {
        let path = escape_line(&path.display().to_string());
        output::stdout_text(&format!("{path}: note: {note}"))?;
    }
    Ok(())
}

/// The models that can be asked here, and what binds those who ask.
#[derive(Debug)]
struct AgentChecker<'a> {
    project: &'a AgentsProject,
    models: Arc<dyn ModelResolver>,
    /// The same with the project's `.env`, where there is one.
    dotenv_models: Option<Arc<dyn ModelResolver>>,
    selector: ModelSelector,
    defaults: Defaults,
}

impl<'a> AgentChecker<'a> {
    fn new(project: &'a AgentsProject) -> anyhow::Result<Self> {
        let (here, config, clock) = (&project.process_env, &project.config, &project.clock);
        let filed = environment::with_dotenv_if_valid(here.clone());
        let filed = (filed.env != here.env)
            .then(|| environment::load_config_quietly(&filed))
            .transpose()?;
        Ok(Self {
            project,
            models: model_resolver(config, clock),
            dotenv_models: filed.map(|config| model_resolver(&config, clock)),
            selector: ModelSelector::from_config(config).map_err(CliError::usage)?,
            defaults: config.defaults(),
        })
    }

    /// Everything that is to be said of an agent.
    fn all_notes(&self, agent: &Agent) -> Vec<String> {
        // What needs a store is not in this toolbox, and may always be repeated.
        let repeats = |tool: &str| tool == "read_output" || memory::NAMES.contains(&tool);
        let is_once = |tool: &str| match self.project.tools.find(tool) {
            Some(equipped) => Some(equipped.may_be_once()),
            None => repeats(tool).then_some(false),
        };
        let mut notes = check::notes(agent, is_once);
        notes.extend(self.model_notes(agent));
        notes
    }

    /// What is to be said of an agent's models, the first and those behind it.
    fn model_notes(&self, agent: &Agent) -> Vec<String> {
        let named: Vec<Option<&str>> = match agent.models.as_slice() {
            [] => vec![None],
            models => models.iter().map(|model| Some(model.as_str())).collect(),
        };
        let (mut notes, mut asked) = (Vec::new(), Vec::new());
        for named in named {
            let why = match self.models.resolve(named) {
                Ok(found) => {
                    asked.push(found.name);
                    continue;
                }
                Err(why) => why,
            };
            let filed = self.dotenv_models.as_ref();
            let filed = filed.and_then(|filed| filed.resolve(named).ok());
            notes.push(match (&filed, named) {
                (Some(found), _) => dotenv_only_note(&found.name),
                (None, Some(named)) => format!("its model `{named}` can't be asked. {why}"),
                (None, None) => format!("it has no model here. {why}"),
            });
            asked.extend(filed.map(|found| found.name));
        }
        let policy = agent.policy(&self.defaults, BudgetPatch::default());
        notes.extend(self.selector.unpriced_warning(&asked, policy.budget.micro_usd));
        notes
    }
}
